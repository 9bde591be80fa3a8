"""Checking log files: frames, ends, CURRENT and the chain."""

import pytest
from tests.unit.storage.wal.builders import (
    CURRENT,
    DATA_DIR,
    FIRST_FILE,
    LARGE,
    SMALL,
    STORE_ID,
    TOPIC,
    WAL_DIR,
    Log,
    log_files,
    rewrite_header,
)

from topics.batch import RecordBatch
from topics.storage import identity, layout
from topics.storage.checksum import h64
from topics.storage.findings import Report
from topics.storage.frames.append import encode_append
from topics.storage.frames.buffer import walk
from topics.storage.wal import checking
from topics.storage.wal.files import HEADER_SIZE, Beacons
from topics.testing import SimDisk


def checked(disk: SimDisk) -> Report:
    report = Report(disk)
    checking.check_log(report, DATA_DIR, STORE_ID)
    return report


def closed(*, large: int = 0) -> SimDisk:
    """A log that ended well; `large` records make it go through several files."""
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    for data in [b"1", b"2", b"3"] + [LARGE] * large:
        log.append(data)
    log.close()
    disk.kill()
    disk.settle()
    return disk


def ends_at(disk: SimDisk, path: str) -> int:
    data = disk.peek(path)
    return walk(data, HEADER_SIZE, len(data), max_frames=1000).stop


def resigned(frame: bytes) -> bytes:
    return frame[:-8] + h64(frame[4:-8]).to_bytes(8, "little")


def found(disk: SimDisk) -> tuple[str, str, int | None]:
    """The one thing that is wrong."""
    (finding,) = checked(disk).damage
    return finding.file, finding.what, finding.offset


def test_a_sound_log_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = closed(large=8)
    report = checked(disk)
    assert (report.damage, report.notes) == ([], [])
    assert report.files == len(log_files(disk)) + 1
    monkeypatch.setattr(checking, "CHUNK_FRAMES", 2)
    assert checked(disk).frames == report.frames, "in pieces as in one go"


def test_current_may_be_missing_but_not_name_what_is_gone() -> None:
    disk = closed()
    disk.unlink(CURRENT)
    report = checked(disk)
    assert report.damage == []
    assert report.notes == [f"{CURRENT} is missing; the next open makes it again"]
    disk.put(CURRENT, b"?")
    assert found(disk) == (CURRENT, "cannot be read; the next open makes it again", 0)
    disk.put(CURRENT, identity.encode_current(99, 1))
    assert found(disk)[:2] == (f"{WAL_DIR}/{layout.wal_name(99)}", "this log file is gone")


def test_a_group_that_is_only_a_current_names_the_file_it_lost() -> None:
    disk = closed()
    disk.unlink(FIRST_FILE)
    assert found(disk)[:2] == (FIRST_FILE, "this log file is gone")


def test_a_damaged_header_is_named_and_the_chain_left_alone() -> None:
    disk = closed(large=8)
    middle = log_files(disk)[1]
    disk.flip(middle, 20)
    assert found(disk)[::2] == (middle, 0)


def test_a_frame_that_makes_no_sense_is_named_with_its_place() -> None:
    disk = closed()
    end = ends_at(disk, FIRST_FILE)
    frame = encode_append(TOPIC, 4, 1, RecordBatch([b"4"], tags=["\u00e9"]), durable=True)[0]
    raw = frame.replace("\u00e9".encode(), b"\xff\xff")
    disk.poke(FIRST_FILE, end, resigned(raw))
    path, what, offset = found(disk)
    assert (path, offset) == (FIRST_FILE, end)
    assert "not understood" in what


def test_a_torn_tail_is_only_remarked_on() -> None:
    disk = closed()
    end = ends_at(disk, FIRST_FILE)
    disk.poke(FIRST_FILE, end, b"torn")
    report = checked(disk)
    assert report.damage == []
    assert f"4 torn bytes at {end}" in report.notes[0]


def test_damage_below_a_proof_of_durability_is_damage() -> None:
    disk = closed()
    disk.flip(FIRST_FILE, HEADER_SIZE + 50)
    path, what, offset = found(disk)
    assert (path, offset) == (FIRST_FILE, HEADER_SIZE)
    assert "although it was durable" in what


def test_a_beacon_of_another_file_proves_nothing_about_this_one() -> None:
    disk = closed(large=8)
    newest = log_files(disk)[-1]
    end = ends_at(disk, newest)
    foreign = Beacons(identity.store_mark(STORE_ID)).frame(1, end + 1)
    disk.poke(newest, end, b"torn" + foreign)
    report = checked(disk)
    assert report.damage == []
    assert "torn bytes" in report.notes[0]


def test_zeros_in_an_older_file_are_damage() -> None:
    disk = closed(large=8)
    first = log_files(disk)[0]
    data = disk.peek(first)
    last = walk(data, HEADER_SIZE, len(data), max_frames=1000).offsets[-1]
    disk.poke(first, last, bytes(len(data) - last))
    path, what, _ = found(disk)
    assert path == first
    assert "zeros where frames were" in what


def test_a_file_that_is_gone_from_the_middle_is_missed_by_the_next() -> None:
    disk = closed(large=8)
    first, middle, after, *_ = log_files(disk)
    disk.unlink(middle)
    path, what, _ = found(disk)
    assert path == after
    assert what == f"the file before it, {middle.rsplit('/', 1)[1]}, is gone"
    disk.unlink(first)
    assert checked(disk).damage == [], "what a checkpoint let go is not missed"


def test_a_file_of_another_length_than_the_next_one_says_is_named() -> None:
    disk = closed(large=8)
    first = log_files(disk)[0]
    size = disk.size(first)
    disk.put(first, disk.peek(first) + bytes(3))
    findings = {(f.file, f.what) for f in checked(disk).damage}
    assert (first, f"has {size + 3} bytes instead of {size}") in findings


def test_a_chain_that_begins_anew_misses_nothing() -> None:
    disk = closed(large=8)
    rewrite_header(disk, log_files(disk)[1], prev_first_lfn=0)
    assert checked(disk).damage == []
