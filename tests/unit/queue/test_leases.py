"""Claim, ack, nack, extend: who holds what, and what becomes of it."""

from __future__ import annotations

import errno

import pytest
from tests.unit.queue.builders import QUEUE, Shop, without_claim_times

from topics.batch import RecordBatch
from topics.engine.effects import run
from topics.errors import (
    BatchTooLarge,
    Internal,
    InvalidRequest,
    NotAQueue,
    TopicNotFound,
    TopicsError,
)
from topics.queue import ClaimedJobs
from topics.values import Acked, Nacked

LEASE_MS = 1000


@pytest.fixture
def shop() -> Shop:
    return Shop({"lease_ms": LEASE_MS})


@pytest.fixture
def durable() -> Shop:
    """On a disk, synced, with leases that survive."""
    return Shop({"lease_ms": LEASE_MS, "durability": "fsync", "leases_durable": True}, on_disk=True)


def ack(shop: Shop, seqs: list[int], node: str = "w", ids: tuple[int | None, ...] = ()) -> Acked:
    return run(shop.queues.ack(QUEUE, node=node, seqs=seqs, lease_ids=ids))


def nack(shop: Shop, seqs: list[int], delay_ms: int = 0) -> Nacked:
    return run(shop.queues.nack(QUEUE, node="w", seqs=seqs, delay_ms=delay_ms))


# Handing out


def test_jobs_given_back_come_before_fresh_ones_lowest_first(shop: Shop) -> None:
    shop.append(6)
    assert shop.claim(most=4) == [1, 2, 3, 4]
    nack(shop, [4, 2])
    assert shop.claim(most=3) == [2, 4, 5]


def test_a_job_that_was_given_back_and_deleted_is_passed_over(shop: Shop) -> None:
    shop.append(4)
    shop.claim(most=2)
    nack(shop, [1, 2])
    run(shop.engine.delete(QUEUE, before=3, match=None))
    assert shop.claim(most=3) == [3, 4]


def test_fresh_jobs_are_handed_out_around_deleted_ones(shop: Shop) -> None:
    shop.append(6)
    run(shop.engine.delete_seqs(shop.topic, [2, 3, 5]))
    assert (shop.claim(most=2), shop.claim(most=9), shop.claim()) == ([1, 4], [6], [])


def test_an_ack_waits_for_a_queue_that_takes_no_writes_and_keeps_the_job(shop: Shop) -> None:
    shop.append(2)
    assert shop.claim() == [1]
    gates = shop.engine.kernel.gates
    gate = run(gates.close([shop.topic.id]))
    acking = shop.loop.begin(shop.queues.ack(QUEUE, node="w", seqs=[1]))
    shop.loop.advance(LEASE_MS + 1)
    assert not acking.is_over
    assert shop.claim("b", most=2) == [2], "neither the clock nor a claim takes it away"
    gates.open(gate)
    shop.loop.settle()
    assert (acking.result.acked, acking.result.in_flight) == (1, 1)


def test_a_lease_is_over_once_its_deadline_has_passed_not_at_it(shop: Shop) -> None:
    shop.append()
    assert shop.claim() == [1]
    shop.clock.advance(LEASE_MS)
    assert shop.claim("b") == []
    shop.clock.advance(1)
    assert shop.claim("b") == [1]


def test_a_delayed_job_is_claimable_at_its_time_and_counts_nowhere_before(shop: Shop) -> None:
    shop.append(2)
    shop.claim(most=2)
    assert nack(shop, [1], delay_ms=500).ready == 0
    assert (shop.counts().ready, shop.counts().in_flight) == (0, 1)
    shop.clock.advance(499)
    assert shop.claim("b") == []
    shop.clock.advance(1)
    assert shop.claim("b") == [1]


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (3, 3), (5000, 1000)])
def test_how_many_jobs_a_claim_asks_for_is_clamped(shop: Shop, asked: int, given: int) -> None:
    shop.append(1001)
    assert len(shop.claim(most=asked)) == given


@pytest.mark.parametrize(("asked", "given"), [(0, 100), (250, 250), (1 << 40, 86_400_000)])
def test_how_long_a_lease_lasts_is_clamped(shop: Shop, asked: int, given: int) -> None:
    shop.append()
    (job,) = shop.claiming(lease_ms=asked).result.jobs
    assert job.deadline_ms == shop.clock.now_ms() + given


def test_a_claim_counts_what_is_left(shop: Shop) -> None:
    shop.append(5)
    claimed: ClaimedJobs = shop.claiming(most=2).result
    assert claimed.ready == 3
    assert [job.deliveries for job in claimed.jobs] == [1, 1]


# Ending a lease


