"""Faults while a log moves on to its next file, and of the names in a group."""

import errno
from collections.abc import Callable
from functools import partial
from typing import get_args

import pytest
from tests.unit.storage.wal.builders import (
    CURRENT,
    FIRST_FILE,
    LARGE,
    SMALL,
    TOPIC,
    WAL_DIR,
    Log,
    check_survivors,
    check_usable,
)

from topics.errors import Internal, LogFailed, LogFull, RefusedToOpen
from topics.storage import identity, layout
from topics.storage.wal.settings import MIB, WalSettings
from topics.storage.wal.shard import ShardState
from topics.storage.wal.submission import Submission
from topics.testing import CrashMode, FaultFs, Op, PowerOff, SimDisk, stop_at

MODES: tuple[CrashMode, ...] = get_args(CrashMode)
POINTS = ("synced", "truncated", "header", "renamed", "dirsynced", "current")
SPARE = "*wal-spare.tmp"


def nearly_full(disk: SimDisk, settings: WalSettings = SMALL) -> Log:
    """A log whose next large write needs a new file."""
    log = Log(disk, settings=settings)
    for _ in range(3):
        log.append(LARGE)
    assert log.shard.stats().rotations == 0
    return log


def reopened(disk: SimDisk, log: Log) -> Log:
    after = Log(disk, settings=SMALL)
    check_survivors(log, after)
    return after


def append_forever(log: Log) -> None:
    while True:
        log.append(LARGE)


def wal_files(disk: SimDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".log")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", POINTS)
def test_wr01_a_crash_at_any_step_loses_nothing_acked(point: str, mode: CrashMode) -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    with stop_at(f"wal.rotate.{point}", partial(disk.crash, 4, mode)) as stop:
        log.append(LARGE)
    assert stop.reached
    after = reopened(disk, log)
    assert len(after.recovered[TOPIC]) == 3
    check_usable(disk, after)


@pytest.mark.parametrize("point", POINTS)
def test_wr01_a_process_death_at_any_step_loses_nothing_written(point: str) -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    log.append(b"4", durable=False)
    with stop_at(f"wal.rotate.{point}", disk.kill):
        log.append(LARGE)
    after = Log(disk, settings=SMALL)
    check_survivors(log, after, power_lost=False)
    check_usable(disk, after)


def test_wr01_a_power_cut_before_every_call_of_a_rotation() -> None:
    image = SimDisk()
    log = nearly_full(image)
    image.kill()
    probe = Log(image.clone(), settings=SMALL)
    start = len(probe.faults.trace)
    probe.append(LARGE)
    probe.append(LARGE)
    probe.append(LARGE)
    probe.append(LARGE)
    assert probe.shard.stats().rotations == 1
    for call in range(start + 1, len(probe.faults.trace) + 1):
        disk = image.clone()
        cut = partial(disk.crash, call, MODES[call % len(MODES)])
        log = Log(disk, settings=SMALL)
        log.faults.stop_before(call, cut)
        with pytest.raises(PowerOff):
            append_forever(log)
        reopened(disk, log)


def test_wr02_an_early_spare_without_room_has_no_effect() -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    log.faults.fail("fallocate", errno.ENOSPC, path=SPARE)
    log.shard.prepare_spare()
    assert log.state() is ShardState.OPEN
    log.shard.prepare_spare()
    assert any(path.endswith(layout.WAL_SPARE) for path in disk.paths())
    assert log.append(LARGE).error is None
    assert log.shard.stats().rotations == 1


def test_wr03_a_full_disk_at_rotation_leaves_no_byte_of_the_batch_and_heals() -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    disk.capacity = disk.used
    before = disk.peek(FIRST_FILE)
    assert isinstance(log.append(LARGE).error, LogFull)
    assert log.state() is ShardState.FULL
    assert disk.peek(FIRST_FILE) == before
    assert wal_files(disk) == [FIRST_FILE]
    log.timer.pass_ms(SMALL.probe_ms)
    assert isinstance(log.append(LARGE).error, LogFull)
    disk.capacity = None
    assert isinstance(log.append(LARGE).error, LogFull), "probes are a second apart"
    log.timer.pass_ms(SMALL.probe_ms)
    log.committer.tick()
    assert log.state() is ShardState.OPEN
    assert log.append(LARGE).error is None
    disk.crash(mode="none")
    check_usable(disk, reopened(disk, log))


