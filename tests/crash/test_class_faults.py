"""What each durability class keeps, and deletes, floors, clocks and configurations through it."""

from __future__ import annotations

import errno
from functools import partial
from itertools import pairwise, product
from typing import get_args

import pytest
from tests.crash.fault_oracle import check, dump
from tests.crash.fault_program import End, Program
from tests.crash.fault_scenes import (
    CLASSES,
    FULL,
    MODES,
    append,
    fill,
    finish,
    snapshots,
)

from topics.engine.reads.history import SegmentHistory
from topics.testing import CrashMode, ManualClock, SimDisk, stop_at

pytestmark = pytest.mark.usefixtures("small")

ENDS: list[End] = list(get_args(End))


def fresh(topic: str, **config: object) -> Program:
    program = Program(SimDisk(), wal_shards=1)
    program.create(topic, **config)
    return program


# What a class keeps


def test_cl01_a_disk_topic_announces_what_a_power_cut_took() -> None:
    program = fresh("disk", durability="disk")
    program.append("disk", 3)
    program.sync()
    for _ in range(6):
        program.append("disk", 3)
    ceiling = program.engine.kernel.catalog.by_name["disk"].reserved
    program.disk.crash(mode="none")
    found = check(program, "power")["disk"]
    last = max(found.records)
    assert last >= 3
    assert [(gap.gap_from, gap.gap_to) for gap in found.tombstones] == [(last + 1, ceiling)]
    assert found.tombstones[0].reason == "cap"


def test_cl02_a_disk_topic_keeps_everything_when_only_the_process_dies() -> None:
    program = fresh("disk", durability="disk")
    for _ in range(7):
        program.append("disk", 3)
    program.disk.kill()
    found = check(program, "kill")["disk"]
    assert len(found.records) == 21
    assert found.tombstones == []
    assert found.audit["skipped"] > 0, "seqs above are skipped without a word"


def test_cl03_nothing_is_written_above_a_ceiling_that_could_not_be_raised() -> None:
    program = fresh("disk", durability="disk")
    topic = program.engine.kernel.catalog.by_name["disk"]
    program.append("disk", topic.reserved)
    program.faults.fail("fdatasync", errno.EIO, path="*.log")
    assert not program.append("disk")
    assert topic.head == topic.handed_out == topic.reserved
    assert len(program.read_all()["disk"].records) == topic.head
    for end, mode in product(ENDS, MODES):
        disk = program.disk.clone()
        finish(disk, end, mode, 1)
        check(program, end, disk=disk)


@pytest.mark.parametrize("end", ENDS)
def test_cl04_an_ephemeral_topic_comes_back_empty_and_tells_old_readers(end: End) -> None:
    program = fresh("ephemeral", durability="ephemeral")
    for _ in range(5):
        program.append("ephemeral", 4)
    finish(program.disk, end, "none", 0)
    found = check(program, end)["ephemeral"]
    assert not found.records
    again = Program(program.disk, wal_shards=1)
    page = again.log.read("ephemeral", after=7)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.reason) == (8, "cap")
    assert page.head_seq >= 20


@pytest.mark.parametrize("mode", MODES)
def test_cl05_a_memory_topic_keeps_a_prefix_of_what_was_written(mode: CrashMode) -> None:
    for seed in range(20 if FULL else 5):
        program = fresh("memory", durability="memory", cap_records=20)
        for _ in range(9):
            program.append("memory", 4)
        program.disk.crash(seed, mode)
        check(program, "power")


@pytest.mark.parametrize("durability", CLASSES)
def test_cl06_a_clean_stop_skips_nothing(durability: str) -> None:
    program = fresh("t", durability=durability)
    program.append("t", 7)
    program.close()
    for _ in range(3):
        again = Program(program.disk, wal_shards=1)
        shown = dump(again)["t"].audit
        assert (shown["head_seq"], shown["skipped"]) == (7, 0)
        again.close()
    check(program, "kill")


@pytest.mark.parametrize("end", ENDS)
def test_cl07_a_topic_may_change_its_class_between_crashes(end: End) -> None:
    disk, book = SimDisk(), None
    for number, durability in enumerate(
        ["ephemeral", "fsync", "disk", "ephemeral", "disk", "fsync"]
    ):
        program = Program(disk, book, wal_shards=1)
        book = program.book
        program.create("t", durability=durability)
        program.append("t", 5)
        program.append("t", 5)
        finish(disk, end, MODES[number % len(MODES)], number)
        found = check(program, end)
        book.rebase(found)


