"""Rows about reading 1000 records a call.

A page holds stored bytes and offsets; a record is decoded when it is first used. The goals are
about pages. What decoding costs is measured beside it: every record as an object, and its data as
Python objects.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import topics
from topics.bench import raw
from topics.bench.appending import FRAME_BYTES
from topics.bench.bench import Bench, payload, stored
from topics.bench.measure import Rates, Result, at_least, rate
from topics.embedded import Log

PAGE = 1000
ROOMY = 8 << 20


def from_cache(bench: Bench) -> Iterator[Result]:
    """Records that are still in the log, from its mirror in memory."""
    pages = bench.count(200, least=2)
    with bench.scratch() as path, topics.open(path) as log:
        bench.say("read from the cache: filling")
        _fill(log, pages=pages)
        copies = raw.copies(PAGE * FRAME_BYTES, calls=pages, repeats=bench.repeats)
        bench.say("read from the cache")
        for what, look, goal in (
            ("read 1000 a call from the cache, stored bytes", _only_read, at_least(3e6)),
            ("... and every record as an object", _as_records, None),
            ("... and its data as Python objects", _as_data, None),
        ):
            sample = _read_rate(log, look, pages=pages, repeats=bench.repeats)
            yield sample.result(
                "read-cache", what, goal=goal, raw=copies.median * PAGE, raw_what="memory copy"
            )


def from_segments(bench: Bench) -> Iterator[Result]:
    """Records in sealed segments whose pages the kernel has cached; every frame is verified."""
    pages = bench.count(200, least=2)
    with bench.scratch() as path, topics.open(path) as log:
        bench.say("read from sealed segments: filling")
        _fill(log, pages=pages + 20)
        log.checkpoint()
        bare = raw.reads(path, PAGE * FRAME_BYTES, calls=pages, repeats=bench.repeats)
        bench.say("read from sealed segments")
        sample = _read_rate(log, _only_read, pages=pages, repeats=bench.repeats)
        what = "read 1000 a call from sealed segments, stored bytes"
        yield sample.result(
            "read-sealed", what, goal=at_least(1e6), raw=bare.median * PAGE, raw_what="pread"
        )


def _fill(log: Log, *, pages: int) -> None:
    log.create("t")
    records = [{"data": stored(payload())}] * PAGE
    for _ in range(pages):
        log.append("t", records)


def _only_read(page: topics.Page) -> int:
    return len(page.records)


def _as_records(page: topics.Page) -> int:
    return sum(1 for record in page.records if record.raw)


def _as_data(page: topics.Page) -> int:
    return sum(1 for record in page.records if record.data)


def _read_rate(log: Log, look: object, *, pages: int, repeats: int) -> Rates:
    assert callable(look)
    cursors = itertools.cycle(range(0, pages * PAGE, PAGE))

    def read() -> None:
        page = log.read("t", after=next(cursors), limit=PAGE, max_bytes=ROOMY)
        assert look(page) == PAGE

    return rate(read, calls=pages, repeats=repeats, units=PAGE)
