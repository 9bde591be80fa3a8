"""Commit in groups: order, shared syncs, failures and the end, without a submission left open."""

from __future__ import annotations

import errno
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from unittest import mock

import msgspec
import pytest
from tests.unit.storage.wal.builders import (
    FIRST_FILE,
    LARGE,
    SETTINGS,
    SMALL,
    TOPIC,
    Log,
)

from topics.errors import Internal, LogFailed, LogFull
from topics.storage import crashpoints, layout
from topics.storage.wal import grouped
from topics.storage.wal.grouped import GroupedCommitter
from topics.storage.wal.settings import WalSettings
from topics.storage.wal.shard import ShardState
from topics.storage.wal.submission import Submission
from topics.testing import SimDisk

WAL_FILES = "*.log"


class Owner:
    """The thread that owns the topics: submits, then answers what comes back."""

    def __init__(
        self,
        disk: SimDisk,
        *,
        shards: int = 1,
        settings: WalSettings = SETTINGS,
        at_once: bool = False,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.log = Log(disk, shards=shards, settings=settings)
        for shard in self.log.shards:
            shard.clock = clock or brisk()
        self.inbox: queue.SimpleQueue[list[Submission]] = queue.SimpleQueue()
        self.committer = GroupedCommitter(
            self.log.shards, settings, self.inbox.put, at_once=at_once
        )
        self.order: list[Submission] = []

    def submit(
        self, data: bytes, *, durable: bool = True, topic: int = TOPIC, shard: int | None = None
    ) -> Submission:
        submission = self.log.submission(data, durable=durable, topic=topic)
        if shard is not None:
            submission.shard = shard
        answer = submission.on_done

        def done(settled: Submission) -> None:
            self.order.append(settled)
            answer(settled)

        submission.on_done = done
        self.committer.submit(submission)
        return submission

    def settle(self, *submissions: Submission) -> None:
        """Answer deliveries until these are done."""
        while not all(submission.done for submission in submissions):
            self.committer.finish(self.inbox.get(timeout=30))

    def settle_rest(self) -> None:
        while not self.inbox.empty():
            self.committer.finish(self.inbox.get())

    def append(self, data: bytes, *, durable: bool = True) -> Submission:
        submission = self.submit(data, durable=durable)
        self.settle(submission)
        return submission


def brisk() -> Callable[[], int]:
    """A clock by which no write is slow, no tail gets old and nobody is idle for long, however busy
    the machine is."""
    return itertools.count(1, 1000).__next__


@contextmanager
def running(disk: SimDisk, **options: object) -> Iterator[Owner]:
    owner = Owner(disk, **options)  # type: ignore[arg-type]  # passed on as they are
    # The thread takes its turn for moments only, but a busy machine may stop it in one of them.
    with mock.patch.object(grouped, "_LOCK_WAIT_S", 60.0):
        try:
            yield owner
        finally:
            owner.log.faults.clear()
            with suppress(Internal):
                owner.committer.close()
            owner.settle_rest()


@contextmanager
def busy_file(owner: Owner) -> Iterator[None]:
    """Somebody else writes all the time, and the owner does not wait for them."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with owner.log.shard.write_lock:
            held.set()
            over.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(60)
    try:
        with mock.patch.object(grouped, "_LOCK_WAIT_S", 0.001):
            yield
    finally:
        over.set()
        other.join()


@contextmanager
def stalled(owner: Owner, path: str = WAL_FILES) -> Iterator[Submission]:
    """Hold the shard's thread inside a sync while the block queues up work behind it."""
    rule = owner.log.faults.fail("fdatasync", "stall", path=path)
    held = owner.submit(b"0")
    assert rule.reached.wait(30)
    try:
        yield held
    finally:
        rule.release()


def test_a_lone_durable_write_costs_one_write_and_one_sync() -> None:
    with running(SimDisk()) as owner:
        calls = len(owner.log.faults.trace)
        submission = owner.append(b"1")
        assert submission.error is None
        ops = [call.op for call in owner.log.faults.trace[calls:]]
        assert ops[:2] == ["pwrite", "fdatasync"]
        assert submission.synced_ns > 0


def test_what_queues_up_behind_a_sync_shares_the_next_one() -> None:
    with running(SimDisk()) as owner:
        with stalled(owner) as held:
            waiting = [owner.submit(b"%d" % number) for number in range(20)]
        owner.settle(held, *waiting)
        assert owner.order == [held, *waiting]
        assert owner.committer.stats(0).syncs == 2
        assert owner.committer.stats(0).batches == 2
        assert owner.committer.in_flight(0) == 0
        lfns = [submission.last_lfn for submission in owner.order]
        assert lfns == sorted(set(lfns))


def test_a_batch_keeps_to_its_bounds_while_it_waits_for_more() -> None:
    settings = msgspec.structs.replace(SETTINGS, batch_submissions=5)
    with running(SimDisk(), settings=settings) as owner:
        with stalled(owner) as held:
            waiting = [owner.submit(b"%d" % number) for number in range(20)]
        owner.settle(held, *waiting)
        assert owner.committer.stats(0).batches == 1 + 4


def test_the_queue_counts_what_waits_and_what_was_taken() -> None:
    with running(SimDisk()) as owner:
        with stalled(owner) as held:
            waiting = [owner.submit(b"%d" % number) for number in range(3)]
            assert (owner.committer.queued(0), owner.committer.taken(0)) == (3, 1)
        owner.settle(held, *waiting)
        assert (owner.committer.queued(0), owner.committer.taken(0)) == (0, 4)


def test_buffered_writes_are_answered_without_a_sync() -> None:
    settings = WalSettings(disk_sync_ms=60_000, cache_bytes=0)
    with running(SimDisk(), settings=settings) as owner:
        for _ in range(5):
            assert owner.append(b"1", durable=False).error is None
        assert owner.committer.stats(0).syncs == 0


def test_ws12_an_idle_tail_is_synced_by_the_thread_itself() -> None:
    disk = SimDisk()
    settings = WalSettings(disk_sync_ms=1, cache_bytes=0)
    synced = threading.Event()
    with (
        running(disk, settings=settings, clock=time.monotonic_ns) as owner,
        reached("wal.after_sync", synced.set),
    ):
        owner.append(b"1", durable=False)
        assert synced.wait(30)


@contextmanager
def reached(point: str, action: Callable[[], object]) -> Iterator[None]:
    def hook(name: str) -> None:
        if name == point:
            action()

    with crashpoints.installed(hook):
        yield


def test_a_barrier_covers_everything_submitted_before_it() -> None:
    with running(SimDisk()) as owner:
        submissions = [owner.submit(b"1", durable=False) for _ in range(10)]
        position = owner.committer.sync(0)
        owner.settle(*submissions)
        last = submissions[-1]
        assert position.lfn >= last.last_lfn
        owner.log.watch.acked(FIRST_FILE, last.offset + len(last.frames))


def test_what_follows_a_rotation_is_in_another_log_file() -> None:
    with running(SimDisk()) as owner:
        before = owner.append(b"1")
        owner.committer.rotate(0)
        after = owner.append(b"2")
        assert after.source_id != before.source_id


def test_a_shard_that_failed_refuses_a_rotation() -> None:
    with running(SimDisk()) as owner:
        owner.log.faults.fail("fdatasync", errno.EIO, path=WAL_FILES)
        assert isinstance(owner.append(b"1").error, LogFailed)
        with pytest.raises(LogFailed):
            owner.committer.rotate(0)


def test_ws01_a_failed_sync_fails_the_batch_and_the_queue() -> None:
    disk = SimDisk()
    with running(disk) as owner:
        owner.append(b"1")
        with stalled(owner) as held:
            owner.log.faults.fail("fdatasync", errno.EIO, path=WAL_FILES)
            behind = [owner.submit(b"2", durable=number % 2 == 0) for number in range(6)]
        owner.settle(held, *behind)
        assert held.error is None
        assert all(isinstance(submission.error, LogFailed) for submission in behind)
        assert owner.committer.state(0) is ShardState.FAILED
        assert isinstance(owner.append(b"3", durable=False).error, LogFailed)
        with pytest.raises(LogFailed):
            owner.committer.sync(0)


def test_after_a_failure_nothing_is_logged_before_all_of_it_is_answered() -> None:
    """A write queued behind a failed one carries seqs that follow from it: a gap if logged."""
    with running(SimDisk()) as owner:
        owner.append(b"1")
        with stalled(owner) as held:
            owner.log.faults.fail("pwrite", errno.ENOSPC, path=WAL_FILES)
            failing = owner.submit(b"2")
        batch = owner.inbox.get(timeout=30)
        assert batch == [held]
        failed = owner.inbox.get(timeout=30)
        owner.committer.try_heal()
        late = owner.submit(b"3")
        owner.committer.finish(batch)
        owner.committer.finish(failed)
        owner.settle(late)
        assert isinstance(failing.error, LogFull)
        assert isinstance(late.error, LogFull), "submitted before the failure was answered"
        assert owner.committer.state(0) is ShardState.OPEN
        assert owner.append(b"2").error is None


def test_a_full_shard_heals_by_itself() -> None:
    disk = SimDisk()
    settings = WalSettings(
        file_bytes=1 << 20, prealloc_start=1 << 20, cache_bytes=0, probe_ms=1, disk_sync_ms=1
    )
    with running(disk, settings=settings, clock=time.monotonic_ns) as owner:
        for _ in range(2):
            owner.append(LARGE)
        disk.capacity = disk.used
        error: Internal | None = None
        while error is None:
            error = owner.append(LARGE).error
        assert isinstance(error, LogFull)
        disk.capacity = None
        while owner.append(LARGE).error is not None:
            pass
        assert owner.committer.state(0) is ShardState.OPEN


def test_a_full_shard_says_so_before_anything_is_queued_and_takes_what_makes_room() -> None:
    disk = SimDisk()
    settings = WalSettings(file_bytes=1 << 20, cache_bytes=0)
    with running(disk, settings=settings) as owner:
        assert owner.committer.refusal(0) is None
        disk.capacity = disk.used
        while owner.append(LARGE).error is None:
            pass
        assert isinstance(owner.committer.refusal(0), LogFull)
        relief = owner.log.submission(b"1")
        relief.is_relief = True
        owner.committer.submit(relief)
        owner.settle(relief)
        assert relief.error is None
        assert isinstance(owner.append(b"2").error, LogFull)


def test_ws06_a_stalled_sync_fills_the_queue_and_then_it_drains() -> None:
    settings = WalSettings(queue_submissions=4, cache_bytes=0)
    with running(SimDisk(), settings=settings) as owner:
        with stalled(owner) as held:
            waiting = []
            while owner.committer.room(0, 100):
                waiting.append(owner.submit(b"1"))
            assert len(waiting) == 4
            assert owner.committer.fill(0) == 1.0
            assert owner.committer.in_flight(0) == owner.committer.most_in_flight(0) == 5
        owner.settle(held, *waiting)
        assert owner.committer.room(0, 100)
        assert owner.committer.fill(0) == 0.0


def test_the_queue_is_bounded_in_bytes_but_takes_anything_when_empty() -> None:
    settings = WalSettings(queue_bytes=1000, cache_bytes=0)
    with running(SimDisk(), settings=settings) as owner:
        assert owner.committer.room(0, 5000)
        with stalled(owner) as held:
            first = owner.submit(b"1" * 600)
            assert not owner.committer.room(0, 600)
            assert owner.committer.room(0, 100)
        owner.settle(held, first)


def test_ws07_a_stalled_shard_does_not_hold_up_another() -> None:
    disk = SimDisk()
    with running(disk, shards=2) as owner:
        rule = owner.log.faults.fail("fdatasync", "stall", path="*/shard-00/*.log")
        held = owner.submit(b"1", topic=1, shard=0)
        assert rule.reached.wait(30)
        other = owner.submit(b"1", topic=2, shard=1)
        owner.settle(other)
        assert other.error is None
        assert not held.done
        rule.release()
        owner.settle(held)


def test_ws14_a_dead_writer_fails_what_is_pending_and_what_comes() -> None:
    def die() -> None:
        raise MemoryError("no more")

    with running(SimDisk()) as owner:
        owner.append(b"1")
        with reached("wal.after_write", die):
            pending = [owner.submit(b"2"), owner.submit(b"3", durable=False)]
            owner.settle(*pending)
        assert all(isinstance(submission.error, LogFailed) for submission in pending)
        assert owner.committer.state(0) is ShardState.FAILED
        late = owner.append(b"4")
        assert isinstance(late.error, LogFailed)
        with pytest.raises(LogFailed):
            owner.committer.sync(0)
        with pytest.raises(LogFailed):
            owner.committer.close()


@pytest.mark.parametrize("at_once", [False, True])
def test_ws16_what_cannot_be_published_fails_with_all_behind_it_and_stops_the_shard(
    at_once: bool,
) -> None:
    with running(SimDisk(), at_once=at_once) as owner:
        owner.append(b"1")
        with stalled(owner) as held:
            raising = owner.submit(b"2")
            raising.on_done = publishes_nothing
            behind = [owner.submit(b"3", durable=number % 2 == 0) for number in range(4)]
        owner.settle(held, raising, *behind)
        assert held.error is None
        assert all(isinstance(each.error, LogFailed) for each in (raising, *behind))
        assert owner.committer.in_flight(0) == 0
        assert owner.committer.state(0) is ShardState.FAILED
        assert isinstance(owner.append(b"4").error, LogFailed)


def test_ws16_a_write_done_on_the_spot_that_cannot_be_published_is_refused() -> None:
    with running(SimDisk(), at_once=True) as owner:
        submission = owner.log.submission(b"1", durable=False)
        submission.on_done = publishes_nothing
        owner.committer.submit(submission)
        assert submission.done
        assert isinstance(submission.error, LogFailed)
        assert owner.committer.state(0) is ShardState.FAILED
        assert isinstance(owner.append(b"2", durable=False).error, LogFailed)


def publishes_nothing(submission: Submission) -> None:
    raise OSError(errno.EIO, "cannot be read")


def test_ws10_closing_settles_what_is_queued() -> None:
    disk = SimDisk()
    owner = Owner(disk)
    submissions = [owner.submit(b"%d" % number, durable=number % 3 == 0) for number in range(50)]
    owner.committer.close()
    owner.settle_rest()
    assert all(submission.done for submission in submissions)
    assert all(submission.error is None for submission in submissions)
    disk.crash(mode="none")
    assert len(Log(disk).recovered[TOPIC]) == 50


def test_ws11_a_final_sync_that_fails_is_reported_by_close() -> None:
    owner = Owner(SimDisk(), settings=WalSettings(disk_sync_ms=60_000, cache_bytes=0))
    owner.append(b"1", durable=False)
    owner.log.faults.fail("fdatasync", errno.EIO, path=WAL_FILES)
    with pytest.raises(LogFailed):
        owner.committer.close()


def test_cc03_a_submission_after_the_end_is_refused_not_lost() -> None:
    owner = Owner(SimDisk())
    owner.append(b"1")
    owner.committer.close()
    late = owner.submit(b"2")
    owner.settle(late)
    assert isinstance(late.error, LogFailed)


def test_rotation_happens_between_batches() -> None:
    disk = SimDisk()
    with running(disk, settings=SMALL) as owner:
        for _ in range(10):
            assert owner.append(LARGE).error is None
        assert owner.committer.stats(0).rotations >= 2
        assert owner.committer.shard_of(TOPIC) == layout.shard_of(TOPIC, 1)
    disk.crash(mode="none")
    assert len(Log(disk, settings=SMALL).recovered[TOPIC]) == 10


def test_cc02_many_writers_get_their_answers_in_log_order() -> None:
    disk = SimDisk()
    with running(disk, shards=3) as owner:
        open_ones = [
            owner.submit(b"%d" % number, topic=number % 7 + 1, durable=number % 2 == 0)
            for number in range(400)
        ]
        owner.settle(*open_ones)
        for shard in range(3):
            mine = [each for each in owner.order if each.shard == shard]
            assert [each.last_lfn for each in mine] == sorted(each.last_lfn for each in mine)
    disk.crash(mode="none")
    assert Log(disk, shards=3).recovered == owner.log.sent


@pytest.mark.parametrize(
    ("pressure", "window_ms"), [(0.0, 1.0), (0.4, 1.0), (0.5, 5.25), (1.0, 10.0)]
)
def test_the_group_window_grows_with_pressure(pressure: float, window_ms: float) -> None:
    log = Log(SimDisk())
    committer = GroupedCommitter(log.shards, SETTINGS, lambda settled: None, lambda: pressure)
    (writer,) = committer._writers
    assert writer._window_ms() == window_ms
    committer.close()


# The owner writes itself


def test_a_buffered_write_with_nobody_before_it_is_done_when_submitted() -> None:
    with running(SimDisk(), at_once=True) as owner:
        for number in range(3):
            submission = owner.submit(b"%d" % number, durable=False)
            assert submission.done
            assert submission.error is None
        assert owner.committer.in_flight(0) == owner.committer.queued(0) == 0
        assert owner.inbox.empty()


def test_a_sync_is_left_to_the_thread_and_what_follows_it_keeps_its_place() -> None:
    with running(SimDisk(), at_once=True) as owner:
        with stalled(owner) as held:
            behind = owner.submit(b"1", durable=False)
            assert not behind.done
        owner.settle(held, behind)
        assert owner.order == [held, behind]
        assert held.last_lfn < behind.last_lfn
        assert owner.submit(b"2", durable=False).done


def test_a_sync_under_way_neither_holds_up_a_write_nor_speaks_for_it() -> None:
    settings = WalSettings(disk_sync_ms=1, cache_bytes=0)
    with running(SimDisk(), settings=settings, at_once=True) as owner:
        rule = owner.log.faults.fail("fdatasync", "stall", path=WAL_FILES)
        before = owner.submit(b"1", durable=False)
        assert rule.reached.wait(30)
        during = owner.submit(b"2", durable=False)
        assert during.done
        assert owner.committer.synced(0).lfn < before.last_lfn
        rule.release()
        position = owner.committer.sync(0)
        assert position.lfn >= during.last_lfn
        owner.log.watch.acked(FIRST_FILE, during.offset + len(during.frames))


def test_a_tail_the_owner_wrote_is_synced_in_time() -> None:
    settings = WalSettings(disk_sync_ms=1, cache_bytes=0)
    synced = threading.Event()
    with (
        running(SimDisk(), settings=settings, at_once=True, clock=time.monotonic_ns) as owner,
        reached("wal.after_sync", synced.set),
    ):
        for number in range(3):
            synced.clear()
            submission = owner.submit(b"%d" % number, durable=False)
            assert synced.wait(30)
            owner.settle(submission)


def test_the_owner_writes_no_more_than_may_wait_for_a_sync() -> None:
    settings = WalSettings(disk_sync_ms=60_000, max_unsynced=1000, cache_bytes=0)
    with running(SimDisk(), settings=settings, at_once=True) as owner:
        rule = owner.log.faults.fail("fdatasync", "stall", path=WAL_FILES)
        sent = [owner.submit(b'"%b"' % (b"x" * 400), durable=False) for _ in range(4)]
        assert sent[0].done
        assert not sent[3].done
        assert rule.reached.wait(30)
        rule.release()
        owner.settle(*sent)
        assert owner.order == sent


def test_new_files_are_made_by_the_thread() -> None:
    disk = SimDisk()
    with running(disk, settings=SMALL, at_once=True) as owner:
        sent = [owner.append(LARGE, durable=False) for _ in range(10)]
        assert owner.committer.stats(0).rotations >= 2
        assert all(submission.error is None for submission in sent)
    disk.crash(mode="none")
    assert len(Log(disk, settings=SMALL).recovered[TOPIC]) == 10


def test_a_write_that_fails_on_the_owners_thread_is_reported_and_undone() -> None:
    with running(SimDisk(), at_once=True) as owner:
        owner.append(b"1", durable=False)
        owner.log.faults.fail("pwrite", errno.ENOSPC, path=WAL_FILES)
        assert isinstance(owner.submit(b"2", durable=False).error, LogFull)
        owner.log.faults.clear()
        owner.committer.try_heal()
        while owner.append(b"2", durable=False).error is not None:
            pass
        assert owner.committer.state(0) is ShardState.OPEN


def test_a_shard_that_the_owner_found_full_heals_without_another_write() -> None:
    settings = WalSettings(disk_sync_ms=600_000, probe_ms=1, cache_bytes=0)
    with running(SimDisk(), settings=settings, at_once=True) as owner:
        owner.append(b"1")  # synced: the thread has nothing to get up for
        owner.log.faults.fail("pwrite", errno.ENOSPC, path=WAL_FILES)
        assert isinstance(owner.submit(b"2").error, LogFull)
        owner.log.faults.clear()
        owner.log.shard.clock = time.monotonic_ns  # by which the thread looks again
        patience = time.monotonic() + 60
        while owner.committer.state(0) is not ShardState.OPEN:
            assert time.monotonic() < patience, "nobody looked for room again"
            time.sleep(0.001)
        assert owner.append(b"2").error is None


def test_a_bug_in_a_write_of_the_owner_ends_the_shard_not_the_owner() -> None:
    def die() -> None:
        raise ZeroDivisionError

    with running(SimDisk(), at_once=True) as owner:
        with reached("wal.after_write", die):
            assert isinstance(owner.submit(b"1", durable=False).error, LogFailed)
        assert owner.committer.state(0) is ShardState.FAILED
        assert isinstance(owner.append(b"2", durable=False).error, LogFailed)


def test_after_a_slow_write_the_owner_leaves_writing_to_the_thread_for_a_while() -> None:
    settings = WalSettings(disk_sync_ms=60_000, cache_bytes=0)
    with running(SimDisk(), settings=settings, at_once=True) as owner:
        (shard,) = owner.log.shards
        now = [1_000]

        def slow() -> int:
            now[0] += 30_000_000
            return now[0]

        shard.clock = slow
        assert owner.submit(b"1", durable=False).done
        shard.clock = lambda: now[0]
        second = owner.submit(b"2", durable=False)
        assert not second.done
        owner.settle(second)
        now[0] += 300_000_000
        assert owner.submit(b"3", durable=False).done


def test_a_write_that_finds_the_file_busy_is_left_to_the_thread() -> None:
    with running(SimDisk(), at_once=True) as owner:
        with busy_file(owner):
            first = owner.submit(b"1", durable=False)
            assert not first.done
        owner.settle(first)
        assert first.error is None
        assert owner.committer.position(0).lfn == first.last_lfn


def test_durable_writes_of_the_owner_share_the_syncs_of_the_thread() -> None:
    with running(SimDisk(), at_once=True) as owner:
        with stalled(owner) as held:
            waiting = [owner.submit(b"%d" % number) for number in range(20)]
            assert owner.committer.position(0).lfn == waiting[-1].last_lfn, "written, not queued"
            assert owner.committer.queued(0) == 0
            assert not any(submission.done for submission in waiting)
        owner.settle(held, *waiting)
        assert owner.order == [held, *waiting]
        assert all(submission.synced_ns > 0 for submission in waiting)
        assert owner.committer.stats(0).syncs == 2
        assert owner.committer.synced(0).lfn == waiting[-1].last_lfn


def test_what_the_owner_wrote_behind_a_failed_sync_fails_with_it() -> None:
    with running(SimDisk(), at_once=True) as owner:
        with stalled(owner) as held:
            owner.log.faults.fail("fdatasync", errno.EIO, path=WAL_FILES)
            behind = [owner.submit(b"2", durable=number % 2 == 0) for number in range(6)]
            assert not any(submission.done for submission in behind)
        owner.settle(held, *behind)
        assert owner.order == [held, *behind]
        assert held.error is None
        assert all(isinstance(submission.error, LogFailed) for submission in behind)
        assert isinstance(owner.append(b"3", durable=False).error, LogFailed)


def test_behind_a_write_that_failed_the_owner_writes_nothing_before_all_is_answered() -> None:
    with running(SimDisk(), at_once=True) as owner:
        with stalled(owner) as held:
            fine = owner.submit(b"1", durable=False)
            owner.log.faults.fail("pwrite", errno.ENOSPC, path=WAL_FILES)
            failing = owner.submit(b"2", durable=False)
            owner.log.faults.clear()
            owner.log.shards[0].try_heal()
            late = [owner.submit(b"3", durable=durable) for durable in (False, True)]
        owner.settle(held, fine, failing, *late)
        assert owner.order == [held, fine, failing, *late]
        assert held.error is fine.error is None
        assert all(isinstance(submission.error, LogFull) for submission in (failing, *late))
        assert owner.append(b"2").error is None


def test_what_the_owner_wrote_does_not_fail_with_a_later_write_that_found_no_room() -> None:
    """Its frames are in the log: called a failure, its seqs would be given out again."""
    disk = SimDisk()
    with running(disk, at_once=True) as owner:
        with stalled(owner) as held:
            written = [owner.submit(b"1"), owner.submit(b"2", durable=False)]
            owner.log.faults.fail("pwrite", errno.ENOSPC, path=WAL_FILES)
            failing = owner.submit(b"3")
            owner.log.faults.clear()
        owner.settle(held, *written, failing)
        assert [submission.error for submission in written] == [None, None]
        assert isinstance(failing.error, LogFull)
    assert len(Log(disk).recovered[TOPIC]) == 3


def test_what_the_owner_wrote_does_not_fail_with_one_the_thread_had_no_room_for() -> None:
    disk = SimDisk()
    with running(disk, at_once=True) as owner:
        with stalled(owner) as held:
            written = owner.submit(b"1")
            with busy_file(owner):
                handed = owner.submit(b"2")
            owner.log.faults.fail("pwrite", errno.ENOSPC, path=WAL_FILES)
        owner.settle(held, written, handed)
        assert held.error is written.error is None
        assert isinstance(handed.error, LogFull)
    assert len(Log(disk).recovered[TOPIC]) == 2


def test_a_write_made_while_another_is_answered_comes_after_it() -> None:
    with running(SimDisk(), at_once=True) as owner:
        inner: list[Submission] = []
        outer = owner.log.submission(b"1", durable=False, topic=TOPIC)
        outer.on_done = lambda _: inner.append(owner.submit(b"2", durable=False))
        owner.committer.submit(outer)
        assert outer.done
        assert not inner[0].done, "answered on a later turn, not inside the answer before it"
        owner.settle(*inner)
        assert outer.last_lfn < inner[0].last_lfn
        assert owner.committer.in_flight(0) == 0


def test_the_owner_writes_again_as_soon_as_the_thread_has_written_its_part() -> None:
    with running(SimDisk(), at_once=True) as owner:
        with busy_file(owner):
            owner.submit(b"1", durable=False)
            assert owner.committer.queued(0) <= 1
        delivered = owner.inbox.get(timeout=30)
        (first,) = delivered
        second = owner.submit(b"2", durable=False)
        assert not second.done, "the first is not answered yet"
        assert owner.committer.position(0).lfn == second.last_lfn > first.last_lfn
        owner.committer.finish(delivered)
        assert owner.order == [first, second]
        assert owner.submit(b"3", durable=False).done
