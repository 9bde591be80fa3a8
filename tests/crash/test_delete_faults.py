"""Deletes, floors, drops and configurations, cut off or refused by the disk at any step."""

from __future__ import annotations

import errno
from functools import partial
from itertools import count, pairwise, product
from typing import get_args

import pytest
from tests.crash.fault_oracle import Oracle, assert_same, check, dump
from tests.crash.fault_program import End, Program
from tests.crash.fault_scenes import (
    FULL,
    MODES,
    fill,
    finish,
    segment_files,
)

from topics.core import topic as topic_module
from topics.storage import crashpoints
from topics.storage.wal.shard import ShardState
from topics.testing import CrashMode, ManualClock, Op, SimDisk, stop_at

pytestmark = pytest.mark.usefixtures("small")

ENDS: list[End] = list(get_args(End))


def fresh(topic: str, **config: object) -> Program:
    program = Program(SimDisk(), wal_shards=1)
    program.create(topic, **config)
    return program


def with_ttl(**settings: int) -> tuple[Program, ManualClock]:
    clock = ManualClock()
    program = Program(SimDisk(), clock=clock, **settings)  # type: ignore[arg-type]
    program.create("t", durability="fsync", ttl_ms=1000)
    for _ in range(6):
        program.append("t", 2)
        clock.advance(300)
    return program, clock


def test_dl01_a_delete_that_could_not_be_logged_deletes_nothing() -> None:
    program = Program(SimDisk())
    fill(program)
    before = dump(program)
    program.faults.fail("fdatasync", errno.EIO, path="*.log")
    assert not program.delete("fsync", match="t0")
    assert_same(before, dump(program), "after the failed delete")
    for end, mode in product(ENDS, MODES):
        disk = program.disk.clone()
        finish(disk, end, mode, 2)
        check(program, end, disk=disk)


@pytest.mark.parametrize("point", ["del.commit", "del.data_byte", "del.data_sync", "del.idx_byte"])
def test_dl02_dl03_dl04_a_delete_cut_off_at_any_step_stays_done(point: str) -> None:
    for seed, mode in enumerate(MODES):
        program = Program(SimDisk())
        fill(program)
        crash = partial(program.disk.crash, seed, mode)
        with stop_at(point, crash, nth=1 if point == "del.commit" else 1 + seed % 3) as stop:
            program.delete("fsync", match="t0")
            program.checkpoint()
        assert stop.reached
        if point == "del.commit":
            program.book.life("fsync").removals[-1].state = "acked"
            program.book.life("fsync").removals[-1].safe = True
        check(program, "power")


def test_dl05_only_the_one_mark_means_deleted() -> None:
    program = Program(SimDisk(), wal_shards=1)
    program.create("t", durability="fsync")
    program.append("t", 6)
    program.close()
    (path,) = (p for p in segment_files(program.disk, 1) if p.endswith("01.data"))
    end = len(program.disk.peek(path)) - 1
    for value in range(256) if FULL else (0, 1, 0x55, 0xD4, 0xD6, 0xFF):
        program.disk.poke(path, end, bytes([value]))
        if value != 0xD5:
            assert len(dump(Program(program.disk.clone(), wal_shards=1))["t"].records) == 6
    program.disk.poke(path, end, b"\0")
    check(program, "kill")


def test_dl06_bytes_alone_keep_a_record_deleted_when_its_frame_is_gone() -> None:
    program = Program(SimDisk(), wal_shards=1)
    fill(program)
    program.delete("fsync", match="t0")
    for _ in range(4):
        program.append("disk", 8)
        program.checkpoint()
        disk = program.disk.clone()
        disk.crash(1, "none")
        check(program, "power", disk=disk)


@pytest.mark.parametrize("mode", MODES)
def test_dl06_an_unsynced_delete_is_undone_whole_or_not_at_all(mode: CrashMode) -> None:
    for seed in range(8):
        program = Program(SimDisk(), wal_shards=1)
        fill(program)
        program.delete("disk", match="t0")
        program.disk.crash(seed, mode)
        found = check(program, "power")["disk"]
        tagged = [record for record in found.records.values() if record.tag == "t0"]
        assert len(tagged) in (0, 6)


def forgetful(monkeypatch: pytest.MonkeyPatch, **config: object) -> Program:
    """A program whose snapshots name the newest deleted run only; delete bytes tell the others."""
    monkeypatch.setattr(topic_module, "MAX_DELETED_RUNS", 1)
    program = fresh("t", durability="fsync", **config)
    for number in range(1, 25):
        program.append("t", tag=f"t{number:02}")
    program.checkpoint()
    for number in (4, 8, 20):
        program.delete("t", match=f"t{number:02}")
    program.checkpoint()
    return program


