"""Shard counts that change, writers that are fenced, file systems that can do less."""

from __future__ import annotations

import errno

import pytest
from tests.crash.fault_oracle import Oracle, assert_same, check, dump
from tests.crash.fault_program import DATA_DIR, Book, Program, opening
from tests.crash.fault_scenes import (
    FULL,
    MODES,
    append,
    fill,
    move_segments,
)

from topics.embedded import Log
from topics.engine.recovery.opening import open_engine
from topics.errors import LogFailed, RefusedToOpen
from topics.storage import identity
from topics.storage.wal.shard import ShardState
from topics.testing import FaultFs, ManualClock, SimDisk

pytestmark = pytest.mark.usefixtures("small")


def test_wr12_any_row_of_shard_counts_gives_the_same_store() -> None:
    disk, book = SimDisk(), Book()
    for number, shards in enumerate([8, 1, 3, 7, 2]):
        program = Program(disk, book, wal_shards=shards)
        book.note_safe()
        if number == 0:
            fill(program)
        append(program)
        program.delete("fsync", match="x")
        program.create("capped", durability="fsync", cap_records=4 + number)
        program.drop("doomed")
        program.create("doomed", durability="disk")
        program.append("doomed", 3)
        if number % 2:
            program.checkpoint()
        disk.kill()
        check(program, "kill")


def test_wr13_log_groups_of_an_earlier_layout_that_come_back_are_ignored() -> None:
    program = Program(SimDisk(), wal_shards=3)
    fill(program)
    program.create("capped", durability="fsync", cap_records=2)
    program.close()
    disk = program.disk
    old = {path: disk.peek(path) for path in disk.paths() if "/wal/shard-" in path}
    program = Program(disk, program.book, wal_shards=1)
    program.create("capped", durability="fsync", cap_records=50)
    program.delete("fsync", match="t0")
    while disk.exists(f"{DATA_DIR}/wal/shard-02"):
        program.append("capped", 2)
        program.checkpoint()
    disk.kill()
    expected = dump(Program(disk.clone(), wal_shards=1))
    for path, data in old.items():
        disk.put(path, data)
    assert_same(expected, dump(Program(disk.clone(), wal_shards=1)), "with the old groups")
    Oracle(program.book, "kill", ManualClock(), {"wal_shards": 1}).check(disk)


def test_wr14_the_newest_topic_of_a_name_owns_it_on_whatever_shard() -> None:
    program = Program(SimDisk(), wal_shards=8)
    for number in range(10):
        program.create("name", durability="fsync" if number % 2 else "disk")
        program.append("name", 2)
        for mode in MODES if FULL else MODES[number % 3 :: 3]:
            disk = program.disk.clone()
            disk.crash(number, mode)
            check(program, "power", disk=disk)
        if number < 9:
            program.drop("name")
    program.disk.kill()
    found = check(program, "kill")
    assert [record.data for record in found["name"].records.values()] == ["name-19", "name-20"]


# The process and its limits


def test_pr03_a_writer_that_was_taken_over_stops_at_its_next_file() -> None:
    program = Program(SimDisk(), wal_shards=1)
    program.create("fsync", durability="fsync")
    program.append("fsync")
    current = f"{DATA_DIR}/wal/CURRENT"
    before = program.disk.peek(current)
    first_lfn = identity.decode_current(before)
    assert first_lfn is not None
    program.disk.put(current, identity.encode_current(first_lfn.first_lfn, 99))
    while program.append("fsync", 3):
        assert program.book.texts < 500
    assert program.engine.kernel.committer.state(0) is ShardState.FAILED
    with pytest.raises(LogFailed, match="fenced"):
        program.log.append("fsync", {"data": 1})
    program.read_all()
    program.disk.put(current, before)
    program.disk.kill()
    check(program, "kill")


@pytest.mark.parametrize("always", [False, True])
def test_pr09_a_lack_of_descriptors_fails_one_call_at_most(always: bool) -> None:
    program = Program(SimDisk(), wal_shards=1)
    fill(program)
    move_segments(program)
    program.close()
    program = Program(program.disk, program.book, wal_shards=1)
    program.book.note_safe()
    program.read_all()
    program.faults.fail("open", errno.EMFILE, always=always)
    results = [program.append("fsync", 3) for _ in range(12)]
    if always:
        assert not all(results), "a new log file cannot be opened"
        assert program.engine.kernel.committer.state(0) is ShardState.OPEN
    else:
        assert all(results)
    program.checkpoint()
    program.faults.clear()
    program.read_all()
    assert program.append("fsync")
    assert program.checkpoint()
    program.disk.kill()
    check(program, "kill")


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP])
def test_pr10_a_file_system_that_cannot_sync_directories_needs_consent(error: int) -> None:
    disk = SimDisk()
    faults = FaultFs(disk)
    faults.fail("sync_dir", error, always=True)
    with pytest.raises(RefusedToOpen) as refused:
        open_engine(faults, DATA_DIR, opening(ManualClock()))
    assert refused.value.reason == "io_error"
    assert "TOPICS_UNSAFE_NO_DIR_FSYNC" in str(refused.value)
    consent = opening(ManualClock(), unsafe_no_dir_fsync=True)
    with Log(open_engine(faults, DATA_DIR, consent)) as log:
        for number in range(20):
            log.append("t", [{"data": number}] * 3)
        log.checkpoint()
        log.drop("t")
        log.append("u", {"data": "here"})
    with Log(open_engine(faults, DATA_DIR, consent)) as log:
        assert [record.data for record in log.read("u").records] == ["here"]


def test_a_consent_does_not_hide_other_errors_of_a_directory() -> None:
    faults = FaultFs(SimDisk())
    faults.fail("sync_dir", errno.EIO, path=f"{DATA_DIR}/*")
    with pytest.raises(RefusedToOpen):
        open_engine(faults, DATA_DIR, opening(ManualClock(), unsafe_no_dir_fsync=True))
