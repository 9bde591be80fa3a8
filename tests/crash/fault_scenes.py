"""What the programs of the fault tests do, how they end, and what may happen in between."""

from __future__ import annotations

import os
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any, get_args

import pytest
from tests.crash.fault_program import DATA_DIR, End, Program

from topics.engine.effects import Op, Pause, fulfil
from topics.engine.upkeep.relocation import relocate_old
from topics.errors import RefusedToOpen
from topics.testing import CrashMode, SimDisk

MODES: tuple[CrashMode, ...] = get_args(CrashMode)
CLASSES = ("fsync", "disk", "memory", "ephemeral")
FULL = os.environ.get("TOPICS_SWEEP") == "full"
SAMPLE = 10
"""How many places of a sweep are tried by default."""


def sampled(count: int) -> list[int]:
    """The places 1 to `count`, or a sample that keeps the first and the last."""
    if FULL or count <= SAMPLE:
        return list(range(1, count + 1))
    return sorted({1 + at * (count - 1) // (SAMPLE - 1) for at in range(SAMPLE)})


def fill(program: Program) -> None:
    """Topics of all classes with tags, caps, deletes and segments in both tiers."""
    for durability in CLASSES:
        program.create(durability, durability=durability)
    program.create("capped", durability="fsync", cap_records=5)
    program.create("doomed", durability="fsync")
    for number in range(4):
        for topic in (*CLASSES, "capped", "doomed"):
            program.append(topic, 3, tag=f"t{number % 2}")
    program.checkpoint()
    program.append("doomed", 2)
    program.append("fsync", 2, tag="t1")
    program.checkpoint()


def tail(program: Program) -> None:
    """Something the next checkpoint has to do."""
    program.delete("fsync", match="t0")
    program.append("capped", 2)


def filled(*, shards: int = 2, **settings: Any) -> Program:  # noqa: ANN401 - checked there
    """A program with two snapshots behind it and something to do for the next."""
    program = Program(SimDisk(), wal_shards=shards, **settings)
    fill(program)
    tail(program)
    return program


def settle_segments(program: Program) -> None:
    """Two snapshots know the segments as sealed, so that they may move."""
    program.append("fsync", 5)
    program.checkpoint()
    program.checkpoint()


def move_segments(program: Program) -> None:
    settle_segments(program)
    program.maintain()


def append(program: Program) -> None:
    for topic in CLASSES:
        program.append(topic, 3, tag="x")


def finish(disk: SimDisk, end: End, mode: CrashMode, seed: int) -> None:
    """The program on this disk ends, and with a power cut the machine too."""
    if end == "kill":
        disk.kill()
    else:
        disk.crash(seed, mode)


# Two things at a time


def checkpoint_lane(program: Program) -> Op[None]:
    assert program.engine.upkeep is not None
    return program.engine.upkeep.checkpoint()


def relocation_lane(program: Program) -> Op[None]:
    assert program.engine.upkeep is not None
    return relocate_old(program.engine.kernel, program.engine.upkeep._checkpointer.is_settled)


def run_lane(lane: Op[Any], *, pause: int = 0, meanwhile: Callable[[], object] = list) -> int:
    """Drive upkeep to its end; at the given pause something else happens. Returns the pauses."""
    pauses = 0
    try:
        wait = next(lane)
        while True:
            if isinstance(wait, Pause):
                pauses += 1
                if pauses == pause:
                    meanwhile()
            wait = fulfil(lane, wait)
    except StopIteration:
        return pauses


# Files


def snapshots(disk: SimDisk) -> list[str]:
    """The snapshot files, oldest first."""
    return sorted(path for path in disk.paths() if fnmatch(path, "*/meta/snapshot.*.bin"))


def log_files(disk: SimDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".log")]


def segment_files(disk: SimDisk, topic_id: int, root: str = DATA_DIR) -> list[str]:
    return [path for path in disk.paths() if path.startswith(f"{root}/topics/{topic_id:08X}")]


def refusal(disk: SimDisk, **settings: Any) -> str:  # noqa: ANN401 - EngineSettings checks them
    """Why the store is not opened; a refusal leaves every file but the lock as it was."""
    before = disk.contents()
    with pytest.raises(RefusedToOpen) as refused:
        Program(disk, **settings)
    after = disk.contents()
    lock = f"{DATA_DIR}/.topics.lock"
    assert {p: d for p, d in after.items() if p != lock} == {
        p: d for p, d in before.items() if p != lock
    }
    return refused.value.reason
