"""What the streams of one HTTP/2 connection still have to send, shared out fairly.

Each round gives every stream a little, as far as its window, the connection's window and the
transport allow; rounds go on until nothing moves. What cannot move waits here, counted.
"""

from collections.abc import Sequence
from typing import Protocol

from h2.exceptions import ProtocolError

from topics.http.h2.engine import FRAME_BYTES, H2Engine
from topics.http.h2.exchange import AnswerStreams, H2Exchange
from topics.http.h2.fields import Fields
from topics.http.messages import Response

_ROUND_BYTES = 64 * 1024
"""What one stream may send before the next stream sends."""

_OVERFULL = 8
"""Times the bound on what waits to be read, from which on further long answers are given up.

While so much waits no request is run, but many may have been waiting for the same event.
"""


class OutputTaker(AnswerStreams, Protocol):
    """A connection, as its output sees it: it writes frames, and hears how streams end."""

    @property
    def blocked(self) -> bool: ...
    def flush(self, behind: Sequence[bytes | memoryview] = ()) -> None: ...
    def ended(self, exchange: H2Exchange) -> None: ...
    def given_up(self, exchange: H2Exchange) -> None: ...
    def cancel(self, exchange: H2Exchange) -> None: ...


class Output:
    """The unsent bytes of a connection, by stream."""

    __slots__ = ("_connection", "_engine", "_sending", "_unread_bytes", "unflushed")

    def __init__(self, connection: OutputTaker, engine: H2Engine) -> None:
        self._connection = connection
        self._engine = engine
        self._sending: dict[int, H2Exchange] = {}
        self.unflushed = 0  # bytes that were counted since the last flush
        self._unread_bytes = 0  # of plain answers; streams are bounded by who writes them

    def add(self, exchange: H2Exchange, size: int) -> None:
        """An exchange has `size` more bytes to send, or only its end."""
        if exchange.is_plain:
            is_long, before = size > FRAME_BYTES, self._unread_bytes
            self._unread_bytes += size
            if is_long and before > _OVERFULL * self._connection.hub.limits.h2_max_queued_bytes:
                self._connection.cancel(exchange)
                return
        self._sending[exchange.stream_id] = exchange

    def has_room(self) -> bool:
        """Whether few enough answers are waiting to be read to work on another."""
        return self._unread_bytes <= self._connection.hub.limits.h2_max_queued_bytes

    def drop(self, exchange: H2Exchange) -> None:
        """Forget what an exchange had to send."""
        if exchange.is_plain:
            self._unread_bytes -= exchange.pending_bytes
        exchange.pending_bytes = 0
        exchange.pending.clear()
        self._sending.pop(exchange.stream_id, None)

    def send_whole(self, exchange: H2Exchange, headers: Fields, response: Response) -> bool:
        """Send an answer past the queue; False, and nothing done, if that cannot be.

        A long one is sent from where it lies, unless others have something to send as well.
        """
        engine, stream_id, size = self._engine, exchange.stream_id, response.size
        if size <= FRAME_BYTES:
            if not engine.send_answer(stream_id, headers, response.body):
                return False
            self.count(size)
            return True
        if self._sending or size > self._connection.hub.limits.high_water_bytes:
            return False
        frames = engine.cut_answer(stream_id, headers, response.parts)
        if frames is None:
            return False
        self._connection.flush(frames)
        return True

    def pump(self) -> None:
        """Send what can be sent now."""
        moved = True
        while moved and self._sending:
            moved = False
            for exchange in tuple(self._sending.values()):
                if self._connection.blocked:
                    return
                if self._pump_one(exchange):
                    moved = True

    def _pump_one(self, exchange: H2Exchange) -> bool:
        """A round for one stream; whether anything was sent."""
        try:
            sent = self._send_round(exchange)
            if not exchange.pending and exchange.stream_id in self._sending:
                self._emptied(exchange)
        except ProtocolError:  # the peer has reset the stream; its notice is on the way
            self._connection.given_up(exchange)
            return False
        return sent > 0

    def _send_round(self, exchange: H2Exchange) -> int:
        engine, stream_id = self._engine, exchange.stream_id
        sent = 0
        while exchange.pending and sent < _ROUND_BYTES:
            window = engine.local_flow_control_window(stream_id)
            room = min(window, engine.max_outbound_frame_size)
            if room <= 0:
                break
            piece = self._next_piece(exchange, room)
            ends = exchange.ending and not exchange.pending
            engine.send_data(stream_id, piece, ends)
            sent += len(piece)
            self.count(len(piece))
            if ends:
                self._sending.pop(stream_id, None)
                self._connection.ended(exchange)
        return sent

    def _next_piece(self, exchange: H2Exchange, room: int) -> memoryview:
        piece = exchange.pending.popleft()
        if len(piece) > room:
            exchange.pending.appendleft(piece[room:])
            piece = piece[:room]
        exchange.pending_bytes -= len(piece)
        if exchange.is_plain:
            self._unread_bytes -= len(piece)
        return piece

    def count(self, size: int) -> None:
        """So many bytes more are ready to be written; many of them are written at once."""
        self.unflushed += size
        if self.unflushed >= self._connection.hub.limits.high_water_bytes:
            self._connection.flush()

    def _emptied(self, exchange: H2Exchange) -> None:
        self._sending.pop(exchange.stream_id)
        if exchange.ending:
            self._engine.end_stream(exchange.stream_id)
            self._connection.ended(exchange)
        else:
            exchange.drained()