@pytest.mark.parametrize("point", ["wal.after_write", "wal.after_sync"])
def test_cl24_a_change_of_class_that_is_cut_off_is_done_or_not(point: str) -> None:
    row = ["disk", "ephemeral", "fsync", "ephemeral", "memory", "disk", "fsync"]
    for number, (before, after) in enumerate(pairwise(row)):
        for end, mode in [("kill", "all"), *product(["power"], MODES)]:
            program = fresh("t", durability=before)
            program.append("t", 6)
            stop = partial(finish, program.disk, end, mode, number)  # type: ignore[arg-type]
            with stop_at(point, stop) as stopped:
                program.create("t", durability=after)
            assert stopped.reached
            check(program, end)  # type: ignore[arg-type]  # both are ends


@pytest.mark.parametrize("mode", MODES)
def test_cl17_a_capped_topic_keeps_its_floor_and_announces_the_rest(mode: CrashMode) -> None:
    for seed in range(20 if FULL else 6):
        program = fresh("t", durability="disk", cap_records=5)
        for number in range(10):
            program.append("t", 3)
            if number == 4:
                program.sync()
        program.disk.crash(seed, mode)
        found = check(program, "power")["t"]
        covered = {seq for gap in found.tombstones for seq in range(gap.gap_from, gap.gap_to + 1)}
        assert covered | found.records.keys() == set(range(1, found.audit["head_seq"] + 1))


def test_cl21_seqs_of_a_write_that_a_full_disk_refused_go_to_the_next() -> None:
    program = fresh("t", durability="disk")
    refused = 0
    for _ in range(30):
        program.append("t", 2)
        program.disk.capacity = program.disk.used
        refused += not program.append("t", 9)
        program.disk.capacity = None
        program.clock.advance(1100)
    assert refused
    assert program.append("t")
    found = dump(program)["t"]
    assert len(found.records) == found.audit["head_seq"], "no seq was burnt"
    program.disk.kill()
    again = check(program, "kill")["t"]
    assert again.records == found.records


def test_cl23_a_clean_stop_is_known_without_the_newest_snapshot() -> None:
    program = Program(SimDisk())
    fill(program)
    append(program)
    program.close()
    expected = dump(Program(program.disk.clone()))
    program.disk.flip(snapshots(program.disk)[-1], 60)
    found = dump(Program(program.disk.clone()))
    for topic, shown in found.items():
        assert shown.state["head_seq"] == expected[topic].state["head_seq"]
        assert shown.tombstones == expected[topic].tombstones
        assert shown.audit["skipped"] == 0
    check(program, "kill")


# Clocks


def with_ttl(**settings: int) -> tuple[Program, ManualClock]:
    clock = ManualClock()
    program = Program(SimDisk(), clock=clock, **settings)  # type: ignore[arg-type]
    program.create("t", durability="fsync", ttl_ms=1000)
    for _ in range(6):
        program.append("t", 2)
        clock.advance(300)
    return program, clock


def test_cl14_a_clock_that_steps_back_over_a_restart_revives_nothing() -> None:
    program, clock = with_ttl()
    before = program.read_all()["t"]
    assert before.tombstones
    clock.set(clock.now_ms() - 3_600_000)
    program.disk.kill()
    found = check(program, "kill")["t"]
    assert found.records == before.records
    again = Program(program.disk, program.book, clock=clock)
    again.append("t")
    times = [record.ts for record in again.read_all()["t"].records.values()]
    assert times == sorted(times)


def test_cl15_a_clock_that_jumps_forward_only_raises_floors() -> None:
    program, clock = with_ttl()
    before = program.read_all()["t"]
    program.disk.kill()
    clock.set(clock.now_ms() + 500)
    found = check(program, "kill")["t"]
    assert found.records.keys() < before.records.keys()
    assert found.audit["evict_floor"] > before.audit["evict_floor"]


def test_cl16_a_jump_that_ages_a_segment_during_a_restart_loses_nothing() -> None:
    clock = ManualClock()
    program = Program(SimDisk(), clock=clock, wal_shards=1, segment_max_age_ms=1000)
    fill(program)
    append(program)
    before = dump(program)
    program.disk.kill()
    clock.set(clock.now_ms() + 3_600_000)
    again = Program(program.disk, program.book, clock=clock, wal_shards=1, segment_max_age_ms=1000)
    again.append("fsync", 2)
    assert again.checkpoint()
    history = again.engine.kernel.catalog.by_name["fsync"].history
    assert isinstance(history, SegmentHistory)
    parts = [(part.first, part.last) for part in history.parts]
    assert all(after[0] == one[1] + 1 for one, after in pairwise(parts)), "dense"
    found = dump(again)["fsync"]
    assert before["fsync"].records.items() <= found.records.items()
    again.disk.kill()
    check(again, "kill")
