"""A backlog that has left memory is read in ranges, and handed out as if it had not."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.unit.queue.builders import QUEUE, Shop, Task

from topics.batch import RecordBatch
from topics.core.topic import Topic
from topics.engine.effects import Io, Op, Wait, resumed, run
from topics.engine.reads.history import SegmentHistory
from topics.engine.reads.ranges import Fetched, LiveRange
from topics.engine.reads.reading import Reader
from topics.errors import Internal, TopicNotFound
from topics.queue import ClaimedJobs, Queues, read_ahead
from topics.storage.segments.store import SegmentStore
from topics.storage.sources import WalSource

BACKLOG = 40


@pytest.fixture
def shop() -> Shop:
    """All jobs in segments of ten, none in memory."""
    shop = Shop({"lease_ms": 1000}, on_disk=True, segment_events=10)
    shop.append(BACKLOG)
    shop.engine.checkpoint()
    shop.kill()
    return shop


@contextmanager
def counted_reads(shop: Shop) -> Iterator[list[int]]:
    """Where in the queue it was read from files."""
    begun: list[int] = []
    piece = shop.engine.fetch

    def counting(topic: Topic, lo: int, hi: int, room: int) -> Op[Fetched]:
        begun.append(lo)
        return (yield from piece(topic, lo, hi, room))

    shop.engine.fetch = counting
    yield begun
    shop.engine.fetch = piece


def in_background(shop: Shop) -> list[Op[None]]:
    """Operations that nobody waits for: they are kept for the test to run."""
    kept: list[Op[None]] = []
    shop.queues = Queues(shop.engine, in_background=kept.append)
    return kept


def begun(shop: Shop, node: str, most: int) -> Task[ClaimedJobs]:
    """A claim that went as far as its first read of a file."""
    task: Task[ClaimedJobs] = Task(
        shop.queues.claim(QUEUE, node=node, most=most), lambda answer, error: None
    )
    task.wait = next(task.op)
    return task


def waits_for(task: Task[ClaimedJobs]) -> Wait:
    assert task.wait is not None
    return task.wait


def at_once(shop: Shop, most: int) -> list[int]:
    """The seqs of a claim that waits for nothing."""
    with pytest.raises(StopIteration) as finished:
        next(shop.queues.claim(QUEUE, node="w", most=most))
    return [job.seq for job in finished.value.value.jobs]


def at_disk(shop: Shop, most: int) -> list[int]:
    """The seqs of a claim that is told of every failure of the disk."""
    claimed = run(shop.queues.claim(QUEUE, node="w", most=most))
    return [job.seq for job in claimed.jobs]


def finish(task: Task[ClaimedJobs]) -> list[int]:
    """The seqs of a claim that waits for files, or for another's read which is over."""
    wait = task.wait
    try:
        while True:
            wait = task.op.send(wait.work() if isinstance(wait, Io) else None)
    except StopIteration as finished:
        return [job.seq for job in finished.value.jobs]


