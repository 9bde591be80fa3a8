"""How input is taken: a little at a time where it means work, and never more than is dealt with."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.http.transports import HandFed

from topics.http.h1.connection import H1Connection
from topics.http.h1.reader import CODED_SLICE_BYTES, SLICE_BYTES
from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Reply, Request, Response

GET = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"
READ_BYTES = 8 * SLICE_BYTES


class Wire(HandFed):
    """A peer that always has more to send, and sends it whenever it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        self.answers += bytes(data).count(b"HTTP/1.1 200")


class Echo:
    """Answers with the size of the body."""

    def begin(self, request: Request) -> Response | None:
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        reply(Response(200, b"%d" % len(request.body)))

    def end(self, request: Request, status: int | None) -> None:
        pass


def play(scene: Callable[[Wire, H1Connection], Awaitable[None]]) -> None:
    async def whole() -> None:
        hub = Hub(Echo(), Limits(), asyncio.get_running_loop())
        wire = Wire()
        connection = H1Connection(hub, wire, "peer")
        try:
            await scene(wire, connection)
        finally:
            connection.connection_lost(None)
            hub.stop()

    asyncio.run(whole())


def test_a_peer_that_sends_faster_than_it_is_served_is_not_read_meanwhile() -> None:
    whole = GET * (READ_BYTES // len(GET))

    async def scene(wire: Wire, connection: H1Connection) -> None:
        served = 0
        for _ in range(4):
            connection.data_received(whole)
            served += whole.count(b"GET")
            while wire.answers < served:
                assert not wire.is_reading(), "what it sends now would pile up"
                await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.sleep(0)
            assert wire.is_reading()

    play(scene)


@pytest.mark.parametrize(
    "body",
    [gzip.compress(b"x" * 30_000_000), gzip.compress(b"") * 1000],
    ids=["one member", "many members"],
)
def test_a_compressed_body_is_decoded_a_little_at_a_time(body: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"

    async def scene(wire: Wire, connection: H1Connection) -> None:
        connection.data_received(head % len(body))
        connection.data_received(body)
        turns = 0
        while not wire.answers:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= len(body) // CODED_SLICE_BYTES

    play(scene)


def test_a_plain_body_is_taken_as_it_comes() -> None:
    async def scene(wire: Wire, connection: H1Connection) -> None:
        connection.data_received(
            b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % READ_BYTES
        )
        connection.data_received(b"x" * READ_BYTES)
        await asyncio.sleep(0)
        assert wire.answers == 1

    play(scene)
