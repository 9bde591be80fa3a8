"""Whatever bytes arrive, in whatever pieces, a connection neither raises nor forgets a request."""

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.http.transports import HandFed

from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Reply, Request, Response
from topics.http.protocol_detection import ProtocolDetector

LIMITS = Limits(max_body_bytes=200, max_head_bytes=2000, max_pipelined=3, ws_max_message_bytes=100)


class Wire(HandFed):
    """A transport that takes everything and keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.ended = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        assert not self.ended
        assert not self.closing

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        assert not self.closing

    def resume_reading(self) -> None:
        assert not self.closing


class Counting:
    """Answers in every way there is, and counts beginnings and ends."""

    def __init__(self) -> None:
        self.open = 0

    def begin(self, request: Request) -> Response | None:
        if request.path == b"/no":
            return Response(403)
        self.open += 1
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        if request.wants_websocket:
            reply.upgrade().on_text = lambda _: None
        elif request.path == b"/stream":
            reply.stream(content_type=b"text/event-stream").write(b"x")
        elif request.path == b"/later":
            asyncio.get_running_loop().call_soon(reply, Response(200, request.body))
        elif request.path != b"/never":
            reply(Response(200, b"{}"))

    def end(self, request: Request, status: int | None) -> None:
        self.open -= 1


def http2(*paths: str) -> bytes:
    peer = H2Connection(H2Configuration(client_side=True))
    peer.initiate_connection()
    for number, path in enumerate(paths):
        head = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "t")]
        peer.send_headers(2 * number + 1, head)
        peer.send_data(2 * number + 1, b"x" * 50 * number, end_stream=path != "/never")
        if path == "/later":
            peer.reset_stream(2 * number + 1)
    return peer.data_to_send()


SEEDS = [
    b"GET /ok HTTP/1.1\r\nHost: t\r\n\r\n" * 3,
    b"GET /later HTTP/1.1\r\nHost: t\r\n\r\n" * 5 + b"GET /ok HTTP/1.0\r\n\r\n",
    b"POST /later HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nabcde"
    * 2,
    b"POST /no HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nabcde\r\n0\r\nA: b\r\n\r\n"
    b"GET /stream HTTP/1.1\r\nHost: t\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: t\r\n\r\n",
    b"POST /ok HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n"
    b"\x1f\x8b\x08"
    b"POST /ok HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    b"Content-Length: 2\r\n\r\nab"
    b"GET /ok HTTP/1.1\r\nHost: t\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    b"\x81\x82\0\0\0\0hi\x89\x80\0\0\0\0\x01\x81\0\0\0\0a\x80\x81\0\0\0\0b\x88\x82\0\0\0\0\x03\xe8",
    http2("/ok", "/later", "/no", "/stream", "/never", "/ok"),
]


@st.composite
def inputs(draw: st.DrawFn) -> list[bytes]:
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(min_value=0, max_value=4))):
        at = draw(st.integers(min_value=0, max_value=len(data)))
        data[at : at + draw(st.integers(min_value=0, max_value=3))] = draw(st.binary(max_size=4))
    cuts = draw(st.lists(st.integers(min_value=0, max_value=len(data)), max_size=5))
    edges = [0, *sorted(cuts), len(data)]
    return [bytes(data[a:b]) for a, b in pairwise(edges) if a != b]


async def converse(pieces: list[bytes]) -> int:
    """Play one connection to its end; the requests that were begun and never ended."""
    app = Counting()
    hub = Hub(app, LIMITS, asyncio.get_running_loop())
    wire = Wire()
    wire.protocol = ProtocolDetector(hub)
    wire.protocol.connection_made(wire)
    for piece in pieces:
        if not wire.closing:
            wire.protocol.data_received(piece)
            await asyncio.sleep(0)
    for connection in tuple(hub.connections):
        for now in (0.0, 1e6, 2e6):
            connection.tick(now)
    if not wire.closing and not wire.protocol.eof_received():
        wire.closing = True
    wire.closing = True
    wire.protocol.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    hub.stop()
    assert not hub.connections
    return app.open


class Complaints(logging.Handler):
    """Whatever was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@given(pieces=inputs())
def test_no_input_breaks_a_connection_or_loses_a_request(pieces: list[bytes]) -> None:
    complaints = Complaints()
    logger = logging.getLogger("topics.http")
    logger.addHandler(complaints)
    try:
        assert asyncio.run(converse(pieces)) == 0
    finally:
        logger.removeHandler(complaints)
    assert not complaints.records


@pytest.mark.parametrize("seed", SEEDS, ids=range(len(SEEDS)))
def test_every_seed_byte_by_byte(seed: bytes) -> None:
    assert asyncio.run(converse([seed[at : at + 1] for at in range(len(seed))])) == 0
