"""Rows about starting: opening after a crash, and the first durable record of a new process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from topics.bench.bench import Bench, in_child
from topics.bench.measure import Result, at_most

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
            bare = _read_all(path)
            found = in_child("reopen", path)
        yield Result(
            row="open",
            what=f"open after a kill, {records:,} records, {what} ({size >> 20} MiB of log)",
            value=found["open"],
            unit="s",
            goal=at_most(1.5),
            raw=bare,
            raw_what="reading the log",
        )
        yield Result(
            row="open",
            what="... first read after it",
            value=found["first_read"] * 1000,
            unit="ms",
        )


def _log_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("wal-*.log"))


def _read_all(path: Path) -> float:
    began = time.perf_counter()
    for file in path.rglob("wal-*.log"):
        file.read_bytes()
    return time.perf_counter() - began


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
        row="import",
        what=f"import to first durable ack (import {imported:.0f}, open {opened:.0f}, "
        f"create and append {acked:.0f})",
        value=total,
        unit="ms",
        best=min(times[0] for times in found),
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
    times = []
    for _ in range(max(3, repeats)):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", ""], check=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000
