"""Recoveries that fail, are cut off, or find what a healthy run does not leave behind."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from itertools import product

import pytest
from tests.crash.fault_oracle import assert_same, check, dump
from tests.crash.fault_program import DATA_DIR, Program
from tests.crash.fault_scenes import (
    CLASSES,
    FULL,
    MODES,
    fill,
    move_segments,
    refusal,
    sampled,
    tail,
)

from topics.batch import RecordBatch
from topics.core.facts import Evicted
from topics.engine.effects import run
from topics.engine.recovery import replay
from topics.errors import RefusedToOpen
from topics.storage import crashpoints
from topics.storage.frames.append import encode_append
from topics.storage.wal.submission import Submission
from topics.testing import CrashMode, FaultFs, Op, Rule, SimDisk, stop_at

pytestmark = pytest.mark.usefixtures("small")

REC_POINTS = sorted(point for point in crashpoints.NAMES if point.startswith("rec."))


@pytest.fixture
def mid_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short replays pass the point in the middle too."""
    monkeypatch.setattr(replay, "PROGRESS_EVERY", 5)


def killed(*, shards: int = 2, end: Callable[[SimDisk], None] = SimDisk.kill) -> Program:
    """A program that ended in the middle of things."""
    program = Program(SimDisk(), wal_shards=shards)
    fill(program)
    move_segments(program)
    tail(program)
    for topic in CLASSES:
        program.append(topic, 2, tag="t5")
    program.create("new", durability="disk")
    program.append("new", 6)
    program.drop("doomed")
    end(program.disk)
    return program


# What the log may hold


def craft(program: Program, topic_id: int, first_seq: int, count: int = 1) -> None:
    """Write records into the log that no append made."""
    committer = program.engine.kernel.committer
    batch = RecordBatch([b'"crafted"'] * count)
    frames, _ = encode_append(topic_id, first_seq, 1_700_000_000_000, batch, durable=True)
    shard = committer.shard_of(topic_id)
    committer.submit(Submission(shard, frames, count, durable=True, on_done=lambda done: None))


def test_rc10_a_record_that_comes_again_is_skipped() -> None:
    program = Program(SimDisk())
    fill(program)
    topic = program.engine.kernel.catalog.by_name["fsync"]
    program.append("fsync", 3)
    craft(program, topic.id, topic.head - 1, count=2)
    craft(program, topic.id, 1)
    program.disk.kill()
    check(program, "kill")


def test_rc10_the_part_of_a_run_that_is_known_is_skipped() -> None:
    program = Program(SimDisk())
    program.create("fsync", durability="fsync")
    program.append("fsync", 3)
    craft(program, program.engine.kernel.catalog.by_name["fsync"].id, 2, count=4)
    program.disk.kill()
    found = dump(Program(program.disk))["fsync"]
    assert [record.data for record in found.records.values()] == [
        "fsync-1",
        "fsync-2",
        "fsync-3",
        "crafted",
        "crafted",
    ]


def test_rc11_a_record_from_the_future_is_refused() -> None:
    program = Program(SimDisk())
    fill(program)
    program.sync()
    whole = program.disk.clone()
    topic = program.engine.kernel.catalog.by_name["fsync"]
    craft(program, topic.id, topic.head + 2)
    program.disk.kill()
    assert refusal(program.disk) == "seq_gap"
    whole.kill()
    check(program, "kill", disk=whole)


def test_rc12_a_record_of_a_topic_that_nobody_created_is_refused() -> None:
    program = Program(SimDisk())
    fill(program)
    program.sync()
    whole = program.disk.clone()
    craft(program, 99, 1)
    program.disk.kill()
    assert refusal(program.disk) == "seq_gap"
    whole.kill()
    check(program, "kill", disk=whole)


def test_rc19_floors_come_back_as_the_highest_whatever_their_order() -> None:
    program = Program(SimDisk())
    program.create("t", durability="fsync", ttl_ms=1_000_000)
    program.append("t", 9)
    kernel = program.engine.kernel
    topic = kernel.catalog.by_name["t"]
    for cap_hi, ttl_hi in [(0, 4), (2, 1), (0, 6), (5, 3)]:
        fact = Evicted(topic.id, topic.last_ts, cap_hi, 1, ttl_hi)
        run(kernel.commit([fact], topic_id=topic.id, durable=True))
    assert (topic.cap_hi, topic.ttl_hi) == (5, 6)
    program._note_floors()
    program.disk.kill()
    found = check(program, "kill")
    assert found["t"].audit["evict_floor"] == 7