def test_wr03_a_disk_too_full_to_grow_continues_in_the_spare_that_healed_it() -> None:
    disk = SimDisk()
    settings = WalSettings(file_bytes=64 * MIB, cache_bytes=0)
    log = nearly_full(disk, settings)
    disk.capacity = disk.used
    assert isinstance(log.append(LARGE).error, LogFull)
    disk.capacity = disk.used + MIB + 64 * 1024
    log.committer.try_heal()
    assert log.append(LARGE).error is None
    assert log.shard.stats().rotations == 1
    disk.crash(mode="none")
    disk.capacity = None
    reopened(disk, log)


def test_wr03_a_disk_is_called_full_only_when_little_is_left() -> None:
    """Where twice as much does not fit, a file grows by what is needed, and so does the next."""
    disk = SimDisk()
    settings = WalSettings(file_bytes=8 * MIB, cache_bytes=0)
    log = nearly_full(disk, settings)
    disk.capacity = disk.used + 24 * MIB
    while log.append(LARGE).error is None:
        pass
    assert log.state() is ShardState.FULL
    assert disk.capacity - disk.used <= MIB, "no third of it is free"
    assert log.shard.stats().rotations >= 2
    disk.crash(mode="none")
    disk.capacity = None
    reopened(disk, log)


def test_wr03_a_file_grows_by_what_is_needed_where_twice_as_much_does_not_fit() -> None:
    disk = SimDisk()
    log = nearly_full(disk, WalSettings(cache_bytes=0))
    disk.capacity = disk.used + 2 * MIB
    while log.append(LARGE).error is None:
        pass
    assert len(disk.peek(FIRST_FILE)) == 3 * MIB
    assert log.shard.stats().rotations == 0
    disk.crash(mode="none")
    disk.capacity = None
    reopened(disk, log)


def relieve(log: Log) -> Submission:
    """Log something short that makes room, as a delete does."""
    submission = log.submission(b"7")
    submission.is_relief = True
    log.committer.submit(submission)
    if submission.error is not None:
        del log.sent[TOPIC][-1:]
    return submission


def fill_up(disk: SimDisk) -> Log:
    log = nearly_full(disk)
    disk.capacity = disk.used
    assert isinstance(log.append(LARGE).error, LogFull)
    return log


def test_wr03_a_full_disk_takes_what_makes_room_durably_until_the_kept_room_is_used_up() -> None:
    disk = SimDisk()
    log = fill_up(disk)
    assert isinstance(log.append(b"1").error, LogFull), "short, but it makes no room"
    taken = 0
    while (refused := relieve(log)).error is None:
        taken += 1
        assert log.acked[TOPIC] == len(log.sent[TOPIC])
    assert taken >= 500
    assert isinstance(refused.error, LogFull)
    assert log.state() is ShardState.FULL
    assert disk.used == disk.capacity
    disk.crash(mode="none")
    disk.capacity = None
    check_usable(disk, reopened(disk, log))


def test_wr03_a_disk_that_had_room_again_keeps_some_once_more() -> None:
    disk = SimDisk()
    log = fill_up(disk)
    while relieve(log).error is None:
        pass
    disk.capacity = None
    log.committer.try_heal()
    assert log.append(LARGE).error is None
    disk.capacity = disk.used
    while log.append(LARGE).error is None:
        pass
    assert relieve(log).error is None
    disk.crash(mode="none")
    disk.capacity = None
    check_usable(disk, reopened(disk, log))


def test_wr03_what_finds_the_disk_full_and_makes_room_is_taken() -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    disk.capacity = disk.used
    while log.state() is ShardState.OPEN:
        assert relieve(log).error is None
    assert isinstance(log.append(b"1").error, LogFull)


