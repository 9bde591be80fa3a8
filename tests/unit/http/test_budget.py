"""What bodies and messages take in memory: counted as they come, given back however they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.http.transports import HandFed
from wsproto.frame_protocol import FrameProtocol, Opcode

from topics.http.budget import Budget, Charge
from topics.http.h1.connection import H1Connection
from topics.http.h1.head_cache import MAX_BODY_BYTES
from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Reply, Request, Response
from topics.http.ws import connection as websocket
from topics.http.ws.connection import WebSocket

LIMITS = Limits(max_request_bytes=400, max_body_bytes=200)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, no message waits for others to have their turn."""
    monkeypatch.setattr(websocket, "_TURN_S", 3600.0)


# The budget itself


def test_a_holder_at_its_share_is_refused_while_others_go_on() -> None:
    budget = Budget(400, max_body_bytes=50)
    assert budget.take("a", 100) is None
    refused = budget.take("a", 1)
    assert refused is not None
    assert refused.detail == {
        "limit": "max_request_bytes_per_key",
        "max": 100,
        "retry_after_ms": 1000,
    }
    assert budget.take("b", 100) is None
    assert budget.take(None, 200) is None
    refused = budget.take("c", 1)
    assert refused is not None
    assert (refused.detail or {})["limit"] == "max_request_bytes"
    budget.give_back("a", 100)
    assert budget.take("a", 100) is None


def test_a_share_has_room_for_one_body_and_for_one_request_of_any_size() -> None:
    budget = Budget(400, max_body_bytes=200)
    assert budget.take("a", 200) is None
    assert budget.take("a", 1) is not None
    large = Charge(budget, "b")
    assert large.raise_to(10) is None
    assert large.raise_to(200) is None, "it would be refused for ever"
    assert Charge(budget, "b").raise_to(1) is not None


def test_without_a_limit_nothing_is_refused() -> None:
    assert Budget(0, max_body_bytes=1).take("a", 1 << 60) is None


def test_a_charge_that_is_refused_counts_for_nothing() -> None:
    budget = Budget(400, max_body_bytes=200)
    charge = Charge(budget, "a")
    assert charge.raise_to(150) is None
    assert charge.raise_to(401) is not None
    assert budget.held_bytes == 0
    charge.give_back()
    assert budget.held_bytes == 0


# Bodies


class Wire(HandFed):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        self.sent += bytes(data)

    def write_eof(self) -> None:
        pass

    @property
    def status(self) -> int:
        return int(self.sent.split(b" ", 2)[1])


