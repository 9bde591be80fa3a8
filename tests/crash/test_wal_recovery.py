"""Damage found when a log is read back: what is cut, what is refused, what is salvaged."""

import errno
import struct
from collections.abc import Callable
from functools import partial
from typing import get_args

import pytest
from tests.unit.storage.wal.builders import (
    CURRENT,
    DATA_DIR,
    FIRST_FILE,
    LARGE,
    NOW,
    SMALL,
    STORE_ID,
    TOPIC,
    WAL_DIR,
    Log,
    check_survivors,
    check_usable,
    recover,
)

from topics.batch import RecordBatch
from topics.core.facts import Beacon, HeadReserved
from topics.errors import RefusedToOpen
from topics.storage.checksum import h64
from topics.storage.frames.append import encode_append
from topics.storage.frames.buffer import encode
from topics.storage.handles import Handles
from topics.storage.identity import store_mark
from topics.storage.sources import Sources
from topics.storage.wal.files import BEACON_SIZE, HEADER_SIZE, Link, Writer, header_frame
from topics.storage.wal.submission import Position, Submission
from topics.testing import CrashMode, FaultFs, Op, PowerOff, SimDisk, stop_at

MODES: tuple[CrashMode, ...] = get_args(CrashMode)


def stopped(*sizes: int, durable: bool = True) -> tuple[SimDisk, Log, list[Submission]]:
    """A log of records of these sizes whose process died; everything it wrote is on the disk."""
    disk = SimDisk()
    log = Log(disk)
    written = [log.append(b"%d" % i * size, durable=durable) for i, size in enumerate(sizes)]
    disk.kill()
    disk.settle()
    return disk, log, written


def refused(disk: SimDisk, **options: object) -> RefusedToOpen:
    before = disk.contents()
    with pytest.raises(RefusedToOpen) as caught:
        Log(disk, **options)  # type: ignore[arg-type]  # passed on as they are
    assert disk.contents() == before, "a refusal changes nothing"
    return caught.value


def seqs(log: Log, topic: int = TOPIC) -> list[int]:
    return [seq for seq, _ in log.recovered.get(topic, [])]


@pytest.mark.parametrize("length", [0xFFFFFFFF, 1, 41, (16 << 20) + 1])
def test_rc01_rc02_an_impossible_length_at_the_tail_is_torn(length: int) -> None:
    disk, log, written = stopped(10, 10, durable=False)
    disk.poke(FIRST_FILE, written[1].offset, struct.pack("<I", length))
    after = Log(disk)
    assert seqs(after) == [1]
    check_survivors(log, after)
    check_usable(disk, after)


@pytest.mark.parametrize("place", [0, 4, 5, 20, 37, 40, -1])
def test_rc03_a_flipped_bit_in_the_tail_is_torn(place: int) -> None:
    disk, _, written = stopped(10, 10)
    start, end = written[1].offset, written[1].offset + len(written[1].frames)
    disk.flip(FIRST_FILE, start + place if place >= 0 else end + place)
    after = Log(disk)
    assert seqs(after) == [1]
    check_usable(disk, after)


@pytest.mark.parametrize("place", [0, 4, 5, 20, 37, 40, -1])
def test_rc04_a_flipped_bit_below_a_beacon_is_refused(place: int) -> None:
    disk, _, written = stopped(10, 10, 10)
    start, end = written[1].offset, written[1].offset + len(written[1].frames)
    where = start + place if place >= 0 else end + place
    disk.flip(FIRST_FILE, where)
    error = refused(disk)
    assert (error.reason, error.file, error.offset) == ("wal_corrupt", FIRST_FILE, start)
    assert f"topics {TOPIC}" in str(error)
    disk.flip(FIRST_FILE, where)
    check_usable(disk, Log(disk))


def test_rc04_no_byte_below_the_last_beacon_may_change() -> None:
    disk, _, written = stopped(5, 5, 5)
    image = disk.clone()
    for offset in range(0, written[2].offset - BEACON_SIZE, 7):
        disk.restore(image)
        disk.flip(FIRST_FILE, offset)
        assert refused(disk).reason in ("wal_corrupt", "foreign_frame", "format")


