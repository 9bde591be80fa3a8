"""Claims and acks that are done together: cheaper, and to each caller as if it were alone."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
from tests.unit.queue.builders import QUEUE, Shop, without_claim_times

from topics.core.topic import Topic
from topics.engine.effects import Op, run
from topics.engine.reads.ranges import Fetched, LiveRange
from topics.engine.reads.reading import Reader
from topics.engine.upkeep.lease_log import Presence
from topics.errors import Internal, LogFull, TopicNotFound, TopicsError
from topics.queue import ClaimedJobs, Claimer, Named
from topics.values import Acked

LEASE_MS = 1000


@pytest.fixture(params=["memory", "disk", "fsync"])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop({"lease_ms": LEASE_MS, "durability": request.param}, on_disk=True)


@pytest.fixture
def durable() -> Shop:
    """On a disk, synced, with leases that survive."""
    return Shop({"lease_ms": LEASE_MS, "durability": "fsync", "leases_durable": True}, on_disk=True)


def named(node: str, *seqs: int, ids: Sequence[int | None] = ()) -> Named:
    return Named(node, seqs, ids)


def ack_all(shop: Shop, *asked: Named) -> list[Acked | TopicsError]:
    return run(shop.queues.ack_all(QUEUE, asked))


def results(outcomes: Sequence[Acked | TopicsError]) -> list[tuple[int, list[int]]]:
    """How many jobs each call finished, and what it did not hold."""
    assert all(isinstance(outcome, Acked) for outcome in outcomes)
    return [(x.acked, list(x.skipped)) for x in outcomes if isinstance(x, Acked)]


def claim_all(shop: Shop, *claimers: Claimer) -> list[list[int]]:
    outcomes = run(shop.queues.claim_all(QUEUE, claimers))
    assert all(isinstance(outcome, ClaimedJobs) for outcome in outcomes)
    return [[job.seq for job in x.jobs] for x in outcomes if isinstance(x, ClaimedJobs)]


def claimer(shop: Shop, node: str, most: int, lease_ms: int | None = None) -> Claimer:
    return shop.queues.claimer(
        shop.topic, node=node, most=most, lease_ms=lease_ms, presence=Presence()
    )


# Acks


def test_acks_of_several_workers_are_one_delete_in_the_log(shop: Shop) -> None:
    shop.append(6)
    for node in "abc":
        shop.claim(node, 2)
    shop.log.is_holding = True
    op = shop.queues.ack_all(QUEUE, [named("a", 1, 2), named("b", 3, 4), named("c", 5, 6)])
    acking = shop.loop.begin(op)
    assert len(shop.log.held) == 1
    assert shop.log.held[0].count == 1, "one frame"
    assert not acking.is_over, "nobody is answered before it is logged"
    assert shop.topic.count == 6
    shop.log.let_go()
    shop.loop.settle()
    assert results(acking.result) == [(2, []), (2, []), (2, [])]
    shop.kill()
    assert shop.counts().ready == 0


def test_each_ack_is_fenced_by_its_own_leases(shop: Shop) -> None:
    shop.append(4)
    stale = {job.seq: job.lease_id for job in shop.claiming("a", 1, 100).result.jobs}
    shop.clock.advance(101)
    assert shop.claim("b", 2) == [1, 2]
    assert shop.claim("c", 2) == [3, 4]
    outcomes = ack_all(
        shop,
        named("a", 1),
        named("b", 1, 2, ids=(stale[1], None)),
        named("c", 3, 9, 4, 2),
        named("b", 1),
    )
    assert results(outcomes) == [(0, [1]), (1, [1]), (2, [9, 2]), (1, [])]
    assert shop.topic.count == 0


def test_a_job_that_two_acks_name_is_the_first_ones(shop: Shop) -> None:
    shop.append(2)
    shop.claim("a", 2)
    outcomes = ack_all(shop, named("a", 1, 1), named("a", 2, 1), named("a"))
    assert results(outcomes) == [(1, [1]), (1, [1]), (0, [])]


def test_acks_that_hold_nothing_write_nothing(shop: Shop) -> None:
    shop.append()
    shop.log.is_holding = True
    assert results(ack_all(shop, named("a", 1), named("b", 2))) == [(0, [1]), (0, [2])]
    assert shop.log.held == []


def test_every_ack_tells_how_things_stand_after_all_of_them(shop: Shop) -> None:
    shop.append(5)
    shop.claim("a", 2)
    shop.claim("b", 2)
    for outcome in ack_all(shop, named("a", 1), named("b", 3)):
        assert isinstance(outcome, Acked)
        assert (outcome.ready, outcome.in_flight) == (1, 2)


def test_on_a_full_disk_each_ack_that_held_jobs_fails_and_has_given_them_back() -> None:
    shop = Shop({"durability": "disk"}, on_disk=True)
    shop.append(5)
    shop.claim("a", 2)
    shop.claim("b", 1)
    shop.fs.fail("pwrite", errno.ENOSPC)
    first, second, stale = ack_all(shop, named("a", 1, 2), named("b", 3), named("c", 1))
    assert isinstance(first, LogFull)
    assert isinstance(second, LogFull)
    assert isinstance(stale, Acked), "it had nothing to log"
    assert (stale.acked, stale.skipped, stale.ready, stale.in_flight) == (0, [1], 5, 0)
    assert shop.leases.deliveries == {1: 1, 2: 1, 3: 1}
    assert shop.claim("d", 9) == [1, 2, 3, 4, 5], "nothing is lost"
    shop.kill()
    assert shop.counts().ready == 5


def test_a_sync_that_fails_gives_the_jobs_of_every_ack_back(durable: Shop) -> None:
    durable.append(3)
    durable.claim("a", 2)
    durable.claim("b", 1)
    durable.fs.fail("fdatasync", errno.EIO)
    outcomes = ack_all(durable, named("a", 1, 2), named("b", 3))
    assert all(isinstance(outcome, Internal) for outcome in outcomes)
    assert (durable.counts().ready, durable.counts().in_flight) == (3, 0)


def test_while_acks_are_logged_nobody_else_gets_their_jobs(durable: Shop) -> None:
    durable.append(3)
    durable.claim("a", 2)
    durable.claim("b", 1)
    durable.log.is_holding = True
    acking = durable.loop.begin(durable.queues.ack_all(QUEUE, [named("a", 1, 2), named("b", 3)]))
    durable.clock.advance(LEASE_MS + 1)
    assert durable.claim("c", 3) == []
    assert results(ack_all(durable, named("a", 1), named("b", 3))) == [(0, [1]), (0, [3])]
    durable.log.let_go()
    durable.loop.settle()
    assert results(acking.result) == [(2, []), (1, [])]


def test_an_ack_skips_jobs_that_were_gone_when_it_came_to_them(durable: Shop) -> None:
    """Somebody else deletes jobs ahead of the ack in the log; each ack lost its own share."""
    durable.append(4)
    durable.claim("a", 2)
    durable.claim("b", 2)
    durable.log.is_holding = True
    deleting = durable.loop.begin(durable.engine.delete(QUEUE, before=4, match=None))
    acking = durable.loop.begin(
        durable.queues.ack_all(QUEUE, [named("a", 2, 9, 1), named("b", 4, 3, 4), named("c", 4)])
    )
    durable.log.let_go()
    durable.loop.settle()
    assert deleting.result.deleted == 3
    assert results(acking.result) == [(0, [2, 9, 1]), (1, [3, 4]), (0, [4])]


def test_acks_wait_for_a_queue_that_takes_no_writes(shop: Shop) -> None:
    shop.append(4)
    shop.claim("a", 2)
    shop.claim("b", 2)
    gates = shop.engine.kernel.gates
    gate = run(gates.close([shop.topic.id]))
    acking = shop.loop.begin(shop.queues.ack_all(QUEUE, [named("a", 1, 2), named("b", 3)]))
    assert not acking.is_over
    gates.open(gate)
    shop.loop.settle()
    assert results(acking.result) == [(2, []), (1, [])]


def test_acks_whose_jobs_are_all_gone_after_such_a_wait_skip_them(shop: Shop) -> None:
    shop.append(2)
    shop.claim("a", 1)
    shop.claim("b", 1)
    gates = shop.engine.kernel.gates
    gate = run(gates.close([shop.topic.id]))
    acking = shop.loop.begin(shop.queues.ack_all(QUEUE, [named("a", 1), named("b", 2)]))
    shop.topic.lose(ttl_hi=2, cap_hi=0)
    gates.open(gate)
    shop.loop.settle()
    assert results(acking.result) == [(0, [1]), (0, [2])]


def test_acks_beside_a_drop_of_their_queue_are_refused_and_take_no_bytes(durable: Shop) -> None:
    durable.append(3, name="kept")
    left = durable.engine.kernel.catalog.bytes
    durable.append(3)
    durable.claim("a", 2)
    durable.claim("b", 1)
    durable.log.is_holding = True
    dropping = durable.loop.begin(durable.engine.drop(QUEUE))
    acking = durable.loop.begin(durable.queues.ack_all(QUEUE, [named("a", 1, 2), named("b", 3)]))
    durable.log.is_holding = False
    durable.log.let_go()
    durable.loop.settle()
    assert dropping.result.deleted
    assert all(isinstance(outcome, TopicNotFound) for outcome in acking.result)
    assert durable.engine.kernel.catalog.bytes == left


def test_finished_leases_of_every_ack_leave_their_trace(durable: Shop) -> None:
    durable.append(4)
    durable.claim("a", 2)
    durable.claim("b", 2)
    ack_all(durable, named("a", 1), named("b", 4))
    durable.kill()
    assert {seq: lease.node for seq, lease in durable.leases.leased.items()} == {2: "a", 3: "b"}


def test_acks_of_an_absent_queue_are_refused(shop: Shop) -> None:
    with pytest.raises(TopicNotFound):
        run(shop.queues.ack_all("none", [named("a", 1)]))


# Claims


def test_claims_are_served_one_after_the_other(shop: Shop) -> None:
    shop.append(9)
    shop.claim("z", 2)
    run(shop.queues.nack(QUEUE, node="z", seqs=[1, 2]))
    given = claim_all(
        shop, claimer(shop, "a", 3), claimer(shop, "b", 2), claimer(shop, "c", 7, 5000)
    )
    assert given == [[1, 2, 3], [4, 5], [6, 7, 8, 9]], "reclaimed jobs first, none dealt in turn"
    held = shop.leases.leased
    assert {seq: lease.node for seq, lease in held.items()} == dict(
        zip(range(1, 10), "aaabbcccc", strict=True)
    )
    assert len({lease.lease_id for lease in held.values()}) == 9
    assert held[6].deadline_ms - held[1].deadline_ms == 5000 - LEASE_MS
    assert claim_all(shop, claimer(shop, "a", 3), claimer(shop, "b", 2)) == [[], []]


def test_a_claimer_that_has_gone_gets_nothing_and_keeps_nobody_from_theirs(shop: Shop) -> None:
    shop.append(4)
    left = claimer(shop, "a", 2)
    left.presence.leave()
    assert claim_all(shop, left, claimer(shop, "b", 3), left) == [[], [1, 2, 3], []]


def test_jobs_found_spent_on_the_way_become_letters(shop: Shop) -> None:
    shop.put(QUEUE, type="queue", max_deliveries=1, dead_letter="letters")
    shop.append(4)
    shop.claim("z", 2)
    run(shop.queues.nack(QUEUE, node="z", seqs=[1, 2]))
    assert claim_all(shop, claimer(shop, "a", 1), claimer(shop, "b", 1)) == [[3], [4]]
    assert [data for _, data, _ in shop.datas("letters")] == [0, 1]


def test_claims_read_what_is_not_in_memory(shop: Shop) -> None:
    shop.append(6)
    shop.engine.checkpoint()
    shop.append(3)
    given = run(shop.queues.claim_all(QUEUE, [claimer(shop, "a", 2), claimer(shop, "b", 5)]))
    assert [[job.data for job in x.jobs] for x in given if isinstance(x, ClaimedJobs)] == [
        [0, 1],
        [2, 3, 4, 5, 0],
    ]


def test_who_leaves_while_jobs_are_read_gives_them_back(shop: Shop) -> None:
    shop.append(6)
    shop.engine.checkpoint()
    leaving = claimer(shop, "a", 2)
    op = shop.queues.claim_all(QUEUE, [leaving, claimer(shop, "b", 2)])
    wait = next(op)
    leaving.presence.leave()
    try:
        while True:
            wait = op.send(wait.work())  # type: ignore[union-attr]  # files are all it waits for
    except StopIteration as finished:
        first, second = finished.value
    assert [list(first.jobs), [job.seq for job in second.jobs]] == [[], [3, 4]]
    assert shop.claim("c", 2) == [1, 2]


def test_a_claim_whose_jobs_cannot_be_read_fails_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.append(8)  # two segments of four
    shop.engine.checkpoint()
    shop.kill()
    fetch = Reader._fetch

    def rotten(reader: Reader, topic: Topic, stretch: LiveRange, room: int) -> Op[Fetched]:
        if stretch.lo <= 4:
            raise Internal("the first segment cannot be read")
        return (yield from fetch(reader, topic, stretch, room))

    monkeypatch.setattr(Reader, "_fetch", rotten)
    asking = [claimer(shop, "a", 4), claimer(shop, "b", 3), claimer(shop, "c", 2)]
    first, second, third = run(shop.queues.claim_all(QUEUE, asking))
    assert isinstance(first, Internal)
    assert isinstance(second, ClaimedJobs)
    assert isinstance(third, ClaimedJobs)
    assert [job.seq for job in second.jobs] == [5, 6, 7]
    assert [job.seq for job in third.jobs] == [8]
    monkeypatch.undo()
    assert shop.claim("d", 8) == [1, 2, 3, 4]


def test_durable_leases_of_every_claim_survive(durable: Shop) -> None:
    durable.append(5)
    claim_all(durable, claimer(durable, "a", 2), claimer(durable, "b", 2))
    held = without_claim_times(durable)
    durable.kill()
    assert durable.leases.leased == held
    assert durable.claim("c", 5) == [5]
