"""Faults while frames are appended: failing writes and power cuts around them."""

import contextlib
import errno
from collections.abc import Callable
from functools import partial
from typing import get_args

import pytest
from tests.unit.storage.wal.builders import (
    FIRST_FILE,
    LARGE,
    SETTINGS,
    TOPIC,
    Log,
    check_survivors,
    check_usable,
)

from topics.errors import LogFailed, LogFull, RefusedToOpen
from topics.storage.wal import shard
from topics.storage.wal.settings import MIB, WalSettings
from topics.storage.wal.shard import ShardState
from topics.testing import SECTOR, CrashMode, PowerOff, SimDisk, stop_at

MODES: tuple[CrashMode, ...] = get_args(CrashMode)
SEEDS = range(6)
WAL_FILES = "*.log"


def two_acked(disk: SimDisk) -> Log:
    log = Log(disk)
    log.append(b"1")
    log.append(b"2")
    return log


def reopened(disk: SimDisk, log: Log, *, power_lost: bool = True) -> Log:
    after = Log(disk)
    check_survivors(log, after, power_lost=power_lost)
    return after


def test_wa01_an_io_error_on_write_fails_the_shard_for_good() -> None:
    disk = SimDisk()
    log = two_acked(disk)
    log.faults.fail("pwrite", errno.EIO, path=WAL_FILES)
    assert isinstance(log.append(b"3").error, LogFailed)
    assert log.state() is ShardState.FAILED
    assert isinstance(log.append(b"4").error, LogFailed)
    disk.crash()
    check_usable(disk, reopened(disk, log))


def test_wa02_a_write_without_space_is_taken_back_and_the_shard_heals() -> None:
    disk = SimDisk()
    log = two_acked(disk)
    end = log.shard.position
    log.faults.fail("pwrite", errno.ENOSPC, path=WAL_FILES)
    refused = log.append(b"3", durable=False)
    assert isinstance(refused.error, LogFull)
    assert log.state() is ShardState.FULL
    assert log.shard.position == end
    assert len(disk.peek(FIRST_FILE)) == end.offset
    assert isinstance(log.append(b"3").error, LogFull)
    log.timer.pass_ms(SETTINGS.probe_ms)
    assert log.append(b"3").error is None
    disk.crash()
    check_usable(disk, reopened(disk, log))


def test_wa02_part_of_a_write_is_taken_back_too() -> None:
    disk = SimDisk()
    log = two_acked(disk)
    end = log.shard.position.offset
    log.faults.fail("pwrite", "short", path=WAL_FILES, keep=30)
    log.faults.fail("pwrite", errno.EDQUOT, nth=2, path=WAL_FILES)
    assert isinstance(log.append(b"3").error, LogFull)
    assert len(disk.peek_durable(FIRST_FILE)) == end
    log.committer.try_heal()
    assert log.state() is ShardState.OPEN
    assert log.append(b"3").error is None


@pytest.mark.parametrize("op", ["truncate", "fsync"])
def test_wa03_a_write_that_cannot_be_taken_back_fails_the_shard(op: str) -> None:
    disk = SimDisk()
    log = two_acked(disk)
    log.faults.fail("pwrite", errno.ENOSPC, path=WAL_FILES)
    log.faults.fail(op, errno.EIO, path=WAL_FILES)  # type: ignore[arg-type]  # a literal
    assert isinstance(log.append(b"3").error, LogFailed)
    assert log.state() is ShardState.FAILED
    disk.crash()
    check_usable(disk, reopened(disk, log))


@pytest.mark.parametrize("keep", [1, 3, 20, 60, 100, 115])
def test_wa04_a_short_write_is_continued_wherever_it_stopped(keep: int) -> None:
    disk = SimDisk()
    log = two_acked(disk)
    log.faults.fail("pwrite", "short", path=WAL_FILES, keep=keep)
    assert log.append(b"3").error is None
    disk.crash(mode="none")
    check_usable(disk, reopened(disk, log))


def test_wa05_a_write_that_makes_no_progress_fails_instead_of_spinning() -> None:
    disk = SimDisk()
    log = two_acked(disk)
    rule = log.faults.fail("pwrite", "zero", path=WAL_FILES, always=True)
    assert isinstance(log.append(b"3").error, LogFailed)
    assert rule.hits <= 2
    assert log.state() is ShardState.FAILED


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EAGAIN])
def test_wa06_a_stale_or_unwilling_descriptor_is_never_acked(code: int) -> None:
    disk = SimDisk()
    log = two_acked(disk)
    log.faults.fail("pwrite", code, path=WAL_FILES)
    assert isinstance(log.append(b"3").error, LogFailed)
    disk.crash()
    check_usable(disk, reopened(disk, log))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_wa07_power_cut_between_write_and_sync(mode: CrashMode, seed: int) -> None:
    disk = SimDisk()
    log = two_acked(disk)
    with stop_at("wal.after_write", partial(disk.crash, seed, mode)) as stop:
        log.append(b"3", b"4", b"5")
    assert stop.reached
    check_usable(disk, reopened(disk, log))


