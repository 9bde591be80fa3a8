"""What the rows of a benchmark share: where to work, how long, and how to say what is going on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topics.bench.measure import Result

RECORD_BYTES = 100


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
