"""What a client that asks much and reads nothing can make a connection keep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.http.transports import HandFed

from topics.http.h1.connection import H1Connection
from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Reply, Request, Response

LIMITS = Limits(high_water_bytes=100_000)
LONG_BYTES = 60_000
ENOUGH = 2
"""Long answers that are more than the mark."""
MANY = 40


class Wire(HandFed):
    """A transport whose peer reads only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: H1Connection
        self.unread = b""
        self.read: list[bytes] = []
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        was_full = len(self.unread) > LIMITS.high_water_bytes
        self.unread += bytes(data)
        if len(self.unread) > LIMITS.high_water_bytes and not was_full:
            self.connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.unread)

    def drain(self) -> None:
        """Read all there is, answer by answer."""
        was_full = len(self.unread) > LIMITS.high_water_bytes
        self.read += [part for part in self.unread.split(b"HTTP/1.1 200 OK\r\n") if part]
        self.unread = b""
        if was_full:
            self.connection.resume_writing()


class Desk:
    """Answers at length, at once or when told to."""

    def __init__(self) -> None:
        self.answered: list[bytes] = []
        self.waiting: list[Reply] = []

    def begin(self, request: Request) -> Response | None:
        request.may_run_ahead = request.raw_query != b"in-turn"
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        if request.path == b"/later":
            self.waiting.append(reply)
        else:
            self.answered.append(request.path)
            reply(Response(200, request.path.ljust(LONG_BYTES)))

    def end(self, request: Request, status: int | None) -> None:
        pass


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: t\r\n\r\n".encode()


def play(scene: Callable[[Desk, Wire], Awaitable[None]]) -> None:
    async def whole() -> None:
        desk, wire = Desk(), Wire()
        hub = Hub(desk, LIMITS, asyncio.get_running_loop())
        wire.connection = H1Connection(hub, wire, "peer")
        try:
            await scene(desk, wire)
        finally:
            wire.connection.connection_lost(None)
            hub.stop()

    asyncio.run(whole())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("paths", ["same", "different"])
def test_long_answers_nobody_reads_are_not_made(paths: str) -> None:
    asked = [f"/{at if paths == 'different' else 'x'}" for at in range(MANY)]

    async def scene(desk: Desk, wire: Wire) -> None:
        wire.connection.data_received(b"".join(map(get, asked)))
        await turns()
        assert len(desk.answered) <= 2 * ENOUGH
        while len(wire.read) < MANY:
            made = len(desk.answered)
            wire.drain()
            await turns()
            assert len(desk.answered) - made <= 2 * ENOUGH
        assert [answer.rpartition(b"\r\n")[2].split()[0].decode() for answer in wire.read] == asked

    play(scene)


def test_long_answers_that_wait_for_their_turn_are_few() -> None:
    async def scene(desk: Desk, wire: Wire) -> None:
        wire.connection.data_received(get("/later") * (1 + MANY))
        await turns()
        first, *others = desk.waiting
        for reply in others[:ENOUGH]:
            reply(Response(200, b"x" * LONG_BYTES))
        wire.connection.data_received(get("/later") * 3)
        await turns()
        assert len(desk.waiting) == 1 + MANY, "those that come now find too much ahead of them"
        for reply in others[ENOUGH:]:
            reply(Response(200, b"y"))
        first(Response(200, b"first"))
        wire.drain()
        await turns()
        assert len(desk.waiting) == 1 + MANY + 3

    play(scene)


def test_what_may_not_run_ahead_runs_in_turn() -> None:
    async def scene(desk: Desk, wire: Wire) -> None:
        wire.connection.data_received(get("/later?in-turn") * 3)
        for number in range(1, 4):
            await turns()
            assert len(desk.waiting) == number
            desk.waiting[-1](Response(200, b"done"))
        await turns()
        wire.drain()
        assert len(wire.read) == 3

    play(scene)


@pytest.mark.parametrize("header", ["X: y", "Connection: close"])
def test_a_client_that_leaves_little_unread_is_given_up_too(header: str) -> None:
    async def scene(desk: Desk, wire: Wire) -> None:
        wire.connection.data_received(f"GET / HTTP/1.1\r\nHost: t\r\n{header}\r\n\r\n".encode())
        await turns()
        assert 0 < len(wire.unread) < LIMITS.high_water_bytes
        for now in (0.0, LIMITS.stall_timeout_s):
            wire.connection.tick(now)
            assert not wire.aborted
        wire.unread = wire.unread[1:]  # it reads after all
        for now in (LIMITS.stall_timeout_s + 1, 3 * LIMITS.stall_timeout_s):
            assert not wire.aborted
            wire.connection.tick(now)
        assert wire.aborted

    play(scene)