class Waiting:
    """Answers when it is told to; calls of `/little` need a short body, of a GET none."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def begin(self, request: Request) -> Response | None:
        request.holder = request.headers.get(b"key")
        if request.path == b"/little":
            request.max_body_bytes = 10
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        self.replies.append(reply)

    def end(self, request: Request, status: int | None) -> None:
        pass


class World:
    def __init__(self, limits: Limits = LIMITS) -> None:
        self.app = Waiting()
        self.hub = Hub(self.app, limits, asyncio.get_running_loop())
        self.connections: list[H1Connection] = []

    def post(self, length: int, body: bytes, *, path: str = "/", key: str = "a") -> Wire:
        wire = Wire()
        connection = H1Connection(self.hub, wire, "peer")
        self.connections.append(connection)
        head = f"POST {path} HTTP/1.1\r\nHost: t\r\nkey: {key}\r\nContent-Length: {length}\r\n\r\n"
        connection.data_received(head.encode())
        if body:
            connection.data_received(body)
        return wire

    @property
    def held_bytes(self) -> int:
        return self.hub.budget.held_bytes

    def end(self) -> None:
        for connection in self.connections:
            connection.connection_lost(None)
        self.hub.stop()


async def turn() -> None:
    """Let answers leave, which they do at the end of a turn of the loop."""
    for _ in range(3):
        await asyncio.sleep(0)


def play(scene: Callable[[World], Awaitable[None]], limits: Limits = LIMITS) -> None:
    async def whole() -> None:
        world = World(limits)
        try:
            await scene(world)
        finally:
            world.end()
        assert world.held_bytes == 0

    asyncio.run(whole())


def test_a_body_counts_until_its_request_is_answered() -> None:
    async def scene(world: World) -> None:
        world.post(150, b"x" * 100)
        assert world.held_bytes == 100
        world.connections[0].data_received(b"x" * 50)
        assert world.held_bytes == 150
        world.app.replies[0](Response(200))
        assert world.held_bytes == 0
        assert world.post(200, b"x" * 200).sent == b""

    play(scene)


def test_a_body_that_would_not_fit_is_refused_before_it_is_read() -> None:
    async def scene(world: World) -> None:
        world.post(150, b"x" * 100)
        wire = world.post(150, b"")
        await turn()
        assert wire.status == 429
        assert b"max_request_bytes_per_key" in wire.sent
        assert b"retry-after: 1" in wire.sent
        assert world.post(150, b"x", key="b").sent == b"", "others go on"

    play(scene)


def test_a_body_that_does_not_fit_any_more_is_refused_and_forgotten() -> None:
    async def scene(world: World) -> None:
        wires = [world.post(200, b"x", key=key) for key in "abc"]
        for connection in world.connections[:2]:
            connection.data_received(b"x" * 198)
        assert world.held_bytes == 399
        world.connections[2].data_received(b"xx")
        await turn()
        assert wires[2].status == 429
        assert world.held_bytes == 398
        assert wires[0].sent == wires[1].sent == b""

    play(scene)


def test_a_call_that_needs_little_refuses_a_long_body_before_it_is_read() -> None:
    async def scene(world: World) -> None:
        wire = world.post(11, b"", path="/little")
        await turn()
        assert wire.status == 413
        assert world.post(10, b"x" * 10, path="/little").sent == b""

    play(scene)


def test_what_is_read_without_being_counted_is_short() -> None:
    limits = Limits(max_request_bytes=1 << 30, max_body_bytes=1 << 20)

    async def scene(world: World) -> None:
        for size, learnt in ((MAX_BODY_BYTES, 1), (MAX_BODY_BYTES + 1, 1)):
            wire = Wire()
            connection = H1Connection(world.hub, wire, "peer")
            world.connections.append(connection)
            head = b"POST /%d HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n"
            connection.data_received(head % (size, size) + b"x" * size)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(world.hub.heads) == learnt

    play(scene, limits)


def test_a_body_has_to_be_complete_in_time_whatever_its_pace() -> None:
    limits = Limits(max_body_s=100.0, body_timeout_s=10.0, min_body_rate=1)

    async def scene(world: World) -> None:
        wire = world.post(10_000, b"x")
        for now in range(0, 101, 5):
            world.connections[0].tick(now)
            world.connections[0].data_received(b"x" * 20)
            assert wire.sent == b"", now
        world.connections[0].tick(105)
        await turn()
        assert wire.status == 408
        assert (
            "took too long" in json.loads(wire.sent.partition(b"\r\n\r\n")[2])["error"]["message"]
        )

    play(scene, limits)


# Messages


def frame(opcode: Opcode, payload: bytes, *, fin: bool) -> bytes:
    protocol = FrameProtocol(client=True, extensions=[])
    return bytes(protocol._serialize_frame(opcode, payload, fin=fin))


class Peer:
    """A WebSocket of one key, and how it ended."""

    def __init__(self, hub: Hub, holder: str) -> None:
        self.heard: list[bytes] = []
        self.closed: list[int] = []
        self.socket = WebSocket(hub, Wire(), holder=holder, on_over=lambda: None)
        self.socket.on_text = self.heard.append
        self.socket.on_close = self.closed.append
        self.socket.start()

    def begin(self, payload: bytes) -> None:
        self.socket.data_received(frame(Opcode.TEXT, payload, fin=False))

    def go_on(self, payload: bytes, *, fin: bool = False) -> None:
        self.socket.data_received(frame(Opcode.CONTINUATION, payload, fin=fin))


def test_unfinished_messages_count_and_one_too_many_ends_its_connection() -> None:
    async def scene(world: World) -> None:
        one, two, other = (Peer(world.hub, holder) for holder in "aab")
        one.begin(b"x" * 150)
        two.begin(b"x" * 60)
        assert (one.closed, two.closed, world.held_bytes) == ([], [1013], 150)
        other.begin(b"x" * 150)
        one.go_on(b"x", fin=True)
        assert (one.heard, world.held_bytes) == ([b"x" * 151], 150)
        other.socket.connection_lost(None)
        assert world.held_bytes == 0
        one.socket.connection_lost(None)
        two.socket.connection_lost(None)

    play(scene)


def test_a_message_counts_until_the_application_reads_on() -> None:
    async def scene(world: World) -> None:
        peer = Peer(world.hub, "a")
        peer.socket.on_text = lambda message: peer.socket.pause_reading()
        peer.begin(b"x" * 50)
        peer.go_on(b"x", fin=True)
        assert world.held_bytes == 51
        peer.socket.resume_reading()
        assert world.held_bytes == 0
        await asyncio.sleep(0)
        peer.socket.on_text = None
        peer.begin(b"x" * 50)
        peer.socket.pause_reading()
        peer.socket.resume_reading()
        assert world.held_bytes == 50, "the pause was not for this message"
        await asyncio.sleep(0)
        peer.go_on(b"x", fin=True)
        assert world.held_bytes == 0
        peer.socket.connection_lost(None)

    play(scene)


@pytest.mark.parametrize(("rate", "end_s"), [(0, 15), (20, 105)])
def test_a_message_that_takes_too_long_ends_its_connection(rate: int, end_s: int) -> None:
    limits = Limits(max_body_s=100.0, body_timeout_s=10.0, min_body_rate=1)

    async def scene(world: World) -> None:
        peer = Peer(world.hub, "a")
        peer.socket.tick(0)
        peer.begin(b"x")
        for now in range(0, 200, 5):
            peer.socket.tick(now)
            if peer.closed:
                break
            if rate:
                peer.go_on(b"x" * rate)
        assert (peer.closed, now, world.held_bytes) == ([1008], end_s, 0)
        peer.socket.connection_lost(None)

    play(scene, limits)


def test_time_in_which_nobody_reads_does_not_count_against_a_message() -> None:
    limits = Limits(max_body_s=100.0, body_timeout_s=10.0, min_body_rate=1)

    async def scene(world: World) -> None:
        peer = Peer(world.hub, "a")
        peer.begin(b"x")
        peer.socket.tick(0)
        peer.socket.pause_reading()
        for now in (20, 40):
            peer.socket.tick(now)
        peer.socket.resume_reading()
        await asyncio.sleep(0)
        peer.socket.tick(60)
        assert peer.closed == []
        peer.socket.connection_lost(None)

    play(scene, limits)
