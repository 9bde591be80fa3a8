"""Serves topics that changed, as the scheduler orders and as hard as the governor allows.

A change makes a topic ready, and the topic is served in the tick that published the change. If it
is the only ready topic, there is nothing to order and it is served directly; otherwise the
scheduler orders the topics. Serving is bounded in time, and while streams have something left to
send one round is served and no more, so that an urgent topic never waits for more than that.

As long as there is work, a tick takes samples and does what the governor says: pushes gather,
topics of low priority are withheld, writes to them are paced. Changes gather in front of the
scheduler and not behind it, where they would lose the order that it gave them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from topics.core.priority import base_priority
from topics.core.topic import Topic
from topics.delivery.changes import nothing_withheld
from topics.delivery.live import LiveDelivery
from topics.delivery.loop_budget import BUDGET_NS, Schedule, TimerHandle, Timers
from topics.engine.kernel import Host
from topics.server.governor import TICK_MS, UNKNOWN_RETRY_MS, DrainRate, Governor
from topics.server.scheduler import PUSH, ROUTE, WEIGHTS, Scheduler

HALF_FULL = 0.5


class PumpLog(Protocol):
    """The queues of the log."""

    def fill(self, shard: int) -> float: ...
    def room(self, shard: int, size: int) -> bool: ...
    def queued(self, shard: int) -> int: ...
    def taken(self, shard: int) -> int: ...


class Work(Protocol):
    """Operations under way."""

    on_wait: Callable[[], None]
    in_flight: int
    on_pool: int


class Passes(Protocol):
    """What moves routers."""

    def serve(self, source: Topic) -> None:
        """Copy on what this topic has got."""

    def run(self) -> None:
        """Begin with it."""


class Pump:
    """Hears of every change. One per server, on the thread of its loop."""

    def __init__(
        self,
        delivery: LiveDelivery,
        log: PumpLog,
        work: Work,
        *,
        shards: int,
        pool_size: int,
        workers: int,
        timers: Timers,
        schedule: Schedule,
        soon: Schedule | None = None,
    ) -> None:
        """`soon` runs a callback when the answers of this tick have left."""
        self.scheduler = Scheduler()
        self.governor = Governor(workers=workers)
        self.passes: Passes | None = None
        self._kernel = delivery.engine.kernel
        self._catalog = self._kernel.catalog
        self._changes = delivery.changes
        self._synced = delivery.synced
        self._log = log
        self._work = work
        self._shards = range(shards)
        self._pool_size = pool_size
        self._timers = timers
        self._schedule = schedule
        self._soon = soon or schedule
        self._rates = [DrainRate() for _ in self._shards]
        self._is_scheduled = False
        self._fresh: dict[int, tuple[Topic, int]] = {}  # changed in this tick, with their work
        self._fresh_ms = 0  # when the first of them changed
        self._left = 0  # topics that the last tick left waiting
        self._gather_ms = 0
        self._idle = True
        self._gathering: dict[int, Topic] = {}
        self._unsaid: dict[str, None] = {}  # withheld topics whose readers have not been told
        self._tick: TimerHandle | None = None
        self._ticked_s = 0.0
        self._stopped = False
        self._host = Host(changed=self._changed, retry_after_ms=self.retry_after_ms)
        self._kernel.host = self._host
        work.on_wait = self._wake

    def stop(self) -> None:
        """The server stops: streams have ended, and routers go on after the next start."""
        self._stopped = True
        self._brake(deferred=False)
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None

    @property
    def pressure(self) -> float:
        """The load, from 0 to 1; from any thread."""
        if any(not self._log.room(shard, 1) for shard in self._shards):
            return 1.0  # acts at once, whatever was sampled last
        return self.governor.pressure

    def retry_after_ms(self) -> int:
        """When a client that found the log full may try again."""
        fullest = max(self._shards, key=self._log.fill)
        if self._log.fill(fullest) < HALF_FULL:
            return UNKNOWN_RETRY_MS  # the queue is not the cause
        return self._rates[fullest].retry_after_ms(self._log.queued(fullest))

    # Serving

    def advance(self, source: Topic) -> None:
        """A router has more to copy from this topic."""
        self._add(source, ROUTE)

    def _changed(self, topic: Topic) -> None:
        self._synced.note(topic)
        work = PUSH if self._changes.is_awaited(topic) else 0
        if topic.id not in self._catalog.by_id:
            if work:
                self._changes.touch(topic.name)  # the end of a topic is never withheld
            return
        if work and self._gather_ms:
            self._gather(topic)
            work = 0
        routers = self._catalog.routers
        if routers.by_name and routers.out_of(topic.id):
            work |= ROUTE
        if work:
            self._add(topic, work)

    def _add(self, topic: Topic, work: int) -> None:
        if not self._fresh:
            self._fresh_ms = self._kernel.clock.now_ms()
            if not (self._is_scheduled or self._stopped):
                self._is_scheduled = True
                self._soon(self._serve)
        _, known = self._fresh.get(topic.id, (topic, 0))
        self._fresh[topic.id] = topic, known | work

    def _gather(self, topic: Topic) -> None:
        if not self._gathering:
            self._timers.call_later(self._gather_ms, self._gathered)
        self._gathering[topic.id] = topic

    def _gathered(self) -> None:
        gathered, self._gathering = self._gathering, {}
        now_ms = self._kernel.clock.now_ms()
        for topic in gathered.values():
            self.scheduler.add(topic, PUSH, now_ms)
            if self.scheduler.withholds(topic, now_ms):
                self._unsaid[topic.name] = None
        self._wake()
        self._want_tick()

    def _want_tick(self) -> None:
        if self.scheduler.ready and not (self._is_scheduled or self._stopped):
            self._is_scheduled = True
            self._schedule(self._serve)

    def _serve(self) -> None:
        self._is_scheduled = False
        fresh, self._fresh = self._fresh, {}
        if self._stopped:
            return
        if len(fresh) == 1 and self.scheduler.is_empty:
            # Nothing to order, and nothing waited: the load need not be sampled for it either.
            ((topic, work),) = fresh.values()
            if self._tick is not None:
                self._idle = False
                self.governor.note_delay(0)
            self._changes.budget.hold()
            self._serve_topic(topic, work)
            if work & ROUTE and self.passes is not None:
                self.passes.run()
            self._changes.budget.run()
            return
        self._order(fresh)
        self._serve_rounds()

    def _order(self, fresh: dict[int, tuple[Topic, int]]) -> None:
        """Hand topics to the scheduler, and watch the load: some of them have to wait."""
        for topic, work in fresh.values():
            self.scheduler.add(topic, work, self._fresh_ms)
        self._wake()

    def _serve_rounds(self) -> None:
        clock, budget = self._kernel.clock, self._changes.budget
        end_s = clock.monotonic() + BUDGET_NS / 1e9
        # Work queued in the budget has lost its order by urgency, so little is queued there.
        while self.scheduler.ready and not self._stopped and len(budget) < sum(WEIGHTS):
            budget.hold()
            self._serve_round(clock.now_ms())
            budget.run()
            if len(budget) or clock.monotonic() >= end_s:
                break
        self._left = self.scheduler.ready
        self._want_tick()

    def _serve_topic(self, topic: Topic, work: int) -> None:
        if work & PUSH:
            self._changes.wake(topic.name)
        if work & ROUTE and self.passes is not None:
            self.passes.serve(topic)

    def _serve_round(self, now_ms: int) -> None:
        deferred = self.scheduler.deferred
        for topic, work, waited_ms in self.scheduler.serve_round(now_ms):
            if not deferred or work & PUSH:  # the wait of a deferred pass is not a delay
                self.governor.note_delay(waited_ms)
            self._serve_topic(topic, work)
        if self.passes is not None:
            self.passes.run()

    # Ticks

    def _wake(self) -> None:
        """There is work: take samples from now on."""
        self._idle = False
        if self._tick is None and not self._stopped:
            for shard, rate in zip(self._shards, self._rates, strict=True):
                rate.begin(self._log.taken(shard))
            self._arm()

    def _arm(self) -> None:
        self._ticked_s = self._kernel.clock.monotonic()
        self._tick = self._timers.call_later(TICK_MS, self._on_tick)

    def _on_tick(self) -> None:
        self._sample_rates()
        log_fill = max(map(self._log.fill, self._shards))
        pool_fill = min(1.0, self._work.on_pool / self._pool_size)
        self.governor.sample(waiting=self._left, busy=max(log_fill, pool_fill))
        self._brake(deferred=self.governor.deferred)
        if self._is_idle():
            self._tick = None
            self.governor.rest()
        else:
            self._idle = True
            self._arm()

    def _is_idle(self) -> bool:
        """Whether nothing happened since the last tick, nothing waits and no brake is on."""
        return self._idle and not (
            self._work.in_flight or self._fresh or self.scheduler.ready or not self.governor.is_calm
        )

    def _sample_rates(self) -> None:
        elapsed_ms = max(1.0, (self._kernel.clock.monotonic() - self._ticked_s) * 1000)
        for shard, rate in zip(self._shards, self._rates, strict=True):
            rate.sample(
                taken=self._log.taken(shard), queued=self._log.queued(shard), elapsed_ms=elapsed_ms
            )

    # Brakes

    def _brake(self, *, deferred: bool) -> None:
        self._gather_ms = math.ceil(self.governor.gather_ms)
        entered = deferred and not self.scheduler.deferred
        if entered:
            fresh, self._fresh = self._fresh, {}
            self._order(fresh)
        self.scheduler.defer(deferred, self._kernel.clock.now_ms())
        self._host.pace_ms = self._pace_ms if deferred else None
        self._changes.withheld = self._withholds if deferred else nothing_withheld
        if entered:
            self._unsaid = {topic.name: None for topic in self.scheduler.withheld()}
        elif deferred:
            self.scheduler.reband(self._kernel.clock.now_ms())  # a priority may have changed
        # Readers get a notice instead of records, and long polls still get their answer.
        unsaid, self._unsaid = self._unsaid, {}
        for name in unsaid:
            self._changes.touch(name)
        self._want_tick()

    def _pace_ms(self, topic: Topic) -> float:
        is_paced = base_priority(topic, self._kernel.clock.now_ms()) < 0
        return self.governor.pace_ms if is_paced else 0.0

    def _withholds(self, topic: Topic) -> bool:
        """Whether records of a topic must not be pushed now; asked right before a push."""
        now_ms = self._kernel.clock.now_ms()
        if not self.scheduler.withholds(topic, now_ms):
            return False
        self.scheduler.add(topic, PUSH, now_ms)  # so that the topic is served later
        return True
