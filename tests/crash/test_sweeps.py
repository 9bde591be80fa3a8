"""Every file call of every kind of work: failed once, failed from then on, or cut off by a crash.

Each scenario runs once to count its calls, then again and again with one more call spoilt. After
an error the program lives on for a while and then dies too. By default a sample of the calls is
tried; `TOPICS_SWEEP=full` tries all of them, with every error and every way to lose power.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import TypeVar, get_args

import pytest
from tests.crash.fault_oracle import Oracle, check
from tests.crash.fault_program import Book, End, Program
from tests.crash.fault_scenes import (
    CLASSES,
    FULL,
    MODES,
    append,
    fill,
    finish,
    move_segments,
    sampled,
    settle_segments,
    tail,
)

from topics.errors import RefusedToOpen
from topics.testing import CrashMode, FaultFs, ManualClock, PowerOff, SimDisk

ERRORS = (errno.EIO, errno.ENOSPC)
FAULTS: list[tuple[int, bool, End]] = list(product(ERRORS, (False, True), get_args(End)))
ENDS: list[tuple[End, CrashMode]] = [*(("power", mode) for mode in MODES), ("kill", "all")]


pytestmark = pytest.mark.usefixtures("small")


@dataclass
class Prepared:
    """A disk and what was done to it, ready to be copied."""

    disk: SimDisk
    book: Book
    shards: int

    def open(self, disk: SimDisk, arm: Callable[[FaultFs], object] = lambda fs: None) -> Program:
        clock = ManualClock()
        clock.advance(1000)
        return Program(disk, self.book.copy(), clock=clock, arm=arm, wal_shards=self.shards)


Work = Callable[[Program], None]
T = TypeVar("T")


def prepared_for(name: str, shards: int) -> Prepared:
    disk = SimDisk()
    program = Program(disk, wal_shards=shards)
    fill(program)
    PREPARATIONS.get(name, tail)(program)
    if name == "recovery":
        disk.kill()
    else:
        program.close()
        disk.settle()
    program.watch.check()
    return Prepared(disk, program.book, shards)


def leave_open_ends(program: Program) -> None:
    """What a killed program leaves: an un-synced tail, deletes, a drop, a changed topic."""
    move_segments(program)
    program.delete("fsync", match="t1")
    program.delete("disk", before=4)
    for topic in CLASSES:
        program.append(topic, 2, tag="t5")
    program.create("capped", durability="fsync", cap_records=3)
    program.create("new", durability="disk")
    program.append("new", 6)
    program.drop("doomed")


PREPARATIONS: dict[str, Work] = {
    "relocation": settle_segments,
    "delete": move_segments,
    "segment drop": move_segments,
    "topic drop": move_segments,
    "recovery": leave_open_ends,
}


def rotate(program: Program) -> None:
    def rotations() -> int:
        stats = program.engine.kernel.committer.stats
        return sum(stats(shard).rotations for shard in range(program.settings["wal_shards"]))

    before = rotations()
    for _ in range(20):
        append(program)
        if rotations() > before:
            return


def checkpoint(program: Program) -> None:
    append(program)
    program.checkpoint()


def relocate(program: Program) -> None:
    program.maintain()


def delete(program: Program) -> None:
    """A delete, and the bytes it flips in segments of both tiers."""
    program.delete("fsync", match="t1")
    program.delete("disk", before=6)
    program.checkpoint()


def drop_segments(program: Program) -> None:
    """Whole segments die; their files go once two snapshots say so."""
    program.delete("fsync", before=9)
    program.delete("memory", match="t0")
    for _ in range(3):
        program.append("fsync")
        program.checkpoint()


def drop_topic(program: Program) -> None:
    """A topic with segments in both tiers goes, its name is used again, its files go."""
    program.drop("doomed")
    if "doomed" not in program.engine.kernel.catalog.by_name:
        program.create("doomed", durability="disk")
        program.append("doomed", 2)
    for _ in range(3):
        program.append("fsync")
        program.checkpoint()


def configure(program: Program) -> None:
    """Every class becomes another, caps come and go."""
    for topic, durability in zip(CLASSES, (*CLASSES[1:], CLASSES[0]), strict=True):
        program.create(topic, durability=durability)
        program.append(topic, 2)
    program.create("capped", durability="fsync", cap_records=2)
    program.create("capped", durability="fsync", cap_records=50)
    program.append("capped", 3)


def stop(program: Program) -> None:
    append(program)
    program.close()


WORK: dict[str, Work] = {
    "append": append,
    "rotation": rotate,
    "checkpoint": checkpoint,
    "relocation": relocate,
    "delete": delete,
    "segment drop": drop_segments,
    "topic drop": drop_topic,
    "configuration": configure,
    "stop": stop,
}
SHARDS = {"append": 3, "relocation": 1, "segment drop": 1, "stop": 3}


@cache
def prepared(name: str) -> Prepared:
    return prepared_for(name, SHARDS.get(name, 2))


def chosen(number: int, options: list[T]) -> list[T]:
    """All options, or by default another one for each call."""
    return options if FULL else [options[number * 5 % len(options)]]


def count_calls(name: str) -> int:
    start = prepared(name)
    program = start.open(start.disk.clone())
    before = len(program.faults.trace)
    WORK[name](program)
    program.watch.check()
    return len(program.faults.trace) - before


def live_on(program: Program) -> None:
    """After an error: everything can be read, writes are taken or refused, no seq is lost."""
    program.faults.clear()
    if program.is_closed:
        return
    program.read_all()
    for topic in list(program.engine.kernel.catalog.by_name):
        program.append(topic, 2)
    program.read_all()


@pytest.mark.parametrize("name", WORK)
def test_sw01_an_error_at_any_file_call_costs_nothing_acked(name: str) -> None:
    start = prepared(name)
    for number, call in enumerate(sampled(count_calls(name))):
        for error, always, end in chosen(number, FAULTS):
            program = start.open(start.disk.clone())
            program.faults.fail("*", error, nth=call, always=always)
            mode = MODES[call % len(MODES)]
            try:
                WORK[name](program)
                live_on(program)
                finish(program.disk, end, mode, call)
                check(program, end)
            except Exception as problem:
                problem.add_note(f"{name}: call {call} fails with {error}, {always=}, {end} {mode}")
                raise


@pytest.mark.parametrize("name", WORK)
def test_sw01_a_crash_at_any_file_call_costs_nothing_acked(name: str) -> None:
    start = prepared(name)
    for number, call in enumerate(sampled(count_calls(name))):
        for end, mode in chosen(number, ENDS):
            disk = start.disk.clone()
            program = start.open(disk)
            stop = partial(finish, disk, end, mode, call)
            program.faults.stop_before(len(program.faults.trace) + call, stop)
            try:
                with pytest.raises(PowerOff):
                    WORK[name](program)
                check(program, end)
            except Exception as problem:
                problem.add_note(f"{name}: cut before call {call}, {end} {mode}")
                raise


def calls_of_recovery() -> int:
    start = prepared("recovery")
    return len(start.open(start.disk.clone()).faults.trace)


def failed_recovery(disk: SimDisk, arm: Callable[[FaultFs], object]) -> Book:
    """Recover with a fault in the way, and live on if it came to that; what must be there then."""
    start = prepared("recovery")
    try:
        program = start.open(disk, arm)
    except RefusedToOpen:
        return start.book
    program.book.note_safe()  # no power cut takes what a recovery has shown
    live_on(program)
    program.watch.check()
    return program.book


def judged(disk: SimDisk, book: Book, end: End) -> None:
    shards = prepared("recovery").shards
    Oracle(book, end, ManualClock(), {"wal_shards": shards}).check(disk)


def test_sw01_an_error_at_any_file_call_of_a_recovery_is_a_refusal_at_most() -> None:
    for number, call in enumerate(sampled(calls_of_recovery())):
        for error, always, end in chosen(number, FAULTS):
            disk = prepared("recovery").disk.clone()
            mode = MODES[call % len(MODES)]
            arm = partial(FaultFs.fail, op="*", fault=error, nth=call, always=always)
            try:
                book = failed_recovery(disk, arm)
                finish(disk, end, mode, call)
                judged(disk, book, end)
            except Exception as problem:
                problem.add_note(
                    f"recovery: call {call} fails with {error}, {always=}, {end} {mode}"
                )
                raise


def test_sw01_a_crash_at_any_file_call_of_a_recovery_changes_nothing() -> None:
    start = prepared("recovery")
    for number, call in enumerate(sampled(calls_of_recovery())):
        for end, mode in chosen(number, ENDS):
            disk = start.disk.clone()
            stop = partial(finish, disk, end, mode, call)
            try:
                with pytest.raises(PowerOff):
                    start.open(disk, partial(FaultFs.stop_before, call=call, stop=stop))
                judged(disk, start.book, end)
            except Exception as problem:
                problem.add_note(f"recovery: cut before call {call}, {end} {mode}")
                raise
