"""What routers do when their source or their topic goes: loss is passed on, and nothing revived."""

from __future__ import annotations

import errno
from functools import partial

import pytest
from tests.crash.stores import opened

from topics.embedded import Log
from topics.testing import CrashMode, FaultFs, ManualClock, PowerOff, SimDisk
from topics.topic_settings import Durability
from topics.values import Record, Tombstone

MODES: list[CrashMode | None] = [None, "none", "prefix"]


def end(disk: SimDisk, mode: CrashMode | None) -> None:
    if mode is None:
        disk.kill()
    else:
        disk.crash(1, mode)


def seen(log: Log, topic: str) -> tuple[list[int], list[tuple[int, int, str]]]:
    """Values, and announced losses, in the order of a reader."""
    values: list[int] = []
    gaps: list[tuple[int, int, str]] = []
    for event in log.follow(topic, limit=1000, wait=0.0):
        if isinstance(event, Record):
            values.append(event.data)
        else:
            assert isinstance(event, Tombstone)
            gaps.append((event.gap_from, event.gap_to, event.reason))
    return values, gaps


@pytest.mark.parametrize("mode", MODES)
def test_cl19_loss_at_a_source_is_announced_down_a_chain_and_removes_nothing(
    mode: CrashMode | None,
) -> None:
    disk, clock = SimDisk(), ManualClock()
    fs = FaultFs(disk.mount())
    log = opened(fs, clock=clock)
    log.create("a", durability="fsync", cap_records=3)
    for name in ("b", "c"):
        log.create(name, durability="fsync")
    log.append("a", [{"data": n} for n in (1, 2)])
    log.route("ab", source="a", dest="b")
    log.route("bc", source="b", dest="c")
    log.append("a", {"data": 3})
    assert seen(log, "c") == ([3], [])
    # Five at once: the cap takes two of them before any router could look.
    log.append("a", [{"data": n} for n in range(4, 9)])
    before = {name: seen(log, name) for name in ("b", "c")}
    for name, (values, gaps) in before.items():
        assert values == [3, 6, 7, 8], name
        assert [gap[2] for gap in gaps] == ["source_trim"], name
        (lo, hi, _) = gaps[0]
        assert hi - lo + 1 == 2, "exactly as many as were lost"
    for _ in range(2):
        end(disk, mode)
        log = opened(disk.mount(), clock=clock)
        assert {name: seen(log, name) for name in ("b", "c")} == before
    log.append("a", {"data": 9})
    assert seen(log, "c")[0] == [3, 6, 7, 8, 9]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_source", [True, False])
def test_cl22_a_router_does_not_outlive_its_topic_although_its_own_removal_was_lost(
    mode: CrashMode | None, is_source: bool
) -> None:
    disk, clock = SimDisk(), ManualClock()
    fs = FaultFs(disk.mount())
    log = opened(fs, clock=clock, wal_shards=4)
    for name in ("t", "other"):
        log.create(name, durability="fsync")
    source, dest = ("t", "other") if is_source else ("other", "t")
    log.route("r", source=source, dest=dest)
    log.append(source, [{"data": n} for n in (1, 2)])
    assert seen(log, dest)[0] == [1, 2]
    topic = log._engine.kernel.catalog.by_name["t"]
    shard = log._engine.kernel.committer.shard_of(topic.id)
    assert shard != 0, "the removal of the router goes to another shard than that of the topic"
    fs.fail("pwrite", errno.ENOSPC, path="*/shard-00/*", always=True)
    log.drop("t")
    assert log.routers() == []
    fs.clear()
    end(disk, mode)
    log = opened(disk.mount(), clock=clock, wal_shards=4)
    assert log.routers() == [], "it went with its topic"
    log.create("t", durability="fsync")
    log.append("t", {"data": 3})
    log.append("other", {"data": 4})
    end(disk, mode)
    log = opened(disk.mount(), clock=clock, wal_shards=4)
    assert log.routers() == []
    assert seen(log, "t") == ([3], [])
    assert seen(log, "other")[0] == [1, 2, 4], "and 3 was copied by nobody"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_cl20_a_named_cursor_is_as_safe_as_a_record_of_its_topic(
    durability: Durability, mode: CrashMode | None
) -> None:
    call = 0
    while True:
        call += 1
        disk, clock = SimDisk(), ManualClock()
        fs = FaultFs(disk.mount())
        log = opened(fs, clock=clock)
        log.create("t", durability=durability)
        log.append("t", [{"data": n} for n in range(9)])
        log.set_cursor("t", "reader", 3)
        log.sync()
        fs.stop_before(len(fs.trace) + call, partial(end, disk, mode))
        acked = _moved(log)
        end(disk, mode)
        (cursor,) = opened(disk.mount(), clock=clock).cursors("t")
        assert cursor.seq in (3, 7)
        if acked and (mode is None or durability == "fsync"):
            assert cursor.seq == 7
        if acked:
            return


def _moved(log: Log) -> bool:
    try:
        log.set_cursor("t", "reader", 7)
    except PowerOff:
        return False
    return True


def sharded_chain(disk: SimDisk) -> Log:
    """Topics a and b, c for whoever copies from b, each on a shard of its own; none is synced."""
    log = opened(disk.mount(), wal_shards=4, disk_sync_ms=60_000)
    shards: list[int] = []
    while len(shards) < 3:
        name = "abc"[len(shards)]
        log.create(name, durability="disk")
        kernel = log._engine.kernel
        shard = kernel.committer.shard_of(kernel.catalog.by_name[name].id)
        if shard in (0, *shards):  # changes of routers go to shard 0, and sync it
            log.drop(name)
        else:
            shards.append(shard)
    log.sync()
    log.route("ab", source="a", dest="b")
    log.append("a", [{"data": n} for n in (1, 2)])
    assert seen(log, "b") == ([1, 2], [])
    return log


def test_cl13_a_durable_copy_outlives_the_power_though_an_earlier_router_is_gone() -> None:
    """Where a record was first written is known by its copies, whoever made them."""
    disk = SimDisk()
    log = sharded_chain(disk)
    log.configure("c", durability="fsync")
    log.route("bc", source="b", dest="c")
    log.append("a", {"data": 3})
    assert seen(log, "b")[0] == [1, 2, 3]
    log.drop_router("ab")
    assert seen(log, "c") == ([3], [])
    disk.crash(1, "none")
    log = opened(disk.mount(), wal_shards=4)
    assert seen(log, "c")[0] == [3], "shown by an fsync topic: there for good"


def test_cl13_copies_are_durable_once_their_topic_is_one_that_syncs() -> None:
    disk = SimDisk()
    log = sharded_chain(disk)
    log.configure("b", durability="fsync")
    disk.crash(1, "none")
    log = opened(disk.mount(), wal_shards=4)
    assert seen(log, "b")[0] == [1, 2]