def test_claims_of_one_stretch_share_its_read(shop: Shop) -> None:
    with counted_reads(shop) as reads:
        handed_out = [shop.claim("w", 2) for _ in range(BACKLOG // 2)]
    assert [seq for some in handed_out for seq in some] == list(range(1, BACKLOG + 1))
    assert reads == [1, 11, 21, 31], "once for each segment"


def test_jobs_read_ahead_are_the_ones_that_were_written(shop: Shop) -> None:
    found = [(job.seq, job.data) for _ in range(8) for job in shop.claiming("w", 5).result.jobs]
    assert found == [(seq, seq - 1) for seq in range(1, BACKLOG + 1)]


def test_a_claim_across_two_ranges_gets_all_its_jobs(shop: Shop) -> None:
    assert shop.claim("a", 7) == list(range(1, 8))
    assert shop.claim("b", 7) == list(range(8, 15))
    assert shop.claim("c", 26) == list(range(15, 41))


def test_claims_that_come_during_a_read_wait_for_it_and_find_their_jobs(shop: Shop) -> None:
    with counted_reads(shop) as reads:
        first = begun(shop, "a", 3)
        second, third = begun(shop, "b", 3), begun(shop, "c", 3)
        assert reads == [1]
        assert finish(first) == [1, 2, 3]
        assert [finish(second), finish(third)] == [[4, 5, 6], [7, 8, 9]]
        assert reads == [1]


def test_who_waits_for_a_read_that_fails_reads_for_itself(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = Reader._fetch

    def rotten(reader: Reader, topic: Topic, live_range: LiveRange, room: int) -> Op[Fetched]:
        yield from fetch(reader, topic, live_range, room)
        raise Internal("the disk has had enough")

    monkeypatch.setattr(Reader, "_fetch", rotten)
    first = begun(shop, "a", 2)
    second = begun(shop, "b", 2)
    with pytest.raises(Internal, match="had enough"):
        finish(first)
    monkeypatch.undo()
    assert finish(second) == [3, 4]
    assert shop.claim("c", 2) == [1, 2], "the first has given its jobs back"


def test_a_place_that_cannot_be_read_keeps_nobody_from_the_jobs_before_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, history = shop.engine.kernel.segments, shop.topic.history
    assert store is not None
    assert isinstance(history, SegmentHistory)
    bad = store.idx(shop.topic.id, history.sealed[0]).offset(7)  # where the eighth job begins
    pread = store._pread

    def damaged(path: str, size: int, offset: int) -> bytes:
        if path.endswith(".data") and offset <= bad < offset + size:
            raise OSError(errno.EIO, "a bad sector")
        return pread(path, size, offset)

    monkeypatch.setattr(store, "_pread", damaged)
    assert [at_disk(shop, 2) for _ in range(3)] == [[1, 2], [3, 4], [5, 6]]
    assert at_disk(shop, 1) == [7]
    with pytest.raises(Internal, match="bad sector"):
        at_disk(shop, 1)


def test_a_claim_that_is_given_up_during_its_read_lets_the_others_go_on(shop: Shop) -> None:
    first, second = begun(shop, "a", 2), begun(shop, "b", 2)
    first.op.close()
    assert finish(second) == [3, 4]


def test_a_claim_that_is_interrupted_during_its_read_lets_the_next_one_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SegmentStore, "frames_at", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:  # as an interactive shell keeps it
        at_disk(shop, 2)
    monkeypatch.undo()
    assert at_disk(shop, 2) == [3, 4]
    assert kept.tb is not None


def test_jobs_deleted_during_the_read_are_not_handed_out(shop: Shop) -> None:
    first, second = begun(shop, "a", 4), begun(shop, "b", 4)
    run(shop.engine.delete(QUEUE, before=7, match=None))
    assert finish(first) == []
    assert finish(second) == [7, 8]


def test_jobs_that_go_with_their_segment_during_the_read_keep_nobody_from_the_others(
    shop: Shop,
) -> None:
    shop.claim("a", 14)
    run(shop.queues.nack(QUEUE, node="a", seqs=[1, 2, 14]))
    claim = begun(shop, "b", 3)
    run(shop.engine.delete(QUEUE, before=11, match=None))
    for _ in range(3):  # until no snapshot needs the segment
        shop.engine.checkpoint()
    assert [job.seq for job in run(resumed(claim.op, waits_for(claim))).jobs] == [14]


def test_jobs_whose_place_in_memory_goes_during_the_read_keep_nobody_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop(on_disk=True)
    shop.append(9000)
    for _ in range(9):
        shop.claim("a", 1000)
    run(shop.queues.nack(QUEUE, node="a", seqs=[1, 5000, 9000]))
    monkeypatch.setattr(WalSource, "view", lambda *_: None)  # the log's ring has moved on
    claim = begun(shop, "b", 3)
    run(shop.engine.delete(QUEUE, before=8000, match=None))
    assert [job.seq for job in run(resumed(claim.op, waits_for(claim))).jobs] == [9000]


def test_a_queue_dropped_during_the_read_is_gone_for_who_waits(shop: Shop) -> None:
    first, second = begun(shop, "a", 2), begun(shop, "b", 2)
    run(shop.engine.drop(QUEUE))
    shop.put(QUEUE, type="queue")
    with pytest.raises(TopicNotFound):
        finish(first)
    with pytest.raises(TopicNotFound):
        finish(second)
    shop.append(1)
    assert shop.claim("c", 2) == [1], "a queue of the same name has its own jobs"


def test_jobs_given_back_are_read_by_themselves(shop: Shop) -> None:
    assert shop.claim("a", 5) == [1, 2, 3, 4, 5]
    run(shop.queues.nack(QUEUE, node="a", seqs=[2, 4]))
    assert shop.claim("b", 4) == [2, 4, 6, 7]
    jobs = shop.claiming("c", 1).result.jobs
    assert [(job.seq, job.data) for job in jobs] == [(8, 7)]


def test_a_stretch_ends_where_it_is_large_enough(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "STRETCH_JOBS", 4)
    with counted_reads(shop) as reads:
        assert [shop.claim("w", 2) for _ in range(4)] == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert reads == [1, 5]


def test_memory_is_given_back_with_the_last_job_of_a_range(shop: Shop) -> None:
    ranges = shop.queues._fetcher._ahead._prefetched
    shop.claim("w", 9)
    assert list(ranges) == [shop.topic.id]
    shop.claim("w", 1)
    assert not ranges


def test_a_stretch_of_the_log_holds_nothing_of_other_topics() -> None:
    shop = Shop({"lease_ms": 1000}, on_disk=True)
    shop.put("other")
    for _ in range(20):
        shop.append(1)
        run(shop.engine.append("other", RecordBatch([b'"%b"' % (b"x" * 3000)], [b""])))
    shop.kill()
    assert len(shop.claim("w", 2)) == 2
    (read_range,) = shop.queues._fetcher._ahead._prefetched.values()
    assert len(read_range.frames) > 2
    assert all(len(buf) < 100 for buf, _ in read_range.frames.values())
    jobs = shop.claiming("w", 20).result.jobs
    assert [job.data for job in jobs] == [0] * 18


def test_only_so_many_queues_are_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MAX_RANGES", 2)
    shop = Shop(on_disk=True, segment_events=10)
    names = [QUEUE, "b", "c"]
    for name in names:
        shop.put(name, type="queue")
        shop.append(10, name=name)
    shop.engine.checkpoint()
    shop.kill()
    for name in names:
        run(shop.queues.claim(name, node="w", most=2))
    kept = shop.queues._fetcher._ahead._prefetched
    assert list(kept) == [shop.engine.kernel.topic(name).id for name in ("b", "c")]
    assert shop.claim("w", 2) == [3, 4], "a queue whose range was dropped reads again"


# Behind everybody's back


def test_the_next_range_is_read_when_half_of_this_one_was_handed_out(shop: Shop) -> None:
    behind = in_background(shop)
    with counted_reads(shop) as reads:
        assert shop.claim("w", 5) == [1, 2, 3, 4, 5]
        assert not behind
        assert shop.claim("w", 2) == [6, 7]
        (refill,) = behind
        run(refill)
        assert reads == [1, 11]
        assert at_once(shop, 4) == [8, 9, 10, 11]
        assert at_once(shop, 2) == [12, 13]
        assert reads == [1, 11]


def test_who_comes_during_the_read_of_the_next_range_is_served_from_this_one(shop: Shop) -> None:
    behind = in_background(shop)
    shop.claim("w", 7)
    reading = behind.pop()
    wait = next(reading)
    assert shop.claim("w", 2) == [8, 9]
    later = begun(shop, "x", 3)
    assert not isinstance(later.wait, Io), "waits for what is being read"
    with suppress(StopIteration):
        while isinstance(wait, Io):
            wait = reading.send(wait.work())
    assert finish(later) == [10, 11, 12]


def test_a_failure_behind_everybodys_back_is_told_when_it_matters(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = in_background(shop)
    assert shop.claim("w", 7) == [1, 2, 3, 4, 5, 6, 7]

    def rotten(reader: Reader, topic: Topic, live_range: LiveRange, room: int) -> Op[Fetched]:
        yield from ()
        raise Internal("the disk has had enough")

    monkeypatch.setattr(Reader, "_fetch", rotten)
    with pytest.raises(Internal):
        run(behind.pop())
    assert shop.claim("w", 3) == [8, 9, 10]
    with pytest.raises(Internal, match="had enough"):
        shop.claim("w", 1)
    monkeypatch.undo()
    assert shop.claim("w", 1) == [11]


def test_nothing_is_read_ahead_that_is_in_memory(shop: Shop) -> None:
    behind = in_background(shop)
    shop.claim("w", BACKLOG - 5)
    shop.append(3)
    with counted_reads(shop) as reads:
        assert shop.claim("w", 3) == [36, 37, 38]
        for refill in behind:
            run(refill)
        assert reads == [36]
        assert len(shop.claim("w", 6)) == 5


def test_a_queue_that_ends_with_its_stretch_is_read_no_further(shop: Shop) -> None:
    behind = in_background(shop)
    shop.claim("w", BACKLOG - 5)
    with counted_reads(shop) as reads:
        assert shop.claim("w", 3) == [36, 37, 38]
        run(behind.pop())
        assert reads == [36]
