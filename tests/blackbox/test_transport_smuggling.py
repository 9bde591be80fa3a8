"""Requests whose end two readers could see in two places: refused, with whatever follows them.

A proxy and a server that disagree about where a request ends let one client put words into the
mouth of another. Each request here hides a second one where one way of reading finds a body, or
the end of one, and another finds a request.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.blackbox.transport_server import Served, Wire, serving

HIDDEN = b"GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n"
SIZE = b"%d" % len(HIDDEN)
NO_CHUNKS = b"0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"


def post(*fields: bytes, body: bytes = HIDDEN) -> bytes:
    return b"\r\n".join([b"POST /echo HTTP/1.1", b"Host: t", *fields, b"", b""]) + body


def lengths() -> Iterator[bytes]:
    """Lengths that one reader refuses, and another reads as some number or as none."""
    for value in (
        *(b"+5", b"-5", b"0x5", b"5,5", b"5, 6", b"5_0", b"", b" ", b"5 5", b"5;x", b"5.0", b"1e1"),
        *(b"\x0b5", b"5\x0c", b"\xd9\xa5", b'"5"', b"5\0"),
        *(b"99999999999999999999", b"18446744073709551616"),
    ):
        yield post(b"Content-Length: " + value)
    for one, other in ((b"5", b"6"), (SIZE, b"0"), (b"0", SIZE), (b"5", b"5")):
        yield post(b"Content-Length: " + one, b"Content-Length: " + other)


def codings() -> Iterator[bytes]:
    """A length beside a coding, codings that are not quite `chunked`, and more than one."""
    length = b"Content-Length: " + SIZE
    for value in (b"chunked", b"Chunked", b"CHUNKED", b" chunked", b"chunked ", b"\tchunked"):
        coding = b"Transfer-Encoding: " + value
        yield post(length, coding, body=NO_CHUNKS + HIDDEN)
        yield post(coding, length, body=NO_CHUNKS + HIDDEN)
    for value in (
        *(b"identity", b"gzip", b"gzip, chunked", b"chunked, gzip", b"chunked, chunked"),
        *(b"chunked, identity", b"xchunked", b"chunkedx", b'"chunked"', b"chunked;q=1", b"chunk"),
        *(b"chunked,", b",chunked", b"chunked\x0b", b"\x0bchunked", b"chunked\0", b"chunked\xa0"),
        *(b"", b"\xff", b"chun ked"),
    ):
        yield post(b"Transfer-Encoding: " + value, body=NO_CHUNKS + HIDDEN)
    for one, other in (
        (b"chunked", b"chunked"),
        (b"chunked", b"identity"),
        (b"identity", b"chunked"),
        (b"gzip", b"chunked"),
        (b"chunked", b"gzip"),
    ):
        fields = (b"Transfer-Encoding: " + value for value in (one, other))
        yield post(*fields, body=NO_CHUNKS + HIDDEN)
    yield post(CHUNKED, body=NO_CHUNKS + HIDDEN).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    kept = post(CHUNKED, b"Connection: keep-alive", body=NO_CHUNKS + HIDDEN)
    yield kept.replace(b"HTTP/1.1", b"HTTP/1.0", 1)


def names() -> Iterator[bytes]:
    """Headers that one reader takes for a coding and another does not."""
    length = b"Content-Length: " + SIZE
    for name in (
        *(b"Transfer-Encoding ", b" Transfer-Encoding", b"Transfer-Encoding\t"),
        *(b"\tTransfer-Encoding", b"Transfer-Encoding\0", b"Transfer Encoding"),
        *(b"Transfer-Encoding\x0b", b"\x0bTransfer-Encoding", b"Transfer\xadEncoding"),
    ):
        yield post(length, name + b": chunked", body=NO_CHUNKS + HIDDEN)
    yield post(b"Transfer-Encoding:\r\n chunked", length, body=NO_CHUNKS + HIDDEN)
    yield post(b"X: y\r\n " + CHUNKED, length, body=NO_CHUNKS + HIDDEN)
    yield post(b"X: y\r" + CHUNKED, length, body=NO_CHUNKS + HIDDEN)
    yield post(b"X: y\n" + length)
    yield post(b"X: y\0z")
    yield post(b"Transfer-Encoding chunked", body=NO_CHUNKS + HIDDEN)
    yield post(b": chunked", body=NO_CHUNKS + HIDDEN)
    yield post(length, CHUNKED, body=NO_CHUNKS + HIDDEN).replace(b"\r\n", b"\n")
    yield post().replace(b" /echo ", b" /echo x ", 1)


def chunks() -> Iterator[bytes]:
    """Chunks whose size or end two readers see in two places."""
    for size in (
        *(b"0x0", b"+0", b"-0", b"-1", b"", b" ", b"G", b"0_0", b"0 0", b" 0", b"0 ", b"0\t"),
        *(b"0\0", b"0\x0b", b"\xa00", b"fffffffffffffffff"),
    ):
        yield post(CHUNKED, body=size + b"\r\n\r\n" + HIDDEN)
    for body in (
        b"0\n\n",
        b"0\r\n\n",
        b"0;a\nb\r\n\r\n",
        b"0;a\rb\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\rhello\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
    ):
        yield post(CHUNKED, body=body + HIDDEN)


CASES = [*lengths(), *codings(), *names(), *chunks()]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as own:
        yield own


def answers(wire: Wire) -> list[bytes]:
    """The status lines of everything that comes until the server closes."""
    said = wire.file.read()
    return [line for line in said.split(b"\r\n") if line.startswith(b"HTTP/1.")]


def test_there_are_many_of_them() -> None:
    assert len(set(CASES)) == len(CASES) > 100


@pytest.mark.parametrize("case", CASES, ids=map(str, range(len(CASES))))
def test_a_request_with_two_ends_is_refused_and_nothing_behind_it_is_heard(
    served: Served, case: bytes
) -> None:
    with served.connect() as wire:
        wire.send(case)
        wire.sock.shutdown(socket.SHUT_WR)
        (only,) = answers(wire)
    assert only.split()[1] == b"400"
    assert served.app.run == []
