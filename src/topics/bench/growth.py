"""Whether calls get slower as a topic grows, and checkpoints with the number of topics.

The median of each kind of call is taken at several sizes. Every tenth record has a tag, and a tag
is on ten records that lie far apart. The first delete by tag loads the index and is given on its
own line: it happens once. A checkpoint precedes the calls: while one is under way, each call also
does up to 5 ms of its work. Writes with idempotency keys have a topic of their own, where as many
keys came before, up to twice what a topic remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from statistics import median
from typing import Any

import topics
from topics.bench.bench import Bench, payload, stored
from topics.bench.measure import Result, durations, stopwatch
from topics.embedded import Log
from topics.engine.settings import EngineSettings

BATCH = 1000
CALLS = 200
TAG_EVERY = 10
PER_TAG = 10
TOPICS = (20_000, 100_000)
LEAST_TOPICS = 200
CHECKPOINTS = 5
MOST_KEYS = 2 * EngineSettings().max_idempotency_keys


def flatness(bench: Bench) -> Iterator[Result]:
    """Append, with a key too, read at head and delete by tag, from 10^4 to 10^7 records."""
    largest = bench.count(10_000_000, least=10_000)
    sizes = [size for size in (10_000, 100_000, 1_000_000, 10_000_000) if size <= largest]
    first: dict[str, float] = {}
    for size in sizes:
        with bench.scratch() as path, topics.open(path) as log:
            bench.say(f"cost at {size:,} records: filling")
            _fill(log, size)
            bench.say(f"cost at {size:,} records")
            for what, seconds in _costs(log, size):
                first.setdefault(what, seconds)
                label, base = f"{what} at {size:,} records, p50", first[what] * 1e6
                raw_what = f"the same at {sizes[0]:,}"
                yield Result("flat", label, seconds * 1e6, "us", raw=base, raw_what=raw_what)


def _fill(log: Log, size: int) -> None:
    log.create("t")
    data = stored(payload())
    tags = size // TAG_EVERY // PER_TAG
    for start in range(0, size, BATCH):
        plain = {"data": data}
        batch = [
            plain if seq % TAG_EVERY else {"data": data, "tag": f"u{seq // TAG_EVERY % tags}"}
            for seq in range(start, start + BATCH)
        ]
        log.append("t", batch)
    log.checkpoint()


def _costs(log: Log, size: int) -> Iterator[tuple[str, float]]:
    record = [{"data": payload()}]
    yield "append 1", median(durations(lambda: log.append("t", record), calls=CALLS))
    head = log.state("t").head_seq
    yield (
        "read 100 at head",
        median(durations(lambda: log.read("t", after=head - 100, limit=100), calls=CALLS)),
    )
    with stopwatch() as elapsed:
        log.delete("t", match="nobody")
    yield "first delete by tag, loading the index", elapsed()
    tags = iter(range(size // TAG_EVERY // PER_TAG))
    calls = min(CALLS, size // TAG_EVERY // PER_TAG)

    def delete() -> None:
        removed = log.delete("t", match=f"u{next(tags)}").deleted
        assert removed == PER_TAG

    yield f"delete by tag ({PER_TAG} records)", median(durations(delete, calls=calls))
    yield "append 1 with a key", median(_keyed(log, record, keys=min(size, MOST_KEYS)))


def _keyed(log: Log, record: Sequence[Mapping[str, Any]], *, keys: int) -> list[float]:
    """How long writes with new keys take when so many have come before."""
    names = map("key-{}".format, count())
    log.create("keyed")

    def append() -> None:
        log.append("keyed", record, idempotency_key=next(names))

    for _ in range(keys):
        append()
    return durations(append, calls=CALLS)


def checkpoints(bench: Bench) -> Iterator[Result]:
    """A checkpoint of one changed record among 20 000 and among 100 000 topics.

    The first checkpoint writes everything and the second copies the snapshot, so that there are two
    of them; from the third on only what changed is written. Bytes are those handed to the system.
    """
    for full in TOPICS:
        number = bench.count(full, least=LEAST_TOPICS)
        with bench.scratch() as path, topics.open(path) as log:
            bench.say(f"checkpoints among {number:,} topics: filling")
            for at in range(number):
                log.append(f"t{at}", {"data": payload()})
            whole = _checkpoint(log)
            copied = _checkpoint(log)
            bench.say(f"checkpoints among {number:,} topics")
            found = [_checkpoint(log) for _ in range(CHECKPOINTS)]
        for what, seconds, nbytes in (
            ("everything", *whole),
            ("a second copy", *copied),
            ("one changed record", *map(median, zip(*found, strict=True))),
        ):
            written = f"{number:,} topics ({nbytes / 1e6:.3f} MB written)"
            yield Result("checkpoint", f"{what}, {written}", seconds * 1000, "ms")


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
