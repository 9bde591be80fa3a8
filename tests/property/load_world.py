"""A server's scheduling under load, in virtual time: minutes pass in seconds.

The pump, the scheduler, the governor and the wake-ups are the real ones. What is simulated is the
machine: a loop on which every piece of work takes its time, writers that come when they like, and
a log whose queue is as full as the scenario says.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from tests.unit.server.fakes import FakeLog, FakeWork

from topics.core.topic import Topic
from topics.delivery.live import LiveDelivery
from topics.engine.effects import Op, run
from topics.engine.engine import memory_engine
from topics.engine.settings import EngineSettings
from topics.errors import TopicsError
from topics.server.pump import Pump

START_MS = 1_700_000_000_000
TURN_US = 20
WRITE_US = 50
PUSH_US = 1000

Callback = Callable[[], None]
T = TypeVar("T")


class Machine:
    """A clock and a loop. Time passes when work is done, or when there is none to do."""

    def __init__(self) -> None:
        self.us = 0
        self.soon: list[Callback] = []
        self._later: list[tuple[int, int, Callback]] = []
        self._numbers = itertools.count()
        self._cancelled: set[int] = set()

    def now_ms(self) -> int:
        return START_MS + self.us // 1000

    def monotonic(self) -> float:
        return self.us / 1e6

    def call_later(self, delay_ms: int, callback: Callback, /) -> _Alarm:
        return self.call_after(delay_ms * 1000, callback)

    def call_after(self, delay_us: int, callback: Callback) -> _Alarm:
        number = next(self._numbers)
        heapq.heappush(self._later, (self.us + delay_us, number, callback))
        return _Alarm(self._cancelled, number)

    def spend(self, us: int) -> None:
        self.us += us

    @property
    def is_asleep(self) -> bool:
        """Whether nothing will ever happen unless somebody comes."""
        return not self.soon and all(number in self._cancelled for _, number, _ in self._later)

    def run_until(self, end_us: int) -> None:
        while self.us < end_us:
            self._run_timers()
            if self.soon:
                turn, self.soon[:] = self.soon[:], []
                for callback in turn:
                    callback()
                self.us += TURN_US
            elif self._later and self._later[0][0] < end_us:
                self.us = max(self.us, self._later[0][0])
            else:
                self.us = end_us

    def _run_timers(self) -> None:
        due_us = self.us
        while self._later and self._later[0][0] <= due_us:
            _, number, callback = heapq.heappop(self._later)
            if number not in self._cancelled:
                callback()


class _Alarm:
    def __init__(self, cancelled: set[int], number: int) -> None:
        self._cancelled = cancelled
        self._number = number

    def cancel(self) -> None:
        self._cancelled.add(self._number)


class _InlineRunner:
    def start(self, op: Op[T], done: Callable[[T | None, TopicsError | None], None]) -> None:
        done(run(op), None)


class LoadWorld:
    """Topics with one watcher each, writers, and what the watchers saw."""

    def __init__(self, seed: int, *, push_us: int = PUSH_US) -> None:
        self.machine = Machine()
        self.random = random.Random(seed)
        self.log = FakeLog()
        self.work = FakeWork()
        self.push_us = push_us
        self.engine = memory_engine(EngineSettings(max_topics=0), self.machine)
        schedule = self.machine.soon.append
        self.delivery = LiveDelivery(
            self.engine,
            _InlineRunner(),
            timers=self.machine,
            schedule=schedule,
            now_ns=lambda: self.machine.us * 1000,
        )
        self.pump = Pump(
            self.delivery,
            self.log,
            self.work,
            shards=1,
            pool_size=4,
            workers=2,
            timers=self.machine,
            schedule=schedule,
        )
        self.waiting_us: dict[str, int] = {}  # since when a topic has undelivered records
        self.delays_ms: dict[str, list[float]] = defaultdict(list)  # by group
        self.pushed_names: set[str] = set()
        self.advice: dict[str, int] = defaultdict(int)
        self.mode_changes: list[float] = []
        self._group: dict[str, str] = {}
        self._writing = True

    def topics(self, group: str, count: int, *, priority: int) -> list[Topic]:
        """New topics of one priority, each with a watcher."""
        made = []
        for number in range(count):
            name = f"{group}-{number}"
            run(self.engine.put(name, {"priority": priority}))
            self._group[name] = group
            self.delivery.changes.listen(name, self)
            made.append(self.engine.kernel.topic(name))
        return made

    def write_to(self, topics: Sequence[Topic], *, per_s: float) -> None:
        """Writers who come at random moments, however busy the server is."""
        due_us = self.machine.us

        def arrive() -> None:
            nonlocal due_us
            while self._writing and due_us <= self.machine.us:
                topic = self.random.choice(topics)
                self.waiting_us.setdefault(topic.name, due_us)
                self.machine.spend(WRITE_US)
                self.engine.kernel.host.changed(topic)
                due_us += round(self.random.expovariate(per_s) * 1e6)
            if self._writing:
                self.machine.call_after(due_us - self.machine.us, arrive)

        arrive()

    def wake(self, name: str) -> None:
        """A topic may have news; its watcher gets a turn."""
        self.delivery.changes.budget.add(partial(self._push, name))

    def _push(self, name: str) -> None:
        topic = self.engine.kernel.topic(name)
        since_us = self.waiting_us.get(name)
        if since_us is None:
            return
        if self.delivery.changes.withheld(topic):
            self.advice[self._group[name]] += 1
            return
        del self.waiting_us[name]
        self.pushed_names.add(name)
        self.machine.spend(self.push_us)
        self.delays_ms[self._group[name]].append((self.machine.us - since_us) / 1000)

    def run(self, seconds: float) -> None:
        """Let time pass, noting when deferred mode begins and ends."""
        end_us = self.machine.us + round(seconds * 1e6)
        deferred = self.pump.scheduler.deferred
        while self.machine.us < end_us:
            self.machine.run_until(min(end_us, self.machine.us + 50_000))
            if self.pump.scheduler.deferred != deferred:
                deferred = not deferred
                self.mode_changes.append(self.machine.us / 1e6)

    def stop_writing(self) -> None:
        self._writing = False

    def delay_ms(self, group: str, share: float) -> float:
        """What this share of the deliveries of a group did not exceed."""
        delays = sorted(self.delays_ms[group])
        return delays[min(len(delays) - 1, int(len(delays) * share))]

    def longest_wait_ms(self, group: str) -> float:
        """The longest any record of a group waited, or has been waiting until now."""
        open_waits = [
            (self.machine.us - since_us) / 1000
            for name, since_us in self.waiting_us.items()
            if self._group[name] == group
        ]
        return max([*self.delays_ms[group], *open_waits])
