"""Faults of syncs, and the end of a run."""

import errno
from functools import partial
from typing import get_args

import pytest
from tests.unit.storage.wal.builders import (
    FIRST_FILE,
    SETTINGS,
    TOPIC,
    Log,
    check_survivors,
    check_usable,
)

from topics.errors import LogFailed, RefusedToOpen
from topics.storage.wal.shard import ShardState
from topics.testing import CrashMode, SimDisk, stop_at

MODES: tuple[CrashMode, ...] = get_args(CrashMode)
WAL_FILES = "*.log"


def acked_log(disk: SimDisk) -> Log:
    log = Log(disk)
    log.append(b"1")
    return log


def reopened(disk: SimDisk, log: Log, *, power_lost: bool = True) -> Log:
    after = Log(disk)
    check_survivors(log, after, power_lost=power_lost)
    return after


@pytest.mark.parametrize("mode", MODES)
def test_ws01_ws03_a_failed_sync_is_final_and_its_batch_whole_or_gone(mode: CrashMode) -> None:
    disk = SimDisk()
    log = acked_log(disk)
    log.faults.fail("fdatasync", errno.EIO, path=WAL_FILES)
    assert isinstance(log.append(b"2", b"3").error, LogFailed)
    assert log.state() is ShardState.FAILED
    calls = len(log.faults.trace)
    assert isinstance(log.append(b"2", durable=False).error, LogFailed)
    with pytest.raises(LogFailed):
        log.committer.sync(0)
    log.committer.tick()
    with pytest.raises(LogFailed):
        log.close()
    assert [call for call in log.faults.trace[calls:] if call.path == FIRST_FILE] == []
    disk.crash(5, mode)
    check_usable(disk, reopened(disk, log))


def test_ws02_a_sync_that_fails_once_is_not_asked_again() -> None:
    disk = SimDisk()
    log = acked_log(disk)
    disk.fsyncgate(WAL_FILES)
    assert isinstance(log.append(b"2", b"3").error, LogFailed)
    assert isinstance(log.append(b"4").error, LogFailed)
    assert log.state() is ShardState.FAILED
    disk.crash(mode="all")
    check_usable(disk, reopened(disk, log))


def test_ws04_a_failed_tick_fails_the_shard_though_nobody_waits() -> None:
    disk = SimDisk()
    log = acked_log(disk)
    log.append(b"2", durable=False)
    log.faults.fail("fdatasync", errno.EIO, path=WAL_FILES)
    log.timer.pass_ms(SETTINGS.disk_sync_ms)
    log.committer.tick()
    assert log.state() is ShardState.FAILED
    assert isinstance(log.append(b"3").error, LogFailed)


def test_ws05_a_batch_that_was_synced_but_not_answered_may_be_there() -> None:
    disk = SimDisk()
    log = acked_log(disk)
    with stop_at("wal.after_sync", partial(disk.crash, mode="none")):
        log.append(b"2")
    after = reopened(disk, log)
    assert len(after.recovered[TOPIC]) == 2
    check_usable(disk, after)


def test_ws07_a_failed_shard_leaves_the_others_alone() -> None:
    disk = SimDisk()
    log = Log(disk, shards=3)
    log.faults.fail("fdatasync", errno.EIO, path="*/shard-01/*.log", always=True)
    states = []
    for topic in range(1, 9):
        log.append(b"1", topic=topic)
    states = [shard.state for shard in log.shards]
    assert states == [ShardState.OPEN, ShardState.FAILED, ShardState.OPEN]
    disk.crash(mode="none")
    after = Log(disk, shards=2)
    check_survivors(log, after)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("late", [0, 3])
def test_ws08_ws09_a_lying_sync_is_noticed_or_costs_a_tail(seed: int, late: int) -> None:
    disk = SimDisk()
    log = acked_log(disk)
    if late:
        disk.fsync_late(late)
    else:
        disk.fsync_lies()
    for number in range(12):
        log.append(b"%d" % number * 60)
    disk.honest()
    disk.crash(seed, "subset")
    found, reasons = [], []
    try:
        found = Log(disk).recovered[TOPIC]
    except RefusedToOpen as error:
        reasons = [error.reason]
    assert reasons in ([], ["wal_corrupt"])
    assert found == log.sent[TOPIC][: len(found)]


@pytest.mark.parametrize("nth", [1, 2])
def test_ws10_a_power_cut_while_closing_loses_nothing_acked(nth: int) -> None:
    disk = SimDisk()
    log = acked_log(disk)
    log.append(b"2", durable=False)
    with stop_at("wal.after_sync", partial(disk.crash, 2), nth=nth) as stop:
        log.close()
    assert stop.reached
    check_usable(disk, reopened(disk, log))


@pytest.mark.parametrize("nth", [1, 2])
def test_ws11_a_final_sync_that_fails_is_reported(nth: int) -> None:
    disk = SimDisk()
    log = acked_log(disk)
    log.append(b"2", durable=False)
    log.faults.fail("fdatasync", errno.EIO, path=WAL_FILES, nth=nth)
    with pytest.raises(LogFailed):
        log.close()
    disk.crash()
    check_usable(disk, reopened(disk, log))


def test_ws12_an_idle_tail_is_safe_after_the_tick() -> None:
    disk = SimDisk()
    log = acked_log(disk)
    tail = log.append(b"2", durable=False)
    log.timer.pass_ms(SETTINGS.disk_sync_ms)
    log.committer.tick()
    log.watch.acked(FIRST_FILE, tail.offset + len(tail.frames))
    disk.crash(mode="none")
    assert len(reopened(disk, log).recovered[TOPIC]) == 2


def test_ws13_a_lone_durable_write_costs_one_write_and_one_sync() -> None:
    log = acked_log(SimDisk())
    calls = len(log.faults.trace)
    log.append(b"2")
    assert [call.op for call in log.faults.trace[calls:]] == ["pwrite", "fdatasync"]


def test_ws15_an_ack_before_the_sync_would_be_seen() -> None:
    log = acked_log(SimDisk())
    early = log.submission(b"2", durable=False)
    early.durable = False
    log.committer.submit(early)
    with pytest.raises(AssertionError, match="before its sync"):
        log.watch.acked(FIRST_FILE, early.offset + len(early.frames))
