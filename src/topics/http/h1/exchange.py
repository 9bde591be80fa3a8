"""One HTTP/1.1 request and its answer; the connection keeps the answers in order."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from topics.http.exchange import Exchange, close_stream, drain_stream
from topics.http.h1.wire import (
    LAST_CHUNK,
    connection_field,
    fields_of,
    head_only,
    stream_head,
    whole,
)
from topics.http.hub import Hub
from topics.http.messages import Request, Response, Stream, Upgrade

_JOINED_BYTES = 16 * 1024
"""A body up to this size is cheaper to copy behind its head than to send as a second buffer."""

_DRAINED_BYTES = 64 * 1024
"""An unread body up to this size is read and dropped; beyond it the connection is given up."""


class AnswerQueue(Protocol):
    """A connection, as its exchanges see it: answers leave in the order of the requests."""

    hub: Hub

    def send(self, exchange: "H1Exchange", data: bytes) -> None: ...
    def send_last(self, exchange: "H1Exchange", *pieces: bytes) -> None: ...
    def clear_way(self, exchange: "H1Exchange") -> None: ...
    def uncork(self) -> None: ...
    def backed_up(self, exchange: "H1Exchange") -> bool: ...
    def queued_bytes(self, exchange: "H1Exchange") -> int: ...
    def is_last(self, exchange: "H1Exchange") -> bool: ...
    def become_websocket(self, exchange: "H1Exchange") -> Upgrade: ...
    def stop_listening(self) -> None: ...
    def abort(self) -> None: ...


class H1Exchange(Exchange):
    """An exchange in the queue of its connection."""

    keep_alive: bool
    expects_continue = False
    length: int | None = 0  # announced size of the body; None when chunked
    read = True  # the whole request has been taken off the wire
    ready = False  # ... and may be given to the application
    started = False
    done = False  # the answer is complete
    early: list[bytes] | None = None  # output from before it was first in the queue
    early_bytes = 0
    opened: "H1Stream | None" = None

    def __init__(self, connection: AnswerQueue, request: Request, *, keep_alive: bool) -> None:
        self._hub = connection.hub
        self.request = request
        self.connection = connection
        self.keep_alive = keep_alive

    def expect_body(self, length: int | None) -> None:
        """Headers announce a body of this length, or in chunks when None."""
        self.length = length
        if length != 0:
            self.read = False
            expectation = self.request.headers.get(b"expect")
            if expectation is not None:
                self.expects_continue = expectation.lower() == b"100-continue"

    def alike(self, other: "H1Exchange") -> bool:
        """Whether both ask the same thing of the same target, so that their order is free."""
        mine, theirs = self.request, other.request
        same = mine.method == theirs.method and mine.target == theirs.target
        is_free = mine.may_run_ahead and theirs.may_run_ahead
        return same and is_free and not mine.wants_websocket

    def unread_bytes(self) -> int | None:
        """How much of the body is still to come; None when unknown."""
        if self.read:
            return 0
        return None if self.length is None else self.length - self.received

    def abort(self) -> None:
        self.connection.abort()

    def _settle_connection(self) -> None:
        """Decide whether the connection outlives this answer; before its head is rendered."""
        if not self.read:
            unread = self.unread_bytes()
            # A client that waits for `100 Continue` may or may not send its body now, so the start
            # of its next request cannot be found.
            if self.expects_continue or unread is None or unread > _DRAINED_BYTES:
                self.keep_alive = False
        if self._hub.draining and self.connection.is_last(self):
            self.keep_alive = False
        if not self.keep_alive:
            self.connection.stop_listening()

    def added_fields(self, response: Response) -> bytes:
        """Every header of an answer but its type and length."""
        request = self.request
        fields = self._hub.date_field()
        headers = response.headers + request.echo if response.headers else request.echo
        if headers:
            fields = fields_of(headers) + fields
        if not self.keep_alive or request.version != "1.1":
            fields += connection_field(keep_alive=self.keep_alive, version=request.version)
        return fields

    def _send_response(self, response: Response) -> None:
        if not self.read or self._hub.draining:
            self._settle_connection()
        fields = self.added_fields(response)
        size = response.size
        if not size or self.request.method == "HEAD" or response.status == 304:
            self.connection.send_last(self, head_only(response, fields))
        elif size <= _JOINED_BYTES:
            self.connection.send_last(self, whole(response, fields))
        else:
            self.connection.send_last(self, head_only(response, fields), *response.parts)

    def _open_stream(self, head: Response) -> Stream:
        chunked = self.request.version == "1.1"
        stream = H1Stream(self, chunked=chunked)
        if self.gone:
            self._hub.loop.call_soon(close_stream, stream)
            return stream
        if not chunked:
            self.keep_alive = False
        self._settle_connection()
        data = stream_head(head, self.added_fields(head), chunked=chunked)
        if self.request.method == "HEAD":
            self._hub.loop.call_soon(close_stream, stream)
            self.connection.send_last(self, data)
        else:
            self.opened = stream
            self.connection.send(self, data)
            self.connection.uncork()
            self.connection.clear_way(self)
        return stream

    def _open_upgrade(self) -> Upgrade:
        return self.connection.become_websocket(self)

    def drained(self) -> None:
        """Everything written has left for the kernel."""
        if self.opened is not None:
            drain_stream(self.opened)

    def leave(self) -> None:
        """The client has gone."""
        if self.opened is not None:
            self.opened.way = None
            close_stream(self.opened)
            self.opened = None
        super().leave()


def startable(line: Iterable[H1Exchange], room_bytes: int) -> H1Exchange | None:
    """The next exchange to run, unless it has to wait for an earlier one, or for room.

    Answers that are ready too early are kept in memory, so many of them delay further requests.
    """
    running: H1Exchange | None = None
    for exchange in line:
        if exchange.done:
            room_bytes -= exchange.early_bytes
            continue
        if not exchange.started:
            free = room_bytes >= 0 and (running is None or exchange.alike(running))
            return exchange if free and exchange.ready and not exchange.answered else None
        running = exchange
    return None


class H1Stream(Stream):
    """A chunked body, or for HTTP/1.0 one that ends with the connection.

    While the stream is the first in the queue of its connection and its peer keeps up, it writes to
    the transport directly: `way` is that transport, which the connection sets and resets. A fan-out
    writes to hundreds of streams in a row.
    """

    __slots__ = ("_chunks", "_exchange", "way")

    def __init__(self, exchange: H1Exchange, *, chunked: bool) -> None:
        super().__init__()
        self.way: asyncio.Transport | None = None
        self._exchange = exchange
        self._chunks = exchange.connection.hub.chunked if chunked else None

    def write(self, data: bytes) -> bool:
        """Queue one piece."""
        way = self.way
        if way is None or not data or way.is_closing():
            return self._write_around(data)
        chunks = self._chunks
        if chunks is not None:
            data = chunks.wrapped if data is chunks.payload else chunks(data)
        way.write(data)
        if self.way is None:  # that was too much for the peer
            self.behind = True
            return False
        return True

    def _write_around(self, data: bytes) -> bool:
        exchange = self._exchange
        if exchange.opened is not self:
            return False
        connection = exchange.connection
        if data:  # an empty chunk would end the body
            connection.send(exchange, data if self._chunks is None else self._chunks(data))
        if connection.backed_up(exchange):
            self.behind = True
        return not self.behind

    @property
    def queued_bytes(self) -> int:
        """Bytes not yet with the kernel, those that wait for earlier answers included."""
        exchange = self._exchange
        return exchange.connection.queued_bytes(exchange) if exchange.opened is self else 0

    def close(self) -> None:
        """End the body."""
        if self.closed:
            return
        self.closed = True
        self.way = None
        if self._exchange.opened is self:
            self._exchange.opened = None
            end = b"" if self._chunks is None else LAST_CHUNK
            self._exchange.connection.send_last(self._exchange, end)
