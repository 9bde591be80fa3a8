"""What a log shard counts for metrics."""

from bisect import bisect_left
from typing import NamedTuple

SYNC_BOUNDS_US = (50, 100, 250, 500, 1000, 5000, 10_000, 50_000, 100_000)
"""Upper bounds of the sync histogram; one more bucket takes everything slower."""


class ShardStats(NamedTuple):
    """Totals of one shard since the process opened it."""

    frames: int
    batches: int
    bytes_written: int
    rotations: int
    syncs: int
    sync_ns: int
    sync_buckets: tuple[int, ...]
    """Syncs per bucket of `SYNC_BOUNDS_US`, not cumulative."""


class SyncTimes:
    """How long syncs took."""

    __slots__ = ("buckets", "total_ns")

    def __init__(self) -> None:
        self.total_ns = 0
        self.buckets = [0] * (len(SYNC_BOUNDS_US) + 1)

    def add(self, took_ns: int) -> None:
        self.total_ns += took_ns
        self.buckets[bisect_left(SYNC_BOUNDS_US, took_ns / 1000)] += 1
