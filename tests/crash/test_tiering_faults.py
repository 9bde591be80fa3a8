"""Segments on their way to the cold tier, and out of it: every record keeps a complete copy."""

from __future__ import annotations

import errno
from functools import partial

import pytest
from tests.crash.fault_oracle import Oracle, assert_same, check, dump
from tests.crash.fault_program import COLD_DIR, DATA_DIR, Program, opening
from tests.crash.fault_scenes import (
    FULL,
    MODES,
    append,
    fill,
    finish,
    refusal,
    relocation_lane,
    run_lane,
    sampled,
    segment_files,
    settle_segments,
    snapshots,
)

from topics.embedded import Log
from topics.engine.reads.history import SegmentHistory
from topics.engine.recovery.opening import open_engine, open_view
from topics.errors import RefusedToOpen
from topics.storage import crashpoints
from topics.storage.segments.segment import COLD, HOT
from topics.testing import Fault, ManualClock, Op, SimDisk, WatchFs, stop_at

pytestmark = pytest.mark.usefixtures("small")

FSYNC = 1  # id of the first topic
DOOMED = 6


def ready(shards: int = 1) -> Program:
    """Sealed segments that may move, and none that has."""
    program = Program(SimDisk(), wal_shards=shards)
    fill(program)
    settle_segments(program)
    assert not segment_files(program.disk, FSYNC, COLD_DIR)
    return program


def moved(shards: int = 1) -> Program:
    program = ready(shards)
    program.maintain()
    assert segment_files(program.disk, FSYNC, COLD_DIR)
    return program


def tiers(program: Program, topic: str = "fsync") -> list[int]:
    history = program.engine.kernel.catalog.by_name[topic].history
    assert isinstance(history, SegmentHistory)
    return [seg.tier for seg in history.sealed]


COPY_FAULTS: list[tuple[Op, Fault]] = [
    ("open", errno.EIO),
    ("pwrite", errno.EIO),
    ("pwrite", errno.ENOSPC),
    ("pwrite", errno.ESTALE),
    ("fsync", errno.EIO),
    ("rename", errno.EIO),
    ("sync_dir", errno.EIO),
    ("mkdirs", errno.ENOSPC),
    ("pread", errno.EIO),
]


@pytest.mark.parametrize(("op", "fault"), COPY_FAULTS)
def test_tr01_a_copy_that_fails_leaves_the_segment_hot_and_is_tried_again(
    op: Op, fault: Fault
) -> None:
    program = ready()
    before = dump(program)
    program.faults.fail(op, fault, path=f"{COLD_DIR}*", always=True)
    program.maintain()
    assert COLD not in tiers(program)
    program.faults.clear()
    assert not segment_files(program.disk, FSYNC, COLD_DIR), "no partial copy stays"
    assert_same(before, dump(program), "after the failure")
    disk = program.disk.clone()
    disk.crash(3, "prefix")
    check(program, "power", disk=disk)
    program.maintain()
    assert COLD in tiers(program)
    assert_same(before, dump(program), "after the move")
    program.disk.crash(mode="none")
    check(program, "power")


@pytest.mark.parametrize("end", ["kill", "power"])
@pytest.mark.parametrize("point", sorted(p for p in crashpoints.NAMES if p.startswith("tier.")))
def test_tr02_tr04_a_cut_at_any_step_of_a_move_leaves_a_complete_copy(point: str, end: str) -> None:
    for number, mode in enumerate(MODES if end == "power" else MODES[:1]):
        program = ready()
        before = dump(program)
        stop = partial(finish, program.disk, end, mode, number)  # type: ignore[arg-type]
        with stop_at(point, stop, nth=1 + number % 2) as stopped:
            program.maintain()
        assert stopped.reached
        found = Oracle(program.book, "power", program.clock, program.settings).check(program.disk)
        assert found["fsync"].records == before["fsync"].records
        again = Program(program.disk, program.book, wal_shards=1)
        again.checkpoint()
        again.checkpoint()
        again.maintain()
        both = {
            path.removeprefix(DATA_DIR) for path in segment_files(again.disk, FSYNC, DATA_DIR)
        } & {path.removeprefix(COLD_DIR) for path in segment_files(again.disk, FSYNC, COLD_DIR)}
        assert not both, "one copy is left"
        assert dump(again)["fsync"].records == before["fsync"].records


