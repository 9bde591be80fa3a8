"""Keeps routers moving: a pass follows every write to a source, a slow tick retries the rest."""

from __future__ import annotations

import asyncio

from topics.core.topic import Topic
from topics.engine.engine import Engine
from topics.errors import TopicsError
from topics.server.driver import Driver

TICK_SECONDS = 0.05


class RouterPump:
    """Hears of changes before anybody else does, and runs one round of passes at a time."""

    def __init__(self, engine: Engine, driver: Driver, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._driver = driver
        self._loop = loop
        self._running = False
        self._again = False
        self._told = engine.kernel.changed
        engine.kernel.changed = self._changed
        if engine.kernel.catalog.routers.by_name:
            self._run()

    def _changed(self, topic: Topic) -> None:
        self._told(topic)
        if self._engine.kernel.catalog.routers.by_name and not self._again:
            self._again = True
            if not self._running:
                self._loop.call_soon(self._run)

    def _run(self) -> None:
        if self._running:
            return
        self._running, self._again = True, False
        self._driver.start(self._engine.forwarder.advance_all(), self._done)

    def _done(self, answer: None, error: TopicsError | None) -> None:
        self._running = False
        if self._again:
            self._loop.call_soon(self._run)
        elif self._has_backlog():
            # A full destination, a checkpoint or the log held a router up.
            self._loop.call_later(TICK_SECONDS, self._run)

    def _has_backlog(self) -> bool:
        catalog = self._engine.kernel.catalog
        return any(
            router.cursor < source.head
            for router in catalog.routers.by_name.values()
            if (source := catalog.by_id.get(router.source_id)) is not None
        )
