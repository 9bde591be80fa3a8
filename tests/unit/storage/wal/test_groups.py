"""The files of a group: each is what its name says, and follows the one before."""

import pytest
from tests.unit.storage.wal.builders import (
    CURRENT,
    LARGE,
    SMALL,
    STORE_ID,
    WAL_DIR,
    Log,
    log_files,
    rewrite_header,
)

from topics.core.facts import Beacon
from topics.errors import RefusedToOpen
from topics.storage import identity
from topics.storage.checksum import h64
from topics.storage.frames.buffer import encode
from topics.storage.wal.files import HEADER_SIZE
from topics.storage.wal.groups import discover, files_from, reading
from topics.storage.wal.submission import Position
from topics.testing import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    log = Log(disk, settings=SMALL)
    for _ in range(9):
        log.append(LARGE)
    log.close()
    disk.kill()
    disk.settle()
    assert len(log_files(disk)) >= 3
    return disk


def refused(disk: SimDisk, start: Position | None = None) -> RefusedToOpen:
    (group,) = discover(disk, WAL_DIR)
    with pytest.raises(RefusedToOpen) as refusal:
        files_from(disk, group, start, store_id=STORE_ID)
    return refusal.value


def test_a_sound_group_lists_its_files_in_order(disk: SimDisk) -> None:
    (group,) = discover(disk, WAL_DIR)
    found = files_from(disk, group, None, store_id=STORE_ID)
    assert [log_file.path for log_file in found] == log_files(disk)


def test_a_header_that_is_some_other_frame_is_refused(disk: SimDisk) -> None:
    first = log_files(disk)[0]
    beacon = encode(Beacon(ts=0, store_mark=1, file_lfn=1, offset=0))
    disk.poke(first, 0, beacon)
    refusal = refused(disk)
    assert (refusal.reason, refusal.file) == ("foreign_frame", first)
    assert "does not begin with a file header" in str(refusal)


def test_a_header_that_makes_no_sense_is_refused(disk: SimDisk) -> None:
    first = log_files(disk)[0]
    header = bytearray(disk.peek(first)[:HEADER_SIZE])
    header[4] = 200  # a type of frame that does not exist
    disk.poke(first, 0, bytes(header[:-8]) + h64(header[4:-8]).to_bytes(8, "little"))
    assert refused(disk).reason == "foreign_frame"


def test_a_file_that_follows_another_than_the_one_before_it_is_refused(disk: SimDisk) -> None:
    _, middle, after, *_ = log_files(disk)
    disk.unlink(middle)
    refusal = refused(disk)
    assert (refusal.reason, refusal.file) == ("wal_missing", after)


def test_a_file_that_was_longer_or_shorter_once_is_refused(disk: SimDisk) -> None:
    first = log_files(disk)[0]
    size = disk.size(first)
    disk.put(first, disk.peek(first) + bytes(5))
    refusal = refused(disk)
    assert (refusal.reason, refusal.file, refusal.offset) == ("wal_missing", first, size)
    disk.put(first, disk.peek(first)[: size - 1])
    assert refused(disk).offset == size - 1


def test_generations_never_go_back_along_a_chain(disk: SimDisk) -> None:
    first, second, *_ = log_files(disk)
    rewrite_header(disk, first, generation=9)
    refusal = refused(disk)
    assert (refusal.reason, refusal.file) == ("wal_missing", second)
    assert "older than the file before it" in str(refusal)


def test_an_older_copy_in_the_place_of_the_newest_file_is_refused(disk: SimDisk) -> None:
    (group,) = discover(disk, WAL_DIR)
    newest = group.first_lfns[-1]
    disk.put(CURRENT, identity.encode_current(newest, 9))
    refusal = refused(disk)
    assert (refusal.reason, refusal.file) == ("wal_missing", group.path(newest))
    assert "older copy" in str(refusal)


def test_a_gap_between_a_snapshot_and_the_first_file_is_refused(disk: SimDisk) -> None:
    (group,) = discover(disk, WAL_DIR)
    before, after, *_ = group.first_lfns
    disk.unlink(group.path(before))
    refusal = refused(disk, Position(before, HEADER_SIZE, before))
    assert (refusal.reason, refusal.file) == ("wal_missing", group.path(after))


def test_a_file_that_goes_while_it_is_looked_for_is_no_refusal() -> None:
    with pytest.raises(FileNotFoundError):
        reading("/none", lambda: SimDisk().open("/none"))
