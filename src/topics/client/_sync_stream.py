"""Live reads of the blocking client: event streams and WebSockets that reconnect."""

# Made from `_aio_stream.py` by tools/make_sync.py: change that, then `make fmt`.

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from typing import Literal, Protocol

from topics.client._call import ApiCall
from topics.client._following import (
    Following,
    SseFrames,
    StreamEnded,
    StreamFrame,
    is_vague,
    with_reason,
)
from topics.client._listening import Listening
from topics.client.sync_http import BodyStream, ClientConnection, Http
from topics.errors import TopicsError, Unreachable
from topics.events import Event, Lost
from topics.values import Tombstone

Transport = Literal["sse", "ws"]
Reason = Callable[[str, int], Tombstone | None]
"""Looks up why records after a seq of a topic were lost."""


class Channel(Protocol):
    """An open stream of frames."""

    def receive(self, patience: float) -> list[StreamFrame] | None:
        """What comes within `patience` seconds; None when nothing did."""
        ...

    def ask(self) -> None:
        """Ask for a sign of life, if it does not come by itself."""
        ...


class SseChannel:
    """An event stream; the server sends heartbeats unasked."""

    def __init__(self, stream: BodyStream) -> None:
        self._stream = stream
        self._frames = SseFrames()

    def receive(self, patience: float) -> list[StreamFrame] | None:
        part = self._stream.next_part(patience)
        if part == b"":
            raise StreamEnded("the server ended the stream")
        return None if part is None else self._frames.feed(part)

    def ask(self) -> None:
        pass


class WsChannel:
    """A WebSocket; we ask for signs of life."""

    def __init__(self, http: Http, connection: ClientConnection, hello: bytes) -> None:
        from topics.client._socket import WebSocketClient  # noqa: PLC0415 - few programs use it

        self._connection = connection
        self._socket = WebSocketClient(http.target, hello)
        self._first: list[StreamFrame] = []
        self._flush()

    def await_first(self, patience: float) -> None:
        """Wait until the server has answered the subscription: only then is the stream open."""
        end = _now() + patience
        while not self._first:
            frames = self.receive(end - _now())
            if frames is None:
                raise Unreachable(self._connection.url, reason="it took too long", sent=True)
            self._first = frames

    def receive(self, patience: float) -> list[StreamFrame] | None:
        if self._first:
            first, self._first = self._first, []
            return first
        data = self._connection.receive_some(patience)
        if data is None:
            return None
        if not data:
            raise StreamEnded("the server ended the stream")
        try:
            return self._socket.feed(data)
        finally:
            self._flush()

    def ask(self) -> None:
        self._socket.ping()
        self._flush()

    def _flush(self) -> None:
        data = self._socket.take_outgoing()
        if data:
            self._connection.send(data)


@contextlib.contextmanager
def opened(
    http: Http,
    following: Following,
    transport: Transport,
    run: Callable[[ApiCall[str]], str],
) -> Iterator[Channel]:
    """A fresh stream from where `following` stands."""
    if transport == "ws":
        connection = http.connect(http.timeout)
        with contextlib.closing(connection):
            channel = WsChannel(http, connection, following.subscription())
            channel.await_first(http.timeout)
            yield channel
    else:
        path = run(following.session_call())
        with http.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
            yield SseChannel(stream)


def events(
    http: Http,
    following: Following,
    *,
    wait: float | None,
    heartbeat: float,
    transport: Transport,
    run: Callable[[ApiCall[str]], str],
    reason: Reason,
) -> Generator[Event, None, None]:
    """Everything a live read has to say, over as many connections as it takes."""
    listening = Listening(now=_now(), wait=wait, heartbeat=heartbeat, url=http.url)
    was_open, tries = False, 0
    while not following.is_over:
        try:
            with opened(http, following, transport, run) as channel:
                was_open = True
                resumed = listening.opened(_now(), following.places())
                if resumed is not None:
                    yield resumed
                yield from following.departed()
                while not following.is_over:
                    settled = following.is_settled
                    if listening.has_waited(_now(), settled=settled):
                        return
                    frames = channel.receive(listening.patience(_now(), settled=settled))
                    yield from _news(frames, following, listening, channel, reason)
                    http.check_open()
        except (TopicsError, StreamEnded) as error:
            if not was_open and isinstance(error, TopicsError):
                # The calls before an event stream have been repeated already.
                tries += 1
                if transport == "sse" or tries > http.retries:
                    raise
            http.forget_idle()  # what cut this connection may have cut the others
            http.sleep(listening.lost(error, _now()))


def _news(
    frames: list[StreamFrame] | None,
    following: Following,
    listening: Listening,
    channel: Channel,
    reason: Reason,
) -> Iterator[Event]:
    if frames is None:
        listening.check_alive(_now())
        if listening.must_ping(_now()):
            channel.ask()
        return
    listening.heard(_now(), news=bool(frames))
    for frame in frames:
        for event in following.take(frame):
            if isinstance(event, Lost) and is_vague(event):
                known = reason(event.topic, following.positions[event.topic] or 0)
                yield with_reason(event, known)
            else:
                yield event
    if frames:
        listening.heard(_now(), news=True)  # the reader took its time with them


def _now() -> float:
    return time.monotonic()
