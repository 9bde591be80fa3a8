"""From bytes to exchanges: the reading half of an HTTP/1 connection.

httptools does the parsing and calls the `on_...` methods. What it cannot bound itself is
bounded here: the size of a head, the framing around a chunked body, the trailers after it.

One of its habits needs work. On `Upgrade` (and CONNECT) it stops after the headers and takes
what follows for another protocol. For a WebSocket that is right. For an upgrade we do not do,
such as to h2c, the request is an ordinary one and may have a body: a new parser is then put at
the start of that body.
"""

from typing import Protocol

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from topics.http import refusals
from topics.http.h1.exchange import AnswerQueue, H1Exchange
from topics.http.hub import log
from topics.http.messages import Request, Response
from topics.http.ws.connection import asks_for_websocket

IDLE, HEAD, BODY, _RESUMING = range(4)

SLICE_BYTES = 16 * 1024
CODED_SLICE_BYTES = 2 * 1024
"""What is parsed at a time: gzip makes up to a thousand bytes of one."""

_MAX_REPEATED_BYTES = 8 * 1024
"""Of one header sent many times: joining them must not become quadratic."""

_FRAMING_PER_BYTE = 16
"""Chunk sizes, extensions and trailers a body may carry for each byte of its own."""

_VERSIONS = frozenset(("1.0", "1.1"))
_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "DELETE", "HEAD")}


class RequestTaker(AnswerQueue, Protocol):
    """A connection, as its reader sees it: it takes requests as they come in."""

    is_stranger: bool

    def began(self, exchange: H1Exchange, flaw: Response | None) -> None: ...
    def completed(self, exchange: H1Exchange) -> None: ...
    def stopped_at_upgrade(self) -> None: ...
    def refuse(self, response: Response) -> None: ...
    def close(self) -> None: ...


