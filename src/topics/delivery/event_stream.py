"""One open event stream: its outbound queue, its heartbeat, its end.

The transport buffers a little; behind that stands a queue of our own, bounded in frames and in
bytes. Each queued read remembers where its topic stood before it, so that frames which never
reached the transport can be taken back when the connection ends: the session then continues from
what was really handed over, and nothing is skipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from topics.delivery.feed import Feed, Live
from topics.delivery.loop_budget import TimerHandle
from topics.delivery.pages import PageFrames, Rendered
from topics.delivery.sessions import Session
from topics.delivery.subscriptions import Place, Subscription
from topics.wire import sse
from topics.wire.sse import GoneReason, ThrottleReason


class ByteStream(Protocol):
    """The transport's side: bytes go out over time."""

    on_drain: Callable[[], None] | None
    on_close: Callable[[], None] | None

    def write(self, data: bytes) -> bool:
        """Queue bytes; False when the peer is behind, and then `on_drain` follows."""
        ...

    @property
    def queued_bytes(self) -> int: ...

    def close(self) -> None: ...


class QueueBounds(NamedTuple):
    """How much may wait for one connection."""

    frames: int
    bytes: int


BOUNDS = QueueBounds(frames=1024, bytes=8 << 20)


class _Queued(NamedTuple):
    data: bytes
    frames: int
    place: Place | None
    epoch: int
    cursor: int


class StreamSink:
    """Frames as events of a session, queued within bounds."""

    kind = "events"

    __slots__ = (
        "_behind",
        "_bounds",
        "_bytes",
        "_frames",
        "_is_single",
        "_monotonic",
        "_queue",
        "_session",
        "_stream",
        "last_output",
        "on_drained",
    )

    def __init__(
        self,
        stream: ByteStream,
        session: Session,
        monotonic: Callable[[], float],
        bounds: QueueBounds,
    ) -> None:
        self.on_drained: Callable[[], None] = _ignore
        self.last_output = monotonic()
        self._stream = stream
        self._session = session
        self._is_single = len(session.places) == 1  # topics leave a session, none joins it
        self._monotonic = monotonic
        self._bounds = bounds
        self._queue: deque[_Queued] = deque()
        self._frames = 0
        self._bytes = 0
        self._behind = False
        stream.on_drain = self._drain

    @property
    def is_behind(self) -> bool:
        """Whether frames wait that the peer has not taken."""
        return self._behind

    @property
    def has_room(self) -> bool:
        return not self._behind or (
            self._frames < self._bounds.frames and self._waiting_bytes() < self._bounds.bytes
        )

    def _waiting_bytes(self) -> int:
        return self._bytes + self._stream.queued_bytes

    # What the feed says

    def show(self, sub: Subscription, page: Rendered, *, caught_up: bool) -> bool:
        frames = self.frames_of(sub, page, caught_up=caught_up)
        return self._put(frames.pieces[0], frames.total, sub.place)

    def repeat(self, frames: PageFrames, now: float) -> bool:
        if self._behind:
            return False
        self.last_output = now
        if not self._stream.write(frames.pieces[0]):
            self._behind = True
        return True

    def frames_of(self, sub: Subscription, page: Rendered, *, caught_up: bool) -> PageFrames:
        first_read = sub.first_read and page.tombstone is not None
        others = () if self._is_single else self._session.others(sub.name)
        fits = (first_read, caught_up, sub.place.cursor, others)
        known = page.frames.get(self.kind)
        if known is not None and known[0] == fits:
            return known[1]
        frames = self._frame(sub, page, first_read=first_read, caught_up=caught_up)
        page.frames[self.kind] = (fits, frames)
        return frames

    def _frame(
        self, sub: Subscription, page: Rendered, *, first_read: bool, caught_up: bool
    ) -> PageFrames:
        name, stream_id = sub.name, self._session.stream_id
        frames = []
        if page.tombstone is not None:
            place = stream_id(name, page.resume)
            frames.append(sse.tombstone(name, page.tombstone, stream=place, first_read=first_read))
        place = stream_id(name, page.next)
        if page.count:
            frames.append(
                sse.records(
                    name,
                    page.records,
                    stream=place,
                    from_seq=sub.place.cursor,
                    to_seq=page.next,
                    head_seq=page.head,
                )
            )
        if caught_up:
            frames.append(sse.caught_up(name, stream=place, head_seq=page.head))
        return PageFrames((b"".join(frames),), len(frames))

    def show_deleted(self, sub: Subscription) -> bool:
        return self._put_frame(sse.topic_deleted(sub.name, stream=self._session.stream_id()))

    def advise(self, reason: ThrottleReason, topic: str | None) -> None:
        self._put_frame(sse.throttled(reason, stream=self._session.stream_id(), topic=topic))

    def beat(self, now_ms: int) -> None:
        """Show that the connection lives."""
        self._hand(sse.heartbeat(now_ms))

    def _put_frame(self, frame: bytes) -> bool:
        return self._put(frame, 1, None)

    # The queue

    def _put(self, data: bytes, frames: int, place: Place | None) -> bool:
        if not self._behind:
            self._hand(data)
            return True
        size = len(data)
        if (
            self._frames + frames > self._bounds.frames
            or self._waiting_bytes() + size > self._bounds.bytes
        ):
            return False
        before = (0, 0) if place is None else (place.epoch, place.cursor)
        self._queue.append(_Queued(data, frames, place, *before))
        self._frames += frames
        self._bytes += size
        return True

    def _hand(self, data: bytes) -> None:
        self.last_output = self._monotonic()
        if not self._stream.write(data):
            self._behind = True

    def _drain(self) -> None:
        self._behind = False
        while self._queue and not self._behind:
            self._hand_next()
        if not self._behind:
            self.on_drained()

    def _hand_next(self) -> None:
        queued = self._queue.popleft()
        self._frames -= queued.frames
        self._bytes -= len(queued.data)
        self._hand(queued.data)

    def hand_all(self) -> None:
        """Give the transport everything, ready or not: the stream is about to end."""
        while self._queue:
            self._hand_next()

    def take_back(self) -> bool:
        """Forget what is queued and put its topics back to where they stood before it.

        Whether anything was queued.
        """
        found = bool(self._queue)
        while self._queue:
            queued = self._queue.pop()
            if queued.place is not None:
                queued.place.rewind(queued.epoch, queued.cursor)
        self._frames = self._bytes = 0
        return found


