"""Which topic is served next: bands by urgency, shares by weight, age against starvation.

Theory of operation. A topic with something to do is *ready*: it stands once, in the band that its
effective priority gives it, however often it changes before its turn. A round goes through the
bands from the most urgent down. A band with topics in it gets credit by its weight, and each topic
served costs one; so urgent topics get most of the turns and every band gets some. Waiting raises
a topic's priority, and from time to time all are put into bands anew.

A topic leaves the set before anybody acts on it. What happens to it from then on makes it ready
again, so no change can fall between being served and being noticed.

While work is *deferred*, topics with a priority below zero are withheld: they stand aside and get
no credit until the mode ends. Router passes fall one band behind the pushes of the same topic,
which then is served twice, for each on its own.

Nothing here knows of loops or clocks; time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from topics.core.priority import aged, base_priority
from topics.core.topic import Topic

FLOORS: Final = (750, 500, 250, 0)
"""Lowest priority of each band, the most urgent first; one more band is below all of them."""
WEIGHTS: Final = (8, 4, 2, 1, 1)
LAST: Final = len(WEIGHTS) - 1
REBAND_MS: Final = 50


PUSH: Final = 1
ROUTE: Final = 2
"""What a ready topic is there for: either or both."""


class Served(NamedTuple):
    """A topic whose turn it is."""

    topic: Topic
    work: int
    waited_ms: int
    """How long it could have been served; being withheld does not count."""


class _Unit:
    """A ready topic."""

    __slots__ = ("entitled_ms", "place", "ready_ms", "topic", "work")

    def __init__(self, topic: Topic, work: int, now_ms: int, place: _Place) -> None:
        self.topic = topic
        self.work = work
        self.ready_ms = now_ms
        self.entitled_ms = now_ms
        self.place = place


_Place = OrderedDict[int, _Unit]
"""Units by topic id, the first to be served first."""


def band_of(priority: int) -> int:
    """The band of a priority; 0 is the most urgent."""
    for band, floor in enumerate(FLOORS):
        if priority >= floor:
            return band
    return LAST


class Scheduler:
    def __init__(self) -> None:
        self._deferred = False
        self._units: dict[int, _Unit] = {}
        self._bands: tuple[_Place, ...] = tuple(_Place() for _ in WEIGHTS)
        self._withheld = _Place()
        self._credit = [0] * len(WEIGHTS)
        self._banded_ms = 0

    @property
    def ready(self) -> int:
        """Topics that wait for their turn; withheld ones wait for something else."""
        return len(self._units) - len(self._withheld)

    @property
    def deferred(self) -> bool:
        return self._deferred

    def withheld(self) -> list[Topic]:
        return [unit.topic for unit in self._withheld.values()]

    def withholds(self, topic: Topic, now_ms: int) -> bool:
        """Whether a topic gets nothing for now."""
        return self._deferred and base_priority(topic, now_ms) < 0

    def add(self, topic: Topic, work: int, now_ms: int) -> None:
        """Make a topic ready, for this work too if it already is."""
        unit = self._units.get(topic.id)
        if unit is None:
            unit = self._units[topic.id] = _Unit(topic, work, now_ms, self._withheld)
            self._put(unit, now_ms)
        elif work & ~unit.work:
            unit.work |= work
            if self._deferred:  # a push does not wait where a router pass does
                del unit.place[topic.id]
                self._put(unit, now_ms)

    def defer(self, deferred: bool, now_ms: int) -> None:
        """Enter or leave deferred mode."""
        if deferred != self._deferred:
            self._deferred = deferred
            self.reband(now_ms)

    def serve_round(self, now_ms: int) -> Iterator[Served]:
        """One round. Each topic has left the set when it is given out."""
        if not 0 <= now_ms - self._banded_ms < REBAND_MS:
            self.reband(now_ms)
        for band, place in enumerate(self._bands):
            self._credit[band] += WEIGHTS[band]
            while place and self._credit[band] >= 1:
                self._credit[band] -= 1
                yield self._take(place, now_ms)
            if not place:
                self._credit[band] = 0

    def _take(self, place: _Place, now_ms: int) -> Served:
        topic_id, unit = place.popitem(last=False)
        work = unit.work
        if self._deferred and work == PUSH | ROUTE:
            work, unit.work = PUSH, ROUTE
            self._put(unit, now_ms)
        else:
            del self._units[topic_id]
        return Served(unit.topic, work, max(0, now_ms - unit.entitled_ms))

    def reband(self, now_ms: int) -> None:
        """Put every topic where it belongs by now, those that wait longest first."""
        self._banded_ms = now_ms
        for place in (*self._bands, self._withheld):
            place.clear()
        for unit in sorted(self._units.values(), key=_by_age):
            self._put(unit, now_ms)

    def _put(self, unit: _Unit, now_ms: int) -> None:
        base = base_priority(unit.topic, now_ms)
        if self._deferred and base < 0:
            unit.place = self._withheld
        else:
            if unit.place is self._withheld:
                unit.entitled_ms = now_ms
            band = band_of(aged(base, now_ms - unit.ready_ms))
            if self._deferred and unit.work == ROUTE:
                band = min(band + 1, LAST)
            unit.place = self._bands[band]
        unit.place[unit.topic.id] = unit


def _by_age(unit: _Unit) -> int:
    return unit.ready_ms