def test_only_the_holder_with_the_current_lease_can_act(shop: Shop) -> None:
    shop.append(3)
    first = shop.claiming(most=1).result.jobs[0]
    assert ack(shop, [1], "thief").skipped == [1]
    assert ack(shop, [1], ids=(first.lease_id + 1,)).skipped == [1]
    shop.clock.advance(LEASE_MS + 1)
    assert ack(shop, [1], ids=(first.lease_id,)).skipped == [1], "nobody has claimed it again"
    assert shop.claim() == [1]
    assert ack(shop, [1], ids=(first.lease_id,)).skipped == [1]
    assert ack(shop, [1], ids=(None,)).acked == 1


def test_what_is_named_twice_or_unknown_is_skipped_in_the_order_sent(shop: Shop) -> None:
    shop.append(3)
    shop.claim(most=2)
    done = ack(shop, [9, 2, 2, 3, 1])
    assert (done.acked, done.skipped) == (2, [9, 2, 3])
    assert (done.ready, done.in_flight) == (1, 0)
    assert ack(shop, [1]).skipped == [1]


def test_an_empty_list_does_nothing(shop: Shop) -> None:
    shop.append()
    assert ack(shop, []).to_dict() == {
        "topic": QUEUE,
        "acked": 0,
        "skipped": [],
        "ready": 1,
        "in_flight": 0,
    }


def test_extending_sets_the_deadline_and_keeps_lease_and_count(shop: Shop) -> None:
    shop.append()
    (job,) = shop.claiming().result.jobs
    shop.clock.advance(600)
    done = run(shop.queues.extend(QUEUE, node="w", seqs=[1], lease_ms=700))
    assert done.deadlines == {1: shop.clock.now_ms() + 700}
    shop.clock.advance(700)
    assert shop.claim("b") == []
    assert ack(shop, [1], ids=(job.lease_id,)).acked == 1


def test_a_removed_job_takes_its_lease_with_it() -> None:
    shop = Shop({"cap_records": 3, "ttl_ms": 5000})
    shop.append(3)
    shop.claim(most=2)
    shop.append()  # the cap takes job 1
    assert (shop.counts().ready, shop.counts().in_flight) == (2, 1)
    assert ack(shop, [1]).skipped == [1]
    run(shop.engine.delete(QUEUE, before=3, match=None))
    assert shop.leases.leased == {}
    shop.clock.advance(5001)
    assert shop.claim() == []
    assert (shop.leases.deliveries, shop.leases.delayed) == ({}, {})


# An ack on its way through the log


def test_a_job_whose_ack_is_being_logged_stays_with_its_holder(durable: Shop) -> None:
    durable.append(2)
    durable.claim(most=2)
    durable.log.is_holding = True
    acking = durable.loop.begin(durable.queues.ack(QUEUE, node="w", seqs=[1]))
    durable.clock.advance(LEASE_MS + 1)
    assert not acking.is_over
    assert durable.claim("b", 2) == [2], "the clock does not free it"
    assert ack(durable, [1]).skipped == [1], "a second ack has nothing to do"
    assert nack(durable, [1]).skipped == [1]
    durable.log.let_go()
    durable.loop.settle()
    assert acking.result.acked == 1
    assert durable.topic.count == 1


def test_every_job_of_an_ack_that_could_not_be_logged_goes_back(durable: Shop) -> None:
    durable.append(3)
    durable.claim(most=3)
    durable.fs.fail("fdatasync", errno.EIO)
    with pytest.raises(Internal):
        ack(durable, [1, 2, 3])
    assert (durable.counts().ready, durable.counts().in_flight) == (3, 0)
    assert durable.leases.deliveries == {1: 1, 2: 1, 3: 1}
    assert durable.claim("b", 3) == [1, 2, 3]
    durable.disk.crash(mode="none")
    durable.open()
    assert durable.counts().ready == 3


def test_an_ack_keeps_its_order_among_appends_so_that_replay_evicts_the_same() -> None:
    shop = Shop({"cap_records": 3, "durability": "disk"}, on_disk=True)
    shop.append(3)
    shop.claim(most=2)
    shop.log.is_holding = True
    shop.loop.begin(shop.queues.ack(QUEUE, node="w", seqs=[2]))
    shop.loop.begin(shop.engine.append(QUEUE, RecordBatch([b"9"])))
    shop.log.let_go()
    shop.loop.settle()
    before = [seq for seq, _, _ in shop.datas(QUEUE)]
    shop.kill()
    assert [seq for seq, _, _ in shop.datas(QUEUE)] == before == [1, 3, 4]


# Durable leases