class EventStream:
    """A stream of a watch session from its opening to its end, whichever side ends it.

    `on_end` is called exactly once.
    """

    def __init__(
        self,
        live: Live,
        session: Session,
        stream: ByteStream,
        *,
        on_end: Callable[[], None],
        on_lagged: Callable[[], None],
        bounds: QueueBounds = BOUNDS,
    ) -> None:
        self._live = live
        self._session = session
        self._stream = stream
        self._on_end = on_end
        self._sink = StreamSink(stream, session, live.monotonic, bounds)
        self._feed = Feed(live, self._sink, on_lagged=on_lagged, on_empty=self._lose_last_topic)
        self._over = False
        self._heartbeat: TimerHandle | None = None
        stream.on_close = self._end

    def start(self) -> None:
        """Begin to deliver."""
        self._session.join(self)
        self._stream.write(sse.RETRY)
        for name, place in self._session.places.items():
            self._feed.follow(Subscription(name, place, self._session.options))
        if not self._session.places:
            self._lose_last_topic()
            return
        self._arm(self._session.heartbeat_ms)

    def supersede(self) -> None:
        """Another connection takes over."""
        self._sink.take_back()
        self._finish(self._gone("superseded"))

    def look_again(self) -> None:
        """Another stream of the session left records that are this one's now."""
        for name in self._feed.names:
            self._feed.wake(name)

    def passed(self) -> int:
        return self._feed.passed()

    def shut_down(self) -> None:
        """The server stops; the session can be resumed elsewhere or later."""
        self._sink.take_back()
        self._finish(sse.shutting_down(stream=self._session.stream_id()))

    def _lose_last_topic(self) -> None:
        self._session.drop()
        self._sink.hand_all()
        self._finish(self._gone("no_topics"))

    def _gone(self, reason: GoneReason) -> bytes:
        return sse.gone(reason, stream=self._session.stream_id())

    def _finish(self, last: bytes) -> None:
        if not self._over:
            self._stream.write(last)
            self._stream.close()
            self._end()

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._feed.close()
        left_records = self._sink.take_back()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._session.leave(self, left_records=left_records)
        self._on_end()

    # Heartbeat

    def _arm(self, delay_ms: int) -> None:
        self._heartbeat = self._live.timers.call_later(delay_ms, self._beat)

    def _beat(self) -> None:
        """Send a heartbeat after a silence; while the peer is behind, there is no silence."""
        every_ms = self._session.heartbeat_ms
        silent_ms = round((self._live.monotonic() - self._sink.last_output) * 1000)
        if silent_ms < every_ms:
            self._arm(every_ms - silent_ms)
            return
        if not self._sink.is_behind:
            self._sink.beat(self._live.engine.kernel.clock.now_ms())
        self._arm(every_ms)


def _ignore() -> None:
    """No feed waits for room."""
