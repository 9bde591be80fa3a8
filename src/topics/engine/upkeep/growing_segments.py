"""Which topics have a growing segment that is old enough to be sealed."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from topics.core.catalog import Catalog
from topics.core.topic import Topic
from topics.engine.reads.history import segments_of


class GrowingSegments:
    """Growing segments by the time they were begun: a checkpoint asks for the oldest only."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._begun: dict[int, int] = {}  # by topic
        self._oldest: list[tuple[int, int]] = []  # begun at, topic; entries may be out of date
        for topic in catalog:
            self._enter(topic)
        self._oldest = [(begun, topic_id) for topic_id, begun in self._begun.items()]
        heapify(self._oldest)

    def _enter(self, topic: Topic) -> bool:
        """Note the topic's growing segment; returns whether there is one that was not known."""
        active = segments_of(topic).active
        known = self._begun.get(topic.id)
        if active is None:
            self._begun.pop(topic.id, None)
            return False
        self._begun[topic.id] = active.created_ms
        return known != active.created_ms

    def note(self, topic: Topic) -> None:
        """Look again at a topic whose segments may have changed."""
        if self._enter(topic):
            heappush(self._oldest, (self._begun[topic.id], topic.id))

    def due(self, before_ms: int) -> set[int]:
        """Topics whose growing segment was begun by then. They are asked for once."""
        found = set()
        while self._oldest and self._oldest[0][0] <= before_ms:
            begun, topic_id = heappop(self._oldest)
            if self._begun.get(topic_id) == begun:
                del self._begun[topic_id]
                if topic_id in self._catalog.by_id:
                    found.add(topic_id)
        return found