class H1Reader:
    """Makes exchanges of the input of one connection and hands them to it."""

    __slots__ = (
        "_body_follows",
        "_connection",
        "_flaw",
        "_framing_bytes",
        "_head_bytes",
        "_headers",
        "_parser",
        "_target",
        "complete",
        "deaf",
        "peer",
        "phase",
        "reading",
        "requests",
        "since",
    )

    def __init__(self, connection: RequestTaker, peer: str) -> None:
        self._connection = connection
        self.peer = peer
        self._parser = HttpRequestParser(self)
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._framing_bytes = 0
        self._flaw: Response | None = None
        self._body_follows = False
        self.deaf = False  # input is dropped from now on
        self.phase = IDLE
        self.requests = 0
        self.reading: H1Exchange | None = None  # whose body is on its way
        self.complete: H1Exchange | None = None  # the last that was read whole
        self.since: float | None = None  # when the sweep first saw the present wait

    def part_of(self, data: bytes) -> int:
        """How much of `data` to parse before other connections are served.

        All of it if it is only kept; little if each byte can mean work.
        """
        if self.phase != BODY or self.reading is None:
            return SLICE_BYTES
        if self.reading.is_coded:
            return CODED_SLICE_BYTES
        unread = self.reading.unread_bytes()
        return SLICE_BYTES if unread is None or unread < len(data) else len(data)

    def feed(self, data: bytes) -> bytes:
        """Parse; what is left over comes after a request to change the protocol."""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as stop:
            self._stopped()
            return data[stop.args[0] :]
        except HttpParserCallbackError as error:
            log.error("reading a request failed", exc_info=error)
            self._connection.refuse(refusals.internal())
        except HttpParserError as error:
            if not self.deaf:
                self._misunderstood(data, error)
        else:
            if self.phase == HEAD:
                self._count_head(len(data))
            elif self.phase == BODY:
                self._count_framing(len(data))
        return b""

    def _misunderstood(self, data: bytes, error: HttpParserError) -> None:
        if not isinstance(error, HttpParserInvalidMethodError):
            self._connection.refuse(refusals.malformed(f"malformed HTTP: {error}"))
        elif self.requests or b" HTTP/1." in data.partition(b"\n")[0]:
            self._connection.refuse(refusals.unknown_method())
        else:
            self._connection.abort()  # never was HTTP/1: the peer would not read an answer

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        limit = self._connection.hub.limits.max_head_bytes
        if self._head_bytes > limit:
            self._connection.refuse(refusals.head_too_large(limit))

    def _count_framing(self, size: int) -> None:
        exchange = self.reading
        if exchange is None or exchange.length is not None or exchange.answered:
            return
        self._framing_bytes += size
        limit = self._connection.hub.limits.max_head_bytes
        allowed = limit + _FRAMING_PER_BYTE * exchange.received
        if self._framing_bytes - exchange.received > allowed:
            self._connection.refuse(
                refusals.malformed("the body has far more framing than content")
            )

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self.phase == _RESUMING or self.deaf:
            return
        self.phase = HEAD
        self.since = None

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        if self.phase == HEAD:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header field; trailers are accepted and dropped."""
        if self.phase != HEAD:
            return
        name = name.lower()
        headers = self._headers
        if name not in headers:
            headers[name] = value
        elif name == b"host":
            self._flaw = refusals.malformed("a request has one Host header")
        elif len(headers[name]) < _MAX_REPEATED_BYTES:
            headers[name] += b", " + value
        else:
            self._flaw = refusals.head_too_large(self._connection.hub.limits.max_head_bytes)

    def on_headers_complete(self) -> None:
        """The request has a name: it exists from here on."""
        if self.phase != HEAD:
            return
        exchange = self.reading = self._new_exchange()
        self.phase = BODY
        self.since = None
        self._target = b""
        self._headers = {}
        self.requests += 1
        self._head_bytes = self._framing_bytes = 0
        flaw, self._flaw = self._flaw, None
        self._connection.began(exchange, flaw)

    def _new_exchange(self) -> H1Exchange:
        parser, headers = self._parser, self._headers
        method = _METHODS.get(parser.get_method()) or parser.get_method().decode()
        keep_alive = parser.should_keep_alive()
        # Only 1.1 stays open unasked; asking for the number costs more than the rest of this.
        sure = keep_alive and b"connection" not in headers
        version = "1.1" if sure else parser.get_http_version()
        request = Request(method, self._target, headers, version=version, peer=self.peer)
        exchange = H1Exchange(self._connection, request, keep_alive=keep_alive)
        if b"transfer-encoding" in headers:
            exchange.expect_body(None)
        elif b"content-length" in headers:
            exchange.expect_body(int(headers[b"content-length"]))
        if b"upgrade" in headers or method == "CONNECT":
            self._note_upgrade(exchange)
        if version not in _VERSIONS:
            self._flaw = refusals.bad_version(version)
        elif headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
            self._flaw = refusals.malformed("the only transfer coding taken is chunked, alone")
        elif version == "1.0" and b"transfer-encoding" in headers:
            self._flaw = refusals.malformed("HTTP/1.0 has no transfer codings")
        elif version == "1.1" and b"host" not in headers:
            self._flaw = refusals.malformed("an HTTP/1.1 request needs a Host header")
        return exchange

    def _note_upgrade(self, exchange: H1Exchange) -> None:
        request = exchange.request
        if not self._parser.should_upgrade():
            return
        if request.method == "CONNECT":
            exchange.keep_alive = False
        elif not exchange.read:
            self._body_follows = True
        elif request.version == "1.1":
            request.wants_websocket = asks_for_websocket(request)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self.reading is not None:
            self.reading.feed(body)

    def on_message_complete(self) -> None:
        """The request is in."""
        exchange = self.reading
        if exchange is None or self._body_follows:
            return
        exchange.read = True
        self.reading = None
        self.complete = exchange
        self.phase = IDLE
        self.since = None
        self._connection.completed(exchange)

    # Where the parser stopped

    def _stopped(self) -> None:
        self._parser = HttpRequestParser(self)
        if self._body_follows:
            self._body_follows = False
            if self.reading is not None:
                self._resume_at_body(self.reading)
        else:
            self._connection.stopped_at_upgrade()

    def _resume_at_body(self, exchange: H1Exchange) -> None:
        """Put the new parser at the start of the body, by way of an equivalent short head."""
        framing = "transfer-encoding: chunked"
        if exchange.length is not None:
            framing = f"content-length: {exchange.length}"
        self.phase = _RESUMING
        self._parser.feed_data(f"POST / HTTP/1.1\r\n{framing}\r\n\r\n".encode())
        self.phase = BODY

    def stop(self) -> None:
        """The connection is gone; break the cycle of the parser and its callbacks."""
        self.deaf = True
        self.reading = self.complete = None
        del self._parser
