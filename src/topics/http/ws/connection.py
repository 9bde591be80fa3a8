"""WebSocket connections: whole messages in and out, bounded both ways, no compression.

wsproto does the framing. It keeps what it has not parsed, so pausing takes effect between two
messages and not only at the next read from the socket. One read can bring tens of thousands of
tiny frames, so they are handled for a few milliseconds at a time. The connection of a peer whose
frames never complete a message is closed: nothing is written to such a peer, so a broken connection
would not be noticed.

A message counts against the budget for requests, from its first piece until the application reads
on. One that comes too slowly ends the connection, as the body of a request would.
"""

import asyncio
import base64
import binascii
import time
from collections import deque
from collections.abc import Callable, Hashable
from io import BytesIO

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import generate_accept_token

from topics.http.budget import Charge
from topics.http.exchange import call_safely
from topics.http.hub import Hub, log
from topics.http.leaky_bucket import LeakyBucket
from topics.http.messages import Request, Upgrade

_KEY_BYTES = 16
_HOLD_OUTPUT, _HOLD_APPLICATION, _HOLD_TURN = 1, 2, 4
_TURN_S = 0.002


def asks_for_websocket(request: Request) -> bool:
    """Whether an upgrade request is a well-formed WebSocket handshake."""
    headers = request.headers
    protocols = [name.strip().lower() for name in headers.get(b"upgrade", b"").split(b",")]
    if request.method != "GET" or b"websocket" not in protocols:
        return False
    try:
        key = base64.b64decode(headers.get(b"sec-websocket-key", b"").strip(), validate=True)
    except binascii.Error:
        return False
    return len(key) == _KEY_BYTES and headers.get(b"sec-websocket-version") == b"13"


def accept_token(request: Request) -> bytes:
    """The proof that we understood the handshake."""
    return generate_accept_token(request.headers[b"sec-websocket-key"].strip())


