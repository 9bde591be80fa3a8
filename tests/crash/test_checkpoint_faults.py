"""Checkpoints that fail, are cut off, or have something else happening in between."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import pytest
from tests.crash.fault_oracle import Oracle, assert_same, check, dump
from tests.crash.fault_program import DATA_DIR, Book, End, Program
from tests.crash.fault_scenes import (
    CLASSES,
    FULL,
    MODES,
    append,
    checkpoint_lane,
    fill,
    finish,
    log_files,
    move_segments,
    refusal,
    run_lane,
    segment_files,
    snapshots,
    tail,
)

from topics.engine import replay
from topics.engine.effects import run
from topics.engine.history import SegmentHistory
from topics.engine.routing import RouterSpec
from topics.errors import Internal
from topics.storage import crashpoints
from topics.storage.checksum import h64
from topics.storage.wal.shard import ShardState
from topics.testing import CrashMode, Fault, Op, PowerOff, SimDisk, stop_at
from topics.values import Record

pytestmark = pytest.mark.usefixtures("small")

META = f"{DATA_DIR}/meta"


def filled(*, shards: int = 2, **settings: Any) -> Program:  # noqa: ANN401 - checked there
    """A program with two snapshots behind it and something to do for the next."""
    program = Program(SimDisk(), wal_shards=shards, **settings)
    fill(program)
    tail(program)
    return program


def few(shards: int = 2) -> Program:
    """So little that no log file was let go, although there are two snapshots."""
    program = Program(SimDisk(), wal_shards=shards)
    for topic in CLASSES:
        program.create(topic, durability=topic)
    for _ in range(2):
        program.append("fsync", 2, tag="t")
        program.append("disk", 2)
        program.checkpoint()
    program.delete("fsync", before=2)
    program.append("memory")
    assert len(snapshots(program.disk)) == 2
    assert not program.disk.exists(f"{META}/TRIMMED")
    return program


# The snapshot file

SNAPSHOT_FAULTS: dict[str, tuple[Op, Fault, str]] = {
    "sn01 write error": ("pwrite", errno.EIO, "*/meta/snapshot*"),
    "sn01 no space": ("pwrite", errno.ENOSPC, "*/meta/snapshot*"),
    "sn02 sync error": ("fsync", errno.EIO, "*/meta/snapshot*"),
    "sn05 rename error": ("rename", errno.EIO, "*/meta/snapshot*"),
    "sn05 directory sync error": ("sync_dir", errno.EIO, META),
}


@pytest.mark.parametrize("name", SNAPSHOT_FAULTS)
def test_sn01_sn02_sn05_a_snapshot_that_fails_leaves_the_old_one_and_the_log(name: str) -> None:
    op, fault, path = SNAPSHOT_FAULTS[name]
    program = filled()
    rule = program.faults.fail(op, fault, path=path)
    logs, old = set(log_files(program.disk)), snapshots(program.disk)
    assert not program.checkpoint()
    assert rule.hits == 1
    assert logs <= set(log_files(program.disk)), "no log file went"
    assert old == snapshots(program.disk)[: len(old)], "no snapshot went"
    for mode in MODES:
        disk = program.disk.clone()
        disk.crash(1, mode)
        check(program, "power", disk=disk)
    program.read_all()
    append(program)
    assert program.checkpoint(), "the next attempt succeeds"
    program.disk.kill()
    check(program, "kill")


def test_sn01_a_short_write_of_a_snapshot_is_completed() -> None:
    program = filled()
    rule = program.faults.fail("pwrite", "short", path="*/meta/snapshot*")
    assert program.checkpoint()
    assert rule.hits == 1
    program.disk.crash(mode="none", names="none")
    check(program, "power")


@pytest.mark.parametrize("point", sorted(p for p in crashpoints.NAMES if p.startswith("snap.")))
def test_sn03_sn04_sn06_a_cut_around_the_snapshot_leaves_the_old_or_the_new_one(
    point: str,
) -> None:
    for seed, mode in enumerate(MODES):
        program = filled()
        with stop_at(point, partial(program.disk.crash, seed, mode)) as stop:
            program.checkpoint()
        assert stop.reached
        check(program, "power")


def resigned(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A snapshot with another body and a checksum that fits."""
    body = change(data[24:])
    start = data[:8] + struct.pack("<Q", len(body))
    return start + struct.pack("<Q", h64(start + body)) + body


