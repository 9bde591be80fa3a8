"""`stop_at` ends a program at a named crash point."""

from functools import partial

import pytest

from topics.storage.crashpoints import crashpoint
from topics.testing import PowerOff, SimDisk, stop_at


def test_the_program_ends_at_the_nth_pass() -> None:
    passed: list[int] = []
    disk = SimDisk()
    boot_id = disk.boot_id()
    with stop_at("wal.after_write", disk.crash, nth=2) as stop:
        for turn in range(5):
            crashpoint("wal.after_sync")
            crashpoint("wal.after_write")
            passed.append(turn)
    assert passed == [0]
    assert stop.reached
    assert disk.boot_id() != boot_id


def test_a_block_that_never_comes_by_ends_normally() -> None:
    disk = SimDisk()
    with stop_at("snap.tmp", partial(disk.crash, 1, "none")) as stop:
        crashpoint("snap.synced")
    assert not stop.reached
    crashpoint("snap.tmp")


def test_no_crash_point_is_passed_once_the_power_is_off() -> None:
    with stop_at("snap.tmp", SimDisk().kill) as stop:
        with pytest.raises(PowerOff):
            crashpoint("snap.tmp")
        for name in ("snap.synced", "snap.renamed"):
            crashpoint(name)
            pytest.fail("a dead program went on")
    assert stop.reached


def test_an_end_from_elsewhere_is_not_hidden() -> None:
    disk = SimDisk()
    file = disk.open("/a", write=True, create=True)
    disk.kill()
    with pytest.raises(PowerOff), stop_at("snap.tmp", disk.kill):
        file.fsync()


def test_an_unknown_crash_point_is_refused() -> None:
    with (
        pytest.raises(ValueError, match="unknown crash point"),
        stop_at("snap.typo", SimDisk().kill),
    ):
        pass