def test_rc20_a_delete_does_not_reach_records_that_came_after_it() -> None:
    """Whatever of the later ones a power cut takes."""
    for seed, mode in product(range(8), MODES):
        program = Program(SimDisk(), wal_shards=1)
        program.create("disk", durability="disk")
        program.append("disk", 3, tag="x")
        program.delete("disk", match="x")
        program.append("disk", 3, tag="x")
        program.append("disk", 2)
        program.disk.crash(seed, mode)
        check(program, "power")


# Trouble while reading and repairing


READ_FAULTS: list[tuple[Op, str]] = [
    ("open", "*.log"),
    ("pread", "*.log"),
    ("open", "*/CURRENT"),
    ("pread", "*/CURRENT"),
    ("open", "*/snapshot*"),
    ("pread", "*/snapshot*"),
    ("listdir", "*/wal"),
    ("listdir", "*/meta"),
    ("listdir", "*/topics"),
    ("pread", "*/FORMAT"),
]
REPAIR_FAULTS: list[tuple[Op, str]] = [
    ("truncate", "*.log"),
    ("fsync", "*.log*"),
    ("pwrite", "*.log*"),
    ("rename", "*.log*"),
    ("sync_dir", "*/wal/shard*"),
]


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize(("op", "path"), READ_FAULTS)
def test_rc16_what_cannot_be_read_refuses_the_start_and_changes_nothing(
    op: Op, path: str, always: bool
) -> None:
    program = killed()
    disk = program.disk
    before = {p: d for p, d in disk.contents().items() if not p.endswith(".lock")}
    rules: list[Rule] = []
    with pytest.raises(RefusedToOpen) as refused:
        Program(disk, arm=lambda fs: rules.append(fs.fail(op, errno.EIO, path=path, always=always)))
    assert refused.value.reason == "io_error"
    assert rules[0].hits
    assert before == {p: d for p, d in disk.contents().items() if not p.endswith(".lock")}
    disk.kill()
    check(program, "kill")


@pytest.mark.parametrize("lost_power", [False, True])
@pytest.mark.parametrize(("op", "path"), REPAIR_FAULTS)
def test_rc18_a_repair_that_fails_refuses_the_start_and_can_be_done_again(
    op: Op, path: str, lost_power: bool
) -> None:
    end = partial(SimDisk.crash, seed=3, mode="prefix") if lost_power else SimDisk.kill
    program = killed(end=end)
    disk = program.disk
    rules: list[Rule] = []
    refused = ""
    try:
        Program(disk, arm=lambda fs: rules.append(fs.fail(op, errno.EIO, path=path)))
    except RefusedToOpen as refusal:
        refused = refusal.reason
    assert refused == ("io_error" if rules[0].hits else ""), "an error is not overlooked"
    disk.kill()
    check(program, "power" if lost_power else "kill")


@pytest.mark.usefixtures("mid_replay")
def test_rc21_a_replay_out_of_memory_is_refused_and_changes_nothing() -> None:
    program = killed()

    def hook(point: str) -> None:
        if point == "rec.mid_replay":
            raise MemoryError

    with crashpoints.installed(hook):
        assert refusal(program.disk) == "io_error"
    check(program, "kill")


# Crashes in a recovery


@pytest.mark.usefixtures("mid_replay")
@pytest.mark.parametrize("first", REC_POINTS)
def test_rc17_a_crash_in_a_recovery_and_one_in_the_next_change_nothing(first: str) -> None:
    for number, second in enumerate(REC_POINTS):
        for mode in MODES if FULL else [MODES[(number + len(first)) % len(MODES)]]:
            program = killed(end=partial(SimDisk.crash, seed=number, mode=mode))
            disk = program.disk
            expected = dump(Program(disk.clone()))
            for point in (first, second):
                with stop_at(point, partial(disk.crash, number, mode)) as stop:
                    Program(disk)
                assert stop.reached, point
            assert_same(expected, dump(Program(disk.clone())), f"{first}, {second} {mode}")
            check(program, "power")


@pytest.mark.usefixtures("mid_replay")
def test_rc17_a_process_that_dies_again_and_again_while_it_recovers_loses_nothing() -> None:
    program = killed()
    expected = dump(Program(program.disk.clone()))
    for point in (*REC_POINTS, *reversed(REC_POINTS)):
        with stop_at(point, program.disk.kill) as stop:
            Program(program.disk)
        assert stop.reached, point
        assert_same(expected, dump(Program(program.disk.clone())), point)
    check(program, "kill")


