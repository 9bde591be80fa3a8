"""What the embedded log does beside the calls themselves: threads, and work that falls due."""

import threading
from collections import defaultdict
from pathlib import Path

import pytest

import topics
from topics.errors import Closed
from topics.testing import FaultFs, ManualClock, SimDisk

PATIENCE_S = 60.0
DATA = "/data"
WRITERS, WRITES = 8, 40


class TickingClock(ManualClock):
    """A clock by which every look takes a millisecond: a slice is over after a few of them."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic() + self.looks / 1000


def snapshots(disk: SimDisk) -> list[str]:
    return [path for path in disk.paths() if "/meta/snapshot." in path]


def test_there_is_no_thread_unless_asked_for_and_it_ends_with_the_log(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with topics.open(tmp_path / "alone") as log:
        log.append("t", {"data": 1})
        log.maintain()
        assert set(threading.enumerate()) <= before
    with topics.open(tmp_path / "helped", background=True) as log:
        (helper,) = set(threading.enumerate()) - before
        log.append("t", {"data": 1})
    assert not helper.is_alive()


def test_the_tail_of_a_quiet_log_is_synced_by_the_next_call() -> None:
    clock, fs = ManualClock(), FaultFs(SimDisk().mount())
    log = topics.open(DATA, fs=fs, clock=clock)
    log.append("t", {"data": 1})
    synced = fs.count("fdatasync")
    clock.advance(1000)
    assert fs.count("fdatasync") == synced
    log.topics()
    assert fs.count("fdatasync") == synced + 1
    log.close()


def test_the_tail_of_a_quiet_log_is_synced_without_a_call_when_a_thread_was_asked_for() -> None:
    clock, fs = ManualClock(), FaultFs(SimDisk().mount())
    with topics.open(DATA, fs=fs, clock=clock, background=True) as log:
        log.append("t", {"data": 1})
        sync = fs.fail("fdatasync", "stall")  # nobody syncs before time has passed
        clock.advance(1000)
        try:
            assert sync.reached.wait(PATIENCE_S), "nobody synced it"
        finally:
            sync.release()


def test_a_call_does_a_slice_of_what_is_due_and_the_next_one_goes_on() -> None:
    disk, clock = SimDisk(), TickingClock()
    log = topics.open(DATA, fs=disk.mount(), clock=clock, checkpoint_ms=60_000)
    for number in range(40):
        log.append(f"t{number}", [{"data": n} for n in range(10)])
    before, calls = snapshots(disk), 0
    clock.advance(60_000)
    while snapshots(disk) == before:
        log.topics()
        calls += 1
    assert calls > 3, "it was not done in one go"
    log.close()


def test_maintain_does_all_that_is_due_at_once() -> None:
    disk, clock = SimDisk(), TickingClock()
    log = topics.open(DATA, fs=disk.mount(), clock=clock, checkpoint_ms=60_000)
    for number in range(40):
        log.append(f"t{number}", [{"data": n} for n in range(10)])
    before = snapshots(disk)
    clock.advance(60_000)
    log.maintain()
    assert snapshots(disk) != before
    log.close()


def test_threads_share_a_log(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            for n in range(WRITES):
                log.append("t", [{"data": n}, {"data": n}], node=f"w{writer}")
                log.read("t", after=max(0, log.state("t").head_seq - 5))
        except BaseException as error:
            failures.append(error)

    with topics.open(tmp_path) as log:
        log.create("t", durability="memory")
        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        seen = defaultdict(list)
        seqs = []
        for record in log.follow("t", wait=PATIENCE_S):
            assert isinstance(record, topics.Record)
            seqs.append(record.seq)
            seen[record.node].append(record.data)
            if len(seqs) == WRITERS * WRITES * 2:
                break
        for thread in threads:
            thread.join()
    assert failures == []
    assert seqs == list(range(1, WRITERS * WRITES * 2 + 1))
    twice = [n for n in range(WRITES) for _ in range(2)]
    assert seen == {f"w{writer}": twice for writer in range(WRITERS)}


def test_closing_ends_a_wait_in_another_thread(tmp_path: Path) -> None:
    log = topics.open(tmp_path)
    log.create("t")
    outcome: list[object] = []

    def wait() -> None:
        try:
            outcome.append(list(log.follow("t", wait=None)))
        except Closed as error:
            outcome.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    log.close()
    waiter.join(PATIENCE_S)
    assert not waiter.is_alive()
    assert isinstance(outcome[0], Closed)


@pytest.mark.parametrize("call", ["append", "read", "topics", "sync", "maintain"])
def test_a_closed_log_says_so(tmp_path: Path, call: str) -> None:
    log = topics.open(tmp_path)
    log.append("t", {"data": 1})
    log.close()
    log.close()
    arguments = {"append": ("t", {"data": 2}), "read": ("t",)}.get(call, ())
    with pytest.raises(Closed, match="open it again"):
        getattr(log, call)(*arguments)
