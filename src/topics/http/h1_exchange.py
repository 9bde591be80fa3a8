"""One HTTP/1.1 request and its answer; the connection keeps the answers in order."""

from typing import TYPE_CHECKING

from topics.http.exchange import Exchange, close_stream, drain_stream
from topics.http.h1_wire import (
    LAST_CHUNK,
    connection_field,
    response_head,
    stream_head,
)
from topics.http.messages import Request, Response, Stream, Upgrade

if TYPE_CHECKING:
    from topics.http.h1 import H1Connection

_JOINED_BYTES = 16 * 1024
"""A body up to this size is cheaper to copy behind its head than to send as a second buffer."""

_DRAINED_BYTES = 64 * 1024
"""An unread body up to this size is read and dropped; beyond it the connection is given up."""


class H1Exchange(Exchange):
    """An exchange with its place in the line of its connection."""

    __slots__ = (
        "connection",
        "done",
        "early",
        "expects_continue",
        "keep_alive",
        "length",
        "opened",
        "read",
        "ready",
        "started",
    )

    def __init__(self, connection: "H1Connection", request: Request, *, keep_alive: bool) -> None:
        super().__init__(connection.hub, request)
        self.connection = connection
        self.keep_alive = keep_alive
        self.expects_continue = False
        self.length: int | None = 0  # announced size of the body; None when chunked
        self.read = True  # the whole request has been taken off the wire
        self.ready = False  # ... and may be given to the application
        self.started = False
        self.done = False  # the answer is complete
        self.early: list[bytes] | None = None  # output from before its turn came
        self.opened: H1Stream | None = None

    def expect_body(self, length: int | None) -> None:
        """Headers announce a body of this length, or in chunks when None."""
        self.length = length
        if length != 0:
            self.read = False
            expectation = self.request.headers.get(b"expect")
            if expectation is not None:
                self.expects_continue = expectation.lower() == b"100-continue"

    def alike(self, other: "H1Exchange") -> bool:
        """Whether both ask the same thing of the same target."""
        mine, theirs = self.request, other.request
        same = mine.method == theirs.method and mine.target == theirs.target
        return same and not mine.wants_websocket

    def unread_bytes(self) -> int | None:
        """How much of the body is still to come; None when nobody knows."""
        if self.read:
            return 0
        return None if self.length is None else self.length - self.received

    def _settle_connection(self) -> None:
        """Decide whether the connection outlives this answer; before its head is rendered."""
        if not self.read:
            unread = self.unread_bytes()
            # A client still waiting for our 100 may or may not send its body now: no telling
            # where the next request would start.
            if self.expects_continue or unread is None or unread > _DRAINED_BYTES:
                self.keep_alive = False
        if self._hub.draining and self.connection.is_last(self):
            self.keep_alive = False
        if not self.keep_alive:
            self.connection.stop_listening()

    def _connection_field(self) -> bytes:
        return connection_field(keep_alive=self.keep_alive, version=self.request.version)

    def _send_response(self, response: Response) -> None:
        if not self.read or self._hub.draining:
            self._settle_connection()
        plain = self.keep_alive and self.request.version == "1.1"
        head = response_head(
            response,
            date=self._hub.date(),
            connection=b"" if plain else self._connection_field(),
        )
        body = response.body
        send = self.connection.send
        if not body or self.request.method == "HEAD" or response.status == 304:
            send(self, head)
        elif len(body) <= _JOINED_BYTES:
            send(self, head + body)
        else:
            send(self, head)
            send(self, body)
        self.finish()

    def _open_stream(self, head: Response) -> Stream:
        chunked = self.request.version == "1.1"
        stream = H1Stream(self, chunked=chunked)
        if self.gone:
            self._hub.loop.call_soon(close_stream, stream)
            return stream
        if not chunked:
            self.keep_alive = False
        self._settle_connection()
        connection = self._connection_field()
        date = self._hub.date()
        self.connection.send(
            self, stream_head(head, date=date, connection=connection, chunked=chunked)
        )
        self.connection.uncork()
        if self.request.method == "HEAD":
            self._hub.loop.call_soon(close_stream, stream)
            self.finish()
        else:
            self.opened = stream
        return stream

    def _open_upgrade(self) -> Upgrade:
        return self.connection.become_websocket(self)

    def finish(self) -> None:
        """The answer is complete."""
        self.done = True
        self.opened = None
        self.over()
        self.connection.advance()

    def drained(self) -> None:
        """Everything written has left for the kernel."""
        if self.opened is not None:
            drain_stream(self.opened)

    def leave(self) -> None:
        """The client has gone."""
        if self.opened is not None:
            close_stream(self.opened)
            self.opened = None
        super().leave()


class H1Stream(Stream):
    """A chunked body, or for HTTP/1.0 one that ends with the connection."""

    __slots__ = ("_chunked", "_exchange")

    def __init__(self, exchange: H1Exchange, *, chunked: bool) -> None:
        super().__init__()
        self._exchange = exchange
        self._chunked = chunked

    def write(self, data: bytes) -> bool:
        """Queue one piece."""
        if self._exchange.opened is not self:
            return False
        connection = self._exchange.connection
        if data:  # an empty chunk would end the body
            connection.send(self._exchange, connection.hub.chunked(data) if self._chunked else data)
        self.behind = self.behind or connection.backed_up(self._exchange)
        return not self.behind

    @property
    def queued_bytes(self) -> int:
        """Bytes not yet with the kernel, those waiting for the stream's turn included."""
        exchange = self._exchange
        return exchange.connection.queued_bytes(exchange) if exchange.opened is self else 0

    def close(self) -> None:
        """End the body."""
        if self.closed:
            return
        self.closed = True
        if self._exchange.opened is self:
            if self._chunked:
                self._exchange.connection.send(self._exchange, LAST_CHUNK)
            self._exchange.finish()
