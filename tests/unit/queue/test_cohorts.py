"""Claims that arrive together share what there is, whoever leaves meanwhile."""

from __future__ import annotations

import pytest
from tests.unit.queue.builders import QUEUE, Shop

from topics.engine.effects import run
from topics.engine.upkeep.lease_log import Presence
from topics.errors import TopicNotFound
from topics.queue import ClaimedJobs

WINDOW_MS = 50


@pytest.fixture
def shop() -> Shop:
    return Shop({"claim_jitter_ms": WINDOW_MS})


def seqs(claimed: ClaimedJobs) -> list[int]:
    return [job.seq for job in claimed.jobs]


@pytest.mark.parametrize(
    ("jobs", "wants", "shares"),
    [
        (20, [10, 10, 10, 10], [5, 5, 5, 5]),
        (50, [10] * 10, [5] * 10),
        (9, [2, 100], [2, 7]),
        (7, [5, 5, 5], [3, 2, 2]),
        (2, [1, 1, 1], [1, 1, 0]),
        (0, [3, 3], [0, 0]),
    ],
)
def test_shares_differ_by_at_most_one_among_those_who_want_more(
    shop: Shop, jobs: int, wants: list[int], shares: list[int]
) -> None:
    if jobs:
        shop.append(jobs)
    claims = [shop.claiming(f"w{at}", most) for at, most in enumerate(wants)]
    assert not any(claim.is_over for claim in claims)
    shop.loop.advance(WINDOW_MS)
    got = [seqs(claim.result) for claim in claims]
    assert [len(given) for given in got] == shares
    assert sorted(seq for given in got for seq in given) == list(range(1, jobs + 1))
    assert all(given == sorted(given) for given in got)


def test_a_window_ends_by_the_clock_and_not_before(shop: Shop) -> None:
    shop.append(4)
    first = shop.claiming("a", 4)
    shop.loop.advance(WINDOW_MS - 1)
    late = shop.claiming("b", 4)
    assert not first.is_over
    shop.loop.advance(1)
    assert (seqs(first.result), seqs(late.result)) == ([1, 3], [2, 4])
    assert not shop.claiming("c").is_over  # a window of its own


def test_each_claimer_keeps_its_own_lease_time(shop: Shop) -> None:
    shop.append(2)
    short, long = shop.claiming("a", 1, 100), shop.claiming("b", 1, 5000)
    shop.loop.advance(WINDOW_MS)
    now = shop.clock.now_ms()
    assert short.result.jobs[0].deadline_ms == now + 100
    assert long.result.jobs[0].deadline_ms == now + 5000


def test_those_who_stay_are_served_when_the_one_who_opened_the_window_leaves(shop: Shop) -> None:
    shop.append(4)
    opener = Presence()
    first = shop.claiming("a", 4, presence=opener)
    second = shop.claiming("b", 4)
    opener.leave()
    shop.loop.advance(WINDOW_MS)
    assert seqs(first.result) == []
    assert seqs(second.result) == [1, 2, 3, 4]
    assert shop.counts().in_flight == 4


def test_jobs_of_a_claimer_that_left_before_its_answer_are_free_at_once() -> None:
    shop = Shop({"max_deliveries": 1, "dead_letter": "letters", "durability": "fsync"}, True)
    shop.append(2)
    shop.claim("a", 1, 100)
    shop.loop.advance(101)
    presence = Presence()
    shop.log.is_holding = True  # the dead letter of job 1 holds the answer up
    claiming = shop.claiming("b", 2, presence=presence)
    assert not claiming.is_over
    assert set(shop.leases.leased) == {2}
    presence.leave()
    shop.log.is_holding = False
    while shop.log.held:
        shop.log.let_go()
        shop.loop.settle()
    assert seqs(claiming.result) == []
    assert shop.leases.leased == {}
    assert shop.leases.deliveries == {2: 1}


def test_a_queue_dropped_in_the_window_answers_everybody(shop: Shop) -> None:
    shop.append(4)
    claims = [shop.claiming("a"), shop.claiming("b")]
    run(shop.engine.drop(QUEUE))
    shop.loop.advance(WINDOW_MS)
    for claim in claims:
        with pytest.raises(TopicNotFound):
            _ = claim.result
