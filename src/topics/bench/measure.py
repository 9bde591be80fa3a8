"""Timing, and the values a row of a benchmark gives back.

Every rate is taken several times and given as the median, with the best beside it: on a machine
that others use too, the best run says what the code costs and the median what a user gets.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True)
class Goal:
    """What a number should reach: at least, or at most."""

    value: float
    at_least: bool

    def is_met(self, measured: float) -> bool:
        return measured >= self.value if self.at_least else measured <= self.value


def at_least(value: float) -> Goal:
    return Goal(value, at_least=True)


def at_most(value: float) -> Goal:
    return Goal(value, at_least=False)


@dataclass(frozen=True)
class Result:
    """One line of the table. `raw` is what the bare operation did in the same run."""

    row: str
    what: str
    value: float
    unit: str
    best: float | None = None
    goal: Goal | None = None
    raw: float | None = None
    raw_what: str = ""

    @property
    def ratio(self) -> float | None:
        """The measured value as a multiple of the raw one."""
        return None if not self.raw else self.value / self.raw

    @property
    def is_met(self) -> bool | None:
        return None if self.goal is None else self.goal.is_met(self.value)


@dataclass(frozen=True)
class Rates:
    """The same work, timed several times."""

    rates: tuple[float, ...]  # units of work a second

    @property
    def median(self) -> float:
        return statistics.median(self.rates)

    @property
    def best(self) -> float:
        return max(self.rates)

    def result(
        self,
        row: str,
        what: str,
        unit: str = "records/s",
        *,
        goal: Goal | None = None,
        raw: float | None = None,
        raw_what: str = "",
    ) -> Result:
        return Result(row, what, self.median, unit, self.best, goal, raw, raw_what)


def rate(work: Work, *, calls: int, repeats: int, units: int = 1) -> Rates:
    """How often a second `work` runs, times the `units` each call handles. One call warms up."""
    work()
    rates = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        rates.append(units * calls / (time.perf_counter() - began))
    return Rates(tuple(rates))


def durations(work: Work, *, calls: int) -> list[float]:
    """Seconds of each call, in order."""
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return times


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Seconds since the block began, for work that is done once."""
    began = time.perf_counter()
    yield lambda: time.perf_counter() - began


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of a sorted sample does not exceed."""
    return float(ordered[max(0, math.ceil(share * len(ordered)) - 1)])
