"""The same idempotency key again after an end of the program, wherever the first write ended."""

from __future__ import annotations

from functools import partial

import pytest
from tests.crash.stores import CLASSES, opened

from topics.embedded import Log
from topics.testing import CrashMode, FaultFs, ManualClock, PowerOff, SimDisk
from topics.topic_settings import Durability
from topics.values import Record

MODES: list[CrashMode | None] = [None, "none", "prefix", "subset"]
"""How the program ends: by its own death, or with the machine's."""
BATCH = [{"data": number} for number in range(3)]


def values(log: Log) -> list[int]:
    events = log.follow("t", limit=1000, wait=0.0)
    return [event.data for event in events if isinstance(event, Record)]


def end(disk: SimDisk, mode: CrashMode | None, seed: int) -> None:
    if mode is None:
        disk.kill()
    else:
        disk.crash(seed, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("durability", CLASSES)
def test_cl08_st05_a_retry_is_known_if_its_write_survived_and_is_appended_once_if_not(
    durability: Durability, mode: CrashMode | None
) -> None:
    call = 0
    while True:
        call += 1
        disk, clock = SimDisk(), ManualClock()
        fs = FaultFs(disk.mount())
        log = opened(fs, clock=clock)
        log.create("t", durability=durability)
        fs.stop_before(len(fs.trace) + call, partial(end, disk, mode, call))
        try:
            first = log.append("t", BATCH, idempotency_key="k").first_seq
            acked = True
        except PowerOff:
            acked = False
        else:
            end(disk, mode, call)
        log = opened(disk.mount(), clock=clock)
        survived = values(log)
        assert survived in ([], [0, 1, 2]), "a write is whole or absent"
        again = log.append("t", BATCH, idempotency_key="k")
        assert again.deduped == bool(survived)
        if acked and (durability == "fsync" or (mode is None and durability != "ephemeral")):
            assert again.deduped
            assert again.first_seq == first
        assert values(log) == [0, 1, 2], "once, and only once"
        disk.kill()
        if durability != "ephemeral":
            assert values(opened(disk.mount(), clock=clock)) == [0, 1, 2]
        if acked:
            return


@pytest.mark.parametrize("mode", MODES)
def test_cl08_a_key_that_a_checkpoint_moved_is_still_known(mode: CrashMode | None) -> None:
    disk, clock = SimDisk(), ManualClock()
    log = opened(disk.mount(), clock=clock)
    log.create("t", durability="fsync")
    first = log.append("t", BATCH, idempotency_key="k")
    log.checkpoint()
    log.checkpoint()
    end(disk, mode, 1)
    log = opened(disk.mount(), clock=clock)
    again = log.append("t", BATCH, idempotency_key="k")
    assert (again.deduped, again.first_seq) == (True, first.first_seq)
    clock.advance(120_001)
    assert not log.append("t", BATCH, idempotency_key="k").deduped, "outside the window"
