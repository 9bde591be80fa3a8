"""What the benchmarks share: their command line, where to work, how long, what to write."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topics.bench import table
from topics.bench.measure import Result

RECORD_BYTES = 100
FULL, QUICK = (1.0, 7), (0.02, 3)
"""Scale and repeats."""


@dataclass(frozen=True)
class Bench:
    """One run. `scale` cuts down counts: 1 for the numbers of the goals, less for a quick look."""

    directory: Path
    scale: float
    repeats: int
    say: Callable[[str], None]

    @property
    def is_trial(self) -> bool:
        """Whether only to see that it runs: the numbers mean nothing."""
        return self.scale < 0.001

    def count(self, full: int, *, least: int = 1) -> int:
        return max(least, int(full * self.scale))

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory of its own on the disk to measure, gone afterwards."""
        path = Path(tempfile.mkdtemp(prefix="topics-bench-", dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


Row = Callable[[Bench], Iterator[Result]]


def run(name: str, about: str, rows: Mapping[str, Row], argv: Sequence[str] | None = None) -> int:
    """Measure the chosen rows and print them."""
    chosen = parser(name, about, rows).parse_args(argv)
    unknown = [row for row in chosen.rows if row not in rows]
    if unknown:
        print(f"no row {unknown[0]!r}; rows: {', '.join(rows)}", file=sys.stderr)
        return 2
    scale, repeats = QUICK if chosen.quick else FULL
    results: list[Result] = []
    with table.progress() as say:
        bench = Bench(chosen.dir, chosen.scale or scale, repeats, say)
        for row in chosen.rows or rows:
            results += rows[row](bench)
    if chosen.json:
        table.print_json(results)
    else:
        table.print_table(results)
    return 0


def parser(name: str, about: str, rows: Iterable[str]) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    made = argparse.ArgumentParser(prog=f"topics bench {name}", description=about)
    made.add_argument(
        "--rows",
        type=lambda text: [row for row in text.split(",") if row],
        default=[],
        help=f"only these, separated by commas: {', '.join(rows)}",
    )
    made.add_argument("--quick", action="store_true", help="small counts: a look in seconds")
    made.add_argument(
        "--scale", type=float, default=0.0, help="multiply every count (1 is the goals' size)"
    )
    made.add_argument("--json", action="store_true", help="for programs")
    made.add_argument(
        "--dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="directory on the disk to measure (default: the temporary directory)",
    )
    return made


def payload(number: int = 1) -> dict[str, Any]:
    """A small event whose stored JSON has `RECORD_BYTES` bytes."""
    event: dict[str, Any] = {"id": number, "user": "user-7", "kind": "order.created", "note": ""}
    event["note"] = "x" * (RECORD_BYTES - len(stored(event)))
    return event


def stored(event: object) -> bytes:
    """The event as the log stores it."""
    return json.dumps(event, separators=(",", ":")).encode()


def in_child(task: str, *arguments: object, timeout: float = 1800) -> dict[str, Any]:
    """Run a task of `child` in a new process; returns what it found.

    A task that kills itself leaves nothing to return.
    """
    done = subprocess.run(
        [sys.executable, "-m", "topics.bench.child", task, *map(str, arguments)],
        stdout=subprocess.PIPE,
        timeout=timeout,
        check=False,
    )
    if done.returncode > 0:
        raise RuntimeError(f"the process for {task!r} failed with status {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return found
