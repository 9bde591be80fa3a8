"""HTTP/1.1 connections.

Each module of this package knows those above it in this list, and none below:

    wire, head_cache   bytes of heads and chunks; heads that were read before
    exchange           one request and its answer
    reader, timeouts   from bytes to exchanges; peers that keep us waiting
    connection         the order of requests and answers on one connection

Theory of operation. The reader makes exchanges of bytes; an exchange joins the queue when its
headers are complete. Answers leave in the order of the queue: the first exchange writes to the
transport, the others keep their output until they are first. A request runs as soon as it is
complete if it is first, or if all unanswered requests before it ask the same thing of the same
target (a burst of writes to one topic then shares a commit). Any other request waits, so that a
pipelined read sees the write before it.

Reading stops while there is a *hold*: the peer does not read, too much is pipelined, an upgrade
is undecided, or the rest of long input waits for the next tick. Input that was received but not
parsed is kept, and parsed first when the last hold is released. The parser cannot be stopped
inside the bytes it was given, so it is fed in slices unless they are known to be body.

Output is *corked* while input is being parsed. A single small answer stays corked until the end
of the tick, so that the answers of many connections leave in a row; see `tick.Tick`. Output that
is written in between goes behind the cork, and a connection is uncorked before it is closed.

A connection is *deaf* once a request said it is the last, or was refused with its body unread:
input is dropped from there on. After such a refusal the connection lingers half-closed, since
closing with unread input would reset it and could destroy the answer.
"""

import asyncio
from collections import deque

from topics.http.exchange import call_safely
from topics.http.h1.exchange import H1Exchange, startable
from topics.http.h1.head_cache import END as HEAD_END
from topics.http.h1.reader import HEAD, IDLE, H1Reader
from topics.http.h1.timeouts import H1Timeouts
from topics.http.h1.wire import CONTINUE, upgrade_head
from topics.http.hub import Hub
from topics.http.messages import Request, Response, Upgrade
from topics.http.ws.connection import WebSocket, accept_token

_HOLD_OUTPUT, _HOLD_PIPELINE, _HOLD_UPGRADE, _HOLD_TICK = 1, 2, 4, 8

_HELD_BYTES = 16 * 1024
"""The largest answer that waits for the end of the tick; a longer one would only take memory."""