def test_rc05_a_flipped_bit_in_an_older_file_is_refused() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    for _ in range(4):
        log.append(LARGE, durable=False)
    disk.kill()
    disk.settle()
    disk.flip(FIRST_FILE, 1000)
    assert refused(disk).reason == "wal_corrupt"


@pytest.mark.parametrize("start", [0, 1, 30])
def test_rc06_zeroed_acked_frames_are_refused(start: int) -> None:
    disk, _, written = stopped(600, 600, 10)
    size = len(written[0].frames)
    disk.poke(FIRST_FILE, written[0].offset + start, bytes(size - start))
    assert refused(disk).reason == "wal_corrupt"


def with_checksum(body: bytes) -> bytes:
    return struct.pack("<I", len(body) + 8) + body + struct.pack("<Q", h64(body))


def foreign_frames() -> dict[str, bytes]:
    fixed = struct.Struct("<BBQQQHHI")
    return {
        "type": with_checksum(fixed.pack(200, 0, TOPIC, 0, NOW, 0, 0, 0)),
        "utf8": with_checksum(fixed.pack(1, 1, TOPIC, 3, NOW, 0, 1, 5) + b"\xff\1\0\0\0x"),
        "trailing": with_checksum(fixed.pack(11, 0, TOPIC, 0, NOW, 0, 0, 9) + bytes(9)),
        "lengths": with_checksum(fixed.pack(1, 0, TOPIC, 3, NOW, 0, 0, 9) + b"\1\0\0\0x"),
        "header": header_frame(Writer(STORE_ID, bytes(16), 1, 0, 1), Link(1, 0, 0)),
        "beacon": encode(Beacon(ts=0, store_mark=1, file_lfn=1, offset=0)),
    }


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize("kind", sorted(foreign_frames()))
def test_rc07_intact_frames_of_unknown_meaning_are_refused(kind: str, salvage: bool) -> None:
    disk, log, _ = stopped(10, 10)
    end = log.shard.position.offset
    disk.poke(FIRST_FILE, end, foreign_frames()[kind])
    error = refused(disk, salvage=salvage)
    assert (error.reason, error.offset) == ("foreign_frame", end)


def test_rc08_a_newer_header_version_is_refused() -> None:
    disk, _, _ = stopped(10)
    header = bytearray(disk.peek(FIRST_FILE)[:HEADER_SIZE])
    struct.pack_into("<I", header, 38, 4)
    disk.poke(FIRST_FILE, 0, with_checksum(bytes(header[4:-8])))
    assert refused(disk).reason == "format"


@pytest.mark.parametrize("where", [0, 4, 50, HEADER_SIZE - 1])
def test_rc09_an_unreadable_file_header_is_refused(where: int) -> None:
    disk, _, _ = stopped(10)
    disk.flip(FIRST_FILE, where)
    assert refused(disk).reason == "wal_corrupt"


def test_rc09_a_file_of_another_store_is_refused() -> None:
    disk, _, _ = stopped(10)
    writer = Writer(bytes(16), disk.boot_id(), 1, 0, 1)
    disk.poke(FIRST_FILE, 0, header_frame(writer, Link(1, 0, 0)))
    assert refused(disk).reason == "foreign_frame"


def test_rc09_a_file_of_another_shard_is_refused() -> None:
    disk, _, _ = stopped(10)
    writer = Writer(STORE_ID, disk.boot_id(), 1, 1, 2)
    disk.poke(FIRST_FILE, 0, header_frame(writer, Link(1, 0, 0)))
    assert refused(disk).reason == "wal_missing"


def test_rc13_a_log_shorter_than_the_snapshot_says_is_refused() -> None:
    disk, log, _ = stopped(10, 10)
    position = log.shard.synced
    file = disk.open(FIRST_FILE, write=True)
    file.truncate(position.offset - 1)
    error = refused(disk, starts={"": position})
    assert error.reason == "wal_short"