def torn_at(disk: SimDisk, log: Log, cut: int) -> Log:
    """Keep exactly `cut` bytes of the last, un-synced write."""
    disk.crash(mode="prefix", cut=cut)
    return reopened(disk, log)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_wa08_a_cut_inside_the_length_is_a_torn_tail(cut: int) -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1", durable=False)
    assert torn_at(disk, log, cut).recovered == {}


@pytest.mark.parametrize("cut", [4, 5, 12, 20, 37])
def test_wa09_a_cut_inside_the_fixed_header_is_a_torn_tail(cut: int) -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1", durable=False)
    after = torn_at(disk, log, cut)
    assert after.recovered == {}
    check_usable(disk, after)


def test_wa10_a_cut_inside_node_tag_payload_or_checksum_is_a_torn_tail() -> None:
    image = SimDisk()
    log = Log(image)
    size = len(log.append(b'{"a":1}', durable=False, tag="tag").frames)
    image.kill()
    for cut in range(38, size):
        disk = image.clone()
        disk.crash(mode="prefix", cut=cut)
        after = Log(disk)
        assert after.recovered == {}
        assert 0 < after.scans[0].torn_bytes <= cut


@pytest.mark.parametrize("seed", range(30))
def test_wa11_pages_out_of_order_cut_the_log_at_the_first_hole(seed: int) -> None:
    disk = SimDisk()
    log = two_acked(disk)
    for number in range(20):
        log.append(b"%d" % number * 100, durable=False)
    disk.crash(seed, "subset")
    after = reopened(disk, log)
    assert len(after.recovered[TOPIC]) >= 2
    check_usable(disk, after)


