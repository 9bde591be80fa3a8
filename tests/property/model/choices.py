"""What the machine chooses from.

Arguments come from a seed each: one choice a step instead of twenty makes the search quick and its
examples varied. A failure still shows the arguments themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st
from tests.property.model.oracle import Cfg, Draft
from tests.property.model.reading import Reading, Selector
from tests.property.model.stores import PowerCut

T = TypeVar("T")
TAGS = (None, "t", "t1", "t*", "u", "")
NODES = (None, "n1", "n2")


def seeded(make: Callable[[Random], T]) -> st.SearchStrategy[T]:
    return _seeded(make)


@st.composite
def _seeded(draw: st.DrawFn, make: Callable[[Random], Any]) -> Any:  # noqa: ANN401
    return make(Random(draw(st.integers(0, (1 << 32) - 1))))


@dataclass(frozen=True)
class Deletion:
    """What to delete: everything up to some seqs ahead of the earliest, what has a tag, or both."""

    ahead: int | None
    match: Selector | None


def _batch(rng: Random) -> list[Draft]:
    return [
        Draft(
            "x" * rng.choice((0, 3, 9, 24)),
            rng.choice(TAGS),
            rng.choice(NODES),
            rng.choice((None, None, "", "mmmm")),
        )
        for _ in range(rng.choice((1, 2, 3, 5, 5)))
    ]


def _selector(rng: Random) -> Selector:
    return Selector(rng.choice(("t", "t1", "t*", "u", "", "zz")), is_prefix=rng.random() < 0.5)


def _deletion(rng: Random) -> Deletion:
    kind = rng.random()
    return Deletion(
        ahead=None if kind < 0.5 else rng.choice((-1, 0, 1, 2, 3, 8, 99)),
        match=None if 0.5 <= kind < 0.8 else _selector(rng),
    )


def _config(rng: Random) -> Cfg:
    return Cfg(
        durability=rng.choice(("ephemeral", "memory", "disk", "fsync")),
        ttl_ms=rng.choice((0, 0, 50, 50, 1000)),
        cap_records=rng.choice((0, 0, 1, 3, 6, 8)),
        cap_bytes=rng.choice((0, 0, 0, 25, 70)),
        discard=rng.choice(("old", "old", "reject")),
        idempotency_window_ms=rng.choice((120_000, 200)),
        dedupe_node=rng.random() < 0.5,
    )


def _reading(rng: Random) -> Reading:
    return Reading(
        after=rng.choice((0, 0, rng.randrange(400))),
        limit=rng.choice((1, 2, 3, 7, 256)),
        budget=rng.choice((1, 10, 40, 1 << 20)),
        nodes=rng.choice(((), (), ("n1",), ("n1", "n2"))),
        match=None if rng.random() < 0.5 else _selector(rng),
    )


def _cut(rng: Random) -> PowerCut:
    return PowerCut(
        seed=rng.randrange(1 << 16),
        mode=rng.choice(("none", "all", "prefix", "subset", "zero", "garble")),
        names=rng.choice(("none", "all", "prefix")),
    )


def _settings(rng: Random) -> dict[str, int]:
    return {
        "wal_shards": rng.choice((1, 2, 3)),
        "segment_max_events": rng.choice((1, 2, 4)),
        "segment_max_age_ms": rng.choice((0, 1000)),
        "hot_retain_segments": rng.choice((1, 2)),
        "disk_sync_ms": rng.choice((0, 10, 60_000)),
        "checkpoint_ms": rng.choice((1, 60_000)),
        "max_idempotency_keys": rng.choice((3, 262_144)),
        "cache_bytes": 1 << 16,
        "checkpoint_bytes": 1 << 16,
    }


names = st.sampled_from(["a", "a", "a", "b", "q"])  # most steps meet in one topic
nodes = st.sampled_from(NODES)
keys = st.sampled_from([None, None, None, "k1", "k2", "k3", "k4", "k5"])
batches = seeded(_batch)
deletions = seeded(_deletion)
configs = seeded(_config)
readings = seeded(_reading)
cuts = seeded(_cut)
ends = st.none() | cuts
shard_counts = st.integers(1, 3)
engine_settings = seeded(_settings)