@pytest.mark.parametrize("part", ["data", "idx"])
def test_tr03_a_copy_that_differs_is_not_believed(part: str) -> None:
    program = ready()
    before = dump(program)

    def garble(point: str) -> None:
        if point == "tier.renamed":
            for path in segment_files(program.disk, FSYNC, COLD_DIR):
                if path.endswith(f"01.{part}"):
                    program.disk.flip(path, 20)

    with crashpoints.installed(garble):
        program.maintain()
    assert tiers(program)[0] == HOT
    assert_same(before, dump(program), "after the copy was found bad")
    program.maintain()
    assert tiers(program)[0] == COLD
    program.disk.kill()
    check(program, "kill")


def test_tr05_a_torn_copy_beside_a_complete_one_is_overwritten() -> None:
    program = ready()
    for path in segment_files(program.disk, FSYNC, DATA_DIR)[:3]:
        torn = COLD_DIR + path.removeprefix(DATA_DIR)
        program.disk.put(torn, program.disk.peek(path)[:-7])
    disk = program.disk.clone()
    disk.kill()
    check(program, "kill", disk=disk)
    before = dump(program)
    program.maintain()
    assert_same(before, dump(program), "after the move")
    program.disk.kill()
    check(program, "kill")


def test_tr06_a_cold_pointer_without_cold_files_uses_the_hot_copy() -> None:
    """The move was logged and the hot files were to go when the program ended."""
    program = ready()
    with stop_at("tier.flipped", program.disk.kill):
        program.maintain()
    for path in segment_files(program.disk, FSYNC, COLD_DIR):
        program.disk.unlink(path)
    again = Program(program.disk.clone(), wal_shards=1)
    assert tiers(again)[0] == HOT
    check(program, "kill")


def test_tr07_a_delete_during_a_move_reaches_the_copy_that_stays() -> None:
    start = ready()
    start.disk.kill()

    def opened() -> Program:
        program = Program(start.disk.clone(), start.book.copy(), wal_shards=1)
        program.book.note_safe()
        program.checkpoint()
        return program

    pauses = run_lane(relocation_lane(opened()))
    for pause in sampled(pauses):
        program = opened()
        remove = partial(program.delete, "fsync", match="t0")
        run_lane(relocation_lane(program), pause=pause, meanwhile=remove)
        if pause % 2:
            program.checkpoint()
            program.checkpoint()
        program.disk.crash(pause, MODES[pause % len(MODES)])
        check(program, "power")


@pytest.mark.parametrize("name", ["doomed", "fsync"])
def test_a_topic_dropped_while_it_moves_leaves_upkeep_in_order(name: str) -> None:
    start = ready()
    start.disk.kill()
    first = Program(start.disk.clone(), wal_shards=1)
    first.checkpoint()
    pauses = run_lane(relocation_lane(first))
    for pause in sampled(pauses):
        program = Program(start.disk.clone(), start.book.copy(), wal_shards=1)
        program.book.note_safe()
        program.checkpoint()
        run_lane(relocation_lane(program), pause=pause, meanwhile=partial(program.drop, name))
        for _ in range(3):
            program.append("capped")
            assert program.checkpoint()
        program.maintain()
        assert program.engine.upkeep is not None
        assert not program.engine.upkeep.failures
        topic_id = {"fsync": FSYNC, "doomed": DOOMED}[name]
        for root in (DATA_DIR, COLD_DIR):
            assert not segment_files(program.disk, topic_id, root), f"files left, pause {pause}"
        program.disk.kill()
        check(program, "kill")


def test_tr08_hot_files_that_cannot_be_removed_go_later() -> None:
    program = ready()
    program.faults.fail("unlink", errno.EIO, path=f"{DATA_DIR}/topics/*", always=True)
    program.maintain()
    assert COLD in tiers(program)
    hot = segment_files(program.disk, FSYNC, DATA_DIR)
    for path in segment_files(program.disk, FSYNC, COLD_DIR):
        twin = DATA_DIR + path.removeprefix(COLD_DIR)
        assert twin in hot
        assert program.disk.peek(path) == program.disk.peek(twin)
    disk = program.disk.clone()
    disk.kill()
    check(program, "kill", disk=disk)
    program.faults.clear()
    program.maintain()
    gone = set(hot) - set(segment_files(program.disk, FSYNC, DATA_DIR))
    assert len(gone) >= len(segment_files(program.disk, FSYNC, COLD_DIR))
    program.disk.kill()
    check(program, "kill")


