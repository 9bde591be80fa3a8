"""Heads known from before: what is skipped is the parsing, never a rule."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.http.transports import HandFed

from topics.http.h1.connection import H1Connection
from topics.http.h1.head_cache import MAX_BYTES, MAX_HEADS, HeadCache
from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Reply, Request, Response

LIMITS = Limits(max_body_bytes=20)


class Wire(HandFed):
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        self.written += data

    def can_write_eof(self) -> bool:
        return False


class Echo:
    """Says what it was asked."""

    def begin(self, request: Request) -> Response | None:
        return Response(403) if request.path == b"/no" else None

    def __call__(self, request: Request, reply: Reply) -> None:
        names = b",".join(sorted(request.headers))
        said = [request.method.encode(), request.target, names, request.peer.encode()]
        reply(Response(200, b"|".join([*said, request.body])))

    def end(self, request: Request, status: int | None) -> None:
        pass


class StillHub(Hub):
    """A hub whose date stands still."""

    __slots__ = ()

    def date_field(self) -> bytes:
        return b"date: now\r\n"


class Forgetful(HeadCache):
    """Knows nothing, ever."""

    def learn(self, data: bytes, request: Any, length: int | None) -> None:  # noqa: ANN401 - not looked at
        pass


def post(path: str, body: bytes, *fields: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: t", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def converse(pieces: list[bytes], heads: HeadCache | None = None) -> tuple[bytes, HeadCache]:
    """What one connection answers to these pieces, and the heads that are known afterwards."""

    async def talk() -> tuple[bytes, HeadCache]:
        hub = StillHub(Echo(), LIMITS, asyncio.get_running_loop())
        if heads is not None:
            hub.heads = heads
        wire = Wire()
        connection = H1Connection(hub, wire, "peer")
        for piece in pieces:
            connection.data_received(piece)
        await asyncio.sleep(0)  # answers leave at the end of a turn
        connection.connection_lost(None)
        hub.stop()
        return wire.written, hub.heads

    return asyncio.run(talk())


REQUESTS = [
    post("/a", b"12345"),
    post("/a", b"1234"),
    post("/b?c=d", b"12345", "X-Request-Id: 7"),
    post("/a", b"x" * 21),
    post("/no", b"123"),
    post("/a", b"12", "Connection: close"),
    post("/a", b"12", "Connection: keep-alive"),
    post("/a", b"12", "Expect: 100-continue"),
    post("/a", b"12", "Content-Encoding: gzip"),
    post("/a", b"1\r\n\r\n2"),
    b"\r\nPOST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nab",
    b"POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    b"POST /a HTTP/1.0\r\nContent-Length: 2\r\n\r\nab",
    b"GET /a HTTP/1.1\r\nHost: t\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nHost: t\r\n\r\n",
    b"GET /a HTTP/1.1\r\n\r\n",
    b"GET /a HTTP/1.1\nHost: t\n\n",
    b"nonsense\r\n\r\n",
]


@cache
def everything_known() -> HeadCache:
    """What there is to be known of all these requests."""
    known = HeadCache()
    for request in REQUESTS:
        converse([request, request], known)
    assert len(known) > 5
    return known


@given(
    st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=8),
    st.lists(st.integers(min_value=0, max_value=400), max_size=3),
)
def test_answers_do_not_depend_on_whether_a_head_is_known(
    requests: list[bytes], cuts: list[int]
) -> None:
    whole = requests if not cuts else [b"".join(requests)]
    edges = [0, *sorted(cuts), len(whole[0])] if cuts else []
    pieces = [whole[0][a:b] for a, b in pairwise(edges) if a < b] if cuts else whole
    plain, _ = converse(pieces, Forgetful())
    again, _ = converse(pieces, everything_known())
    assert again == plain


def test_a_plain_request_that_came_whole_is_known_from_then_on() -> None:
    _, known = converse([post("/a", b"12345")])
    assert set(known) == {post("/a", b"12345")[:-5]}


@pytest.mark.parametrize(
    "pieces",
    [
        [post("/a", b"12345")[:-1], b"5"],
        [post("/a", b"12345") * 2],
        [post("/a", b"x" * 21)],
        [post("/no", b"1")],
        [post("/a", b"1", "Connection: close")],
        [post("/a", b"1", "Content-Encoding: identity")],
        [post("/a", b"1", "Filler: " + "x" * MAX_BYTES)],
        [b"POST /a HTTP/1.0\r\nContent-Length: 1\r\n\r\na"],
    ],
)
def test_whatever_is_not_plain_stays_unknown(pieces: list[bytes]) -> None:
    _, known = converse(pieces)
    assert not known


def test_the_number_of_known_heads_is_bounded() -> None:
    _, known = converse([post(f"/{at}", b"1") for at in range(MAX_HEADS + 5)])
    assert len(known) == 5


def test_no_head_is_known_beyond_a_sweep() -> None:
    async def talk() -> int:
        hub = Hub(Echo(), LIMITS, asyncio.get_running_loop())
        connection = H1Connection(hub, Wire(), "peer")
        connection.data_received(post("/a", b"1"))
        assert hub.heads
        hub._sweep_all()
        known = len(hub.heads)
        connection.connection_lost(None)
        hub.stop()
        return known

    assert asyncio.run(talk()) == 0
