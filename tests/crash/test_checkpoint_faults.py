"""Checkpoints that fail, are cut off, or have something else happening in between."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import get_args

import msgspec
import pytest
from tests.crash.fault_oracle import Oracle, assert_same, check, dump
from tests.crash.fault_program import DATA_DIR, Book, End, Program, opening
from tests.crash.fault_scenes import (
    CLASSES,
    FULL,
    MODES,
    append,
    checkpoint_lane,
    filled,
    finish,
    log_files,
    move_segments,
    refusal,
    run_lane,
    snapshots,
)

from topics.core.facts import Match
from topics.embedded import Log
from topics.engine.effects import Pause, run
from topics.engine.recovery import replay
from topics.engine.recovery.opening import open_engine
from topics.engine.routers.routing import RouterSpec
from topics.engine.upkeep import capture, checkpoint
from topics.storage import crashpoints
from topics.storage.checksum import h64
from topics.storage.wal.inline import InlineCommitter
from topics.storage.wal.shard import Shard, ShardState
from topics.storage.wal.submission import Submission
from topics.testing import CrashMode, Fault, ManualClock, Op, SimDisk, stop_at
from topics.values import Record

pytestmark = pytest.mark.usefixtures("small")

META = f"{DATA_DIR}/meta"


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


@pytest.fixture
def _pausing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint pauses behind each topic, as it does behind many when there are very many."""
    monkeypatch.setattr(checkpoint, "TOPICS_BETWEEN_PAUSES", 1)
    monkeypatch.setattr(capture, "TOPICS_BETWEEN_PAUSES", 1)


@pytest.mark.usefixtures("_pausing")
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


@pytest.mark.parametrize("snapshots_before", [0, 3])
def test_sn14_a_router_that_advances_during_a_checkpoint_copies_everything_once(
    snapshots_before: int,
) -> None:
    """With snapshots before it the checkpoint writes a part: what changed, and no more."""
    start = Program(SimDisk())
    start.create("fsync", durability="fsync")
    start.create("copy", durability="disk")
    run(start.engine.routing.put("r", RouterSpec("fsync", "copy")))
    start.append("fsync", 6)
    run(start.engine.forwarder.advance_all())
    for _ in range(snapshots_before):
        start.append("fsync")
        assert start.checkpoint()
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


class LateCommitter(InlineCommitter):
    """Writes and syncs at once, but answers only when told to: committed and not yet applied."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards)
        self.is_late = False
        self.unanswered: list[Submission] = []

    def submit(self, submission: Submission) -> None:
        if self.is_late:
            self._shards[submission.shard].write_one(submission)
            self.sync(submission.shard)
            self.unanswered.append(submission)
        else:
            super().submit(submission)

    def answer(self) -> None:
        self.is_late = False
        for submission in self.unanswered:
            submission.done = True
            submission.on_done(submission)


@pytest.mark.parametrize("end", get_args(End))
def test_sn13_a_capture_waits_for_a_delete_that_is_committed_but_not_applied(end: End) -> None:
    disk, clock = SimDisk(), ManualClock()
    late = msgspec.structs.replace(opening(clock, wal_shards=1), make_committer=LateCommitter)
    engine = open_engine(disk.mount(), DATA_DIR, late)
    committer = engine.kernel.committer
    assert isinstance(committer, LateCommitter)
    assert engine.upkeep is not None
    log = Log(engine)
    log.create("t", durability="fsync")
    log.append("t", [{"data": number, "tag": "x" if number % 2 else "y"} for number in range(6)])
    log.checkpoint()
    assert log.delete("t", match="neither").deleted == 0  # the tags are at hand from now on
    committer.is_late = True
    delete = engine.delete("t", before=None, match=Match("x"))
    waits = list(takewhile(lambda wait: isinstance(wait, Pause), delete))
    assert len(waits) < 9
    assert len(committer.unanswered) == 1
    lane = engine.upkeep.checkpoint()
    assert isinstance(next(lane), Submission), "the checkpoint waits for its barrier"
    committer.answer()
    run_lane(lane)
    for _ in range(2):
        log.checkpoint()
    finish(disk, end, "none", 0)
    found = dump(Program(disk, wal_shards=1))["t"]
    assert [record.tag for record in found.records.values()] == ["y", "y", "y"]
    assert found.audit["deleted"] == 3