def test_wa11_frames_behind_the_hole_are_counted_not_restored() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    first = log.append(b"2" * 700, durable=False)
    log.append(b"3", durable=False)
    log.append(b"4", durable=False)
    disk.settle()
    hole = (first.offset // SECTOR + 1) * SECTOR
    disk.poke(FIRST_FILE, hole, bytes(16))
    after = Log(disk)
    assert [seq for seq, _ in after.recovered[TOPIC]] == [1]
    assert after.scans[0].orphans == 2


def test_wa12_and_wa13_a_write_cut_anywhere_inside_is_dropped_whole() -> None:
    image = SimDisk()
    log = two_acked(image)
    datas = [b"%d" % number for number in range(10)]
    submission = log.append(*datas, durable=False)
    beacon = submission.offset - log.shard.synced.offset
    image.kill()
    size = len(submission.frames)
    assert size % 10 == 0
    between_frames = [beacon + size // 10 * number for number in range(11)]
    for cut in [*between_frames[:-1], between_frames[7] - 5, between_frames[7] + 5]:
        disk = image.clone()
        disk.crash(mode="prefix", cut=cut)
        after = Log(disk)
        assert len(after.recovered[TOPIC]) == 2
    disk = image.clone()
    disk.crash(mode="prefix", cut=between_frames[-1])
    assert len(Log(disk).recovered[TOPIC]) == 12


@pytest.mark.parametrize("seed", SEEDS)
def test_wa14_a_zeroed_sector_in_the_last_batch_is_a_torn_tail(seed: int) -> None:
    disk = SimDisk()
    log = two_acked(disk)
    log.append(*[b"x" * 300] * 6, durable=False)
    disk.crash(seed, "zero")
    after = reopened(disk, log)
    assert len(after.recovered[TOPIC]) == 2
    check_usable(disk, after)


def test_wa15_damage_to_a_sector_that_was_synced_earlier_is_refused() -> None:
    disk = SimDisk()
    log = Log(disk)
    for number in range(40):
        log.append(b"%d" % number * 30)
    log.append(b"x", durable=False)
    disk.psow_off()
    disk.crash(mode="all")
    before = disk.contents()
    with pytest.raises(RefusedToOpen) as refused:
        Log(disk)
    assert refused.value.reason == "wal_corrupt"
    assert disk.contents() == before


@pytest.mark.parametrize("mode", MODES)
def test_wa16_a_burst_of_buffered_writes_keeps_a_clean_prefix(mode: CrashMode) -> None:
    disk = SimDisk()
    log = Log(disk)
    for number in range(50):
        log.append(b"%d" % number, durable=False)
    disk.crash(3, mode)
    after = reopened(disk, log)
    if mode == "none":
        assert after.recovered == {}
    check_usable(disk, after)


def test_wa16_a_burst_survives_the_death_of_the_process() -> None:
    disk = SimDisk()
    log = Log(disk)
    for number in range(50):
        log.append(b"%d" % number, durable=False)
    disk.kill()
    after = reopened(disk, log, power_lost=False)
    assert len(after.recovered[TOPIC]) == 50


@pytest.mark.parametrize("mode", MODES)
def test_wa17_a_submission_larger_than_a_file_gets_its_own(mode: CrashMode) -> None:
    disk = SimDisk()
    settings = WalSettings(file_bytes=MIB, cache_bytes=1 << 16)
    log = Log(disk, settings=settings)
    log.append(b"1")
    with stop_at("wal.after_write", partial(disk.crash, 1, mode)):
        log.append(*[LARGE] * 8)
    after = Log(disk, settings=settings)
    check_survivors(log, after)
    assert len(after.recovered[TOPIC]) in (1, 9)
    assert after.append(*[LARGE] * 8).error is None
    disk.crash(mode="none")
    again = Log(disk, settings=settings)
    check_survivors(after, again)


@pytest.mark.parametrize("end", [SimDisk.crash, SimDisk.kill])
def test_wa18_everything_in_a_batch_with_a_sync_is_durable(
    end: Callable[[SimDisk], None],
) -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1", durable=False, topic=7)
    with stop_at("wal.after_sync", partial(end, disk)) as stop:
        log.append(b"2", topic=TOPIC)
    assert stop.reached
    after = reopened(disk, log)
    assert len(after.recovered[7]) == len(after.recovered[TOPIC]) == 1


# A long write is several calls

PIECES = 5
LONG = [b"%d" % number * 100 for number in range(4)]


@pytest.fixture
def _in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a mebibyte otherwise takes a hundred bytes."""
    monkeypatch.setattr(shard, "LONG_BYTES", 300)
    monkeypatch.setattr(shard, "PIECE_BYTES", 100)


def pieces_of(disk: SimDisk) -> int:
    """How many calls it takes, with the beacon."""
    log = two_acked(disk.clone())
    before = log.faults.count("pwrite")
    log.append(*LONG, durable=False)
    return log.faults.count("pwrite") - before


@pytest.mark.usefixtures("_in_pieces")
@pytest.mark.parametrize("nth", range(1, PIECES + 1))
def test_a_long_write_that_runs_out_of_space_is_taken_back_whole(nth: int) -> None:
    disk = SimDisk()
    assert pieces_of(disk) >= PIECES
    log = two_acked(disk)
    end = log.shard.position
    log.faults.fail("pwrite", errno.ENOSPC, nth=nth, path=WAL_FILES)
    assert isinstance(log.append(*LONG, durable=False).error, LogFull)
    assert log.state() is ShardState.FULL
    assert log.shard.position == end
    assert len(disk.peek_durable(FIRST_FILE)) == end.offset
    log.timer.pass_ms(SETTINGS.probe_ms)
    assert log.append(*LONG).error is None
    disk.crash(mode="none")
    after = reopened(disk, log)
    assert len(after.recovered[TOPIC]) == 2 + len(LONG)
    check_usable(disk, after)


@pytest.mark.usefixtures("_in_pieces")
@pytest.mark.parametrize("nth", range(1, PIECES + 1))
@pytest.mark.parametrize("mode", MODES)
def test_an_io_error_inside_a_long_write_fails_the_shard_and_leaves_no_part_of_it(
    nth: int, mode: CrashMode
) -> None:
    disk = SimDisk()
    log = two_acked(disk)
    log.faults.fail("pwrite", errno.EIO, nth=nth, path=WAL_FILES)
    assert isinstance(log.append(*LONG).error, LogFailed)
    assert log.state() is ShardState.FAILED
    assert isinstance(log.append(b"4").error, LogFailed)
    disk.crash(nth, mode)
    after = reopened(disk, log)
    assert len(after.recovered[TOPIC]) == 2
    check_usable(disk, after)


@pytest.mark.usefixtures("_in_pieces")
@pytest.mark.parametrize("nth", range(1, PIECES + 1))
def test_a_short_write_inside_a_long_one_is_continued(nth: int) -> None:
    disk = SimDisk()
    log = two_acked(disk)
    log.faults.fail("pwrite", "short", nth=nth, path=WAL_FILES, keep=7)
    assert log.append(*LONG).error is None
    disk.crash(mode="none")
    check_usable(disk, reopened(disk, log))


@pytest.mark.usefixtures("_in_pieces")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_power_cut_inside_a_long_write_leaves_all_of_it_or_nothing(
    mode: CrashMode, seed: int
) -> None:
    lengths = set()
    for call in range(1, PIECES + 3):
        disk = SimDisk()
        log = two_acked(disk)
        log.faults.stop_before(len(log.faults.trace) + call, partial(disk.crash, seed, mode))
        with contextlib.suppress(PowerOff):
            log.append(*LONG)
            disk.crash(seed, mode)
        after = reopened(disk, log)
        lengths.add(len(after.recovered[TOPIC]))
        check_usable(disk, after)
    assert lengths <= {2, 2 + len(LONG)}