def unmount(disk: SimDisk) -> None:
    for path in disk.paths():
        if path.startswith(COLD_DIR):
            disk.unlink(path)


@pytest.mark.parametrize("in_snapshot", [False, True])
def test_tr09_without_its_cold_directory_a_store_is_refused(in_snapshot: bool) -> None:
    """Whether a snapshot lists the move or only the log."""
    program = moved()
    if in_snapshot:
        program.checkpoint()
    program.disk.kill()
    disk = program.disk.clone()
    assert refusal(disk, cold_dir=None) == "cold_missing"
    disk.put(f"{COLD_DIR}/.topics-cold", b"0" * 32 + b"\n")
    assert refusal(disk) == "cold_missing"
    unmount(disk)
    assert refusal(disk) == "cold_missing"
    for view_of, cold_dir in (disk, COLD_DIR), (program.disk, None):
        with pytest.raises(RefusedToOpen):
            open_view(view_of, DATA_DIR, opening(ManualClock(), cold_dir=cold_dir))
    check(program, "kill")


def test_tr11_removing_a_hot_copy_before_its_move_is_logged_is_noticed() -> None:
    """The watcher objects to a program that does so, and has no objection to this one."""
    disk = SimDisk()
    program = Program(disk, wal_shards=1)
    fill(program)
    settle_segments(program)
    program.close()
    watch = WatchFs(disk.mount(), data_dir=DATA_DIR, cold_dir=COLD_DIR)
    log = Log(open_engine(watch, DATA_DIR, opening(ManualClock(), wal_shards=1)))
    log.append("fsync", {"data": 1})
    log.checkpoint()
    log.checkpoint()
    removed_early: list[str] = []

    def hook(point: str) -> None:
        copied = segment_files(disk, FSYNC, COLD_DIR)
        hot = [DATA_DIR + path.removeprefix(COLD_DIR) for path in copied if "tmp" not in path]
        if point == "tier.verified" and hot and not removed_early:
            with pytest.raises(AssertionError, match="before its move"):
                watch.unlink(hot[0])
            removed_early.append(hot[0])
        if point == "tier.flipped":
            for path in disk.paths():
                if path.startswith(f"{COLD_DIR}/topics"):
                    watch.tier_flip_durable(DATA_DIR + path.removeprefix(COLD_DIR))

    with crashpoints.installed(hook):
        log.maintain()
    assert removed_early
    assert len(watch.violations) == 1, "only the one we made"


@pytest.mark.parametrize("point", ["drop.meta", "drop.data_unlinked"])
def test_tr12_a_cold_segment_that_died_goes_from_both_tiers(point: str) -> None:
    for nth in range(1, 7 if FULL else 4):
        program = moved()
        for path in segment_files(program.disk, FSYNC, COLD_DIR):
            program.disk.put(DATA_DIR + path.removeprefix(COLD_DIR), program.disk.peek(path))
        program.delete("fsync", before=13)
        mode = MODES[nth % len(MODES)]
        with stop_at(point, partial(program.disk.crash, nth, mode), nth=nth) as stop:
            for _ in range(3):
                program.append("fsync")
                program.checkpoint()
        assert stop.reached
        check(program, "power")
        again = Program(program.disk, program.book, wal_shards=1)
        for _ in range(3):
            again.append("fsync")
            assert again.checkpoint()
        left = segment_files(again.disk, FSYNC, DATA_DIR) + segment_files(
            again.disk, FSYNC, COLD_DIR
        )
        assert not [path for path in left if int(path.rsplit("-")[-1][:16]) < 13]


def test_a_drop_that_had_not_reached_the_cold_tier_is_finished_by_the_next_start() -> None:
    program = moved()
    program.drop("doomed")
    with stop_at("topic.renamed", program.disk.kill) as stop:
        program.maintain()
    assert stop.reached
    assert segment_files(program.disk, DOOMED, COLD_DIR)
    again = Program(program.disk, program.book, wal_shards=1)
    for _ in range(3):
        again.append("fsync")
        assert again.checkpoint()
    assert not segment_files(again.disk, DOOMED, COLD_DIR)
    assert not segment_files(again.disk, DOOMED, DATA_DIR)
    again.disk.kill()
    check(again, "kill")


def test_a_moved_segment_is_found_without_the_newest_snapshot() -> None:
    program = moved()
    append(program)
    program.checkpoint()
    program.disk.kill()
    program.disk.flip(snapshots(program.disk)[-1], 50)
    check(program, "kill")