def without_one_topic(body: bytes) -> bytes:
    lines = body.splitlines(keepends=True)
    return b"".join(lines[:1] + lines[2:])


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "flipped body": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "cut short": lambda data: data[:-20],
    "empty": lambda data: b"",
    "magic": lambda data: b"SNP9" + data[4:],
    "version": lambda data: data[:4] + struct.pack("<I", 9) + data[8:],
    "body length": lambda data: data[:8] + struct.pack("<Q", len(data)) + data[16:],
    "counts": lambda data: resigned(data, without_one_topic),
    "another store": lambda data: resigned(
        data, lambda body: body.replace(b'"store_id":"', b'"store_id":"f0f0', 1)
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_sn07_a_damaged_snapshot_is_set_aside_and_the_older_one_serves(damage: str) -> None:
    program = filled()
    program.checkpoint()
    append(program)
    disk = program.disk
    disk.kill()
    expected = dump(Program(disk.clone()))
    newest = snapshots(disk)[-1]
    disk.put(newest, DAMAGE[damage](disk.peek(newest)))
    again = Program(disk, Book())
    assert_same(expected, dump(again), damage)
    assert newest not in disk.paths()
    assert any("quarantine" in path and "snapshot" in path for path in disk.paths())
    disk.kill()
    check(program, "kill")


@pytest.mark.parametrize("change_layout", [False, True])
def test_sn08_without_a_valid_snapshot_a_trimmed_log_is_refused(change_layout: bool) -> None:
    program = few() if change_layout else filled()
    disk = program.disk
    if change_layout:
        program.close()
        program = Program(disk, program.book, wal_shards=1)
        while disk.exists(f"{DATA_DIR}/wal/shard-00"):
            program.append("fsync")
            program.checkpoint()
    disk.kill()
    whole = disk.clone()
    for path in snapshots(disk):
        disk.flip(path, 30)
    assert refusal(disk) == "metadata_lost"
    check(program, "kill", disk=whole)


def test_sn09_without_a_valid_snapshot_a_whole_log_is_enough() -> None:
    program = few()
    program.disk.kill()
    expected = dump(Program(program.disk.clone()))
    for path in snapshots(program.disk):
        program.disk.flip(path, 30)
    assert_same(expected, dump(Program(program.disk.clone())), "replaying everything")
    check(program, "kill")


@pytest.mark.parametrize("mode", MODES)
def test_sn10_a_damaged_snapshot_and_a_torn_tail_together(mode: CrashMode) -> None:
    program = filled()
    program.checkpoint()
    append(program)
    append(program)
    program.disk.crash(5, mode)
    newest = snapshots(program.disk)[-1]
    program.disk.flip(newest, 40)
    check(program, "power")


def test_sn11_the_older_snapshot_serves_after_drops_moves_and_flips() -> None:
    program = filled(shards=1)
    move_segments(program)
    program.delete("fsync", before=9)
    program.delete("memory", match="t0")
    for _ in range(3):
        program.append("fsync", 2, tag="t1")
        program.delete("fsync", match="t1")
        program.maintain()
        assert program.checkpoint()
        disk = program.disk.clone()
        disk.flip(snapshots(disk)[-1], 40)
        disk.kill()
        check(program, "kill", disk=disk)


# Something else meanwhile


def drop_and_create(program: Program) -> None:
    program.drop("new")
    program.create("new", durability="disk")
    program.append("new", 3)


def drop_old(program: Program) -> None:
    program.drop("doomed")


def delete(program: Program) -> None:
    program.delete("fsync", match="t1")
    program.delete("new", before=3)
    program.delete("capped", match="t0")
    program.append("fsync", 1, tag="t1")


def configure(program: Program) -> None:
    program.create("capped", durability="disk", cap_records=2)
    program.create("capped", durability="fsync", cap_records=50)
    program.create("disk", durability="ephemeral")
    program.append("capped", 4)
    program.append("disk", 4)


MEANWHILE = {f.__name__: f for f in (append, drop_and_create, drop_old, delete, configure)}


@pytest.mark.parametrize("name", MEANWHILE)
def test_sn12_sg13_dl07_what_happens_during_a_checkpoint_is_neither_lost_nor_doubled(
    name: str,
) -> None:
    """At each pause of a checkpoint; the next one must work too, whatever this one met."""
    start = filled()
    start.create("new", durability="fsync")
    start.append("new", 6, tag="t1")
    start.disk.kill()
    pauses = run_lane(checkpoint_lane(Program(start.disk.clone())))
    for pause in range(1, pauses + 1):
        program = Program(start.disk.clone(), start.book.copy())
        run_lane(checkpoint_lane(program), pause=pause, meanwhile=partial(MEANWHILE[name], program))
        disk, book = program.disk.clone(), program.book.copy()
        assert program.checkpoint(), f"{name} at pause {pause} breaks the next checkpoint"
        outcomes = [(disk, book), (program.disk, program.book)]
        for image, noted in outcomes if FULL else [outcomes[pause % 3 % 2]]:
            end: End = "kill" if pause % 2 else "power"
            finish(image, end, MODES[pause % len(MODES)], pause)
            try:
                Oracle(noted, end, program.clock).check(image)
            except AssertionError as problem:
                problem.add_note(f"{name} at pause {pause}, {end}, {image is disk=}")
                raise


def test_sn14_a_router_that_advances_during_a_checkpoint_copies_everything_once() -> None:
    start = Program(SimDisk())
    start.create("fsync", durability="fsync")
    start.create("copy", durability="disk")
    run(start.engine.routing.put("r", RouterSpec("fsync", "copy")))
    start.append("fsync", 6)
    run(start.engine.forwarder.advance_all())
    start.append("fsync", 3)
    start.disk.kill()
    pauses = run_lane(checkpoint_lane(Program(start.disk.clone())))

    def forward(program: Program) -> None:
        program.append("fsync", 2)
        run(program.engine.forwarder.advance_all())

    for pause in range(1, pauses + 1):
        for end in get_args(End):
            program = Program(start.disk.clone(), start.book.copy())
            run_lane(checkpoint_lane(program), pause=pause, meanwhile=partial(forward, program))
            finish(program.disk, end, "none", pause)
            log = Program(program.disk).log
            source = [record.data for record in log.read("fsync").records]
            events = log.follow("copy", wait=0.0)
            copies = [event.data for event in events if isinstance(event, Record)]
            assert copies == source, f"{end} after a pass at pause {pause}"


def test_sn15_a_barrier_that_cannot_be_synced_fails_the_shard_and_makes_no_snapshot() -> None:
    program = filled()
    old = snapshots(program.disk)
    program.faults.fail("fdatasync", errno.EIO, path="*.log")
    assert not program.checkpoint()
    assert snapshots(program.disk) == old
    assert program.engine.kernel.committer.state(0) is ShardState.FAILED
    program.read_all()
    program.disk.crash(mode="none")
    check(program, "power")


def test_sn16_a_cut_in_a_snapshot_and_one_in_the_replay_converge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "PROGRESS_EVERY", 1)
    for seed, mode in enumerate(MODES):
        program = filled()
        with stop_at("snap.tmp", partial(program.disk.crash, seed, mode)) as stop:
            program.checkpoint()
        assert stop.reached
        crash = partial(program.disk.crash, seed + 1, mode)
        with stop_at("rec.mid_replay", crash, nth=3) as stop:
            Program(program.disk)
        assert stop.reached
        check(program, "power")


@pytest.mark.parametrize("point", ["ckpt.barrier", "ckpt.data", "ckpt.mark"])
def test_sn17_a_configuration_that_a_snapshot_contains_is_not_run_again(point: str) -> None:
    """A tight cap, then none, between the position of the snapshot and what it captures."""
    program = filled()

    def change(reached: str) -> None:
        if reached == point and program.book.life("capped").configs[0]["cap_records"] == 5:
            program.create("capped", durability="fsync", cap_records=1)
            program.create("capped", durability="fsync", cap_records=100)
            for _ in range(10):
                program.append("capped", 5)

    with crashpoints.installed(change):
        assert program.checkpoint()
    before = dump(program)
    program.disk.kill()
    found = check(program, "kill")
    assert found["capped"].records == before["capped"].records


# Segments


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
