"""Rows that need processes of their own: opening after a crash, the first durable record, memory.

Memory is what is resident, from /proc/self/statm.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from topics.bench.bench import Bench, in_child
from topics.bench.measure import Result, at_most, durations

MIB = 1 << 20
FEW_TAGS = 100
NEVER = {"checkpoint_bytes": 1 << 40, "checkpoint_ms": 1 << 40}
FIRST_ACK = """
import sys, time
began = time.perf_counter()
import topics
imported = time.perf_counter()
log = topics.open(sys.argv[1])
opened = time.perf_counter()
log.append("t", [{"data": {"id": 1}}], config={"durability": "fsync"})
acked = time.perf_counter()
print(acked - began, imported - began, opened - imported, acked - opened)
log.close()
"""


def after_kill(bench: Bench) -> Iterator[Result]:
    """Open what a killed process left: as it comes, and with every record still in the log."""
    records = bench.count(1_000_000, least=1000)
    for what, settings in (("as it comes", {}), ("all of it still in the log", NEVER)):
        with bench.scratch() as path:
            bench.say(f"open after a kill, {what}: filling")
            in_child("fill_and_die", path, records, json.dumps(settings))
            size = _log_bytes(path)
            bench.say(f"open after a kill, {what}")
            (bare,) = durations(partial(_read_all, path), calls=1)
            found = in_child("reopen", path)
        label = f"open after a kill, {records:,} records, {what} ({size >> 20} MiB of log)"
        goal, raw_what = at_most(1.5), "reading the log"
        yield Result("open", label, found["open"], "s", goal=goal, raw=bare, raw_what=raw_what)
        yield Result("open", "... first read after it", found["first_read"] * 1000, "ms")


def _log_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("wal-*.log"))


def _read_all(path: Path) -> None:
    for file in path.rglob("wal-*.log"):
        file.read_bytes()


def first_ack(bench: Bench) -> Iterator[Result]:
    """Import to first durable ack, each time in a new process and a new directory.

    The bytecode is cached, as it is for anybody's second start: a run before the first fills it.
    """
    bench.say("import to first durable ack")
    with bench.scratch() as path:
        found = [
            _first_ack_ms(path / str(number), bytecode=path / "bytecode")
            for number in range(max(3, bench.repeats) + 1)
        ][1:]
    total, imported, opened, acked = map(statistics.median, zip(*found, strict=True))
    yield Result(
        "import",
        f"import to first durable ack (import {imported:.0f}, open {opened:.0f}, "
        f"create and append {acked:.0f})",
        total,
        "ms",
        min(times[0] for times in found),
        goal=at_most(100),
        raw=_interpreter_ms(bench.repeats),
        raw_what="starting Python, not included",
    )


def _first_ack_ms(path: Path, *, bytecode: Path) -> list[float]:
    """Total, import, open and append, of a process that does nothing else."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", FIRST_ACK, str(path)],
        stdout=subprocess.PIPE,
        env=environment,
        check=True,
    )
    return [float(text) * 1000 for text in done.stdout.split()]


def _interpreter_ms(repeats: int) -> float:
    command = [sys.executable, "-c", ""]
    times = durations(lambda: subprocess.run(command, check=True), calls=max(3, repeats))
    return statistics.median(times) * 1000


def memory_per_record(bench: Bench) -> Iterator[Result]:
    """What a record costs while it is only in the log: later it costs nothing."""
    records = bench.count(2_000_000, least=10_000)
    bench.say("memory per record")
    per_record = in_child("tail_memory", records)["per_record"]
    what = f"memory per record in the log's tail ({records:,} records)"
    yield Result("memory", what, per_record, "B", goal=at_most(24))


def memory_opened(bench: Bench) -> Iterator[Result]:
    """A large store, opened and read at both ends."""
    records = bench.count(10_000_000, least=10_000)
    with bench.scratch() as path:
        bench.say(f"memory of {records:,} records: filling")
        in_child("fill", path, records, 0)
        bench.say(f"memory of {records:,} records: opening")
        found = in_child("reopen", path)
    what = f"{records:,} untagged records, open"
    yield Result("memory10m", what, found["resident"] / MIB, "MiB", goal=at_most(350))


def memory_of_tags(bench: Bench) -> Iterator[Result]:
    """What the tag index adds once it is used: few tags on many records, and a tag on each."""
    records = bench.count(1_000_000, least=10_000)
    what = f"tag index, {records:,} records of {FEW_TAGS} tags, a record"
    a_record = _index_bytes(bench, records, FEW_TAGS) / records
    yield Result("memory-tags", what, a_record, "B", goal=at_most(8))
    what = f"tag index, {records:,} distinct tags, a tag"
    a_tag = _index_bytes(bench, records, records) / records - 8
    yield Result("memory-tags", what, a_tag, "B", goal=at_most(200))


def _index_bytes(bench: Bench, records: int, distinct: int) -> float:
    with bench.scratch() as path:
        bench.say(f"tag index of {distinct:,} tags: filling")
        in_child("fill", path, records, distinct)
        bench.say(f"tag index of {distinct:,} tags")
        return float(in_child("tag_memory", path)["added"])
