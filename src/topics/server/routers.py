"""Starts the passes of routers: when their source is served, and again later if they were held up.

Passes of different routers run at the same time, so that their frames share a write of the log. The
number of passes that begin in one tick of the loop is bounded, so that a source with very many
routers does not delay other requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from topics.core.routers import Router
from topics.core.topic import Topic
from topics.engine.engine import Engine
from topics.errors import TopicsError
from topics.server.driver import Driver

RETRY_SECONDS = 0.05
PASSES_PER_TICK = 16


class RouterPump:
    """Starts a pass for each router of a source; `again` asks to serve a source again."""

    def __init__(
        self,
        engine: Engine,
        driver: Driver,
        loop: asyncio.AbstractEventLoop,
        again: Callable[[Topic], None],
    ) -> None:
        self._again = again
        self._topics = engine.kernel.catalog.by_id
        self._forwarder = engine.forwarder
        self._routers = engine.kernel.catalog.routers
        self._driver = driver
        self._loop = loop
        self._waiting: deque[Router] = deque()
        self._known: dict[str, Router] = {}  # waiting or under way
        self._stalled: dict[str, Router] = {}
        self._is_scheduled = False
        self._retries_later = False
        self._stopped = False
        self._under_way = 0
        self._all_done: asyncio.Event | None = None
        for router in self._routers:
            self._want(router)

    def serve(self, source: Topic) -> None:
        """Let every router of a source copy on."""
        for router in self._routers.out_of(source.id):
            self._want(router)

    def run(self) -> None:
        """Begin some passes now, the others in later ticks."""
        for _ in range(min(PASSES_PER_TICK, len(self._waiting))):
            router = self._waiting.popleft()
            self._under_way += 1
            self._driver.start(self._forwarder.advance(router), partial(self._done, router))
        self._schedule()

    def stop(self) -> None:
        """Begin no more passes."""
        self._stopped = True
        self._waiting.clear()

    async def join(self) -> None:
        """Wait for the passes under way, after `stop`."""
        self._all_done = asyncio.Event()
        if self._under_way:
            await self._all_done.wait()

    def _want(self, router: Router) -> None:
        if self._known.get(router.name) is not router and not self._stopped:
            self._known[router.name] = router
            self._waiting.append(router)
            self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._on_tick)

    def _on_tick(self) -> None:
        self._is_scheduled = False
        self.run()

    def _done(self, router: Router, moved: bool | None, error: TopicsError | None) -> None:
        self._under_way -= 1
        if self._all_done is not None and not self._under_way:
            self._all_done.set()
        if self._known.get(router.name) is router:
            del self._known[router.name]
        if self._routers.by_name.get(router.name) is not router:
            return  # dropped or replaced
        if not self._forwarder.is_behind(router):
            return
        if moved:
            self._again(self._topics[router.source_id])
            return
        # A full destination or the log refused the copies: try again a little later.
        self._stalled[router.name] = router
        if not self._retries_later:
            self._retries_later = True
            self._loop.call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._retries_later = False
        stalled, self._stalled = self._stalled, {}
        for router in stalled.values():
            self._want(router)
