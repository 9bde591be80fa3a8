"""Idempotency keys outside their window leave, also those of topics that nobody writes to.

A write drops a few of its topic. What is left then would stay in memory for ever.
"""

from __future__ import annotations

from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Op
from topics.engine.kernel import Kernel
from topics.engine.retention import aged_through

STEP_KEYS = 2048
TOPICS_BETWEEN_PAUSES = 128


class KeyExpiry:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def upkeep(self) -> Op[None]:
        """Drop what has expired, in steps."""
        catalog = self._kernel.catalog
        for count, topic_id in enumerate(tuple(catalog.keyed), 1):
            while topic_id in catalog.by_id and self._expire(catalog.by_id[topic_id]):
                yield PAUSE
            if count % TOPICS_BETWEEN_PAUSES == 0:
                yield PAUSE

    def _expire(self, topic: Topic) -> bool:
        """Drop some keys of a topic; whether there may be more to drop."""
        now_ms, window_ms = self._kernel.clock.now_ms(), topic.config.idempotency_window_ms
        aged = aged_through(self._kernel, topic, window_ms, now_ms=now_ms)
        if topic.keys.expire(now_ms=now_ms, window_ms=window_ms, aged=aged, at_most=STEP_KEYS):
            return True
        if not len(topic.keys):
            self._kernel.catalog.keyed.discard(topic.id)
        return False
