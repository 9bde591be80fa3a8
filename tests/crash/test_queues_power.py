"""Queues through deaths and power cuts: leases, acks, dead letters, redrive."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.crash.stores import opened

from topics.embedded import Log
from topics.errors import TopicsError
from topics.storage.fs import Fs
from topics.testing import CrashMode, FaultFs, ManualClock, PowerOff, SimDisk, stop_at
from topics.values import Record

MODES: list[CrashMode | None] = [None, "none", "prefix", "subset"]
"""How the program ends: by its own death, or with the machine's."""


def end(disk: SimDisk, mode: CrashMode | None, seed: int = 0) -> None:
    if mode is None:
        disk.kill()
    else:
        disk.crash(seed, mode)


def values(log: Log, name: str) -> list[int]:
    events = log.follow(name, limit=1000, wait=0.0)
    return [event.data for event in events if isinstance(event, Record)]


def with_queue(fs: Fs, clock: ManualClock, **config: Any) -> Log:  # noqa: ANN401
    log = opened(fs, clock=clock)
    log.create("jobs", type="queue", **{"durability": "fsync", **config})
    return log


@pytest.mark.parametrize("mode", MODES)
def test_cl09_a_durable_lease_in_a_checkpoint_has_the_same_holder_deadline_and_count(
    mode: CrashMode | None,
) -> None:
    disk, clock = SimDisk(), ManualClock()
    log = with_queue(disk.mount(), clock, leases_durable=True)
    log.append("jobs", [{"data": n} for n in range(3)])
    (job,) = log.queue("jobs", node="a").claim(lease_ms=5000)
    log.checkpoint()
    end(disk, mode)
    log = opened(disk.mount(), clock=clock)
    assert log.queue("jobs").stats().in_flight == 1
    assert [found.seq for found in log.queue("jobs", node="b").claim(3)] == [2, 3]
    clock.advance(5000)
    assert log.queue("jobs", node="a").nack([job]).nacked == 1
    (again,) = log.queue("jobs", node="b").claim()
    assert (again.seq, again.deliveries) == (1, 2)


@pytest.mark.parametrize("mode", MODES)
def test_cl10_without_durable_leases_everything_unacked_is_claimable(
    mode: CrashMode | None,
) -> None:
    disk, clock = SimDisk(), ManualClock()
    log = with_queue(disk.mount(), clock)
    log.append("jobs", [{"data": n} for n in range(4)])
    queue = log.queue("jobs")
    queue.ack(queue.claim(2)[:1])
    end(disk, mode)
    queue = opened(disk.mount(), clock=clock).queue("jobs")
    assert [job.data for job in queue.claim(9)] == [1, 2, 3]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("leases_durable", [False, True])
def test_an_ack_is_whole_or_not_at_all_wherever_the_program_ends(
    mode: CrashMode | None, leases_durable: bool
) -> None:
    call = 0
    while True:
        call += 1
        disk, clock = SimDisk(), ManualClock()
        fs = FaultFs(disk.mount())
        log = with_queue(fs, clock, leases_durable=leases_durable)
        log.append("jobs", [{"data": n} for n in range(4)])
        jobs = log.queue("jobs").claim(3)
        fs.stop_before(len(fs.trace) + call, partial(end, disk, mode, call))
        expected = [[3]]
        try:
            log.queue("jobs").ack(jobs)
        except PowerOff:
            expected.append([0, 1, 2, 3])
        else:
            end(disk, mode)
        log = opened(disk.mount(), clock=clock)
        assert values(log, "jobs") in expected
        clock.advance(30_001)
        assert [job.data for job in log.queue("jobs").claim(9)] == values(log, "jobs")
        if len(expected) == 1:
            return