def test_durable_leases_come_back_as_they_were(durable: Shop) -> None:
    durable.append(4)
    (first, second, third) = durable.claiming(most=3).result.jobs
    nack(durable, [2], delay_ms=700)
    run(durable.queues.extend(QUEUE, node="w", seqs=[3], lease_ms=5000))
    held = without_claim_times(durable)
    durable.kill()
    assert durable.leases.leased == held
    assert durable.leases.delayed == {2: durable.clock.now_ms() + 700}
    assert durable.leases.deliveries == {1: 1, 2: 1, 3: 1}
    assert durable.claim("b", 4) == [4]
    assert ack(durable, [1], ids=(first.lease_id,)).acked == 1
    assert ack(durable, [3], ids=(third.lease_id,)).acked == 1
    durable.clock.advance(700)
    (again,) = durable.claiming("b").result.jobs
    assert (again.seq, again.deliveries) == (second.seq, 2)
    assert again.lease_id > third.lease_id


def test_a_checkpoint_holds_leases_and_later_claims_do_not_hide_them(durable: Shop) -> None:
    durable.append(3)
    durable.claim("a")
    durable.engine.checkpoint()
    durable.claim("b")
    durable.kill()
    assert {seq: lease.node for seq, lease in durable.leases.leased.items()} == {1: "a", 2: "b"}
    assert durable.claim("c", 3) == [3]


def test_an_expired_lease_stays_over_when_the_clock_is_set_back(durable: Shop) -> None:
    durable.append()
    durable.claim("a")
    durable.clock.advance(LEASE_MS + 1)
    assert durable.counts().ready == 1
    durable.clock.set(durable.clock.now_ms() - 10 * LEASE_MS)
    durable.kill()
    assert (durable.counts().ready, durable.counts().in_flight) == (1, 0)


def test_without_durable_leases_every_job_is_fresh_after_a_restart() -> None:
    shop = Shop({"durability": "fsync"}, on_disk=True)
    shop.append(3)
    (old, *_) = shop.claiming(most=2).result.jobs
    ack(shop, [2])
    shop.kill()
    assert (shop.counts().ready, shop.counts().in_flight) == (2, 0)
    (job, _) = shop.claiming(most=2).result.jobs
    assert (job.seq, job.deliveries) == (1, 1)
    assert job.lease_id != old.lease_id
    assert ack(shop, [1], ids=(old.lease_id,)).skipped == [1]


def test_lease_ids_do_not_repeat_in_a_queue_made_again(shop: Shop) -> None:
    shop.append()
    (old,) = shop.claiming().result.jobs
    run(shop.engine.drop(QUEUE))
    shop.put(QUEUE, type="queue")
    shop.append()
    (new,) = shop.claiming().result.jobs
    assert new.lease_id > old.lease_id
    assert ack(shop, [1], ids=(old.lease_id,)).skipped == [1]


# Cost


def test_heaps_do_not_keep_what_was_acked_long_before_its_deadline() -> None:
    shop = Shop({"lease_ms": 86_400_000})
    for _ in range(40):
        shop.append(500)
        seqs = shop.claim(most=500)
        assert ack(shop, seqs).acked == 500
    assert shop.leases._deadlines.size < 3000
    assert shop.leases.deliveries == {}


def test_a_claim_costs_the_same_after_many_jobs(shop: Shop) -> None:
    """Done, leased and delayed jobs are not looked at again."""
    shop.append(20_000)
    for _ in range(19):
        seqs = shop.claim(most=1000)
        ack(shop, seqs[::2])
        nack(shop, seqs[1::4], delay_ms=80_000_000)
    visited = 0
    is_live = type(shop.topic).is_live

    def counted(topic: object, seq: int) -> bool:
        nonlocal visited
        visited += 1
        return is_live(shop.topic, seq)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(shop.topic), "is_live", counted)
        assert len(shop.claim(most=10)) == 10
    assert visited <= 10


# Refusals, in their order


def test_calls_about_held_jobs_are_checked_in_order(shop: Shop) -> None:
    def refusal(name: str, node: str, seqs: list[int], ids: list[int | None]) -> TopicsError:
        with pytest.raises(TopicsError) as caught:
            run(shop.queues.ack(name, node=node, seqs=seqs, lease_ids=ids))
        return caught.value

    shop.put("log")
    many = list(range(1001))
    none: list[int | None] = []
    assert isinstance(refusal("absent", "", many, [1]), InvalidRequest)
    too_long = refusal("absent", "w", many, [1])
    assert isinstance(too_long, BatchTooLarge)
    assert too_long.detail == {"seqs": 1001, "max": 1000}
    assert isinstance(refusal("absent", "w", [1, 2], [1]), InvalidRequest)
    assert isinstance(refusal("absent", "w", [1], none), TopicNotFound)
    assert isinstance(refusal("log", "w", [1], none), NotAQueue)


@pytest.mark.parametrize("node", ["", "x" * 129, "é" * 65])
def test_a_claim_looks_for_the_queue_before_the_node(shop: Shop, node: str) -> None:
    shop.put("log")
    for name, kind in (("absent", TopicNotFound), ("log", NotAQueue), (QUEUE, InvalidRequest)):
        with pytest.raises(kind):
            run(shop.queues.claim(name, node=node))
