"""How far each topic is known to be on disk, for streams that deliver only durable records.

A topic's synced head is the last seq whose frame a sync of the log has covered. Publishes are
noted as pairs of a log position and the head reached with it; a sync that passes the position
makes the head a synced one. The log's threads say nothing about their syncs, so while pairs wait a
timer looks, as often as the log syncs by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from topics.core.topic import Topic
from topics.delivery.changes import Waiter
from topics.delivery.loop_budget import LoopBudget, Timers
from topics.engine.kernel import Kernel

Marks = Mapping[int, int]
"""Per shard the frame that has to be synced."""

MAX_WAITING = 1024


class _Followed:
    """One topic that at least one stream follows."""

    __slots__ = ("epoch", "head", "waiters", "waiting")

    def __init__(self) -> None:
        self.epoch = 0
        self.head = 0
        self.waiting: deque[tuple[Marks, int]] = deque()
        self.waiters: dict[Waiter, None] = {}


class SyncedHeads:
    def __init__(self, kernel: Kernel, timers: Timers, budget: LoopBudget) -> None:
        self._kernel = kernel
        self._timers = timers
        self._budget = budget
        self._followed: dict[str, _Followed] = {}
        self._looking = False

    def follow(self, name: str, waiter: Waiter) -> None:
        """Keep count for this topic, and wake the waiter when a sync moves its head."""
        self._followed.setdefault(name, _Followed()).waiters[waiter] = None

    def unfollow(self, name: str, waiter: Waiter) -> None:
        followed = self._followed.get(name)
        if followed is not None:
            followed.waiters.pop(waiter, None)
            if not followed.waiters:
                del self._followed[name]

    def note(self, topic: Topic) -> None:
        """A topic has changed; called with every change."""
        followed = self._followed.get(topic.name)
        if followed is not None:
            self._note(followed, topic)

    def head(self, topic: Topic) -> int:
        """The synced head of a topic that is followed."""
        followed = self._followed[topic.name]
        self._note(followed, topic)
        return followed.head

    def _note(self, followed: _Followed, topic: Topic) -> None:
        if followed.epoch != topic.epoch:
            followed.epoch = topic.epoch
            followed.head = 0
            followed.waiting.clear()
        waiting = followed.waiting
        known = waiting[-1][1] if waiting else followed.head
        if topic.head > known:
            if len(waiting) == MAX_WAITING:
                waiting.pop()  # the newer position covers it too, a moment later
            waiting.append((self._marks(topic), topic.head))
        self._settle(followed)
        if waiting:
            self._look_later()

    def _marks(self, topic: Topic) -> Marks:
        """A copy is as safe as what it was copied from, on whatever shard that is."""
        return self._kernel.sync_marks.of(topic) if self._kernel.is_logged(topic) else {}

    def _settle(self, followed: _Followed) -> bool:
        """Take over what was synced meanwhile; whether the head moved."""
        before = followed.head
        waiting = followed.waiting
        while waiting and self._kernel.sync_marks.is_synced(waiting[0][0]):
            followed.head = waiting.popleft()[1]
        return followed.head != before

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            self._timers.call_later(max(1, self._kernel.settings.disk_sync_ms), self._look)

    def _look(self) -> None:
        self._looking = False
        for name, followed in tuple(self._followed.items()):
            if followed.waiting and self._settle(followed):
                for waiter in tuple(followed.waiters):
                    waiter.wake(name)
        if any(followed.waiting for followed in self._followed.values()):
            self._look_later()
        self._budget.run()
