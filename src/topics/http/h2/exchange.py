"""One HTTP/2 stream: a request and its answer, sent as far as the peer's windows allow."""

from collections import deque
from typing import Protocol

from topics.http.exchange import Exchange, close_stream, drain_stream
from topics.http.h2.fields import Fields
from topics.http.hub import Hub
from topics.http.messages import Request, Response, Stream, Upgrade

_BODILESS = frozenset((204, 304))
_HEAD_ALONE = Response(200)
"""Nothing to send behind the headers."""
_NOTHING: deque[memoryview] = deque(maxlen=0)
"""What most exchanges ever have pending: they are answered at once."""


class AnswerStreams(Protocol):
    """A connection, as its exchanges see it: each sends its answer on a stream of its own."""

    hub: Hub

    def send_answer(self, exchange: "H2Exchange", headers: Fields, response: Response) -> bool: ...
    def send_head(self, exchange: "H2Exchange", headers: Fields, *, ends: bool) -> None: ...
    def output_queued(self, exchange: "H2Exchange", size: int) -> None: ...
    def push(self) -> None: ...
    def abort(self) -> None: ...


class H2Exchange(Exchange):
    """An exchange with the output its stream still has to send."""

    read = False  # the peer has ended its side
    done = False  # we have ended ours
    ending = False  # the end follows what is pending
    is_plain = True  # one response, not a stream
    opened: "H2Stream | None" = None
    pending: deque[memoryview] = _NOTHING  # views: a body is not copied for each frame
    pending_bytes = 0
    counted = 0  # body bytes the connection has on its books for us
    dropped_bytes = 0  # body bytes that came after the answer
    since: float | None = None  # as in HTTP/1: the present wait, and progress then
    mark = 0

    def __init__(self, connection: AnswerStreams, request: Request, stream_id: int) -> None:
        self._hub = connection.hub
        self.request = request
        self.connection = connection
        self.stream_id = stream_id

    def abort(self) -> None:
        self.connection.abort()

    def _send_response(self, response: Response) -> None:
        headers = self._head(response)
        if response.status in _BODILESS:
            response = _HEAD_ALONE
        else:
            headers.append((b"content-length", b"%d" % response.size))
            if self.request.method == "HEAD":
                response = _HEAD_ALONE
        if self.connection.send_answer(self, headers, response):
            return
        body = response.body
        self.connection.send_head(self, headers, ends=not body)
        if body:
            self.ending = True
            self.queue(body)

    def _head(self, response: Response) -> Fields:
        headers = [(b":status", b"%d" % response.status)]
        if response.content_type is not None:
            headers.append((b"content-type", response.content_type))
        headers += response.headers
        headers += self.request.echo
        headers.append((b"date", self._hub.date()))
        return headers

    def _open_stream(self, head: Response) -> Stream:
        stream = H2Stream(self)
        self.is_plain = False
        empty = self.request.method == "HEAD"
        if not self.gone:
            self.connection.send_head(self, self._head(head), ends=empty)
        if self.gone or empty:
            self._hub.loop.call_soon(close_stream, stream)
        else:
            self.opened = stream
        return stream

    def _open_upgrade(self) -> Upgrade:
        raise AssertionError("no WebSocket over HTTP/2: no such request is ever admitted")

    def queue(self, data: bytes) -> None:
        """Add to what the stream has to send."""
        if not self.gone and not self.done:
            if self.pending is _NOTHING:
                self.pending = deque()
            self.pending.append(memoryview(data))
            self.pending_bytes += len(data)
            self.connection.output_queued(self, len(data))

    def drained(self) -> None:
        """Everything queued has been sent."""
        if self.opened is not None:
            drain_stream(self.opened)

    def leave(self) -> None:
        """The stream was reset, or the connection is gone."""
        self.pending.clear()
        if self.opened is not None:
            close_stream(self.opened)
            self.opened = None
        super().leave()


class H2Stream(Stream):
    """A body of DATA frames."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: H2Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def write(self, data: bytes) -> bool:
        """Queue one piece."""
        exchange = self._exchange
        if exchange.opened is not self:
            return False
        if data:
            exchange.queue(data)
        high_water = exchange.connection.hub.limits.high_water_bytes
        if exchange.pending_bytes > high_water:
            exchange.connection.push()  # perhaps it only waited for the end of the tick
        self.behind = self.behind or exchange.pending_bytes > high_water
        return not self.behind

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for the peer's windows, or for the connection."""
        return self._exchange.pending_bytes if self._exchange.opened is self else 0

    def close(self) -> None:
        """End the stream after what is queued."""
        if self.closed:
            return
        self.closed = True
        if self._exchange.opened is self:
            self._exchange.opened = None
            self._exchange.ending = True
            self._exchange.connection.output_queued(self._exchange, 0)
