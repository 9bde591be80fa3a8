"""WebSockets: commands in, one at a time and in order; answers and records out.

While a command runs, or the peer does not take what it was sent, no further command is read. The
socket stays open after a command that failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from msgspec import UNSET

from topics.delivery.feed import Feed
from topics.delivery.loop_budget import TimerHandle
from topics.delivery.pages import Options
from topics.delivery.socket import SocketSink
from topics.delivery.starting import Started, resolve
from topics.delivery.subscriptions import Subscription
from topics.engine.effects import Op
from topics.engine.writes.append import Timing
from topics.errors import (
    Internal,
    InvalidRequest,
    LogFailed,
    LogFull,
    MisspeltField,
    TopicsError,
)
from topics.http.api import writing
from topics.http.api.auth import Scope
from topics.http.api.call import Call
from topics.http.api.errors import as_told, internal
from topics.http.api.routing import Handler
from topics.http.messages import Upgrade
from topics.values import Ack
from topics.wire import requests, ws
from topics.wire.rendering import Include
from topics.wire.requests import (
    PingCommand,
    PublishCommand,
    SubscribeCommand,
    UnsubscribeCommand,
    WriteRequest,
)
from topics.wire.requests.watching import Command

_log = logging.getLogger("topics.http")

T = TypeVar("T")
GOING_AWAY = 1001
INTERNAL_ERROR = 1011
LAST_ANSWER_MS = 3000
"""How long a stopping server waits for the command under way before it closes the socket."""


def connect(call: Call) -> None:
    if not call.request.wants_websocket:
        raise InvalidRequest("this path speaks WebSocket only; connect with an upgrade request")
    service = call.service
    live = service.live
    service.open_stream(call.principal.key_id)
    call.stop_counting()
    try:
        upgrade = call.reply.upgrade()
    except BaseException:
        service.close_stream(call.principal.key_id)
        raise
    live.connections[Socket(call, upgrade)] = None


class Socket:
    """One connection and the commands it sends."""

    def __init__(self, call: Call, upgrade: Upgrade) -> None:
        self._service = call.service
        self._live = call.service.live
        self._principal = call.principal
        self._upgrade = upgrade
        self._sink = SocketSink(upgrade, on_change=self._balance)
        self._feed = Feed(self._live, self._sink)
        self._goodbye: TimerHandle | None = None
        self._in_line = b""  # a long command that waits to be decoded
        upgrade.on_text = self._receive
        upgrade.on_binary = self._refuse_binary
        upgrade.on_close = self._closed

    def passed(self) -> int:
        return self._feed.passed()

    def shut_down(self) -> None:
        """Say goodbye and close, behind the answer to the command under way: what it did stays."""
        self._feed.close()
        if self._sink.answer_is_due:
            self._goodbye = self._live.timers.call_later(LAST_ANSWER_MS, self._say_goodbye)
        else:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        self._cancel_goodbye()
        self._sink.send(ws.shutting_down())
        self._upgrade.close(GOING_AWAY, "server shutting down")

    def _cancel_goodbye(self) -> None:
        if self._goodbye is not None:
            self._goodbye.cancel()

    def _closed(self, code: int) -> None:
        self._in_line = b""
        self._cancel_goodbye()
        self._feed.close()
        self._live.connections.pop(self, None)
        self._service.close_stream(self._principal.key_id)

    def _balance(self) -> None:
        """Read commands only while none is running and the peer takes its messages."""
        if self._sink.answer_is_due or self._sink.is_full:
            self._upgrade.pause_reading()
        else:
            self._upgrade.resume_reading()

    # Commands

    def _refuse_binary(self, message: bytes) -> None:
        self._sink.send(ws.unsupported_message())

    def _receive(self, message: bytes) -> None:
        if len(message) > requests.LONG_BODY_BYTES:
            self._read_long(message)
            return
        try:
            command = requests.decode_command(message)
        except InvalidRequest as error:
            self._refuse(error, requests.request_id_of(message))
            return
        self._obey(command, None)

    def _refuse(self, error: InvalidRequest, request_id: ws.RequestId) -> None:
        """Answer a command that could not be decoded; only a misspelt one has a readable id."""
        if isinstance(error, MisspeltField):
            self._sink.send(ws.command_failed(request_id, error))
        else:
            self._sink.send(ws.unreadable_command(error))

    def _read_long(self, message: bytes) -> None:
        """Read a long command with pauses; the next one is read when it has been answered."""
        self._sink.answer_is_due = True
        self._in_line = message
        bodies = self._service.long_bodies
        request_id: ws.RequestId = UNSET

        def understood() -> Op[tuple[Command, WriteRequest | None]]:
            text, self._in_line = self._in_line, b""
            if not text:
                raise InvalidRequest("the client has gone")
            in_steps, whole = requests.decode_command_in_steps, requests.decode_command_and_write
            try:
                return (yield from bodies.decoded(text, in_steps, whole))
            except MisspeltField:
                nonlocal request_id
                request_id = requests.request_id_of(text)
                raise

        def done(
            read: tuple[Command, WriteRequest | None] | None, error: TopicsError | None
        ) -> None:
            self._sink.answer_is_due = False
            if self._upgrade.closed:
                return
            if read is not None:
                self._obey(*read)
            elif isinstance(error, InvalidRequest):
                self._refuse(error, request_id)
            else:
                self._upgrade.close(INTERNAL_ERROR)
            if self._goodbye is not None and not self._sink.answer_is_due:
                self._say_goodbye()
            self._balance()

        self._service.runner.start(bodies.alone(understood()), done)
        if self._sink.answer_is_due:
            self._balance()

    def _obey(self, command: Command, long_write: WriteRequest | None) -> None:
        try:
            self._run(command, long_write)
        except TopicsError as error:
            self._fail(command, error)
        except Exception as error:
            self._fail(command, internal(error))

    def _run(self, command: Command, long_write: WriteRequest | None) -> None:
        match command:
            case SubscribeCommand():
                self._subscribe(command)
            case UnsubscribeCommand():
                self._unsubscribe(command)
            case PublishCommand():
                self._publish(command, long_write)
            case PingCommand():
                self._sink.send(ws.pong(command.request_id))

    def _fail(self, command: Command, error: TopicsError) -> None:
        if error.code == "throttled":
            self._service.throttled_total += 1
        elif isinstance(error, Internal) and not isinstance(error, LogFull | LogFailed):
            _log.error("a WebSocket command failed: %s", error, exc_info=error)
        told = as_told(error, is_limited=bool(self._principal.prefixes))
        self._sink.send(ws.command_failed(command.request_id, told))

    def _start(self, command: Command, op: Op[T], answer: Callable[[T], None]) -> None:
        """Run an operation; the next command is read when it has been answered."""
        self._sink.answer_is_due = True

        def done(result: T | None, error: TopicsError | None) -> None:
            self._sink.answer_is_due = False
            if not self._upgrade.closed:
                if error is None:
                    answer(result)  # type: ignore[arg-type]  # without an error there is one
                else:
                    self._fail(command, error)
                if self._goodbye is not None:
                    self._say_goodbye()
            self._balance()

        self._service.runner.start(op, done)
        if self._sink.answer_is_due:
            self._balance()

    def _subscribe(self, command: SubscribeCommand) -> None:
        self._principal.need(Scope.READ)
        starts = command.starts
        for name in starts:
            self._principal.need_name(name)
        engine = self._service.ready_engine
        options = Options.clamped(
            limit=command.limit,
            budget=command.max_batch_bytes,
            max_limit=engine.kernel.settings.max_limit,
            nodes=command.nodes,
            include=Include(
                tags=command.include_tags, meta=command.include_meta, data=command.include_data
            ),
        )

        def answer(started: dict[str, Started]) -> None:
            shown = {name: start.shown for name, start in started.items()}
            self._sink.send(ws.subscribed(command.request_id, shown))
            for name, start in started.items():
                self._feed.follow(Subscription(name, start.place, options))

        self._start(command, resolve(engine, starts, lenient=command.lenient), answer)

    def _unsubscribe(self, command: UnsubscribeCommand) -> None:
        names = command.names
        for name in names:
            self._principal.need_name(name)
        for name in names:
            self._feed.unfollow(name)
        self._sink.send(ws.unsubscribed(command.request_id, names))

    def _publish(self, command: PublishCommand, long_write: WriteRequest | None) -> None:
        self._principal.need(Scope.WRITE)
        self._principal.need_name(command.topic)
        service, engine, topic = self._service, self._service.ready_engine, command.topic
        sent = long_write or command.write
        if long_write is None:
            writing.check(engine, self._principal, topic, sent, config_needs_admin=True)
        else:
            writing.check_config(engine, self._principal, topic, sent, always=True)
        started_ns, timing = time.perf_counter_ns(), Timing()

        def written() -> Op[Ack]:
            prepared = None
            if long_write is not None:
                prepared = yield from service.long_bodies.alone(
                    writing.prepare(service, engine, sent)
                )
            return (yield from writing.append(engine, topic, sent, timing, prepared))

        def answer(ack: Ack) -> None:
            spent = writing.time_spent(ack, timing, started_ns)
            message = ws.ack(command.request_id, ack, spent, return_seqs=command.return_seqs)
            self._sink.send(message)

        self._start(command, written(), answer)


HANDLERS: dict[str, Handler] = {"openWebSocket": connect}