def test_wr03_several_writes_are_taken_by_a_full_disk_if_all_of_them_make_room() -> None:
    disk = SimDisk()
    log = fill_up(disk)
    batch = [log.submission(b"1"), log.submission(b"2")]
    batch[0].is_relief = True
    with pytest.raises(LogFull):
        log.shard.write_batch(batch)
    batch[1].is_relief = True
    log.shard.write_batch(batch)
    log.shard.sync()
    disk.crash(mode="none")
    disk.capacity = None
    after = reopened(disk, log)
    assert after.recovered[TOPIC][-2:] == [(4, b"1"), (5, b"2")]


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_wr03_no_space_at_any_write_of_a_rotation_heals(nth: int) -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    log.faults.fail("pwrite", errno.ENOSPC, nth=nth)
    refused = log.append(LARGE)
    if refused.error is not None:
        assert isinstance(refused.error, LogFull)
        log.committer.try_heal()
    for _ in range(4):
        assert log.append(LARGE).error is None
    disk.crash(mode="none")
    check_usable(disk, reopened(disk, log))


ROTATION_FAULTS: list[tuple[Op, str, int]] = [
    ("open", SPARE, 1),
    ("pwrite", SPARE, 1),
    ("fsync", SPARE, 1),
    ("rename", SPARE, 1),
    ("truncate", FIRST_FILE, 1),
    ("fsync", FIRST_FILE, 1),
    ("sync_dir", WAL_DIR, 1),
    ("sync_dir", WAL_DIR, 2),
    ("rename", "*CURRENT.tmp", 1),
    ("fsync", "*CURRENT.tmp", 1),
    ("open", "*CURRENT", 1),
]


@pytest.mark.parametrize(("op", "path", "nth"), ROTATION_FAULTS)
def test_wr04_wr05_any_other_error_of_a_rotation_is_final(op: Op, path: str, nth: int) -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    rule = log.faults.fail(op, errno.EIO, path=path, nth=nth)
    assert isinstance(log.append(LARGE).error, LogFailed)
    assert rule.hits == 1
    assert log.state() is ShardState.FAILED
    assert isinstance(log.append(b"5").error, LogFailed)
    disk.crash(7)
    check_usable(disk, reopened(disk, log))


def test_wr06_a_name_lost_in_the_crash_ends_the_log_in_the_old_file() -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    cut = partial(disk.crash, names="none")
    with stop_at("wal.rotate.renamed", cut):
        log.append(LARGE)
    assert wal_files(disk) == [FIRST_FILE]
    check_usable(disk, reopened(disk, log))


def test_wr07_a_torn_first_batch_leaves_the_new_file_with_its_header() -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    log.append(LARGE, durable=False)
    disk.crash(mode="prefix", cut=100)
    after = reopened(disk, log)
    (scan,) = after.scans
    assert scan.torn_bytes == 100
    assert len(wal_files(disk)) == 2, "the file without frames was replaced, not followed"
    check_usable(disk, after)


@pytest.mark.parametrize(
    "damage",
    [
        lambda disk: disk.put(CURRENT, identity.encode_current(1, 1)),
        lambda disk: disk.put(CURRENT, b"wal-0000"),
        lambda disk: disk.flip(CURRENT, 9),
        lambda disk: disk.unlink(CURRENT),
    ],
    ids=["stale", "torn", "flipped", "missing"],
)
def test_wr08_a_useless_current_is_rebuilt(damage: Callable[[SimDisk], None]) -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    log.append(LARGE)
    log.close()
    disk.kill()
    damage(disk)
    after = reopened(disk, log)
    current = identity.decode_current(disk.peek_durable(CURRENT))
    assert current is not None
    assert current.generation == 2
    assert after.shard.path.endswith(layout.wal_name(current.first_lfn))
    check_usable(disk, after)


def refused(disk: SimDisk) -> RefusedToOpen:
    before = disk.contents()
    with pytest.raises(RefusedToOpen) as caught:
        Log(disk, settings=SMALL)
    assert disk.contents() == before, "a refusal changes nothing"
    return caught.value


def three_files(disk: SimDisk) -> Log:
    log = nearly_full(disk)
    while log.shard.stats().rotations < 2:
        log.append(LARGE)
    log.close()
    disk.kill()
    return log