def delete_and_checkpoint(program: Program) -> None:
    """Deletes where a snapshot names none, a write that may evict, a checkpoint; several times."""
    for number in (3, 5, 9, 12, 15, 24):
        program.delete("t", match=f"t{number:02}")
        program.append("t")
        program.checkpoint()


@pytest.mark.parametrize("cap", [100, 20])
@pytest.mark.parametrize(
    "point", ["del.data_byte", "del.idx_byte", "ckpt.mark", "snap.tmp", "snap.dirsynced"]
)
def test_dl06_a_delete_that_only_its_byte_tells_is_counted_once_wherever_a_checkpoint_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, point: str, cap: int
) -> None:
    for nth in count(1):
        program = forgetful(monkeypatch, cap_records=cap)
        crash = partial(program.disk.crash, nth, MODES[nth % len(MODES)])
        with stop_at(point, crash, nth=nth) as stop:
            delete_and_checkpoint(program)
        if not stop.reached:
            assert nth > 2
            break
        check(program, "power")


@pytest.mark.parametrize("point", ["del.idx_byte", "ckpt.mark"])
def test_dl06_such_a_delete_is_counted_once_also_when_the_newest_snapshot_is_damaged(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    for nth in count(1):
        program = forgetful(monkeypatch)
        with stop_at(point, partial(program.disk.crash, nth, "all"), nth=nth) as stop:
            delete_and_checkpoint(program)
        if not stop.reached:
            assert nth > 2
            break
        newest = max(path for path in program.disk.paths() if path.endswith(".bin"))
        program.disk.poke(newest, len(program.disk.peek(newest)) // 2, b"#")
        check(program, "power")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("point", ["drop.meta", "drop.data_unlinked"])
def test_dl08_a_segment_that_deletes_emptied_is_a_silent_gap(point: str, end: End) -> None:
    for mode in MODES if end == "power" else MODES[:1]:
        program = Program(SimDisk(), wal_shards=1)
        program.create("t", durability="fsync")
        for tag in ("a", "b", "c"):
            program.append("t", 4, tag=tag)
        program.checkpoint()
        program.delete("t", match="b")
        stop = partial(finish, program.disk, end, mode, 3)
        with stop_at(point, stop) as stopped:
            for _ in range(3):
                program.append("t")
                program.checkpoint()
        assert stopped.reached
        found = check(program, end)["t"]
        assert found.tombstones == []
        assert [seq for seq in found.records if 5 <= seq <= 8] == []


@pytest.mark.parametrize("always", [False, True])
def test_dl09_files_that_cannot_be_removed_are_not_served_and_go_later(always: bool) -> None:
    program = Program(SimDisk(), wal_shards=1)
    fill(program)
    program.delete("fsync", before=9)
    program.faults.fail("unlink", errno.EIO, path="*/seg-*[15].*", always=always)
    for _ in range(3):
        program.append("fsync")
        assert program.checkpoint()
    assert min(program.read_all()["fsync"].records) == 9
    disk = program.disk.clone()
    disk.kill()
    check(program, "kill", disk=disk)
    program.faults.clear()
    for _ in range(2):
        program.append("fsync")
        assert program.checkpoint()
    assert min(segment_files(program.disk, 1)).endswith("09.data")
    program.disk.kill()
    check(program, "kill")


LOG_FAULTS: list[tuple[Op, int]] = [
    ("pwrite", errno.EIO),
    ("pwrite", errno.ENOSPC),
    ("fdatasync", errno.EIO),
]


@pytest.mark.parametrize(("op", "error"), LOG_FAULTS)
def test_dl10_a_loss_that_cannot_be_logged_is_shown_and_frees_nothing(op: Op, error: int) -> None:
    program, clock = with_ttl(wal_shards=1)
    program.checkpoint()
    files = segment_files(program.disk, 1)
    program.faults.fail(op, error, path="*.log", always=True)
    clock.advance(700)
    shown = program.read_all()["t"]
    assert shown.tombstones
    assert shown.audit["lost_ttl"] > 0
    program.checkpoint()
    program.checkpoint()
    assert segment_files(program.disk, 1) == files, "no file was reclaimed"
    program.disk.crash(mode="none")
    check(program, "power")


def test_dl11_a_floor_that_was_shown_holds_although_nothing_was_dropped_yet() -> None:
    program, clock = with_ttl(wal_shards=1)
    program.checkpoint()
    clock.advance(500)
    with stop_at("evict.commit", program.disk.kill) as stop:
        program.log.read("t")
    assert stop.reached
    clock.set(clock.now_ms() - 10_000)
    found = check(program, "kill")["t"]
    assert found.tombstones
    assert found.tombstones[0].reason == "ttl"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("cap", ["cap_records", "cap_bytes"])
def test_dl12_a_relaxed_cap_brings_nothing_back(cap: str, end: End) -> None:
    for mode in MODES:
        program = fresh("t", durability="fsync", **{cap: 30 if cap == "cap_bytes" else 3})
        program.append("t", 10)
        program.create("t", durability="fsync", **{cap: 1000})
        program.append("t", 2)
        before = dump(program)
        finish(program.disk, end, mode, 4)
        found = check(program, end)
        assert found["t"].records == before["t"].records


def test_dl13_a_configuration_that_could_not_be_logged_is_not_in_force() -> None:
    program = fresh("t", durability="fsync", cap_records=8)
    program.append("t", 8)
    program.faults.fail("fdatasync", errno.EIO, path="*.log")
    assert not program.create("t", durability="fsync", cap_records=2)
    shown = program.read_all()["t"]
    assert shown.state["config"]["cap_records"] == 8
    assert len(shown.records) == 8
    program.disk.crash(mode="none")
    found = check(program, "power")["t"]
    assert found.state["config"]["cap_records"] == 8


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("point", sorted(p for p in crashpoints.NAMES if p.startswith("topic.")))
def test_dl14_a_drop_that_is_cut_off_is_done_and_the_name_starts_afresh(
    point: str, end: End
) -> None:
    for mode in MODES if end == "power" else MODES[:1]:
        program = Program(SimDisk())
        fill(program)
        stop = partial(finish, program.disk, end, mode, 5)
        with stop_at(point, stop) as stopped:
            program.drop("doomed")
            program.maintain()
        assert stopped.reached
        dropped = program.book.life("doomed").dropped
        assert dropped is not None
        dropped.state = "acked"  # the frame is durable: the point of no return
        check(program, end)
        again = Program(program.disk, program.book)
        again.create("doomed", durability="fsync")
        again.append("doomed", 2)
        assert [e.seq for e in again.log.read("doomed").records] == [1, 2]
        again.disk.kill()
        Oracle(again.book, "kill", again.clock).check(again.disk)


def test_dl15_a_create_that_could_not_be_logged_leaves_no_topic() -> None:
    program = Program(SimDisk(), wal_shards=1)
    program.create("first", durability="fsync")
    program.faults.fail("pwrite", errno.ENOSPC, path="*.log")
    assert not program.create("second", durability="disk")
    assert [topic.topic for topic in program.log.topics()] == ["first"]
    program.faults.clear()
    program.clock.advance(1100)
    assert program.create("second", durability="fsync")
    assert program.append("second", 2)
    program.disk.kill()
    check(program, "kill")


def test_dl15_a_create_whose_sync_failed_is_whole_or_absent() -> None:
    for end, mode in product(ENDS, MODES):
        program = Program(SimDisk(), wal_shards=1)
        program.create("first", durability="fsync")
        program.faults.fail("fdatasync", errno.EIO, path="*.log")
        assert not program.create("second", durability="disk")
        assert program.engine.kernel.committer.state(0) is ShardState.FAILED
        finish(program.disk, end, mode, 6)
        check(program, end)


# Tags


@pytest.mark.parametrize("damage", ["missing", "flipped", "stale", "empty"])
def test_st06_deletes_by_tag_are_exact_whatever_became_of_the_tag_files(damage: str) -> None:
    program = Program(SimDisk(), wal_shards=1)
    fill(program)
    program.close()
    disk = program.disk
    tags = [path for path in disk.paths() if path.endswith(".tag")]
    assert len(tags) > 1
    contents = {path: disk.peek(path) for path in tags}
    for path, other in pairwise([*tags, tags[0]]):
        if damage == "missing":
            disk.unlink(path)
        elif damage == "flipped":
            disk.flip(path, len(contents[path]) // 2)
        else:
            disk.put(path, contents[other] if damage == "stale" else b"")
    again = Program(disk, program.book, wal_shards=1)
    again.book.note_safe()
    for topic in list(again.book.lives):
        assert again.delete(topic, match="t0")
    found = again.read_all()
    assert all(r.tag != "t0" for shown in found.values() for r in shown.records.values())
    again.close()
    check(again, "kill")
