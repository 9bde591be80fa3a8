"""An embedded log, interrupted inside one call after another, and what became of it.

Half of the exceptions come at a place chosen by the seed, half in the handler of a real signal,
whose moment belongs to the machine. A *life* is a fresh directory with settings of its own. After
every exception the log goes on where it is, is closed and opened, or is left as by the death of the
process and opened; now and then the call that recovers it is interrupted too. Then it has to show a
state that the calls allow, and take writes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from topics.engine.recovery import opening
from topics.engine.upkeep import schedule as upkeep
from topics.errors import Interrupted, TopicsError
from topics.storage.wal.settings import WalSettings
from topics.torture.interrupted import Damaged, World
from topics.torture.interrupted_calls import CALLS, Call
from topics.torture.interruptions import KINDS, Interruption, Moments, Steps

LIFE = 40
"""Interrupted calls in one life: few enough that comparing stays cheap."""
LOG_FILE_BYTES = 96 << 10
HALF, RARELY, SELDOM = 0.5, 0.2, 0.05
NEVER = 1 << 30
"""A place that no call has, and a number of seconds that none takes."""


@dataclass
class Interrupts:
    """Figures of a whole run."""

    seed: int
    interrupts: int = 0
    lives: int = 0
    recovered_in_place: int = 0
    reopened: int = 0
    said_interrupted: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    exceptions: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    damaged: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "interrupts": self.interrupts,
            "lives": self.lives,
            "recovered_in_place": self.recovered_in_place,
            "reopened": self.reopened,
            "in_memory_and_given_up": self.said_interrupted,
            "calls": dict(sorted(self.calls.items())),
            "exceptions": dict(self.exceptions),
            "seconds": round(self.seconds, 1),
            "damaged_logs": len(self.damaged),
            "damage": self.damaged,
        }


def interrupt(
    *,
    times: int,
    seed: int,
    directory: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    calls: Sequence[Call] = CALLS,
    with_signals: bool = True,
) -> Interrupts:
    """Interrupt so many calls; what was damaged is told in the answer, and the run goes on."""
    totals = Interrupts(seed)
    base = Path(tempfile.mkdtemp(prefix="topics-interrupts-", dir=directory))
    began = time.monotonic()
    places: dict[str, _Extent] = {}
    try:
        with _impatience():
            while totals.interrupts < times:
                random = Random(f"{seed} {totals.lives}")
                life = _Life(base / str(totals.lives), random, totals, places, with_signals)
                life.live(calls, until=min(times, totals.interrupts + LIFE))
                totals.lives += 1
                say(f"{totals.interrupts} of {times}, {len(totals.damaged)} damaged")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    totals.seconds = time.monotonic() - began
    return totals


class _Extent:
    """How many places a call has where it can be left, and how long it takes, at most so far."""

    def __init__(self) -> None:
        self.places = 0
        self.seconds = 0.0

    def interruption(
        self, kind: type[BaseException], random: Random, *, with_signals: bool
    ) -> Interruption:
        """One that may come anywhere in the call; none while its extent is not known."""
        if with_signals and random.random() < HALF:
            if random.random() < SELDOM or not self.seconds:
                return Moments(kind, NEVER)
            return Moments(kind, random.uniform(1e-6, self.seconds))
        if random.random() < SELDOM or not self.places:
            return Steps(kind, NEVER)
        return Steps(kind, random.randint(1, self.places))

    def note(self, interruption: Interruption, seconds: float) -> None:
        if isinstance(interruption, Steps):
            self.places = max(self.places, interruption.passed)
        elif not interruption.came:
            self.seconds = max(self.seconds, seconds)


class _Life:
    def __init__(
        self,
        directory: Path,
        random: Random,
        totals: Interrupts,
        extents: dict[str, _Extent],
        with_signals: bool,
    ) -> None:
        self._random = random
        self._totals = totals
        self._extents = extents
        self._with_signals = with_signals
        self._directory = directory
        self._story = ""

    def live(self, calls: Sequence[Call], *, until: int) -> None:
        """Interrupt calls of one log until it is damaged, or enough were."""
        world = _world(self._directory, self._random)
        try:
            while self._totals.interrupts < until:
                if self._interrupt(world, self._random.choice(calls)):
                    self._go_on(world, calls)
                else:
                    world.judge()
            world.close()
        except Interrupted:
            self._totals.said_interrupted += 1
        except Damaged as damage:
            self._totals.damaged.append(f"life {self._totals.lives}, {self._story}: {damage}")
        finally:
            if world.log is not None:
                world.log._abandon()
            for folder in self._directory, self._directory.with_suffix(".cold"):
                shutil.rmtree(folder, ignore_errors=True)

    def _interrupt(self, world: World, call: Call) -> bool:
        """Whether the call was left before its end."""
        name = call.__name__
        extent = self._extents.setdefault(name, _Extent())
        kind = self._random.choice(KINDS)
        interruption = extent.interruption(kind, self._random, with_signals=self._with_signals)
        began = time.monotonic()
        error: BaseException | None = None
        try:
            with interruption:
                call(world)
        except (Exception, kind) as caught:
            error = caught
        if isinstance(error, Interrupted) and world.directory is None:
            raise error
        if error is not None and not (interruption.came and _tells_of(error, kind)):
            raise Damaged(f"{name} raised {_told(error)} {interruption.where}") from error
        extent.note(interruption, time.monotonic() - began)
        if interruption.came:
            self._totals.interrupts += 1
            self._totals.calls[name] += 1
            self._totals.exceptions[kind.__name__] += 1
            self._story = f"{name} left by {kind.__name__} at {interruption.where}"
        return interruption.came

    def _go_on(self, world: World, calls: Sequence[Call]) -> None:
        """Whatever comes next, the log has to be whole then."""
        engine = None if world.log is None else world.log._engine
        try:
            if world.retry is not None and self._random.random() < HALF:
                world.retry()
            elif self._random.random() < RARELY:
                first = self._story
                self._interrupt(world, self._random.choice(calls))
                self._story = f"{first}, then {self._story}"
            world.retry = None
            how = self._random.choice(("stop", "death", "", "", ""))
            if how and world.directory is not None:
                world.reopen(how)
                self._totals.reopened += 1
                engine = None
            world.judge()
            if engine is not None and world.at._engine is not engine:
                self._totals.recovered_in_place += 1
            world.still_writes()
        except (Damaged, Interrupted):
            raise
        except Exception as error:
            raise Damaged(f"then {_told(error)}") from error


def _tells_of(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether an error is the interruption, or was caused by it. `TimeoutError` may have been taken
    for the disk's, by Python as well, and led to any other refusal: what counts is what follows.
    """
    if kind is TimeoutError and isinstance(error, TopicsError):
        return True
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__
    return cause is not None


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _world(directory: Path, random: Random) -> World:
    """A log in memory now and then, else a directory with numbers that make much happen."""
    background = random.random() < RARELY
    if random.random() < RARELY:
        return World(None, random, background=background)
    settings: dict[str, Any] = {
        "wal_shards": random.randint(1, 3),
        "segment_max_events": 16,
        "checkpoint_bytes": 64 << 10,
    }
    if random.random() < RARELY:
        settings |= {"cold_dir": directory.with_suffix(".cold"), "hot_retain_segments": 1}
    return World(directory, random, background=background, **settings)


@contextmanager
def _impatience() -> Iterator[None]:
    """Small log files, and upkeep that looks for work many times a second."""
    small = partial(WalSettings, file_bytes=LOG_FILE_BYTES)
    changes: list[tuple[Any, str, Any]] = [(opening, "WalSettings", small), (upkeep, "POLL_MS", 20)]
    before = [getattr(module, name) for module, name, _ in changes]
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        sys.unraisablehook = hook
        for (module, name, _), value in zip(changes, before, strict=True):
            setattr(module, name, value)
