"""`topics.open` on a disk and with a clock of this package: the way in for other people's tests."""

import pytest

import topics
from topics.errors import InvalidRequest
from topics.testing import ManualClock, SimDisk


def test_a_log_on_a_simulated_disk_survives_a_power_cut_as_its_classes_promise() -> None:
    disk, clock = SimDisk(), ManualClock()
    log = topics.open("/data", fs=disk.mount(), clock=clock)
    for durability in ("fsync", "disk"):
        log.create(durability, durability=durability)
        log.append(durability, {"data": 1})
    disk.crash(mode="none")
    with topics.open("/data", fs=disk.mount(), clock=clock) as log:
        assert [(record.ts, record.data) for record in log.read("fsync").records] == [
            (clock.now_ms(), 1)
        ]
        page = log.read("disk")
        assert page.records == []
        assert page.tombstone is not None


def test_a_view_of_a_simulated_disk_reads_beside_its_owner() -> None:
    disk = SimDisk()
    with topics.open("/data", fs=disk) as log:
        log.append("t", {"data": 1})
        with topics.open("/data", fs=disk, read_only=True) as view:
            assert [record.data for record in view.read("t").records] == [1]


def test_a_log_in_memory_has_no_use_for_a_disk() -> None:
    with pytest.raises(InvalidRequest, match="give a path"):
        topics.open(fs=SimDisk())