def test_rc13_a_missing_file_of_the_snapshots_position_is_refused() -> None:
    disk, log, _ = stopped(10, 10)
    disk.unlink(CURRENT)
    beyond = Position(log.shard.synced.lfn + 1, 200, log.shard.synced.lfn + 2)
    with_older_file_only = Log(disk.clone(), starts={"": beyond})
    assert with_older_file_only.recovered == {}, "an absorbed group may have lost its files"
    disk.restore(disk.clone())
    disk.put(CURRENT, b"")
    log = Log(disk)
    disk.kill()
    assert refused(disk, starts={"": beyond._replace(file_lfn=99)}).reason == "wal_missing"


def test_rc14_salvage_keeps_what_is_intact_and_puts_the_damaged_file_aside() -> None:
    disk, log, written = stopped(10, 10, 10, 10)
    disk.flip(FIRST_FILE, written[1].offset + 45)
    damaged = disk.peek(FIRST_FILE)
    after = Log(disk, salvage=True)
    assert seqs(after) == [1, 3, 4]
    assert after.recovered[TOPIC] == [log.sent[TOPIC][i] for i in (0, 2, 3)]
    (kept,) = [path for path in disk.paths() if path.startswith(f"{DATA_DIR}/quarantine/")]
    assert disk.peek_durable(kept) == damaged
    assert after.append(b"5").error is None


def test_rc14_salvage_of_an_older_file_goes_on_with_the_next() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    for _ in range(8):
        log.append(LARGE)
    log.close()
    disk.kill()
    disk.poke(FIRST_FILE, 1000, b"??")
    after = Log(disk, settings=SMALL, salvage=True)
    assert seqs(after) == [2, 3, 4, 5, 6, 7, 8]


