"""Jobs pushed over a stream: leases belong to the connection and go with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.delivery.builders import Peer
from tests.unit.queue.builders import QUEUE, Shop

from topics.delivery.live import LiveDelivery
from topics.delivery.work_stream import Floor, Wants, WorkStream
from topics.engine.effects import run

LEASE_MS = 1000


class Workshop:
    """A queue with work streams on a virtual loop."""

    def __init__(self, **config: object) -> None:
        self.shop = Shop({"lease_ms": LEASE_MS, **config})
        self._soon: list[Callable[[], None]] = []
        self.delivery = LiveDelivery(
            self.shop.engine,
            self.shop.loop,
            timers=self.shop.clock,
            schedule=self._soon.append,
        )
        self.floor = Floor(self.delivery, self.shop.queues)
        self.ended = 0

    def open(self, node: str = "w", most: int = 2) -> tuple[Peer, WorkStream]:
        peer = Peer()
        wants = Wants(node, most, None)
        stream = WorkStream(self.floor, self.shop.topic, wants, peer, on_end=self._count)
        stream.start()
        self.settle()
        return peer, stream

    def _count(self) -> None:
        self.ended += 1

    def append(self, count: int) -> None:
        self.shop.append(count)
        self.settle()

    def ack(self, *seqs: int, node: str = "w") -> None:
        assert run(self.shop.queues.ack(QUEUE, node=node, seqs=seqs)).skipped == []
        self.settle()

    def advance(self, ms: int) -> None:
        self.shop.loop.advance(ms)
        self.settle()

    def settle(self) -> None:
        while self._soon:
            soon, self._soon[:] = self._soon[:], []
            for callback in soon:
                callback()
            self.shop.loop.settle()

    @property
    def leased(self) -> set[int]:
        return set(self.shop.leases.leased)


@pytest.fixture
def works() -> Workshop:
    return Workshop()


def seqs(peer: Peer) -> list[int]:
    return [event.data["$seq"] for event in peer.events() if event.event == "job"]


def test_a_stream_begins_with_its_retry_time_and_the_jobs_there_are(works: Workshop) -> None:
    works.append(3)
    peer, _ = works.open()
    first, *jobs = peer.events()
    assert (first.event, first.data) == ("retry", 2000)
    assert [job.id for job in jobs] == ["1", "2"]
    assert jobs[0].data == {
        "topic": QUEUE,
        "$seq": 1,
        "lease_id": f"lease_{works.shop.leases.leased[1].lease_id:x}",
        "deadline": works.shop.clock.now_ms() + LEASE_MS,
        "$ts": works.shop.clock.now_ms(),
        "deliveries": 1,
        "data": 0,
    }


def test_an_ack_makes_room_for_the_next_job_while_the_clock_stands(works: Workshop) -> None:
    works.append(4)
    peer, _ = works.open()
    assert seqs(peer) == [1, 2]
    works.ack(1)
    assert seqs(peer) == [3]
    run(works.shop.queues.nack(QUEUE, node="w", seqs=[2]))
    works.settle()
    assert seqs(peer) == [2]


def test_a_job_is_pushed_when_it_arrives(works: Workshop) -> None:
    peer, _ = works.open()
    works.append(1)
    assert seqs(peer) == [1]


def test_an_expired_job_comes_again_within_a_quarter_second(works: Workshop) -> None:
    works.append(1)
    peer, _ = works.open(most=1)
    assert seqs(peer) == [1]
    works.advance(LEASE_MS)
    assert seqs(peer) == []
    works.advance(1)
    (event,) = peer.events()
    assert event.data["deliveries"] == 2


def test_a_delayed_job_comes_at_its_time(works: Workshop) -> None:
    works.append(1)
    peer, _ = works.open(most=1)
    run(works.shop.queues.nack(QUEUE, node="w", seqs=[1], delay_ms=90))
    works.settle()
    works.advance(89)
    assert seqs(peer) == [1]
    works.advance(1)
    assert seqs(peer) == [1]


def test_closing_a_stream_frees_exactly_its_own_leases_at_once(works: Workshop) -> None:
    works.append(6)
    peer, _ = works.open(most=2)
    assert works.shop.claim("w") == [3], "a plain claim of the same worker"
    other, _ = works.open("x", most=1)
    peer.leave()
    works.settle()
    assert works.leased == {3, 4}
    assert works.shop.leases.deliveries[1] == 1
    assert works.ended == 1
    works.ack(4, node="x")
    assert seqs(other) == [4, 1]


def test_jobs_that_were_never_taken_are_freed_too(works: Workshop) -> None:
    works.append(3)
    peer = Peer()
    peer.stalled = True
    stream = WorkStream(
        works.floor, works.shop.topic, Wants("w", 3, None), peer, on_end=works._count
    )
    stream.start()
    works.settle()
    assert peer.chunks == []
    peer.leave()
    works.settle()
    assert works.leased == set()
    assert works.shop.counts().ready == 3


def test_a_slow_worker_gets_no_more_jobs_until_it_took_what_it_has(works: Workshop) -> None:
    works.append(1)
    peer, _ = works.open(most=10)
    peer.stalled = True
    works.append(2)
    works.append(1)
    assert works.leased == {1, 2, 3}
    peer.catch_up()
    works.settle()
    assert seqs(peer) == [1, 2, 3, 4]


def test_large_jobs_are_pushed_few_at_a_time(works: Workshop) -> None:
    """Whoever stops reading leaves them in memory."""
    works.shop.append(20, meta=b'"%b"' % (b"x" * (1 << 20)))
    peer, _ = works.open(most=20)
    assert seqs(peer) == list(range(1, 21)), "more follow as long as they are taken"
    peer.stalled = True
    works.ack(*range(1, 21))
    works.shop.append(20, meta=b'"%b"' % (b"x" * (1 << 20)))
    works.settle()
    assert works.leased == set(range(21, 28)), "some eight megabytes"


def test_a_stream_that_closes_while_it_claims_keeps_nothing() -> None:
    works = Workshop(claim_jitter_ms=50)
    works.append(2)
    peer, _ = works.open()
    peer.leave()
    works.advance(50)
    assert works.leased == set()
    assert works.shop.counts().ready == 2


def test_streams_join_the_window_of_other_claims() -> None:
    works = Workshop(claim_jitter_ms=50)
    works.append(4)
    peer, _ = works.open(most=4)
    polling = works.shop.claiming("p", 4)
    works.advance(50)
    assert [job.seq for job in polling.result.jobs] == [2, 4]
    assert seqs(peer) == [1, 3]


def test_a_dropped_queue_ends_its_streams_with_an_error(works: Workshop) -> None:
    works.append(1)
    peer, _ = works.open()
    peer.events()
    run(works.shop.engine.drop(QUEUE))
    works.settle()
    (event,) = peer.events()
    assert (event.id, event.event) == (None, "error")
    assert (event.data["code"], event.data["topic"]) == (409, QUEUE)
    assert peer.closed
    assert works.ended == 1


def test_a_queue_made_again_under_its_name_ends_them_as_well(works: Workshop) -> None:
    peer, _ = works.open()
    run(works.shop.engine.drop(QUEUE))
    works.shop.put(QUEUE, type="queue")
    works.append(1)
    assert [event.event for event in peer.events()] == ["retry", "error"]
    assert works.leased == set()


def test_a_stopping_server_says_goodbye_and_frees_the_jobs(works: Workshop) -> None:
    works.append(2)
    peer, stream = works.open()
    peer.events()
    stream.shut_down()
    (event,) = peer.events()
    assert event.id is None
    assert (event.data["code"], event.data["topic"]) == ("server_shutting_down", QUEUE)
    assert (peer.closed, works.leased, works.ended) == (True, set(), 1)


def test_a_silent_stream_shows_that_it_lives(works: Workshop) -> None:
    peer, _ = works.open()
    peer.events()
    works.advance(14_999)
    assert peer.events() == []
    works.advance(1)
    (event,) = peer.events()
    assert event.comment == f": hb {works.shop.clock.now_ms()}"


def test_a_stream_at_an_empty_queue_leaves_the_server_asleep(works: Workshop) -> None:
    works.open()
    assert works.shop.clock.pending() == 1, "nothing but the heartbeat"
