"""HTTP/1.1 on the wire, outgoing side: status lines, headers, chunks."""

from functools import lru_cache
from http import HTTPStatus

from topics.http.messages import Headers, Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_BODILESS = frozenset((204, 304))


@lru_cache(maxsize=256)
def _opening(status: int, content_type: bytes | None) -> bytes:
    """Everything of a head that depends only on these two; there are few combinations."""
    try:
        phrase = HTTPStatus(status).phrase.encode()
    except ValueError:
        phrase = b""
    line = b"HTTP/1.1 %d %b\r\n" % (status, phrase)
    if content_type is None:
        return line
    return b"%bcontent-type: %b\r\n" % (line, content_type)


def _fields(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def connection_field(*, keep_alive: bool, version: str) -> bytes:
    """The Connection header where the version's default is not what we do."""
    if not keep_alive:
        return b"connection: close\r\n"
    return b"connection: keep-alive\r\n" if version == "1.0" else b""


def response_head(response: Response, *, date: bytes, connection: bytes) -> bytes:
    """The head of a complete response, blank line included."""
    bodiless = response.status in _BODILESS
    return b"%b%b%b%bdate: %b\r\n\r\n" % (
        _opening(response.status, response.content_type),
        _fields(response.headers) if response.headers else b"",
        b"" if bodiless else b"content-length: %d\r\n" % len(response.body),
        connection,
        date,
    )


def stream_head(response: Response, *, date: bytes, connection: bytes, chunked: bool) -> bytes:
    """The head of a response whose length nobody knows yet."""
    return b"%b%b%b%bdate: %b\r\n\r\n" % (
        _opening(response.status, response.content_type),
        _fields(response.headers),
        b"transfer-encoding: chunked\r\n" if chunked else b"",
        connection,
        date,
    )


def upgrade_head(accept: bytes, *, date: bytes) -> bytes:
    """101: the connection is a WebSocket from here on."""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-accept: %b\r\ndate: %b\r\n\r\n" % (accept, date)
    )


def chunk(payload: bytes) -> bytes:
    """`payload` as one chunk of a chunked body; it must not be empty."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)
