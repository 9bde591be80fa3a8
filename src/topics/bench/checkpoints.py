"""What a checkpoint costs when very many topics are there and one of them has a new record.

The first checkpoint writes everything and the second copies the snapshot, so that there are two of
them; from the third on only what changed is written. Bytes are those handed to the system.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import topics
from topics.bench.bench import Bench, payload
from topics.bench.measure import Result, stopwatch
from topics.embedded import Log

TOPICS = (20_000, 100_000)
LEAST_TOPICS = 200
BATCHES = 5


def one_changed_record(bench: Bench) -> Iterator[Result]:
    """A checkpoint of one changed record among 20 000 and among 100 000 topics."""
    for full in TOPICS:
        number = bench.count(full, least=LEAST_TOPICS)
        with bench.scratch() as path, topics.open(path) as log:
            bench.say(f"checkpoints among {number:,} topics: filling")
            for at in range(number):
                log.append(f"t{at}", {"data": payload()})
            whole = _checkpoint(log)
            copied = _checkpoint(log)
            bench.say(f"checkpoints among {number:,} topics")
            found = [_checkpoint(log) for _ in range(BATCHES)]
        for what, seconds, nbytes in (
            ("everything", *whole),
            ("a second copy", *copied),
            ("one changed record", *map(statistics.median, zip(*found, strict=True))),
        ):
            yield Result(
                row="checkpoint",
                what=f"{what}, {number:,} topics ({nbytes / 1e6:.3f} MB written)",
                value=seconds * 1000,
                unit="ms",
            )


def _checkpoint(log: Log) -> tuple[float, float]:
    """Change one record; seconds and bytes of the checkpoint after it."""
    log.append("t7", {"data": payload()})
    before = _bytes_written()
    with stopwatch() as elapsed:
        log.checkpoint()
    return elapsed(), _bytes_written() - before


def _bytes_written() -> int:
    with open("/proc/self/io") as counters:
        fields = dict(line.split(": ") for line in counters.read().splitlines())
    return int(fields["wchar"])