def test_rc14_salvage_gives_up_a_file_from_which_nothing_can_be_believed() -> None:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    for number in range(9):
        log.append(b"%d" % number * 200_000, durable=False)
    log.close()
    disk.kill()
    size = len(disk.peek(FIRST_FILE))
    fake, _ = encode_append(99, 1, NOW, RecordBatch([b"1"]), durable=True)
    disk.poke(FIRST_FILE, size // 2, (fake + b"??") * 100 + b"?" * (size // 2 - 10_000))
    after = Log(disk, settings=SMALL, salvage=True)
    found = seqs(after)
    assert found[0] == 1
    assert found[-1] == 9
    assert len(found) < 9
    assert 99 not in after.recovered


def test_rc14_salvage_believes_frames_up_to_the_clean_end() -> None:
    disk, _, written = stopped(10, 10, 10)
    beacon_at = written[2].offset - BEACON_SIZE
    disk.flip(FIRST_FILE, written[1].offset + 45)
    image = disk.clone()
    assert seqs(Log(disk, salvage=True)) == [1, 3]
    image.flip(FIRST_FILE, beacon_at + 50)
    assert seqs(Log(image, salvage=True)) == [1], "without proof it is a torn tail"


def test_rc14_salvage_is_harmless_on_a_sound_log() -> None:
    disk, log, _ = stopped(10, 10)
    after = Log(disk, salvage=True)
    assert after.recovered == log.sent
    assert not [path for path in disk.paths() if "quarantine" in path]


def test_rc14_ordinals_behind_lost_frames_stay_above_those_before() -> None:
    disk, _, written = stopped(10, 10, 10)
    disk.flip(FIRST_FILE, written[1].offset + 45)
    after = Log(disk, salvage=True)
    (scan,) = after.scans
    lfns = [lfn for lfn, _ in scan.generations[0].entries]
    assert lfns == sorted(set(lfns))
    assert lfns[-1] >= written[2].last_lfn
    assert scan.next_link.first_lfn > lfns[-1]


def test_rc15_text_that_imitates_frames_is_not_believed_by_salvage() -> None:
    fake, _ = encode_append(99, 1, NOW, RecordBatch([b"1"]), durable=True)
    beacon = encode(Beacon(ts=0, store_mark=1, file_lfn=1, offset=100_000))
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    bait = log.append(b'"' + fake + beacon + fake + b'"')
    log.append(b"3")
    log.append(b"4")
    disk.kill()
    disk.settle()
    disk.flip(FIRST_FILE, bait.offset + 10)
    after = Log(disk, salvage=True)
    assert seqs(after) == [1, 3, 4]
    assert 99 not in after.recovered


def test_rc15_text_that_imitates_a_beacon_proves_nothing() -> None:
    lie = encode(Beacon(ts=0, store_mark=1, file_lfn=1, offset=100_000))
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    torn = log.append(b"2" * 700, durable=False)
    log.append(b'"' + lie + b'"', durable=False)
    disk.kill()
    disk.settle()
    disk.flip(FIRST_FILE, torn.offset + 100)
    after = Log(disk)
    assert seqs(after) == [1]
    check_survivors(log, after)


def test_rc15_only_the_stores_own_mark_makes_a_beacon() -> None:
    truth = encode(Beacon(ts=0, store_mark=store_mark(STORE_ID), file_lfn=1, offset=100_000))
    disk = SimDisk()
    log = Log(disk)
    torn = log.append(b"2" * 700, durable=False)
    log.append(b'"' + truth + b'"', durable=False)
    disk.kill()
    disk.settle()
    disk.flip(FIRST_FILE, torn.offset + 100)
    assert refused(disk).reason == "wal_corrupt"


READS: list[tuple[Op, str]] = [
    ("open", FIRST_FILE),
    ("pread", FIRST_FILE),
    ("listdir", WAL_DIR),
    ("open", CURRENT),
    ("pread", CURRENT),
]


@pytest.mark.parametrize(("op", "path"), READS)
def test_rc16_a_read_error_refuses_and_the_next_try_converges(op: Op, path: str) -> None:
    disk, log, _ = stopped(10, 10)
    error = refused(disk, arrange=lambda faults: faults.fail(op, errno.EIO, path=path))
    assert error.reason == "io_error"
    assert Log(disk).recovered == log.sent


@pytest.mark.parametrize("point", ["rec.truncate", "wal.rotate.header", "wal.rotate.current"])
@pytest.mark.parametrize("mode", MODES)
def test_rc17_a_crash_inside_recovery_changes_nothing(point: str, mode: CrashMode) -> None:
    disk, log, _ = stopped(10, 10)
    for seed in range(2):
        with stop_at(point, partial(disk.crash, seed, mode)) as stop:
            Log(disk)
        assert stop.reached
    after = Log(disk)
    check_survivors(log, after)
    check_usable(disk, after)


REPAIRS: list[tuple[Op, str]] = [
    ("pwrite", "*.log.tmp"),
    ("fsync", "*.log.tmp"),
    ("rename", "*.log.tmp"),
    ("sync_dir", WAL_DIR),
]
IN_PLACE: list[Op] = ["truncate", "fsync", "pwrite"]


@pytest.mark.parametrize(("op", "path"), REPAIRS)
@pytest.mark.parametrize("durable", [False, True])
def test_rc18_an_error_of_the_repair_refuses_and_the_next_try_converges(
    op: Op, path: str, durable: bool
) -> None:
    disk, log, _ = stopped(10, 10, durable=durable)
    with pytest.raises(RefusedToOpen) as caught:
        Log(disk, arrange=lambda faults: faults.fail(op, errno.EIO, path=path))
    assert caught.value.reason == "io_error"
    after = Log(disk)
    check_survivors(log, after, power_lost=False)
    check_usable(disk, after)


@pytest.mark.parametrize("op", IN_PLACE)
def test_rc18_without_room_for_a_copy_the_same_holds_in_place(op: Op) -> None:
    def arrange(faults: FaultFs) -> None:
        faults.fail("pwrite", errno.ENOSPC, path="*.log.tmp")
        faults.fail(op, errno.EIO, path=FIRST_FILE)

    disk, log, _ = stopped(10, 10, durable=False)
    with pytest.raises(RefusedToOpen) as caught:
        Log(disk, arrange=arrange)
    assert caught.value.reason == "io_error"
    after = Log(disk)
    check_survivors(log, after, power_lost=False)
    check_usable(disk, after)


def test_rc18_a_generation_that_cannot_begin_refuses() -> None:
    disk, log, _ = stopped(10)
    with pytest.raises(RefusedToOpen) as caught:
        Log(disk, arrange=lambda faults: faults.fail("rename", errno.EIO, path="*wal-spare.tmp"))
    assert caught.value.reason == "io_error"
    assert Log(disk).recovered == log.sent


def test_rc22_a_log_without_frames_makes_way_for_the_next_run() -> None:
    disk = SimDisk()
    for generation in range(1, 5):
        log = Log(disk)
        assert [path for path in disk.paths() if path.endswith(".log")] == [FIRST_FILE]
        assert log.shard.writer.generation == generation
        disk.crash(generation)
    check_usable(disk, Log(disk))


def test_rc25_pages_the_disk_never_got_are_written_back() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    disk.fsyncgate("*.log")
    log.append(b"2", b"3")
    disk.kill()
    after = Log(disk)
    assert seqs(after) == [1, 2, 3], "readable, though a sync of them had failed"
    disk.crash(mode="none")
    again = Log(disk)
    assert again.recovered == after.recovered
    check_usable(disk, again)


def test_rc26_an_unsynced_tail_that_was_recovered_stays() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    log.append(b"2", durable=False)
    disk.kill()
    after = Log(disk)
    assert seqs(after) == [1, 2]
    disk.crash(mode="none")
    assert Log(disk).recovered == after.recovered


def test_a_power_cut_before_every_call_of_a_recovery_changes_nothing() -> None:
    image = SimDisk()
    log = Log(image, shards=2)
    for topic in range(1, 5):
        log.append(b"1", topic=topic)
        log.append(b"2", topic=topic, durable=False)
    image.kill()
    probe = Log(image.clone(), shards=2)
    for call in range(1, len(probe.faults.trace) + 1):
        disk = image.clone()
        cut = partial(disk.crash, call, MODES[call % len(MODES)])
        with pytest.raises(PowerOff):
            Log(disk, shards=2, arrange=lambda faults: faults.stop_before(call, cut))  # noqa: B023
        check_survivors(log, Log(disk, shards=2))


def test_reading_changes_nothing_on_the_disk() -> None:
    disk, log, written = stopped(10, 10)
    disk.poke(FIRST_FILE, written[1].offset, b"torn")
    before = disk.contents()
    sources, handles = Sources(), Handles(disk)
    with pytest.raises(AssertionError, match="repair"):
        recover(_NoRepair(disk), sources, handles, {})  # type: ignore[arg-type]  # a proxy
    assert disk.contents() == before
    del log


class _NoRepair:
    """A disk on which opening for writing is a mistake."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Callable[..., object]:
        return getattr(self._disk, name)  # type: ignore[no-any-return]  # any method of the disk

    def open(self, path: str, *, write: bool = False, **options: bool) -> object:
        assert not write, f"repair of {path}"
        return self._disk.open(path, write=write, **options)


def test_other_frames_come_back_beside_records() -> None:
    disk = SimDisk()
    log = Log(disk)
    log.append(b"1")
    frame = encode(HeadReserved(topic_id=TOPIC, ts=NOW, ceiling=500), durable=True)
    log.committer.submit(Submission(0, frame, 1, durable=True, on_done=lambda done: None))
    log.append(b"2")
    disk.crash(mode="none")
    (scan,) = Log(disk).scans
    kinds = [type(fact).__name__ for _, fact in scan.generations[0].entries]
    assert kinds == ["Appended", "HeadReserved", "Appended"]
