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


def fields_of(headers: Headers) -> bytes:
    """Headers as they go over the wire."""
    if len(headers) == 1:
        return b"%b: %b\r\n" % headers[0]
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def connection_field(*, keep_alive: bool, version: str) -> bytes:
    """The Connection header where the version's default is not what we do."""
    if not keep_alive:
        return b"connection: close\r\n"
    return b"connection: keep-alive\r\n" if version == "1.0" else b""


def whole(response: Response, fields: bytes) -> bytes:
    """A complete response; `fields` are rendered headers the transport adds."""
    return b"%bcontent-length: %d\r\n%b\r\n%b" % (
        _opening(response.status, response.content_type),
        len(response.body),
        fields,
        response.body,
    )


def head_only(response: Response, fields: bytes) -> bytes:
    """Its head alone, blank line included."""
    opening = _opening(response.status, response.content_type)
    if response.status in _BODILESS:
        return b"%b%b\r\n" % (opening, fields)
    return b"%bcontent-length: %d\r\n%b\r\n" % (opening, response.size, fields)


def stream_head(response: Response, fields: bytes, *, chunked: bool) -> bytes:
    """The head of a response whose length is unknown."""
    opening = _opening(response.status, response.content_type)
    coding = b"transfer-encoding: chunked\r\n" if chunked else b""
    return b"%b%b%b\r\n" % (opening, coding, fields)


def upgrade_head(accept: bytes, fields: bytes) -> bytes:
    """101: the connection is a WebSocket from here on."""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-accept: %b\r\n%b\r\n" % (accept, fields)
    )


def chunk(payload: bytes) -> bytes:
    """`payload` as one chunk of a chunked body; it must not be empty."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)