def test_wr09_a_current_that_names_a_missing_file_is_refused() -> None:
    disk = SimDisk()
    three_files(disk)
    newest = wal_files(disk)[-1]
    image = disk.clone()
    disk.unlink(newest)
    error = refused(disk)
    assert (error.reason, error.file) == ("wal_missing", newest)
    disk.restore(image)
    Log(disk, settings=SMALL)


def test_wr10_a_missing_middle_file_is_refused() -> None:
    disk = SimDisk()
    three_files(disk)
    disk.unlink(wal_files(disk)[1])
    assert refused(disk).reason == "wal_missing"


def test_wr10_a_missing_first_file_is_refused() -> None:
    disk = SimDisk()
    three_files(disk)
    disk.unlink(wal_files(disk)[0])
    assert refused(disk).reason == "wal_missing"


def test_wr10_exchanged_files_are_refused() -> None:
    disk = SimDisk()
    three_files(disk)
    first, second, _ = wal_files(disk)
    disk.rename(first, f"{WAL_DIR}/aside")
    disk.rename(second, first)
    disk.rename(f"{WAL_DIR}/aside", second)
    assert refused(disk).reason == "wal_missing"


@pytest.mark.parametrize("change", [-1, 1])
def test_wr10_a_file_of_the_wrong_size_is_refused(change: int) -> None:
    disk = SimDisk()
    three_files(disk)
    first = wal_files(disk)[0]
    file = disk.open(first, write=True)
    file.truncate(file.size() + change)
    assert refused(disk).reason == "wal_missing"


def test_wr10_a_lost_group_of_the_newest_run_is_refused() -> None:
    disk = SimDisk()
    log = Log(disk, shards=3)
    for topic in range(1, 9):
        log.append(b"1", topic=topic)
    log.close()
    disk.kill()
    for path in disk.paths():
        if "shard-02" in path:
            disk.unlink(path)
    assert refused(disk).reason == "wal_missing"


@pytest.mark.parametrize("mode", MODES)
def test_wr11_without_allocation_the_same_is_promised(mode: CrashMode) -> None:
    def unsupported(faults: FaultFs) -> None:
        faults.fail("fallocate", errno.EOPNOTSUPP, always=True)

    disk = SimDisk()
    log = Log(disk, settings=SMALL, arrange=unsupported)
    for _ in range(6):
        assert log.append(LARGE).error is None
    assert log.shard.stats().rotations == 1
    log.append(b"7", durable=False)
    disk.crash(3, mode)
    check_usable(disk, reopened(disk, log))


def test_wr12_the_number_of_shards_may_change_at_every_start() -> None:
    disk = SimDisk()
    expected: dict[int, list[tuple[int, bytes]]] = {}
    for run, shards in enumerate([8, 1, 3, 7]):
        log = Log(disk, shards=shards)
        assert log.recovered == expected
        for topic in range(1, 9):
            log.append(b"%d" % run, topic=topic)
        expected = dict(log.sent)
        disk.crash(run)
    assert Log(disk).recovered == expected


def test_pr09_too_many_open_files_fail_the_batch_alone() -> None:
    disk = SimDisk()
    log = nearly_full(disk)
    rule = log.faults.fail("open", errno.EMFILE, path=SPARE, always=True)
    error = log.append(LARGE).error
    assert type(error) is Internal
    assert log.state() is ShardState.OPEN
    assert rule.hits == 2, "cached handles were given up and the call repeated once"
    log.faults.clear()
    assert log.append(LARGE).error is None


def test_a_log_that_is_asked_to_goes_on_in_another_file() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    log.shard.rotate()
    assert len(wal_files(disk)) == 1, "nothing is in the first file yet"
    log.append(LARGE)
    log.shard.rotate()
    assert len(wal_files(disk)) == 2
    reopened(disk, log)


def test_a_failed_log_is_not_rotated() -> None:
    log = Log(SimDisk(), settings=SMALL)
    log.shard.abandon("a test")
    with pytest.raises(LogFailed):
        log.shard.rotate()
