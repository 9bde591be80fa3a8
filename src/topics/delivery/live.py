"""Live delivery of one engine: everything feeds, polls and sessions share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from topics.core.topic import Topic
from topics.delivery.changes import Changes
from topics.delivery.crowds import Crowds
from topics.delivery.pages import Runner, SharedPages
from topics.delivery.sessions import Sessions
from topics.delivery.synced import SyncedHeads
from topics.delivery.turns import Schedule, Timers
from topics.engine.engine import Engine


class Connection(Protocol):
    def shut_down(self) -> None:
        """Say goodbye and end."""


class Delivery:
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
    ) -> None:
        kernel = engine.kernel
        self.engine = engine
        self.runner = runner
        self.timers = timers
        self.monotonic = kernel.clock.monotonic
        self.changes = Changes(kernel.catalog.by_name.get, schedule, timers)
        self.pages = SharedPages(engine, runner)
        self.changes.turns.on_slice = self.pages.stop_passing
        self.crowds = Crowds(kernel.catalog.by_name, self.changes, self.pages, self.monotonic)
        self.synced = SyncedHeads(kernel, timers, self.changes.turns)
        self.sessions = Sessions(kernel.clock, entropy, max_sessions=max_sessions)
        self.connections: dict[Connection, None] = {}
        self.lagged_total = 0
        kernel.changed = self._changed

    def count_lag(self) -> None:
        self.lagged_total += 1

    def shut_down(self) -> None:
        """End every stream with its own last words, and every long poll with what it has."""
        self.changes.close()
        for connection in tuple(self.connections):
            connection.shut_down()

    def _changed(self, topic: Topic) -> None:
        self.synced.note(topic)
        self.changes(topic)
