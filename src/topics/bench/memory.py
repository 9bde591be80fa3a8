"""Rows about resident memory, each taken in a process of its own from /proc/self/statm."""

from __future__ import annotations

from collections.abc import Iterator

from topics.bench.bench import Bench, in_child
from topics.bench.measure import Result, at_most

MIB = 1 << 20
FEW_TAGS = 100


def per_record(bench: Bench) -> Iterator[Result]:
    """What a record costs while it is only in the log: later it costs nothing."""
    records = bench.count(2_000_000, least=10_000)
    bench.say("memory per record")
    yield Result(
        row="memory",
        what=f"memory per record in the log's tail ({records:,} records)",
        value=in_child("tail_memory", records)["per_record"],
        unit="B",
        goal=at_most(24),
    )


def opened(bench: Bench) -> Iterator[Result]:
    """A large store, opened and read at both ends."""
    records = bench.count(10_000_000, least=10_000)
    with bench.scratch() as path:
        bench.say(f"memory of {records:,} records: filling")
        in_child("fill", path, records, 0)
        bench.say(f"memory of {records:,} records: opening")
        found = in_child("reopen", path)
    yield Result(
        row="memory10m",
        what=f"{records:,} untagged records, open",
        value=found["resident"] / MIB,
        unit="MiB",
        goal=at_most(350),
    )


def tags(bench: Bench) -> Iterator[Result]:
    """What the tag index adds once it is used: few tags on many records, and a tag on each."""
    records = bench.count(1_000_000, least=10_000)
    yield Result(
        row="memory-tags",
        what=f"tag index, {records:,} records of {FEW_TAGS} tags, a record",
        value=_index_bytes(bench, records, FEW_TAGS) / records,
        unit="B",
        goal=at_most(8),
    )
    distinct = records
    yield Result(
        row="memory-tags",
        what=f"tag index, {distinct:,} distinct tags, a tag",
        value=_index_bytes(bench, distinct, distinct) / distinct - 8,
        unit="B",
        goal=at_most(200),
    )


def _index_bytes(bench: Bench, records: int, distinct: int) -> float:
    with bench.scratch() as path:
        bench.say(f"tag index of {distinct:,} tags: filling")
        in_child("fill", path, records, distinct)
        bench.say(f"tag index of {distinct:,} tags")
        return float(in_child("tag_memory", path)["added"])
