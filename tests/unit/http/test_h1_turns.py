"""When answers leave: at the end of a turn of the loop, together, in order, not too late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.http.transports import HandFed

from topics.http import tick as tick_module
from topics.http.h1.connection import H1Connection
from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Reply, Request, Response, Spliced

LIMITS = Limits()


class Wire(HandFed):
    """A transport that keeps what was done to it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[bytes | str] = []
        self.fails = False

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        if self.fails:
            raise RuntimeError("this transport is broken")
        self.done.append(bytes(data))

    def is_closing(self) -> bool:
        return "close" in self.done

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("close")

    @property
    def text(self) -> bytes:
        return b"".join(done for done in self.done if isinstance(done, bytes))

    @property
    def answers(self) -> list[bytes]:
        """The bodies of what was written, a write each."""
        return [done.partition(b"\r\n\r\n")[2] for done in self.done if isinstance(done, bytes)]


class Desk:
    """Answers by the path: at once, much, as a stream, or when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Reply] = []

    def begin(self, request: Request) -> Response | None:
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        if request.path == b"/later":
            self.waiting.append(reply)
        elif request.path == b"/much":
            reply(Response(200, b"m" * 100_000))
        elif request.path == b"/stream":
            reply.stream(content_type=b"text/event-stream").write(b"piece")
        else:
            reply(Response(200, request.path))

    def end(self, request: Request, status: int | None) -> None:
        pass


class World:
    """A hub with a desk, and connections to it."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.hub = Hub(self.desk, LIMITS, asyncio.get_running_loop())
        self.connections: list[H1Connection] = []

    def connect(self) -> tuple[Wire, H1Connection]:
        wire = Wire()
        connection = H1Connection(self.hub, wire, "peer")
        self.connections.append(connection)
        return wire, connection


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: t\r\n\r\n".encode()


def play(scene: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = World()
        try:
            await scene(world)
        finally:
            for connection in world.connections:
                connection.connection_lost(None)
            world.hub.stop()

    asyncio.run(whole())


@pytest.mark.usefixtures("_patient")
def test_answers_to_several_connections_leave_at_the_end_of_the_turn() -> None:
    async def scene(world: World) -> None:
        talks = [world.connect() for _ in range(3)]
        for _, connection in talks:
            connection.data_received(get("/a"))
        assert [wire.answers for wire, _ in talks] == [[], [], []]
        await asyncio.sleep(0)
        assert [wire.answers for wire, _ in talks] == [[b"/a"], [b"/a"], [b"/a"]]
        talks[0][1].data_received(get("/b"))
        await asyncio.sleep(0)
        assert talks[0][0].answers == [b"/a", b"/b"]

    play(scene)


def test_an_answer_that_waited_enough_takes_the_others_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tick_module, "HELD_NS", -1)

    async def scene(world: World) -> None:
        (first, one), (second, two) = world.connect(), world.connect()
        one.data_received(get("/a"))
        assert first.answers == []
        two.data_received(get("/b"))
        assert first.answers == [b"/a"]
        assert second.answers == [b"/b"]

    play(scene)


@pytest.mark.usefixtures("_patient")
def test_an_answer_given_later_does_not_overtake_the_one_before_it() -> None:
    async def scene(world: World) -> None:
        wire, connection = world.connect()
        connection.data_received(get("/later"))
        connection.data_received(get("/a"))
        world.desk.waiting[0](Response(200, b"late"))
        await asyncio.sleep(0)
        assert wire.text.index(b"late") < wire.text.index(b"/a")

    play(scene)


@pytest.mark.usefixtures("_patient")
def test_answers_that_were_waited_for_leave_together_too() -> None:
    async def scene(world: World) -> None:
        talks = [world.connect() for _ in range(2)]
        for _, connection in talks:
            connection.data_received(get("/later"))
        await asyncio.sleep(0)
        for reply in world.desk.waiting:
            reply(Response(200, b"late"))
        assert [wire.answers for wire, _ in talks] == [[], []]
        await asyncio.sleep(0)
        assert [wire.answers for wire, _ in talks] == [[b"late"], [b"late"]]

    play(scene)


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("path", ["/much", "/stream"])
def test_much_at_once_and_streams_wait_for_nothing(path: str) -> None:
    async def scene(world: World) -> None:
        wire, connection = world.connect()
        connection.data_received(get(path))
        assert wire.done

    play(scene)


def test_a_long_answer_leaves_in_one_write_whenever_it_is_given() -> None:
    parts = (b"[", b"m" * 100_000, b"]")

    async def scene(world: World) -> None:
        wire, connection = world.connect()
        connection.data_received(get("/later") + get("/later"))
        first, second = world.desk.waiting
        second(Spliced(parts))
        assert not wire.done  # its turn has not come
        first(Spliced(parts))
        connection.data_received(get("/later"))
        world.desk.waiting[2](Spliced(parts))
        assert wire.text.count(b"".join(parts)) == 3
        assert wire.answers[-1] == b"".join(parts)

    play(scene)


@pytest.mark.usefixtures("_patient")
def test_a_stream_begins_behind_the_answer_before_it() -> None:
    async def scene(world: World) -> None:
        wire, connection = world.connect()
        connection.data_received(get("/a"))
        connection.data_received(get("/stream"))
        text = wire.text
        assert text.index(b"/a") < text.index(b"event-stream") < text.index(b"piece")

    play(scene)


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("ending", ["eof", "drain", "idle"])
def test_no_connection_closes_before_its_answer_has_left(ending: str) -> None:
    async def scene(world: World) -> None:
        wire, connection = world.connect()
        connection.data_received(get("/a"))
        if ending == "eof":
            assert not connection.eof_received()  # the transport closes on this word
            wire.close()
        elif ending == "drain":
            connection.drain()
        else:
            connection.tick(0.0)
            connection.tick(LIMITS.idle_timeout_s + 1)
        assert wire.answers == [b"/a"]
        assert wire.done[-1] == "close"

    play(scene)


@pytest.mark.usefixtures("_patient")
def test_a_connection_that_fails_does_not_keep_the_others_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(world: World) -> None:
        (broken, one), (sound, two) = world.connect(), world.connect()
        broken.fails = True
        one.data_received(get("/a"))
        two.data_received(get("/b"))
        await asyncio.sleep(0)
        assert broken.done == ["close"]
        assert sound.answers == [b"/b"]

    with caplog.at_level(logging.ERROR, logger="topics.http"):
        play(scene)
    assert "sending an answer failed" in caplog.text


@pytest.mark.usefixtures("_patient")
def test_what_a_client_left_behind_is_not_sent() -> None:
    async def scene(world: World) -> None:
        wire, connection = world.connect()
        connection.data_received(get("/a"))
        wire.close()
        await asyncio.sleep(0)
        assert wire.done == ["close"]

    play(scene)
