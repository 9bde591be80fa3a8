"""The loop budget: how long one kind of work may keep the event loop in one tick.

The loop hears every connection whose input has arrived before it does anything else. A hundred long
pages made in a row, or one record sent to thousands of streams, would therefore be one long stall
for the next request. Work that may take long has 2 ms of each tick; what is left over is queued, in
order, for the next ticks, so that new requests are served in between.

    LoopBudget   callbacks: pages of history, pushes to streams
    in_slices    one operation that computes on the loop: the decoding of a long body
    PacedRead    one operation that computes on a thread: a large Arrow page

Measured on two cores: a tick of pushes serves about 400 streams, a page of 1000 records takes
0.3 ms, and beside either a lone write waits for at most one budget and one piece of work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, Protocol, TypeAlias, TypeVar

from topics.engine.clock import Clock
from topics.engine.effects import PAUSE, Op, Sleep
from topics.storage.wal.committer import Committer
from topics.storage.wal.submission import Position

_log = logging.getLogger("topics.delivery")

T = TypeVar("T")
Callback: TypeAlias = Callable[[], None]
Schedule: TypeAlias = Callable[[Callback], object]
"""Runs a callback in the next tick of the loop."""

BUDGET_NS: Final = 2_000_000
"""How much of a tick one kind of work may take, and one piece of it more."""

REST: Final = 2
"""A paced read that rests uses a third of the time."""
LONGEST_REST_S: Final = 0.01


class TimerHandle(Protocol):
    def cancel(self) -> None:
        """Never run the callback; harmless when it already ran."""


class Timers(Protocol):
    def call_later(self, delay_ms: int, callback: Callback, /) -> TimerHandle:
        """Run `callback` once that time has passed."""
        ...


class LoopTimers:
    """Timers of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callback, /) -> TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)


class LoopBudget:
    """Callbacks in the order in which they came, a bounded time of them per tick."""

    __slots__ = (
        "_end_ns",
        "_is_held",
        "_is_scheduled",
        "_now_ns",
        "_queue",
        "_schedule",
        "_spent_ns",
        "is_spent",
    )

    def __init__(
        self, schedule: Schedule, now_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._schedule = schedule
        self._now_ns = now_ns
        self._queue: deque[Callback] = deque()
        self._is_scheduled = False
        self._is_held = False
        self._end_ns = 0
        self._spent_ns = 0
        self.is_spent = False
        """Whether `do` queues new work, because this tick's budget is used up."""

    def __len__(self) -> int:
        """How much work is queued."""
        return len(self._queue)

    def do(self, work: Callback) -> None:
        """Do this now, or in one of the next ticks if the budget is spent."""
        if self.is_spent:
            self._queue.append(work)
            return
        began_ns = self._now_ns()
        try:
            work()
        finally:
            self._spent_ns += self._now_ns() - began_ns
            if self._spent_ns >= BUDGET_NS:
                self.is_spent = True
                self._want_tick()

    def add(self, work: Callback) -> None:
        """Queue this for the next `run`. Work that is added twice runs twice."""
        self._queue.append(work)
        if not self._is_held:
            self._want_tick()

    def hold(self) -> None:
        """Schedule nothing for what is added: the caller is about to call `run`."""
        self._is_held = True

    def run(self) -> None:
        """Do queued work within a new budget. What is queued meanwhile waits for the next tick."""
        self._is_held = self.is_spent = False
        self._spent_ns = 0
        queue = self._queue
        if not queue:
            return
        self._end_ns = self._now_ns() + BUDGET_NS
        for _ in range(len(queue)):
            try:
                queue.popleft()()
            except Exception:  # a bug in one stream or request must not stop the others
                log_failure()
            if not queue or not self.has_time():
                break
        if queue:
            self.is_spent = True
            self._want_tick()

    def has_time(self) -> bool:
        """Whether work that runs now may go on in this tick."""
        return self._now_ns() < self._end_ns

    def _want_tick(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._schedule(self._tick)

    def _tick(self) -> None:
        self._is_scheduled = False
        self.run()


def in_slices(
    steps: Generator[None, None, T], clock: Clock, *, resumed: Callback = lambda: None
) -> Op[T]:
    """Do steps for one budget, pause for a tick, and go on until the steps end.

    `resumed` is called after each pause, and may raise if the work is no longer wanted.
    """
    now_s = clock.monotonic
    end_s = now_s() + BUDGET_NS / 1e9
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            answer: T = finished.value
            return answer
        if now_s() >= end_s:
            yield PAUSE
            resumed()
            end_s = now_s() + BUDGET_NS / 1e9


class PacedRead:
    """A large read on a thread, with rests between its steps while others write.

    A step keeps a thread busy for about a millisecond. A write that comes meanwhile shares
    processor and interpreter with it: when its request is read, logged and answered. And the
    reader, often on the same machine, processes what it is sent. After each step during which
    something was written the read therefore rests for a multiple of what the step took. On a busy
    machine steps take longer, and so do the rests.
    """

    def __init__(self, committer: Committer, clock: Clock, *, shards: int) -> None:
        self._committer = committer
        self._clock = clock
        self._shards = range(shards)
        self._seen: list[Position] = []
        self._took_s = 0.0

    def step(self, work: Op[T]) -> Op[T]:
        """A step of the read, after a rest if something was written since the last one began."""
        if self._took_s and self._ends() != self._seen:
            yield Sleep(min(REST * self._took_s, LONGEST_REST_S))
        self._seen = self._ends()
        began_s = self._clock.monotonic()
        made = yield from work
        self._took_s = self._clock.monotonic() - began_s
        return made

    def _ends(self) -> list[Position]:
        return [self._committer.position(shard) for shard in self._shards]


def log_failure() -> None:
    """Log the exception being handled."""
    _log.exception("work within the loop budget failed")
