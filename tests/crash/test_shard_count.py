"""The number of log shards may change at every start, whatever the last one left behind."""

from __future__ import annotations

from itertools import product

import pytest
from tests.crash.stores import contents, opened, viewed

from topics.testing import SimDisk

COUNTS = (1, 2, 3)


def write(disk: SimDisk, *, shards: int, label: str, checkpoints: int) -> None:
    """One run of a program that ends without closing."""
    log = opened(disk.mount(), wal_shards=shards)
    for topic in "abcdef":
        log.append(topic, {"data": label}, config={"durability": "fsync"})
    for number in range(checkpoints):
        log.checkpoint()
        log.append("a", {"data": f"{label} after checkpoint {number}"})
    disk.kill()


def raws(disk: SimDisk) -> dict[str, list[bytes]]:
    found = contents(viewed(disk))
    return {topic: [r.raw for r in shown.records.values()] for topic, shown in found.items()}


@pytest.mark.parametrize("counts", list(product(COUNTS, repeat=3)))
@pytest.mark.parametrize("checkpoints", range(4))
def test_records_survive_any_row_of_shard_counts(counts: tuple[int, ...], checkpoints: int) -> None:
    disk = SimDisk()
    wanted: dict[str, list[bytes]] = {topic: [] for topic in "abcdef"}
    for run, shards in enumerate([*counts, *counts]):
        write(disk, shards=shards, label=f"run {run}", checkpoints=checkpoints)
        for texts in wanted.values():
            texts.append(b'"run %d"' % run)
        wanted["a"] += [b'"run %d after checkpoint %d"' % (run, n) for n in range(checkpoints)]
        assert raws(disk) == wanted


@pytest.mark.parametrize("checkpoints", [1, 2, 3])
def test_the_older_snapshot_still_serves_after_a_change(checkpoints: int) -> None:
    disk = SimDisk()
    write(disk, shards=1, label="before", checkpoints=2)
    write(disk, shards=2, label="after", checkpoints=checkpoints)
    wanted = raws(disk)
    newest = max(path for path in disk.paths() if "/meta/snapshot" in path)
    disk.flip(newest, 100)
    assert raws(disk) == wanted
