"""Live delivery of one engine: everything feeds, polls and sessions share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

from topics.core.topic import Topic
from topics.delivery.changes import Changes
from topics.delivery.groups import SubscriberGroups
from topics.delivery.loop_budget import LoopBudget, Schedule, Timers
from topics.delivery.pages import PageCache, Runner
from topics.delivery.sessions import Sessions
from topics.delivery.synced import SyncedHeads
from topics.engine.effects import PAUSE, Op
from topics.engine.engine import Engine
from topics.engine.kernel import Host

STREAMS_BETWEEN_PAUSES = 1000


class LiveConnection(Protocol):
    def shut_down(self) -> None:
        """Send the shutdown frame and end."""

    def passed(self) -> int:
        """How many seqs its readers were brought past since the call before."""


class LiveDelivery:
    """Built once the engine is there; from then on it hears of every change."""

    def __init__(
        self,
        engine: Engine,
        runner: Runner,
        *,
        timers: Timers,
        schedule: Schedule,
        max_sessions: int = 10_000,
        entropy: Callable[[int], bytes] = os.urandom,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        kernel = engine.kernel
        self.engine = engine
        self.runner = runner
        self.timers = timers
        self.monotonic = kernel.clock.monotonic
        budget = LoopBudget(schedule, now_ns)
        self.changes = Changes(kernel.catalog.by_name.get, schedule, timers, budget)
        self.pages = PageCache(engine, runner)
        self.groups = SubscriberGroups(
            kernel.catalog.by_name, self.changes, self.pages, self.monotonic
        )
        self.synced = SyncedHeads(kernel, timers, budget)
        self.sessions = Sessions(kernel.clock, entropy, max_sessions=max_sessions)
        self.connections: dict[LiveConnection, None] = {}
        self.lagged_total = 0
        kernel.host = Host(changed=self._changed)

    def count_lag(self) -> None:
        self.lagged_total += 1

    def passed(self) -> Op[int]:
        """How many seqs the readers of all streams were brought past since the call before."""
        total = 0
        for count, connection in enumerate([*self.connections], 1):
            total += connection.passed()
            if count % STREAMS_BETWEEN_PAUSES == 0:
                yield PAUSE
        return total

    def shut_down(self) -> None:
        """End every stream with its own last words, and every long poll with what it has."""
        self.changes.close()
        for connection in tuple(self.connections):
            connection.shut_down()

    def _changed(self, topic: Topic) -> None:
        self.synced.note(topic)
        self.changes(topic)