class WebSocket(asyncio.Protocol, Upgrade):
    """One WebSocket, from the end of its handshake to the end of its connection."""

    __slots__ = (
        "_charge",
        "_deaf",
        "_ends",
        "_frame_bytes",
        "_holds",
        "_hub",
        "_mark",
        "_message_bytes",
        "_message_since",
        "_on_over",
        "_partial",
        "_patience",
        "_processing",
        "_proto",
        "_since",
        "_transport",
        "_written",
    )

    def __init__(
        self,
        hub: Hub,
        transport: asyncio.Transport,
        *,
        holder: Hashable = None,
        on_over: Callable[[], None],
    ) -> None:
        super().__init__()
        self._hub = hub
        self._transport = transport
        self._proto = Connection(ConnectionType.SERVER)
        self._on_over: Callable[[], None] | None = on_over
        self._holds = 0
        limits = hub.limits
        self._patience = LeakyBucket(burst=limits.ws_nuisance_burst, per_s=limits.ws_nuisance_per_s)
        self._deaf = False
        self._processing = False
        self._partial: BytesIO | None = None  # of an unfinished message; text stays encoded
        self._message_bytes = 0
        self._frame_bytes = 0
        self._written = 0
        self._ends: deque[int] = deque()  # where each unsent message ends in what was written
        self._since: float | None = None
        self._mark = 0
        self._message_since: float | None = None
        self._charge = Charge(hub.budget, holder)

    def start(self) -> None:
        """Take the connection over from HTTP, which may have paused its reading."""
        # No slack: `on_drain` is promised as soon as nothing is left.
        self._transport.set_write_buffer_limits(high=0, low=0)
        self._hub.add(self)
        if not self._holds:
            self._transport.resume_reading()

    # Messages come in

    def data_received(self, data: bytes) -> None:
        """Deliver every message these bytes complete, unless the application has paused."""
        if not self._deaf and self._proto.state is not ConnectionState.CLOSED:
            self._proto.receive_data(data)
            self._process()

    def _process(self) -> None:
        if self._processing or self._holds or self._deaf:
            return
        self._processing = True
        deadline = time.monotonic() + _TURN_S
        try:
            for event in self._proto.events():
                self._handle(event)
                if self._must_stop(deadline):
                    break
        finally:
            self._processing = False

    def _must_stop(self, deadline: float) -> bool:
        if not self._deaf and not self._holds and time.monotonic() > deadline:
            # The rest waits for the next tick, after other connections.
            self._hold(_HOLD_TURN)
            self._hub.loop.call_soon(self._release, _HOLD_TURN)
        return self._deaf or self._holds != 0

    def _handle(self, event: Event) -> None:
        if isinstance(event, TextMessage | BytesMessage):
            self._take_piece(event)
        elif isinstance(event, Pong):
            self._annoyed()
        elif isinstance(event, Ping):
            if self._annoyed():
                return
            if self._proto.state is ConnectionState.OPEN:
                self._write(self._proto.send(event.response()))
                if self.queued_bytes > self._hub.limits.high_water_bytes:
                    self._hold(_HOLD_OUTPUT)  # it pings and does not read
        elif isinstance(event, CloseConnection):
            self._take_close(event)

    def _take_piece(self, event: TextMessage | BytesMessage) -> None:
        if self.closed:
            return  # closing: the peer may not have seen it yet
        piece = event.data
        encoded = piece.encode() if isinstance(piece, str) else bytes(piece)
        limits = self._hub.limits
        self._frame_bytes += len(encoded)
        self._message_bytes += len(encoded)
        if (
            self._frame_bytes > limits.ws_max_frame_bytes
            or self._message_bytes > limits.ws_max_message_bytes
        ):
            self._fail(CloseReason.MESSAGE_TOO_BIG, "message too big")
            return
        if self._charge.raise_to(self._message_bytes) is not None:
            self._fail(CloseReason.TRY_AGAIN_LATER, "too many bytes of requests are in memory")
            return
        if event.frame_finished:
            is_small = self._frame_bytes < limits.ws_small_frame_bytes
            self._frame_bytes = 0
            if is_small and not event.message_finished and self._annoyed():
                return
        if self._partial is not None or not event.message_finished:
            self._partial = self._partial or BytesIO()
            self._partial.write(encoded)
        if not event.message_finished:
            return
        if self._partial is not None:
            encoded, self._partial = self._partial.getvalue(), None
        self._message_bytes = 0
        self._since = self._message_since = None
        self._deliver(encoded, is_text=isinstance(event, TextMessage))

    def _annoyed(self) -> bool:
        """A frame made work and came to nothing; whether there has been too much of that."""
        is_fine = self._patience.spend(1, now_s=time.monotonic())
        if not is_fine:
            self._fail(CloseReason.POLICY_VIOLATION, "too many small frames")
        return not is_fine

    def _deliver(self, message: bytes, *, is_text: bool) -> None:
        callback = self.on_text if is_text else self.on_binary
        if callback is not None:
            try:
                callback(message)
            except Exception:
                log.exception("handling a WebSocket message failed")
                self.close(CloseReason.INTERNAL_ERROR)
        if not self._holds & _HOLD_APPLICATION:
            self._charge.give_back()

    def _take_close(self, event: CloseConnection) -> None:
        if self._proto.state is ConnectionState.REMOTE_CLOSING:
            self._write(self._proto.send(event.response()))
            self._ended(event.code)
            self._transport.close()
        elif self._proto.state is ConnectionState.CLOSED:
            self._ended(event.code)
            self._transport.close()
        else:  # the library's way to say that the bytes were no WebSocket
            self._fail(event.code, event.reason or "")

    def _fail(self, code: int, reason: str) -> None:
        """Say why, and stop listening; the connection lingers so that it can be read."""
        if self._proto.state is ConnectionState.OPEN:
            self._write(self._proto.send(CloseConnection(code=code, reason=reason)))
        self._deaf = True
        self._ended(code)
        if self._transport.can_write_eof():
            if not self._transport.is_closing():
                self._transport.write_eof()
        else:
            self._transport.close()

    # Messages go out

    def send_text(self, data: bytes) -> bool:
        """Queue one message of UTF-8 bytes; False when it could not leave at once."""
        if self.closed:
            return False
        self._write(self._hub.text_framed(data))
        if self._transport.get_write_buffer_size() == 0:
            return True
        self._ends.append(self._written)
        return False

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._written += len(data)
            self._transport.write(data)

    @property
    def queued_messages(self) -> int:
        """Messages not yet wholly given to the kernel."""
        sent = self._written - self._transport.get_write_buffer_size()
        while self._ends and self._ends[0] <= sent:
            self._ends.popleft()
        return len(self._ends)

    @property
    def queued_bytes(self) -> int:
        """Bytes not yet given to the kernel."""
        return self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        """Something could not be sent; the senders were told."""

    def resume_writing(self) -> None:
        """Everything has left."""
        self._ends.clear()
        self._release(_HOLD_OUTPUT)
        if self.on_drain is not None and not self.closed:
            call_safely(self.on_drain)

    # Holds

    def pause_reading(self) -> None:
        """Deliver nothing until `resume_reading`."""
        self._hold(_HOLD_APPLICATION)

    def resume_reading(self) -> None:
        """Deliver again."""
        if self._partial is None:
            self._charge.give_back()
        self._release(_HOLD_APPLICATION)

    def _hold(self, reason: int) -> None:
        if not self._holds and not self._transport.is_closing():
            self._transport.pause_reading()
        self._holds |= reason

    def _release(self, reason: int) -> None:
        if not self._holds & reason:
            return
        self._holds &= ~reason
        if not self._holds and not self._transport.is_closing():
            # In the next tick, since a callback may ask.
            self._hub.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Deliver what was received before the pause, and read on only when that is done."""
        self._process()
        if not self._holds and not self._transport.is_closing():
            self._transport.resume_reading()

    # The end

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Start the closing handshake."""
        if self.closed:
            return
        self.closed = True
        if self._proto.state is ConnectionState.OPEN:
            self._write(self._proto.send(CloseConnection(code=code, reason=reason)))
        # The answer to it must be read even if the application had paused.
        self._release(_HOLD_APPLICATION)

    def _ended(self, code: int) -> None:
        """Report the end, once."""
        self.closed = True
        self._partial = None
        self._charge.give_back()
        callback, self.on_close = self.on_close, None
        if callback is not None:
            try:
                callback(int(code))
            except Exception:
                log.exception("a callback of the application failed")
        over, self._on_over = self._on_over, None
        if over is not None:
            over()

    def eof_received(self) -> None:
        """No half-open WebSockets: the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer has gone, with or without a word."""
        self._hub.drop(self)
        self._deaf = True
        self._ended(CloseReason.ABNORMAL_CLOSURE)

    def tick(self, now: float) -> None:
        """Do not wait for ever for the rest of a message, or of a closing handshake."""
        if not self.closed:
            self._check_message(now)
        elif self._since is None:
            self._since = now
        elif now - self._since > self._hub.limits.linger_s:
            self._transport.abort()

    def _check_message(self, now: float) -> None:
        limits, received = self._hub.limits, self._message_bytes
        if self._partial is None or self._holds:
            self._since = None  # the client waits for us, not we for the client
            return
        if self._message_since is None:
            self._message_since = now
        if self._since is None:
            self._since, self._mark = now, received
            return
        waited = now - self._since
        if waited <= limits.body_timeout_s and now - self._message_since <= limits.max_body_s:
            return
        is_slow = received - self._mark < limits.min_body_rate * waited
        if is_slow or now - self._message_since > limits.max_body_s:
            self._since = None
            self._fail(CloseReason.POLICY_VIOLATION, "the message took too long to arrive")
        else:
            self._since, self._mark = now, received

    def drain(self) -> None:
        """The application closes it, in its own words and when it has said them."""

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()
