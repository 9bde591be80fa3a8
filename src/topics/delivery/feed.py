"""What one connection is sent, and when: the rules shared by event streams and WebSockets.

Theory of operation. A feed follows topics, each from its own place. Waking a feed for a topic only
marks the topic and queues a slice of work. The slice takes the marked topics in the order of their
names and drains each up to the head it had when its drain began, one read at a time. Marks set
meanwhile make the next round. A mark is cleared before the topic is read, and the feed waits for
changes before it first reads, so no publish is missed.

A feed of a single topic is a member of a group of feeds like it (`groups`). While it is idle at the
same place as others, the group sends it the same bytes; otherwise it is served as above.

A read gives at most a tombstone, one batch of records and the news of having caught up. They are
framed by the sink and queued there whole, or not at all: if the sink has no room, the feed keeps
its place and waits until the peer has taken what is queued. The place of a topic moves with the
frames that were queued; the sink moves it back for frames that never reached the transport.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from topics.core.topic import Topic
from topics.delivery.changes import Changes
from topics.delivery.groups import Member, SubscriberGroups
from topics.delivery.loop_budget import Timers
from topics.delivery.pages import Ask, PageCache, Rendered
from topics.delivery.subscriptions import Sink, Subscription
from topics.delivery.synced import SyncedHeads
from topics.engine.engine import Engine
from topics.errors import TopicsError
from topics.topic_settings import U64_MAX
from topics.wire.sse import ThrottleReason

_log = logging.getLogger("topics.delivery")

PAGES_PER_SLICE = 4
ADVICE_EVERY_S = 5.0
RETRY_READ_MS = 1000
UNKNOWN = -1


class Live(Protocol):
    """What feeds stand on, shared by all of them."""

    engine: Engine
    changes: Changes
    groups: SubscriberGroups
    pages: PageCache
    synced: SyncedHeads
    timers: Timers
    monotonic: Callable[[], float]


class Feed:
    """Keeps one connection supplied. `on_lagged` counts, `on_empty` follows the last topic."""

    def __init__(
        self,
        live: Live,
        sink: Sink,
        *,
        on_lagged: Callable[[], None] | None = None,
        on_empty: Callable[[], None] | None = None,
    ) -> None:
        self._live = live
        self._sink = sink
        self._on_lagged = on_lagged
        self._on_empty = on_empty
        self._topics = live.engine.kernel.catalog.by_name
        self._subs: dict[str, Subscription] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._marked: set[str] = set()
        self._round: list[str] = []  # names still to be drained, the next one last
        self._current: str | None = None  # being drained
        self._target = UNKNOWN  # the head it had when that began
        self._is_queued = False  # a slice of work is
        self._is_working = False
        self._reading = False
        self._lagged = False
        self._closed = False
        self._member: Member | None = None  # of a group, while it follows one topic only
        self._advised_at: float | None = None
        sink.on_drained = self._drained

    @property
    def names(self) -> list[str]:
        return list(self._subs)

    def passed(self) -> int:
        """How many seqs the reader was brought past since the call before; for statistics."""
        before = self._counted
        now = {name: (sub.place.epoch, sub.place.cursor) for name, sub in self._subs.items()}
        self._counted = now
        return sum(
            max(0, cursor - before[name][1])
            for name, (epoch, cursor) in now.items()
            if name in before and before[name][0] == epoch
        )

    def follow(self, sub: Subscription) -> None:
        """Deliver this topic from its place on, instead of an earlier subscription to it."""
        self.unfollow(sub.name)
        if self._subs:
            self._leave_group()
            self._live.changes.listen(sub.name, self)
        else:
            self._member = Member(self, sub, self._sink)
            self._live.groups.enter(self._member)
        self._subs[sub.name] = sub
        if sub.options.strong:
            self._live.synced.follow(sub.name, self)
        self.wake(sub.name)

    def _leave_group(self) -> None:
        """Several topics are served in the order of their names; a group knows one topic only."""
        member, self._member = self._member, None
        if member is not None:
            name = member.sub.name
            self._live.groups.leave(member)
            self._live.changes.listen(name, self)
            self.wake(name)  # a walk of the group may have been about to come here

    def unfollow(self, name: str) -> None:
        """Nothing more of this topic, not even of a read under way."""
        if self._subs.pop(name, None) is None:
            return
        member, self._member = self._member, None
        if member is not None:
            self._live.groups.leave(member)
        else:
            self._live.changes.unlisten(name, self)
        self._live.synced.unfollow(name, self)
        self._marked.discard(name)

    def wake(self, name: str) -> None:
        if name in self._subs:
            self._mark(name)
            self._queue_slice()

    def serve(self, sub: Subscription) -> None:
        if self._subs.get(sub.name) is sub:
            self._mark(sub.name)
            if not self._is_queued and self._is_free():
                self._work()

    def _mark(self, name: str) -> None:
        self._marked.add(name)
        if self._member is not None:
            self._member.is_idle = False

    def close(self) -> None:
        """The connection is gone or about to go."""
        self._closed = True
        for name in self.names:
            self.unfollow(name)

    # Slices of work

    def _is_free(self) -> bool:
        """Whether it could go on right now."""
        return not (self._is_working or self._reading or self._lagged or self._closed)

    def _queue_slice(self) -> None:
        if not self._is_queued and self._is_free():
            self._is_queued = True
            self._live.changes.budget.add(self._work)

    def _work(self) -> None:
        self._is_queued = False
        self._is_working = True
        try:
            self._take_steps()
        finally:
            self._is_working = False
        if not self._is_free():
            return
        if self._current is not None or self._round or self._marked:
            self._queue_slice()
        elif self._member is not None:
            self._member.is_idle = self._member.sub.announced

    def _take_steps(self) -> None:
        for _ in range(PAGES_PER_SLICE):
            if self._closed or self._reading or self._lagged:
                return
            name = self._next()
            if name is None:
                return
            self._step(self._subs[name])

    def _next(self) -> str | None:
        """The topic to go on with."""
        if self._current is not None and self._current in self._subs:
            return self._current
        self._current = None
        if not self._round:
            if not self._marked:
                return None
            self._round = sorted(self._marked, reverse=True)
            self._marked.clear()
        self._target = UNKNOWN
        while self._round:
            name = self._round.pop()
            if name in self._subs:
                self._current = name
                return name
        return None

    def _leave(self, name: str, *, again: bool = False) -> None:
        """Go on to the next topic of the round."""
        self._current = None
        if again:
            self._marked.add(name)

    # Slow readers

    def _lag(self) -> None:
        self._lagged = True
        if self._on_lagged is not None:
            self._on_lagged()

    def _drained(self) -> None:
        if self._lagged and not self._closed:
            self._lagged = False
            self._advise("slow_consumer", None)
            self._queue_slice()

    def _advise(self, reason: ThrottleReason, topic: str | None) -> None:
        now = self._live.monotonic()
        if self._advised_at is None or now - self._advised_at >= ADVICE_EVERY_S:
            self._advised_at = now
            self._sink.advise(reason, topic)

    # One topic

    def _step(self, sub: Subscription) -> None:
        topic = self._topics.get(sub.name)
        if topic is None:
            self._say_deleted(sub)
            return
        if self._target == UNKNOWN:
            self._target = topic.head
        place, options = sub.place, sub.options
        after, synced_head = U64_MAX, None  # of another instance: everything is new
        if options.strong:
            synced_head = self._live.synced.head(topic)
        if place.epoch == topic.epoch:
            after = place.cursor
            if not self._is_worth_reading(sub, topic, synced_head):
                self._leave(sub.name)
                return
        if not self._sink.has_room:
            self._lag()
            return
        pages = self._live.pages
        page = pages.find(topic, after, options, synced_head)
        if page is not None:
            self._deliver(sub, topic, page)
            return
        self._reading = True
        done = partial(self._was_read, sub, topic, (place.epoch, place.cursor))
        pages.read(Ask(topic, after, options, synced_head), done)

    def _is_worth_reading(self, sub: Subscription, topic: Topic, synced_head: int | None) -> bool:
        cursor = sub.place.cursor
        if cursor < topic.head and self._live.changes.withheld(topic):
            self._advise("pressure", topic.name)
            return False
        head = topic.head if synced_head is None else synced_head
        if head < cursor <= topic.head:
            return False  # visible, but the log has not synced that far yet
        return cursor != head or not sub.announced

    def _was_read(
        self,
        sub: Subscription,
        topic: Topic,
        before: tuple[int, int],
        page: Rendered | None,
        error: TopicsError | None,
    ) -> None:
        self._reading = False
        if self._closed:
            return
        place, name = sub.place, sub.name
        if (
            self._subs.get(name) is sub
            and self._topics.get(name) is topic
            and (place.epoch, place.cursor) == before
        ):
            if error is not None:
                self._read_failed(name, error)
            elif page is None:
                self._leave(name)  # a sync will wake us
            else:
                self._deliver(sub, topic, page)
        # Otherwise the topic, the subscription or the shared place moved on: look again.
        self._queue_slice()

    def _deliver(self, sub: Subscription, topic: Topic, page: Rendered) -> None:
        caught_up = page.caught_up and not (sub.announced and page.is_silent)
        if caught_up or not page.is_silent:
            if not self._sink.show(sub, page, caught_up=caught_up):
                self._lag()
                return
            sub.announced = caught_up
        if sub.first_read:
            sub.first_read = False
            # The first page may come from the page cache, which notes no read. Later pages hold
            # new records, and the engine notes a read when it reads them.
            topic.last_read_ts = topic.last_consumed = self._live.engine.kernel.clock.now_ms()
        sub.place.move(topic.epoch, page.next)
        if page.caught_up:
            self._leave(sub.name)
        elif page.next >= self._target:
            self._leave(sub.name, again=True)

    def _read_failed(self, name: str, error: TopicsError) -> None:
        """The disk could not give what it holds: the records stay due, and are tried again."""
        _log.error("a stream could not read topic %r: %s", name, error)
        self._leave(name)
        self._live.timers.call_later(RETRY_READ_MS, partial(self.wake, name))

    def _say_deleted(self, sub: Subscription) -> None:
        if not self._sink.show_deleted(sub):
            self._lag()
            return
        self._leave(sub.name)
        self.unfollow(sub.name)
        if not self._subs and self._on_empty is not None:
            self._on_empty()
