"""When Python's cyclic garbage collector looks at every object, which delays all requests.

A full look takes about 0.2 s for each million objects, and a topic has about forty. Topics need no
look: they contain no cycles and go when they are dropped. So they are taken out of the collector's
sight (`gc.freeze`) after the start, and again whenever many have been added. What is left to look
at is little, as a rule: connections, and what requests need.

A `freeze` itself takes no time. Before it comes a full look, unless a large request holds so many
objects that the look would take long.

Connections do contain cycles. Those that are open during a `freeze`, or have ended but were not
collected before it, are never collected: some kilobytes for each of them, for every `MANY_TOPICS`
topics by which the number of topics grows beyond what it was before.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

MANY_TOPICS = 2000
MANY_OBJECTS = 50_000
"""A full look at more objects than these would take more than about ten milliseconds."""
YOUNG = 700
"""Python's own number: objects made until the collector looks at the new ones."""
MIDDLE = 10
"""Python's own number, too."""
DUE = 250
"""A full look is due after so many looks at objects of middle age; Python's own number is 10."""
OVERDUE = 1000
"""After so many Python takes a full look by itself, at any moment."""
SHARE = 200
"""A full look is followed by at least so many times as long without one."""


class GarbageCollector:
    """`tick` is called now and then, between requests."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._topics = 0  # the most that were there at a freeze
        self._not_before_s = 0.0

    def begin(self, topics: int) -> None:
        """Freeze all objects that recovery made: they stay for long."""
        gc.set_threshold(YOUNG, MIDDLE, OVERDUE)
        gc.collect()
        self._freeze(topics)

    def tick(self, topics: int, *, is_busy: bool) -> None:
        """Look at every object if that is due. `is_busy`: upkeep holds many for a short time."""
        if topics >= self._topics + MANY_TOPICS:
            if len(gc.get_objects(generation=2)) <= MANY_OBJECTS:
                gc.collect()
            self._freeze(topics)
        elif gc.get_count()[2] >= DUE and not is_busy:
            began_s = self._now_s()
            if began_s >= self._not_before_s:
                gc.collect()
                ended_s = self._now_s()
                self._not_before_s = ended_s + SHARE * (ended_s - began_s)

    def _freeze(self, topics: int) -> None:
        """Never look again at what is there now."""
        gc.freeze()
        self._topics = topics