@pytest.mark.parametrize("second_mode", MODES)
def test_rc17_any_call_of_the_second_recovery_may_be_the_last(second_mode: CrashMode) -> None:
    """Two crashes at file calls instead of named points."""
    program = killed(end=partial(SimDisk.crash, seed=7, mode="subset"))
    calls = len(Program(program.disk.clone()).faults.trace)
    expected = dump(Program(program.disk.clone()))
    places = list(sampled(calls))
    for first, second in zip(places, reversed(places), strict=True):
        disk = program.disk.clone()
        for call in (first, second):
            crash = partial(disk.crash, call, second_mode)
            with pytest.raises(BaseException, match="stopped before call"):
                Program(disk, arm=partial(FaultFs.stop_before, call=call, stop=crash))
        assert_same(expected, dump(Program(disk)), f"cut before call {first}, then {second}")


@pytest.mark.parametrize("mode", MODES)
def test_rc25_what_a_recovery_showed_after_a_failed_sync_is_really_on_disk(mode: CrashMode) -> None:
    """The pages can be read until the power goes; a sync would believe they were written."""
    program = Program(SimDisk(), wal_shards=1)
    fill(program)
    program.append("disk", 2)
    program.disk.fsyncgate("*.log")
    assert not program.append("fsync", 2)
    program.disk.kill()
    again = Program(program.disk, program.book, wal_shards=1)
    expected = dump(again)
    program.disk.crash(3, mode)
    assert_same(expected, dump(Program(program.disk.clone(), wal_shards=1)), mode)
    check(again, "kill")


def test_rc26_an_unsynced_tail_that_was_recovered_survives_a_power_cut() -> None:
    program = killed()
    expected = dump(Program(program.disk))
    program.disk.crash(mode="none", names="none")
    assert_same(expected, dump(Program(program.disk.clone())), "the power cut")
    check(program, "kill")


# What lies about


def test_rc22_leftovers_go_and_nothing_else_does() -> None:
    program = killed()
    disk = program.disk
    planted = [
        f"{DATA_DIR}/meta/snapshot.0099.bin.tmp",
        f"{DATA_DIR}/wal/shard-00/wal-spare.tmp",
        f"{DATA_DIR}/wal/shard-01/CURRENT.tmp",
        f"{DATA_DIR}/FORMAT.tmp",
        f"{DATA_DIR}/topics/00000001/seg-0000000000000001.data.tmp",
        f"{DATA_DIR}/topics/00000001/seg-0000000000000777.data",
    ]
    for path in planted:
        disk.put(path, b"rubbish")
    other = f"{DATA_DIR}/topics/00000001/notes.txt"
    disk.put(other, b"not ours")
    dropped = [path for path in disk.paths() if "/00000006/" in path]
    assert dropped, "it died before the directory got its other name"
    again = Program(disk, program.book)
    left = [path for path in planted if path in disk.paths()]
    assert left == []
    assert disk.peek(other) == b"not ours"
    kept = {path.replace("/00000006/", "/00000006.deleted/") for path in dropped}
    assert kept <= set(disk.paths()), "a snapshot still needs the dropped topic"
    for _ in range(3):
        again.append("fsync")
        assert again.checkpoint()
    assert not any("00000006" in path for path in disk.paths())
    disk.kill()
    check(again, "kill")


def test_rc22_a_recovery_that_was_cut_leaves_log_files_that_the_next_one_replaces() -> None:
    program = killed()
    expected = dump(Program(program.disk.clone()))
    for point in ("rec.newgen", "wal.rotate.renamed", "wal.rotate.current"):
        with stop_at(point, program.disk.kill) as stop:
            Program(program.disk)
        assert stop.reached
    assert_same(expected, dump(Program(program.disk.clone())), "header-only files")
    check(program, "kill")


def test_rc23_a_topic_directory_that_nobody_knows_is_kept_aside() -> None:
    program = killed()
    strange = f"{DATA_DIR}/topics/000000FF/seg-0000000000000001.data"
    program.disk.put(strange, b"whose is this")
    check(program, "kill")
    Program(program.disk)
    kept = [path for path in program.disk.paths() if "000000FF" in path]
    assert [path.startswith(f"{DATA_DIR}/quarantine/") for path in kept] == [True]
    assert program.disk.peek(kept[0]) == b"whose is this"


def test_a_dropped_topic_that_has_a_directory_again_does_not_stop_a_start() -> None:
    """A checkpoint and a drop that met can leave both names; one is kept aside."""
    program = killed()
    stray = f"{DATA_DIR}/topics/00000006/seg-0000000000000001.data"
    program.disk.put(stray, b"half written")
    check(program, "kill")
    Program(program.disk)
    assert stray not in program.disk.paths()


def test_rc24_a_store_whose_contents_are_gone_is_refused() -> None:
    program = killed()
    whole = program.disk.clone()
    for path in program.disk.paths():
        if "/wal/" in path or "/meta/" in path:
            program.disk.unlink(path)
    assert refusal(program.disk) == "metadata_lost"
    check(program, "kill", disk=whole)