class H1Connection(asyncio.Protocol):
    """The connection of one HTTP/1.0 or 1.1 client."""

    __slots__ = (
        "_advancing",
        "_corked",
        "_corked_bytes",
        "_eof",
        "_held",
        "_holds",
        "_lingering",
        "_queue",
        "_reader",
        "_transport",
        "_waits",
        "_websocket",
        "hub",
        "is_stranger",
    )

    def __init__(self, hub: Hub, transport: asyncio.Transport, peer: str) -> None:
        self.hub = hub
        self._transport = transport
        self._reader = H1Reader(self, peer)
        self._waits = H1Timeouts(self, self._reader)
        self._queue: deque[H1Exchange] = deque()
        self._advancing = False
        self._corked: list[bytes] | None = None
        self._corked_bytes = 0  # of its long answers
        self._held = b""
        self._holds = 0
        self._eof = False
        self._lingering = False
        self._websocket: WebSocket | None = None
        self.is_stranger = True  # no request came with a key, where keys are needed
        transport.set_write_buffer_limits(high=hub.limits.high_water_bytes, low=0)
        hub.add(self)

    # Bytes come in

    def data_received(self, data: bytes) -> None:
        """Parse what arrived and answer what can be answered, at the end of the tick."""
        if self._reader.deaf:
            return
        tick = self.hub.tick
        tick.hear(self)
        try:
            if self._holds or self._held:
                self._held += data
                return
            if self._corked is None:
                self._corked = []
            reader = self._reader
            if self._queue or reader.phase != IDLE:
                self._parse(data)
                reader.complete = None
            else:
                end = data.find(HEAD_END) + len(HEAD_END)
                known = self.hub.heads.get(data[:end])
                if known is not None and known[0] == len(data) - end:
                    self._run_again(known[1], data[end:])
                else:
                    self._parse_alone(data)
            self._let_go_later()
        finally:
            tick.pause()

    def _run_again(self, alike: Request, body: bytes) -> None:
        """Answer a request whose head was read before, and that does not have to wait."""
        reader = self._reader
        reader.since = None
        reader.requests += 1
        request = alike.sibling(reader.peer)
        exchange = H1Exchange(self, request, keep_alive=True)
        self._queue.append(exchange)
        exchange.begin(False)
        if self.is_stranger:
            self.is_stranger = request.is_stranger
        if not exchange.answered:
            request.body = body
            exchange.ready = exchange.started = True
            exchange.run()

    def _parse_alone(self, data: bytes) -> None:
        """Parse what came between two requests; remember the head of a single, whole one."""
        reader = self._reader
        before = reader.requests
        self._parse(data)
        exchange, reader.complete = reader.complete, None
        if exchange is None or reader.requests != before + 1 or reader.phase != IDLE:
            return
        if exchange.started and exchange.keep_alive:
            self.hub.heads.learn(data, exchange.request, exchange.length)

    def _parse(self, data: bytes) -> None:
        reader = self._reader
        while data and not self._holds and not reader.deaf:
            part = reader.part_of(data)
            if len(data) <= part:
                data = reader.feed(data)
            else:
                rest = data[part:]
                data = reader.feed(data[:part]) + rest
                if len(data) > reader.part_of(data):
                    # A slice can hold hundreds of requests: other connections are served first.
                    self._hold(_HOLD_TICK)
                    self.hub.loop.call_soon(self._release, _HOLD_TICK)
            if self._websocket is not None:
                self._hand_over(data)
                return
        if data:
            self._held = b"" if reader.deaf else data

    # What the reader reports

    def began(self, exchange: H1Exchange, flaw: Response | None) -> None:
        """A request's headers are in: it joins the queue and is admitted or refused."""
        self._queue.append(exchange)
        if flaw is not None:
            self.refuse(flaw)
            return
        exchange.begin(not exchange.read)
        if self.is_stranger:
            self.is_stranger = exchange.request.is_stranger
        if exchange.expects_continue and not exchange.answered and self._queue[0] is exchange:
            self._write(CONTINUE)

    def completed(self, exchange: H1Exchange) -> None:
        """A whole request is in: run it if it need not wait."""
        if not exchange.keep_alive:
            self.stop_listening()
        if not exchange.complete():
            self._bound_queue()
            return
        exchange.ready = True
        if self._queue[0] is exchange and not self._corked_bytes:
            exchange.started = True
            exchange.run()
        else:
            self._start_next()
            self._bound_queue()

    def stopped_at_upgrade(self) -> None:
        """The reader is at the end of HTTP, if the application agrees; wait for its word."""
        undecided = bool(self._queue) and self._queue[-1].request.wants_websocket
        if undecided and self._websocket is None:
            self._hold(_HOLD_UPGRADE)

    def refuse(self, response: Response) -> None:
        """Answer input that is no request, after all that came before it; then hang up."""
        exchange = self._reader.reading
        if exchange is None:
            nothing = Request("", b"/", {}, version="1.1", peer="")
            exchange = H1Exchange(self, nothing, keep_alive=False)
            exchange.read = False  # its end is not known
            self._queue.append(exchange)
        exchange.keep_alive = False
        self.stop_listening()
        if not exchange.answered:
            exchange(response)
        elif exchange not in self._queue:
            self._hang_up(linger=True)  # the request was refused before, and now its body, too

    def stop_listening(self) -> None:
        """Drop all further input."""
        self._reader.deaf = True
        self._held = b""

    # The queue moves

    def _start_next(self) -> None:
        """Run complete requests that need not wait for those before them."""
        exchange = self._startable()
        while exchange is not None:
            exchange.started = True
            exchange.run()
            exchange = self._startable()

    def _startable(self) -> H1Exchange | None:
        if self._holds & _HOLD_OUTPUT:
            return None
        return startable(self._queue, self.hub.limits.high_water_bytes - self._corked_bytes)

    def advance(self) -> None:
        """Retire finished exchanges from the head of the queue and let the next ones run."""
        if self._advancing:
            return  # the loop below is running already; recursion would be deep
        self._advancing = True
        try:
            while self._queue and self._queue[0].done:
                finished = self._queue.popleft()
                if finished.request.wants_websocket:
                    self._release(_HOLD_UPGRADE)
                if not finished.keep_alive:
                    self._hang_up(linger=not finished.read)
                    return
                if self._queue:
                    self._come_to_head(self._queue[0])
        finally:
            self._advancing = False
        self._bound_queue()
        if self._eof and not self._queue and not self._held:
            self.close()

    def _come_to_head(self, exchange: H1Exchange) -> None:
        early, exchange.early, exchange.early_bytes = exchange.early, None, 0
        if early:
            for data in early:
                self._write(data)
            self.uncork()
            self.clear_way(exchange)
            if not self._holds & _HOLD_OUTPUT:
                exchange.drained()
        if exchange.expects_continue and not exchange.read and not exchange.answered:
            self._write(CONTINUE)
        self._start_next()

    def _bound_queue(self) -> None:
        limits = self.hub.limits
        queue = self._queue
        if len(queue) > limits.max_pipelined or (
            len(queue) > 1
            and sum(len(exchange.request.body) for exchange in queue) > limits.max_pipelined_bytes
        ):
            self._hold(_HOLD_PIPELINE)
        elif self._holds & _HOLD_PIPELINE:
            self._release(_HOLD_PIPELINE)

    def is_last(self, exchange: H1Exchange) -> bool:
        """Whether nothing else has been asked after this."""
        return self._queue[-1] is exchange

    def _hang_up(self, *, linger: bool) -> None:
        self.uncork()
        self.stop_listening()
        self._reader.reading = None
        if self._transport.is_closing():
            return
        if not linger or self._eof:
            self._transport.close()
            return
        self._lingering = True
        self._reader.since = None
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._holds = 0
        self._transport.resume_reading()

    # Bytes go out

    def send(self, exchange: H1Exchange, data: bytes) -> None:
        """Write on behalf of an exchange, now or when it is first in the queue."""
        if self._queue and self._queue[0] is exchange:
            self._write(data)
        else:
            exchange.early = exchange.early or []
            exchange.early.append(data)
            exchange.early_bytes += len(data)

    def clear_way(self, exchange: H1Exchange) -> None:
        """Let a stream that has come to the head write to the transport, where nothing waits.

        Until the stream ends no other exchange writes, and nothing is corked.
        """
        if exchange.opened is not None and self._queue and self._queue[0] is exchange:
            exchange.opened.way = None if self._holds & _HOLD_OUTPUT else self._transport

    def send_last(self, exchange: H1Exchange, *pieces: bytes) -> None:
        """Write an answer up to its end; the next exchange may go on."""
        queue = self._queue
        exchange.done = True
        if len(queue) > 1 or not exchange.keep_alive or self._holds or self._eof:
            for data in pieces:
                self.send(exchange, data)
            exchange.over()
            self.advance()
            return
        # By far the most common case: nothing else is queued and there is nothing else to do.
        if self._corked is not None:
            self._corked += pieces
            if len(pieces) > 1:
                self._corked_bytes += sum(map(len, pieces))
        else:
            self._corked = [*pieces]
            self._let_go_later()
        queue.popleft()
        exchange.over()

    def _write(self, data: bytes) -> None:
        if self._corked is not None:
            self._corked.append(data)
            if len(data) > _HELD_BYTES:
                self._corked_bytes += len(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def _let_go_later(self) -> None:
        """Send collected output at the end of the tick; a large amount is sent at once."""
        corked = self._corked
        if not corked:
            self._corked = None
        elif len(corked) == 1 and len(corked[0]) <= _HELD_BYTES:
            self.hub.tick.uncork_later(self)
        else:
            self.uncork()

    def uncork(self) -> None:
        """Let collected output go, in one system call if the kernel takes it."""
        corked, self._corked = self._corked, None
        if corked and not self._transport.is_closing():
            if len(corked) == 1:
                self._transport.write(corked[0])
            else:
                self._transport.writelines(corked)
        if self._corked_bytes:
            self._corked_bytes = 0
            if self._queue:
                self.hub.loop.call_soon(self._start_next)

    def backed_up(self, exchange: H1Exchange) -> bool:
        """Whether an exchange should wait before it writes more."""
        if self._holds & _HOLD_OUTPUT:
            return True
        return exchange.early_bytes > self.hub.limits.high_water_bytes

    def queued_bytes(self, exchange: H1Exchange) -> int:
        """Output that has not left for the kernel."""
        return self._transport.get_write_buffer_size() + exchange.early_bytes

    # Holds

    def _hold(self, reason: int) -> None:
        if not self._holds and not self._transport.is_closing():
            self._transport.pause_reading()
        self._holds |= reason

    def _release(self, reason: int) -> None:
        if not self._holds & reason or self._websocket is not None:
            return
        self._holds &= ~reason
        if self._holds or self._transport.is_closing():
            return
        if self._held:
            # In the next tick: this one may be deep inside a callback of the parser.
            self.hub.loop.call_soon(self._parse_held)
        else:
            self._transport.resume_reading()

    def _parse_held(self) -> None:
        """Parse what was received before the hold; read on only when that is done."""
        held = b"" if self._holds else self._held
        if held:
            self._held = b""
            self.data_received(held)
        if self._holds or self._websocket is not None or self._transport.is_closing():
            return
        self._transport.resume_reading()
        if self._eof and not self._queue and not self._held:
            self.close()

    def pause_writing(self) -> None:
        """The peer is not reading: neither do we."""
        self._hold(_HOLD_OUTPUT)
        if self._queue:
            self.clear_way(self._queue[0])

    def resume_writing(self) -> None:
        """All output has left."""
        self._release(_HOLD_OUTPUT)
        if self._queue:
            self.clear_way(self._queue[0])
            self._queue[0].drained()
            self._start_next()

    # Becoming a WebSocket

    def become_websocket(self, exchange: H1Exchange) -> Upgrade:
        """Answer the handshake; the socket takes the connection over."""
        holder = exchange.request.holder
        socket = WebSocket(self.hub, self._transport, holder=holder, on_over=exchange.over)
        if exchange.gone:
            self.hub.loop.call_soon(socket.connection_lost, None)
            return socket
        fields = exchange.added_fields(Response(101))
        self.send(exchange, upgrade_head(accept_token(exchange.request), fields))
        self.uncork()
        self._websocket = socket
        if self._holds & _HOLD_UPGRADE:
            # The parser has long stopped. Not now, though: the application has yet to set
            # the callbacks of the socket it is about to be given.
            self.hub.loop.call_soon(self._hand_over_held)
        return socket

    def _hand_over_held(self) -> None:
        held, self._held = self._held, b""
        self._hand_over(held)

    def _hand_over(self, rest: bytes) -> None:
        socket = self._websocket
        assert socket is not None
        self._queue.clear()
        self.hub.drop(self)
        if self._transport.is_closing():
            socket.connection_lost(None)
            return
        self._transport.set_protocol(socket)
        socket.start()
        if rest:
            socket.data_received(rest)

    # The end

    def eof_received(self) -> bool:
        """The client will send no more; it may still be waiting for answers."""
        self.uncork()
        self._eof = True
        if self._lingering or not self._transport.can_write_eof():
            return False
        if self._reader.reading is not None:
            self._abandon(self._reader.reading)
        # A client that reads a stream never half-closes: this one has disconnected.
        if self._queue and self._queue[0].opened is not None:
            return False
        for exchange in tuple(self._queue):
            if exchange.on_half_close is not None and not exchange.answered:
                call_safely(exchange.on_half_close)
        return bool(self._queue or self._held)

    def _abandon(self, exchange: H1Exchange) -> None:
        self._reader.reading = None
        if exchange in self._queue:
            self._queue.remove(exchange)
        exchange.leave()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all exchanges that the client has disconnected."""
        self.hub.drop(self)
        self._held = b""
        queue, self._queue = self._queue, deque()
        for exchange in queue:
            exchange.leave()
        if self._websocket is not None:
            self._websocket.connection_lost(exc)
        self._reader.stop()

    def close(self) -> None:
        """Close once everything has left."""
        self.uncork()
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def drain(self) -> None:
        """Close when nothing is running; an answer still to come will say it is the last."""
        if not self._queue and self._reader.phase in (IDLE, HEAD):
            self.close()

    # The sweep

    def tick(self, now: float) -> None:
        """Give up on a peer that has kept us waiting too long."""
        queued = self._transport.get_write_buffer_size()
        if self._holds & _HOLD_OUTPUT or (queued and not self._lingering):
            is_streaming = bool(self._queue) and self._queue[0].opened is not None
            self._waits.check_stall(now, queued=queued, is_streaming=is_streaming)
        elif self._holds or (self._reader.phase == IDLE and self._queue):
            self._reader.since = None  # the client waits for us, not we for the client
        else:
            self._waits.check(now, lingering=self._lingering)
