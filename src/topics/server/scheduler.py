"""Which topic is served next: bands by urgency, shares by weight, age against starvation.

Theory of operation. A topic with something to do is *ready*: it is once in the band of its
effective priority, however often it changes before it is served. A round goes through the bands
from the most urgent down. A band with topics in it gets credit by its weight, and each topic served
costs one; so urgent topics are served most often, and every band is served sometimes. Waiting
raises a topic's priority, and every 50 ms topics are put into bands anew: all of them, or when
there are very many a share that leaves time for serving them.

A topic leaves the set before it is served. A change from then on makes it ready again, so no change
is missed between being served and being noticed.

While work is *deferred*, topics with a priority below zero are withheld: they stand aside and get
no credit until the mode ends. Router passes fall one band behind the pushes of the same topic,
which then is served twice, for each on its own.

Nothing here knows of loops or clocks; time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count, islice
from typing import Final, NamedTuple

from topics.core.priority import aged, base_priority
from topics.core.topic import Topic

FLOORS: Final = (750, 500, 250, 0)
"""Lowest priority of each band, the most urgent first; one more band is below all of them."""
WEIGHTS: Final = (8, 4, 2, 1, 1)
LAST: Final = len(WEIGHTS) - 1
REBAND_MS: Final = 50
REBAND_AT_LEAST: Final = 512
REBAND_SHARE: Final = 8
"""A reband looks at so many topics, or at this part of them if that is more."""

_WITHHELD: Final = len(WEIGHTS)
_NOWHERE: Final = _WITHHELD + 1


PUSH: Final = 1
ROUTE: Final = 2
"""What a ready topic is there for: either or both."""


class ServedTopic(NamedTuple):
    """A topic to be served now."""

    topic: Topic
    work: int
    waited_ms: int
    """How long it could have been served; being withheld does not count."""


class _Unit:
    """A ready topic."""

    __slots__ = ("entitled_ms", "place", "ready_ms", "topic", "work")

    def __init__(self, topic: Topic, work: int, ready_ms: int, now_ms: int) -> None:
        self.topic = topic
        self.work = work
        self.ready_ms = ready_ms
        self.entitled_ms = now_ms
        self.place = _NOWHERE
        """Its band, or one of the other places."""


def band_of(priority: int) -> int:
    """The band of a priority; 0 is the most urgent."""
    for band, floor in enumerate(FLOORS):
        if priority >= floor:
            return band
    return LAST


class Scheduler:
    def __init__(self) -> None:
        self._deferred = False
        self._units: dict[int, _Unit] = {}  # by topic id
        # Those that wait longest first. A unit that moved or left stays behind as a leftover.
        self._bands: tuple[list[tuple[int, int, _Unit]], ...] = tuple([] for _ in WEIGHTS)
        self._counts = [0] * (_NOWHERE + 1)  # units by place
        self._credit = [0] * len(WEIGHTS)
        self._numbers = count()
        self._banded_ms = 0
        self._to_look_at: Iterator[_Unit] = iter(())

    @property
    def ready(self) -> int:
        """Topics that wait to be served, without the withheld ones."""
        return len(self._units) - self._counts[_WITHHELD]

    @property
    def is_empty(self) -> bool:
        """Whether a topic that becomes ready now has nothing to be ordered with."""
        return not (self._units or self._deferred)

    @property
    def deferred(self) -> bool:
        return self._deferred

    def withheld(self) -> list[Topic]:
        return [unit.topic for unit in self._units.values() if unit.place == _WITHHELD]

    def withholds(self, topic: Topic, now_ms: int) -> bool:
        """Whether a topic gets nothing for now."""
        return self._deferred and base_priority(topic, now_ms) < 0

    def add(self, topic: Topic, work: int, now_ms: int) -> None:
        """Make a topic ready, for this work too if it already is."""
        unit = self._units.get(topic.id)
        if unit is None:
            self._enter(_Unit(topic, work, now_ms, now_ms), now_ms)
        elif work & ~unit.work:
            unit.work |= work
            self._put(unit, now_ms)  # a push does not wait where a deferred pass does

    def _enter(self, unit: _Unit, now_ms: int) -> None:
        self._units[unit.topic.id] = unit
        self._counts[_NOWHERE] += 1
        self._put(unit, now_ms)

    def defer(self, deferred: bool, now_ms: int) -> None:
        """Enter or leave deferred mode."""
        if deferred != self._deferred:
            self._deferred = deferred
            for unit in self._units.values():
                self._put(unit, now_ms)

    # Rounds

    def serve_round(self, now_ms: int) -> Iterator[ServedTopic]:
        """One round. Each topic has left the set when it is given out."""
        self.reband(now_ms)
        for band, weight in enumerate(WEIGHTS):
            self._credit[band] += weight
            while self._counts[band] and self._credit[band] >= 1:
                self._credit[band] -= 1
                yield self._serve(self._take(band), now_ms)
            if not self._counts[band]:
                self._credit[band] = 0

    def _take(self, band: int) -> _Unit:
        queue = self._bands[band]
        unit = heappop(queue)[2]
        while unit.place != band:
            unit = heappop(queue)[2]
        self._counts[band] -= 1
        unit.place = _NOWHERE
        del self._units[unit.topic.id]
        return unit

    def _serve(self, unit: _Unit, now_ms: int) -> ServedTopic:
        work = unit.work
        if self._deferred and work == PUSH | ROUTE:
            work = PUSH
            self._enter(_Unit(unit.topic, ROUTE, unit.ready_ms, now_ms), now_ms)
        return ServedTopic(unit.topic, work, max(0, now_ms - unit.entitled_ms))

    # Bands

    def reband(self, now_ms: int) -> None:
        """Put topics where they belong by now, if it is time for that."""
        if 0 <= now_ms - self._banded_ms < REBAND_MS:
            return
        self._banded_ms = now_ms
        for unit in self._some():
            if unit.place != _NOWHERE:
                self._put(unit, now_ms)

    def _some(self) -> list[_Unit]:
        """All units, or when they are very many the next part of them."""
        amount = max(REBAND_AT_LEAST, len(self._units) // REBAND_SHARE)
        if len(self._units) <= amount:
            return list(self._units.values())
        some = list(islice(self._to_look_at, amount))
        if len(some) < amount:
            self._to_look_at = iter(list(self._units.values()))
        return some

    def _put(self, unit: _Unit, now_ms: int) -> None:
        place = self._place_of(unit, now_ms)
        if place == unit.place:
            return
        if unit.place == _WITHHELD:
            unit.entitled_ms = now_ms
        self._counts[unit.place] -= 1
        self._counts[place] += 1
        unit.place = place
        if place != _WITHHELD:
            heappush(self._bands[place], (unit.ready_ms, next(self._numbers), unit))

    def _place_of(self, unit: _Unit, now_ms: int) -> int:
        base = base_priority(unit.topic, now_ms)
        if not self._deferred:
            return band_of(aged(base, now_ms - unit.ready_ms))
        if base < 0:
            return _WITHHELD
        band = band_of(aged(base, now_ms - unit.ready_ms))
        return min(band + 1, LAST) if unit.work == ROUTE else band
