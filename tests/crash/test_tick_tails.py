"""Records of a `disk` topic that the tick has synced: no second power cut may take them."""

from __future__ import annotations

from functools import partial

import pytest
from tests.crash.stores import opened
from tests.crash.test_retries import values

from topics.errors import RefusedToOpen
from topics.testing import CrashMode, FaultFs, ManualClock, PowerOff, SimDisk

MODES: list[CrashMode] = ["none", "prefix", "subset", "zero", "garble"]


def synced_by_the_tick() -> tuple[SimDisk, ManualClock]:
    """Six records that no proof in the log calls durable, though they are."""
    disk, clock = SimDisk(), ManualClock()
    log = opened(disk.mount(), clock=clock)
    log.create("t", durability="disk")
    log.append("t", [{"data": n} for n in range(6)])
    clock.advance(50)
    log._engine.tick()
    disk.crash(mode="none")
    return disk, clock


def test_the_tick_made_them_durable() -> None:
    disk, clock = synced_by_the_tick()
    assert values(opened(disk.mount(), clock=clock)) == list(range(6))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_rc17_a_power_cut_while_recovering_takes_nothing_that_was_synced(
    mode: CrashMode, seed: int
) -> None:
    call = 0
    while True:
        call += 1
        disk, clock = synced_by_the_tick()
        fs = FaultFs(disk.mount())
        fs.stop_before(call, partial(disk.crash, seed, mode))
        try:
            opened(fs, clock=clock)
        except PowerOff:
            assert values(opened(disk.mount(), clock=clock)) == list(range(6)), f"call {call}"
        else:
            return


def test_rc18_without_room_for_a_copy_the_tail_is_written_back_in_place() -> None:
    disk, clock = synced_by_the_tick()
    before = disk.used
    with opened(disk.clone().mount(), clock=clock) as log:
        assert values(log) == list(range(6))
    # Room for the next log file only, or for nothing: it starts, or says why, and loses nothing.
    for spare in (0, 1 << 20, 3 << 20):
        twin = disk.clone()
        twin.capacity = before + spare
        try:
            opened(twin.mount(), clock=clock)
        except RefusedToOpen as refused:
            assert "No space left" in str(refused)  # noqa: PT017 - either outcome is right
        twin.capacity = None
        twin.crash(mode="none")
        assert values(opened(twin.mount(), clock=clock)) == list(range(6))
