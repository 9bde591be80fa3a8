"""HTTP/2 connections, cleartext or under TLS.

Each module of this package knows those above it in this list, and none below:

    fields             blocks of header fields
    engine             the library, with a short way for plain requests
    exchange           one request and its answer
    output, timeouts   what streams still have to send; peers that keep us waiting
    connection         the streams of one connection

Theory of operation. The `h2` library keeps the protocol's state; this file moves bytes and
bounds what a peer can make us hold or do.

Input is parsed in small slices and for a few milliseconds at a time: a kilobyte can carry a
hundred requests, and other connections wait meanwhile. Output is queued per stream (`output`);
frames of one tick leave in one write.

Body windows are always given back at once, since a body is only useful when it is whole; what
bounds memory is the sum over the connection (`h2_max_bodies_bytes`), beyond which all streams
but the oldest are refused. A long body counts until its request is answered: it may have to
wait in the queue of long bodies. While many answers wait for the peer's windows, further requests
are not run. Frames that cause work but request nothing are a nuisance, and so are more window
updates than the data sent to the peer calls for: they fill a bucket, and the connection of a peer
that fills it faster than it leaks is closed.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from topics.http.h2.engine import H2Engine, PlainData, PlainRequest
from topics.http.h2.exchange import H2Exchange
from topics.http.h2.fields import Fields, request_of
from topics.http.h2.output import Output
from topics.http.h2.timeouts import H2Timeouts
from topics.http.hub import Hub, log
from topics.http.leaky_bucket import LeakyBucket
from topics.http.messages import Request, Response

_SLICE_BYTES = 4 * 1024
_LONG_BYTES = 64 * 1024
"""A body up to this size no longer counts when its request runs: many of them wait for events."""
_TURN_S = 0.004

_HOLD_OUTPUT, _HOLD_TURN = 1, 2
_PING = b"topics!?"
_SETTINGS_COST, _PING_COST, _OTHER_COST = 10, 4, 1


class H2Connection(asyncio.Protocol):
    """The connection of one HTTP/2 client."""

    __slots__ = (
        "_body_bytes",
        "_deaf",
        "_engine",
        "_exchanges",
        "_going",
        "_held",
        "_holds",
        "_in_turn",
        "_output",
        "_patience",
        "_peer",
        "_scheduled",
        "_transport",
        "_urgency",
        "_waiting",
        "_waits",
        "hub",
        "is_stranger",
    )

    def __init__(self, hub: Hub, transport: asyncio.Transport, peer: str) -> None:
        limits = hub.limits
        self.hub = hub
        self._transport = transport
        self._peer = peer
        self._exchanges: dict[int, H2Exchange] = {}
        self._waiting: deque[H2Exchange] = deque()  # complete, not yet run
        self._body_bytes = 0
        self._held = b""
        self._holds = 0
        self._deaf = False
        self._going = False  # no new streams; close after the last one
        self._in_turn = False
        self._scheduled = False
        self._urgency: events.PriorityUpdated | None = None  # what the last request said of it
        self.is_stranger = True  # no request came with a key, where keys are needed
        self._waits = H2Timeouts(self)
        self._patience = LeakyBucket(burst=limits.h2_nuisance_burst, per_s=limits.h2_nuisance_per_s)
        self._engine = H2Engine(limits)
        self._output = Output(self, self._engine)
        transport.set_write_buffer_limits(high=limits.high_water_bytes, low=0)
        hub.add(self)

    # Bytes come in

    def data_received(self, data: bytes) -> None:
        """Handle the frames in `data`, some now and the rest in later ticks."""
        self._waits.heard = True
        tick = self.hub.tick
        tick.hear(self)
        try:
            if self._deaf:
                return
            if self._holds:
                self._held += data
                return
            self._in_turn = True
            try:
                if len(data) <= _SLICE_BYTES:
                    self._take_slice(data)
                else:
                    self._take(data)
            finally:
                self._in_turn = False
            self._end_turn()
        finally:
            tick.pause()

    def _take(self, data: bytes) -> None:
        deadline = time.monotonic() + _TURN_S
        for offset in range(0, len(data), _SLICE_BYTES):
            if self._holds or (offset and time.monotonic() > deadline):
                self._held = data[offset:]
                self._hold(_HOLD_TURN)
                self.hub.loop.call_soon(self._release, _HOLD_TURN)
                return
            self._take_slice(data[offset : offset + _SLICE_BYTES])
            if self._deaf:
                return

    def _take_slice(self, data: bytes) -> None:
        try:
            for event in self._engine.receive_data(data):
                _HANDLERS.get(type(event), H2Connection._on_other)(self, event)
                if self._deaf:
                    return
            if self._engine.idle_frames:
                self._annoyed(self._engine.idle_frames * _OTHER_COST)
                self._engine.idle_frames = 0
        except ProtocolError:
            self._hang_up()  # the library has queued the GOAWAY that says why
        except Exception:
            log.exception("reading from an HTTP/2 connection failed")
            self._hang_up()

    # Events of the library

    def _on_request(self, event: events.RequestReceived) -> None:
        if not event.headers or not event.headers[0][0].startswith(b":"):
            self._violated()  # a request begins with its pseudo-headers
            return
        self._urgency = event.priority_updated
        request, has_body = request_of(event.headers, self._peer), event.stream_ended is None
        exchange = self._begin(event.stream_id, request, has_body)
        wants_continue = request.headers.get(b"expect", b"").lower() == b"100-continue"
        if has_body and wants_continue and not exchange.answered:
            self._send_continue(exchange)

    def _on_plain_request(self, event: PlainRequest) -> None:
        request, body = event.alike.sibling(self._peer), event.body or b""
        runs_now = event.ends and self._may_run(body)
        exchange = self._begin(event.stream_id, request, has_body=not runs_now)
        event.alike.standing = request.standing
        if runs_now:
            if not exchange.answered:
                request.body = body
                exchange.run()
            return
        if body:
            self._feed(exchange, body, len(body))
        if event.ends and not exchange.gone:
            self._finish(exchange)

    def _may_run(self, body: bytes) -> bool:
        """Whether a request that came in one piece can run before anything else happens."""
        is_allowed = len(body) <= min(_LONG_BYTES, self.hub.limits.max_body_bytes)
        return is_allowed and not self._waiting and self._output.has_room()

    def _begin(self, stream_id: int, request: Request, has_body: bool) -> H2Exchange:
        exchange = self._exchanges[stream_id] = H2Exchange(self, request, stream_id)
        exchange.read = not has_body
        exchange.begin(has_body)
        if self.is_stranger:
            self.is_stranger = request.is_stranger
            self._waits.asked = True
        return exchange

    def _on_trailers(self, event: events.TrailersReceived) -> None:
        if any(name.startswith(b":") for name, _ in event.headers or ()):
            self._violated()

    def _violated(self) -> None:
        """Say that the peer broke the protocol, and close."""
        self._engine.close_connection(ErrorCodes.PROTOCOL_ERROR)
        self._hang_up()

    def _send_continue(self, exchange: H2Exchange) -> None:
        headers = [(b":status", b"100")]
        self._try(exchange, lambda: self._engine.send_headers(exchange.stream_id, headers))

    def _on_data(self, event: events.DataReceived) -> None:
        size = event.flow_controlled_length
        if size:
            self._engine.acknowledge_received_data(size, event.stream_id)
        if not event.data and event.stream_ended is None:
            self._annoyed(_OTHER_COST)
        exchange = self._exchanges.get(event.stream_id)
        if exchange is not None:
            self._feed(exchange, event.data, size)

    def _on_plain_data(self, event: PlainData) -> None:
        if not event.data and not event.ends:
            self._annoyed(_OTHER_COST)
        exchange = self._exchanges.get(event.stream_id)
        if exchange is None:
            return
        self._feed(exchange, event.data, len(event.data))
        if event.ends and not exchange.gone:
            self._finish(exchange)

    def _feed(self, exchange: H2Exchange, data: bytes, size: int) -> None:
        if exchange.answered:
            self._drop_data(exchange, size)
            return
        exchange.feed(data)
        self._body_bytes += exchange.held_bytes - exchange.counted
        exchange.counted = exchange.held_bytes
        if self._body_bytes > self.hub.limits.h2_max_bodies_bytes and not self._is_oldest(exchange):
            self._reset(exchange, ErrorCodes.REFUSED_STREAM)

    def _drop_data(self, exchange: H2Exchange, size: int) -> None:
        """Let a refused client finish sending, within reason: many cannot read before that."""
        exchange.dropped_bytes += size
        if exchange.dropped_bytes > 2 * self.hub.limits.max_body_bytes:
            self._output.pump()  # the answer may still be waiting for the end of this tick
            self._reset(exchange, ErrorCodes.NO_ERROR)

    def _is_oldest(self, exchange: H2Exchange) -> bool:
        holding = (other for other in self._exchanges.values() if other.counted or not other.read)
        return next(holding, None) is exchange

    def _on_end(self, event: events.StreamEnded) -> None:
        exchange = self._exchanges.get(event.stream_id)
        if exchange is not None:
            self._finish(exchange)

    def _finish(self, exchange: H2Exchange) -> None:
        """The request is whole: run it now or later."""
        exchange.read = True
        if exchange.complete():
            self._waiting.append(exchange)
            self._run_waiting()
        self._retire(exchange)

    def _run_waiting(self) -> None:
        """Run complete requests, unless too many answers are already waiting to be read."""
        while self._waiting and self._output.has_room():
            exchange = self._waiting.popleft()
            if not exchange.gone:
                if exchange.counted <= _LONG_BYTES:
                    self._uncount(exchange)
                exchange.run()

    def _on_reset(self, event: events.StreamReset) -> None:
        self._annoyed(_OTHER_COST)
        exchange = self._exchanges.get(event.stream_id)
        if exchange is not None:
            self._forget(exchange)
            exchange.leave()

    def _on_window(self, _event: events.Event) -> None:
        self._schedule()

    def _on_settings(self, _event: events.Event) -> None:
        self._annoyed(_SETTINGS_COST)
        self._schedule()

    def _on_other(self, event: events.Event) -> None:
        if event is not self._urgency:
            self._annoyed(_OTHER_COST)

    def _on_goodbye(self, _event: events.Event) -> None:
        # The library sends nothing after a GOAWAY, so unfinished answers cannot be saved.
        self._deaf = True
        self.flush()
        self._transport.close()

    def _annoyed(self, cost: int) -> None:
        if not self._patience.spend(cost, now_s=time.monotonic()):
            self._engine.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self._hang_up()

    # Exchanges

    def _uncount(self, exchange: H2Exchange) -> None:
        self._body_bytes -= exchange.counted
        exchange.counted = 0

    def _forget(self, exchange: H2Exchange) -> None:
        self._uncount(exchange)
        self._output.drop(exchange)
        self._exchanges.pop(exchange.stream_id, None)

    def _reset(self, exchange: H2Exchange, code: ErrorCodes) -> None:
        self._forget(exchange)
        self._try(exchange, lambda: self._engine.reset_stream(exchange.stream_id, code))
        exchange.leave()
        self._schedule()

    def _retire(self, exchange: H2Exchange) -> None:
        """Forget an exchange both sides have ended."""
        if exchange.done and exchange.read and exchange.stream_id in self._exchanges:
            self._forget(exchange)
            if self._going and not self._exchanges:
                self._schedule()

    def _try(self, exchange: H2Exchange, call: Callable[[], None]) -> bool:
        """Call the library; False when the peer has given the stream up meanwhile."""
        try:
            call()
        except ProtocolError:
            self.given_up(exchange)
            return False
        return True

    # Bytes go out

    def send_answer(self, exchange: H2Exchange, headers: Fields, response: Response) -> bool:
        """Send a whole answer; False, and nothing done, when it has to go piece by piece."""
        if self.blocked or not self._output.send_whole(exchange, headers, response):
            return False
        if not self._in_turn:
            self._schedule()
        exchange.done = True
        self._exchanges.pop(exchange.stream_id, None)
        if exchange.counted:
            self._uncount(exchange)
        exchange.over()
        return True

    def send_head(self, exchange: H2Exchange, headers: Fields, *, ends: bool) -> None:
        """Send an answer's headers; with `ends` they are all of it."""
        self._uncount(exchange)
        stream_id = exchange.stream_id
        if self._deaf or not self._try(
            exchange, lambda: self._engine.send_head(stream_id, headers, ends=ends)
        ):
            return
        self._schedule()
        if ends:
            self.ended(exchange)

    def output_queued(self, exchange: H2Exchange, size: int) -> None:
        """An exchange has more to send, or its end."""
        self._output.add(exchange, size)
        self._schedule()

    def ended(self, exchange: H2Exchange) -> None:
        """The whole answer has been sent."""
        exchange.done = True
        exchange.over()
        self._retire(exchange)

    def given_up(self, exchange: H2Exchange) -> None:
        """The peer wants no more of this stream."""
        self._forget(exchange)
        exchange.leave()

    def flush(self, behind: Sequence[bytes | memoryview] = ()) -> None:
        """Write every frame the library has ready, and those given behind them."""
        data = self._engine.data_to_send()
        self._output.unflushed = 0
        if not self._transport.is_closing():
            if behind:
                self._transport.writelines([data, *behind])
            elif data:
                self._transport.write(data)

    def push(self) -> None:
        """Send what can be sent now instead of at the end of the tick."""
        self._output.pump()
        self.flush()

    @property
    def blocked(self) -> bool:
        """Whether the transport takes no more for now."""
        return self._deaf or bool(self._holds & _HOLD_OUTPUT)

    def _schedule(self) -> None:
        """Send the frames of this tick together at its end."""
        if not self._in_turn and not self._scheduled:
            self._scheduled = True
            self.hub.loop.call_soon(self._scheduled_turn)

    def _scheduled_turn(self) -> None:
        self._scheduled = False
        self._end_turn()

    def _end_turn(self) -> None:
        if self._deaf:
            return
        self._output.pump()
        while self._waiting and not self.blocked and self._output.has_room():
            self._run_waiting()
            self._output.pump()
        if self._going and not self._exchanges and not self._deaf:
            self._engine.close_connection()
            self._hang_up()
        else:
            self.flush()

    def _hang_up(self) -> None:
        """Send what the library has queued and wait for the peer to close."""
        if self._deaf:
            return
        self._deaf = True
        self._held = b""
        self._waits.start_linger()
        self.flush()
        self._leave_all()
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()

    # Holds

    def _hold(self, reason: int) -> None:
        if not self._holds and not self._transport.is_closing():
            self._transport.pause_reading()
        self._holds |= reason

    def _release(self, reason: int) -> None:
        self._holds &= ~reason
        if self._holds or self._deaf or self._transport.is_closing():
            return
        self._transport.resume_reading()
        if self._held:
            held, self._held = self._held, b""
            self.data_received(held)

    def pause_writing(self) -> None:
        """The peer is not reading: neither do we, nor do we pump."""
        self._hold(_HOLD_OUTPUT)

    def resume_writing(self) -> None:
        """All output has left."""
        self._release(_HOLD_OUTPUT)
        self._schedule()

    # The end

    def eof_received(self) -> None:
        """HTTP/2 has no half-closed connections: the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all exchanges that the client has disconnected."""
        self.hub.drop(self)
        self._deaf = True
        self._held = b""
        self._leave_all()

    def _leave_all(self) -> None:
        self._waiting.clear()
        exchanges, self._exchanges = self._exchanges, {}
        for exchange in exchanges.values():
            self._output.drop(exchange)
            exchange.leave()

    def drain(self) -> None:
        """Close after the last stream, at once if there is none.

        No early GOAWAY: clients built on the same library as we are treat it as the end and
        would lose the answers that are still to come.
        """
        self._going = True
        self._end_turn()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    # The sweep

    def tick(self, now: float) -> None:
        """Ping a silent peer, and give up on one that has kept us waiting too long."""
        if self._deaf:
            self._waits.check_linger(now)
            return
        self._engine.decoder.forget()
        for exchange in tuple(self._exchanges.values()):
            self._waits.check_exchange(exchange, now)
        if self.is_stranger:
            self._waits.check_stranger(now, is_busy=bool(self._exchanges))
        self._waits.check_silence(now)

    def ping(self) -> None:
        """Ask the peer for a word."""
        self._engine.ping(_PING)
        self.flush()

    def cancel(self, exchange: H2Exchange) -> None:
        """Give up on an answer that the peer does not take."""
        self._reset(exchange, ErrorCodes.CANCEL)


_HANDLERS: dict[type[events.Event], Callable[[H2Connection, Any], None]] = {
    PlainRequest: H2Connection._on_plain_request,
    PlainData: H2Connection._on_plain_data,
    events.RequestReceived: H2Connection._on_request,
    events.TrailersReceived: H2Connection._on_trailers,
    events.DataReceived: H2Connection._on_data,
    events.StreamEnded: H2Connection._on_end,
    events.StreamReset: H2Connection._on_reset,
    events.WindowUpdated: H2Connection._on_window,
    events.RemoteSettingsChanged: H2Connection._on_settings,
    events.PingReceived: lambda connection, _: connection._annoyed(_PING_COST),
    events.ConnectionTerminated: H2Connection._on_goodbye,
}
