"""Checkpoints and the segments they write: what fails, what is cut off, what is lost."""

from __future__ import annotations

import errno
from functools import partial

import pytest
from tests.crash.fault_oracle import assert_same, check, dump
from tests.crash.fault_program import Book, Program
from tests.crash.fault_scenes import (
    MODES,
    append,
    checkpoint_lane,
    filled,
    refusal,
    run_lane,
    segment_files,
)

from topics.engine.reads.history import SegmentHistory
from topics.errors import Internal
from topics.storage import crashpoints
from topics.testing import PowerOff, SimDisk, stop_at

pytestmark = pytest.mark.usefixtures("small")


@pytest.mark.parametrize("point", sorted(p for p in crashpoints.NAMES if p.startswith("ckpt.")))
def test_sg01_wr15_a_cut_at_any_step_of_a_checkpoint_leaves_each_record_once(point: str) -> None:
    for seed, mode in enumerate(MODES):
        program = filled()
        with stop_at(point, partial(program.disk.crash, seed, mode)) as stop:
            program.checkpoint()
        assert stop.reached
        check(program, "power")


@pytest.mark.parametrize("part", ["data", "idx"])
def test_sg04_a_segment_whose_sync_failed_grows_no_more(part: str) -> None:
    program = filled(shards=1, segment_max_events=100)
    topic = program.engine.kernel.catalog.by_name["fsync"]
    history = topic.history
    assert isinstance(history, SegmentHistory)
    growing = history.active
    assert growing is not None
    program.append("fsync", 3)
    program.faults.fail("fdatasync", errno.EIO, path=f"*/topics/{topic.id:08X}/*.{part}")
    assert not program.checkpoint()
    program.read_all()
    assert program.checkpoint()
    sealed = next(seg for seg in history.sealed if seg.first == growing.first)
    assert (sealed.last, sealed.data_len) == (growing.last, growing.data_len)
    program.disk.crash(mode="none")
    check(program, "power")


@pytest.mark.parametrize("point", ["ckpt.data", "ckpt.idx", "ckpt.synced", "ckpt.mark"])
def test_sg05_a_new_topic_whose_directory_is_lost_comes_back_from_the_log(point: str) -> None:
    program = filled()
    program.create("new", durability="fsync")
    program.append("new", 5)
    crash = partial(program.disk.crash, mode="none", names="none")
    with stop_at(point, crash) as stop:
        program.checkpoint()
    assert stop.reached
    found = check(program, "power")
    assert len(found["new"].records) == 5


def lost(disk: SimDisk, path: str, how: str) -> SimDisk:
    twin = disk.clone()
    if how == "gone":
        twin.unlink(path)
    else:
        twin.put(path, twin.peek(path)[:-1])
    return twin


@pytest.mark.parametrize("how", ["gone", "short"])
def test_sg09_a_lost_segment_is_refused_unless_the_log_still_has_its_records(how: str) -> None:
    program = filled(shards=1)
    topic_id = program.engine.kernel.catalog.by_name["disk"].id
    program.append("disk", 9)
    program.checkpoint()
    program.disk.kill()
    for path in segment_files(program.disk, topic_id):
        if path.endswith(".data"):
            disk = lost(program.disk, path, how)
            is_new = int(path[-21:-5]) > 12  # written by the newest checkpoint
            if is_new:
                check(program, "kill", disk=disk)
            else:
                assert refusal(disk) == "segment_missing"
    check(program, "kill")


def test_sg10_a_rotten_record_is_a_gap_of_its_own_until_its_file_is_restored() -> None:
    program = filled(shards=1)
    program.checkpoint()
    topic_id = program.engine.kernel.catalog.by_name["disk"].id
    program.disk.kill()
    path = next(p for p in segment_files(program.disk, topic_id) if p.endswith(".data"))
    program.disk.flip(path, 45)
    again = Program(program.disk, program.book)
    found = again.read_all()["disk"]
    assert [(gap.gap_from, gap.gap_to) for gap in found.tombstones] == [(1, 1)]
    assert sorted(found.records) == list(range(2, 13))
    again.checkpoint()
    program.disk.flip(path, 45)
    assert sorted(again.read_all()["disk"].records) == list(range(1, 13))
    again.close()
    check(again, "power")


def test_sg11_a_segment_that_cannot_be_read_is_an_error_not_a_loss() -> None:
    program = filled(shards=1)
    program.close()
    again = Program(program.disk, program.book, cache_bytes=1 << 16)
    again.faults.fail("pread", errno.EIO, path="*/topics/*.data", always=True)
    with pytest.raises(Internal, match="Input/output"):
        again.log.read("disk")
    again.faults.clear()
    assert len(again.log.read("disk").records) == 12
    again.disk.kill()
    check(again, "kill")


def test_sg14_skipped_seqs_end_a_segment() -> None:
    program = filled(shards=1, segment_max_events=100)
    program.checkpoint()
    program.append("disk", 2)
    program.disk.crash(mode="none")
    again = Program(program.disk, Book(), wal_shards=1, segment_max_events=100)
    again.log.append("disk", [{"data": "a"}, {"data": "b"}])
    again.log.checkpoint()
    history = again.engine.kernel.catalog.by_name["disk"].history
    assert isinstance(history, SegmentHistory)
    parts = [(part.first, part.last) for part in history.parts]
    assert len(parts) == 2
    assert parts[0][1] < parts[1][0] - 1, "a new segment behind the gap"
    before = dump(again)
    again.close()
    assert_same(before, dump(Program(program.disk)), "after a restart")


def test_dead_segments_go_although_the_snapshot_that_let_them_go_failed() -> None:
    program = filled(shards=1)
    topic_id = program.engine.kernel.catalog.by_name["fsync"].id
    program.delete("fsync", before=9)
    program.faults.fail("fsync", errno.EIO, path="*/meta/snapshot*")
    assert not program.checkpoint()
    program.read_all()
    for _ in range(3):
        program.append("fsync")
        assert program.checkpoint()
    first = min(segment_files(program.disk, topic_id))
    assert first.endswith("seg-0000000000000009.data")
    program.disk.kill()
    check(program, "kill")


def test_a_write_during_a_checkpoint_is_due_for_the_next_one() -> None:
    program = filled()
    pauses = run_lane(checkpoint_lane(program))
    assert not program.engine.kernel.dirty
    program.append("fsync")
    run_lane(checkpoint_lane(program), pause=pauses // 2, meanwhile=partial(append, program))
    assert program.engine.kernel.dirty


def test_upkeep_survives_running_out_of_memory() -> None:
    program = filled()

    def hook(point: str) -> None:
        if point == "ckpt.data":
            raise MemoryError

    program.clock.advance(120_000)
    with crashpoints.installed(hook):
        program.maintain()
    assert program.engine.upkeep is not None
    assert program.engine.upkeep.failures == 1
    assert program.checkpoint()
    program.disk.kill()
    check(program, "kill")


def test_a_checkpoint_may_end_with_the_program_anywhere() -> None:
    """The process alone dies: nothing is lost, not even what was never synced."""
    for point in sorted(p for p in crashpoints.NAMES if p.startswith(("ckpt.", "snap."))):
        program = filled()
        append(program)
        with stop_at(point, program.disk.kill) as stop:
            program.checkpoint()
        assert stop.reached
        with pytest.raises(PowerOff):
            program.log.append("fsync", {"data": 1})
        check(program, "kill")
