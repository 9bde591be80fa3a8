"""Rows about writing. The events are made before the clock starts; the loop around a call costs
about 50 ns, which is not taken off."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import topics
from topics.bench import raw
from topics.bench.bench import RECORD_BYTES, Bench, payload, stored
from topics.bench.measure import Goal, Rates, Result, at_least, at_most, durations, rate
from topics.topic_settings import Durability

FRAME_BYTES = RECORD_BYTES + 50
DISK_SYNC_S = 0.01
"""How often a log of class `disk` syncs its tail; it does so inside the calls."""


@dataclass(frozen=True)
class Writes:
    """Calls of one shape."""

    row: str
    durability: Durability
    batch: int
    calls: int
    goal: Goal

    @property
    def what(self) -> str:
        return f"append {self.batch} a call, {self.durability}"

    @property
    def syncs(self) -> bool:
        return self.durability == "fsync"


def append_one(bench: Bench) -> Iterator[Result]:
    """One record a call, class `disk`."""
    calls = bench.count(20_000, least=50 if bench.is_trial else 4000)
    return _appends(bench, Writes("append1", "disk", 1, calls, at_least(80_000)))


def append_many(bench: Bench) -> Iterator[Result]:
    """A hundred records a call, class `disk`."""
    calls = bench.count(1000, least=5 if bench.is_trial else 100)
    return _appends(bench, Writes("append100", "disk", 100, calls, at_least(700_000)))


def append_durably(bench: Bench) -> Iterator[Result]:
    """A hundred records a call, each call synced."""
    calls = bench.count(400, least=3 if bench.is_trial else 50)
    return _appends(bench, Writes("fsync100", "fsync", 100, calls, at_least(250_000)))


def _appends(bench: Bench, writes: Writes) -> Iterator[Result]:
    with bench.scratch() as path:
        bench.say(f"{writes.what}: raw")
        bare = raw.writes(
            path,
            FRAME_BYTES * writes.batch,
            calls=writes.calls,
            repeats=bench.repeats,
            sync_s=0 if writes.syncs else DISK_SYNC_S,
        )
        for kind, data in (("dicts", payload()), ("ready JSON", stored(payload()))):
            bench.say(f"{writes.what}: {kind}")
            sample = _append_rate(path / kind, writes, data, bench.repeats)
            yield sample.result(
                writes.row,
                f"{writes.what}, {kind}",
                goal=writes.goal,
                raw=bare.median * writes.batch,
                raw_what="write + fdatasync" if writes.syncs else "write, fdatasync every 10 ms",
            )


def _append_rate(path: Path, writes: Writes, data: object, repeats: int) -> Rates:
    records = [{"data": data}] * writes.batch
    with topics.open(path) as log:
        log.create("t", durability=writes.durability)
        append = partial(log.append, "t", records)
        return rate(append, calls=writes.calls, repeats=repeats, units=writes.batch)


def lone_sync(bench: Bench) -> Iterator[Result]:
    """One durable record at a time, each after a bare write and fdatasync."""
    rounds = bench.count(1000, least=10)
    bench.say("lone fsync append")
    with bench.scratch() as path, topics.open(path / "log") as log:
        log.create("t", durability="fsync")
        records = [{"data": payload()}]
        bare = raw.RawFile(path, FRAME_BYTES, sync_s=0)
        ours, theirs = [], []
        for _ in range(rounds):
            theirs += durations(bare.write, calls=1)
            ours += durations(lambda: log.append("t", records), calls=1)
        bare.close()
    value, base = statistics.median(ours), statistics.median(theirs)
    what, raw_what = "lone fsync append, p50", "write + fdatasync"
    times = f"{what} against {raw_what}"
    yield Result("fsync1", times, value / base, "times raw", goal=at_most(1.2))
    best, base_us = min(ours) * 1e6, base * 1e6
    yield Result("fsync1", what, value * 1e6, "us", best, raw=base_us, raw_what=f"{raw_what}, p50")