@pytest.mark.parametrize("point", ["wal.after_write", "wal.after_sync", "del.commit"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("mode", [None, "none"])
def test_cl12_a_dead_letter_is_in_one_topic_or_both(
    point: str, nth: int, mode: CrashMode | None
) -> None:
    disk, clock = SimDisk(), ManualClock()
    log = with_queue(
        disk.mount(), clock, max_deliveries=1, dead_letter="letters", leases_durable=True
    )
    log.create("letters", durability="fsync")
    log.append("jobs", [{"data": n} for n in range(3)])
    log.queue("jobs").claim(3, lease_ms=100)
    clock.advance(101)
    with stop_at(point, partial(end, disk, mode), nth=nth) as stop:
        log.queue("jobs").claim()
    if not stop.reached:
        end(disk, mode)
    log = opened(disk.mount(), clock=clock)
    assert set(values(log, "jobs")) | set(values(log, "letters")) == {0, 1, 2}
    queue = log.queue("jobs")
    while (jobs := queue.claim(9, lease_ms=100)) or values(log, "jobs"):
        # Counts that were lost with the power allow one more delivery.
        assert all(job.deliveries == 1 for job in jobs)
        clock.advance(101)
    assert set(values(log, "letters")) == {0, 1, 2}


@pytest.mark.parametrize("point", ["wal.after_write", "wal.after_sync", "del.commit"])
@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("mode", [None, "none"])
def test_cl20_a_redriven_letter_is_in_one_topic_or_both(
    point: str, nth: int, mode: CrashMode | None
) -> None:
    disk, clock = SimDisk(), ManualClock()
    log = with_queue(disk.mount(), clock, max_deliveries=1, dead_letter="letters")
    log.create("letters", durability="fsync")
    log.append("jobs", [{"data": n} for n in range(3)])
    log.queue("jobs").claim(3, lease_ms=100)
    clock.advance(101)
    log.queue("jobs").claim()
    assert values(log, "letters") == [0, 1, 2]
    with stop_at(point, partial(end, disk, mode), nth=nth):
        log.queue("jobs").redrive()
    end(disk, mode)
    log = opened(disk.mount(), clock=clock)
    assert set(values(log, "jobs")) | set(values(log, "letters")) == {0, 1, 2}


@pytest.mark.parametrize("point", ["wal.after_write", "del.commit"])
@pytest.mark.parametrize("nth", range(1, 6))
def test_cl18_acks_between_appends_on_a_capped_queue_leave_every_other_job(
    point: str, nth: int
) -> None:
    disk, clock = SimDisk(), ManualClock()
    log = with_queue(disk.mount(), clock, durability="disk", cap_records=3)
    log.append("jobs", [{"data": n} for n in range(3)])
    queue = log.queue("jobs")
    jobs = queue.claim(3)
    acked: set[int] = set()
    written = {0, 1, 2}
    with stop_at(point, disk.kill, nth=nth):
        for number, job in enumerate(jobs, 3):
            queue.ack([job])
            acked.add(job.data)
            log.append("jobs", {"data": number})
            written.add(number)
    disk.kill()
    found = set(values(opened(disk.mount(), clock=clock), "jobs"))
    assert not acked & found
    assert len(written - acked - found) <= 1, "at most the ack that was under way"


@pytest.mark.parametrize("mode", MODES)
def test_a_lease_that_was_seen_to_end_is_not_revived_by_a_clock_set_back(
    mode: CrashMode | None,
) -> None:
    disk, clock = SimDisk(), ManualClock()
    log = with_queue(disk.mount(), clock, leases_durable=True)
    log.append("jobs", {"data": 0})
    (job,) = log.queue("jobs", node="a").claim(lease_ms=1000)
    clock.advance(1001)
    assert log.state("jobs").to_dict()["queue"]["in_flight"] == 0
    log.sync()
    clock.set(clock.now_ms() - 60_000)
    end(disk, mode)
    log = opened(disk.mount(), clock=clock)
    assert log.queue("jobs", node="a").ack([job]).skipped == [1]
    assert len(log.queue("jobs", node="b").claim()) == 1


def test_cl11_a_queue_on_a_log_that_fails_gives_its_jobs_back_and_goes_on_after_a_restart() -> None:
    disk, clock = SimDisk(), ManualClock()
    fs = FaultFs(disk.mount())
    log = with_queue(fs, clock)
    log.append("jobs", [{"data": n} for n in range(3)])
    jobs = log.queue("jobs").claim(2)
    fs.fail("fdatasync", 5)
    with pytest.raises(TopicsError):
        log.queue("jobs").ack(jobs)
    assert (log.queue("jobs").stats().ready, log.queue("jobs").stats().in_flight) == (3, 0)
    disk.crash(mode="none")
    queue = opened(disk.mount(), clock=clock).queue("jobs")
    assert queue.ack(queue.claim(9)).acked == 3
