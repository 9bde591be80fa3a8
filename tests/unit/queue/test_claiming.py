"""What one claim may be given: as many jobs as it asked for, within the bytes of one answer."""

from __future__ import annotations

import pytest
from tests.unit.queue.builders import QUEUE, Shop

from topics.batch import RecordBatch
from topics.engine.effects import run
from topics.queue.claiming import CLAIM_BYTES

SHARE = 16
"""Large jobs of which so many are just what a claim may have."""
LARGE = CLAIM_BYTES // SHARE


@pytest.fixture(params=["memory", "disk"])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop({"lease_ms": 1000}, on_disk=request.param == "disk", segment_events=5)


def append(shop: Shop, *sizes: int) -> None:
    for size in sizes:
        data = b'"' + b"x" * (size - 2) + b'"'
        run(shop.engine.append(QUEUE, RecordBatch([data])))


def test_a_claim_has_as_many_bytes_as_a_page_and_the_rest_is_for_the_next(shop: Shop) -> None:
    append(shop, *[LARGE] * (SHARE + 3))
    task = shop.claiming("a", 1000)
    assert [job.seq for job in task.result.jobs] == [*range(1, SHARE + 1)]
    assert task.result.ready == 3
    assert shop.claim("b", 1000) == [SHARE + 1, SHARE + 2, SHARE + 3]
    assert shop.leases.deliveries == dict.fromkeys(range(1, SHARE + 4), 1)


def test_what_was_too_much_is_handed_out_before_fresh_jobs(shop: Shop) -> None:
    append(shop, *[LARGE] * (SHARE + 1))
    shop.claim("a", 1000)
    append(shop, 10)
    assert shop.claim("b", 1) == [SHARE + 1]
    assert shop.claim("b", 1) == [SHARE + 2]


def test_large_jobs_among_small_ones_are_weighed_one_by_one(shop: Shop) -> None:
    append(shop, *[10] * 20, *[LARGE] * (SHARE + 5))
    assert shop.claim("a", 1000) == [*range(1, 20 + SHARE)]


def test_jobs_that_came_back_from_far_apart_are_weighed_too(shop: Shop) -> None:
    append(shop, *[LARGE if number % 8 == 0 else 10 for number in range(8 * (SHARE + 4))])
    while shop.claim("a", 8):
        pass
    large = [1 + 8 * number for number in range(SHARE + 4)]
    run(shop.queues.nack(QUEUE, node="a", seqs=large))
    assert shop.claim("b", 1000) == large[:SHARE]
    assert shop.claim("b", 1000) == large[SHARE:]


def test_a_cohort_gives_nobody_more_than_that() -> None:
    shop = Shop({"claim_jitter_ms": 50})
    append(shop, *[LARGE] * (2 * SHARE + 6))
    claims = [shop.claiming(node, 1000) for node in "ab"]
    shop.loop.advance(50)
    got = [[job.seq for job in claim.result.jobs] for claim in claims]
    assert got == [[*range(1, 2 * SHARE, 2)], [*range(2, 2 * SHARE + 1, 2)]]
    last = shop.claiming("c", 1000)
    shop.loop.advance(50)
    assert [job.seq for job in last.result.jobs] == [*range(2 * SHARE + 1, 2 * SHARE + 7)]


def test_a_claim_of_a_few_is_not_weighed() -> None:
    shop = Shop()
    append(shop, *[1 << 20] * 9)
    assert shop.claim("a", 8) == [*range(1, 9)]


def test_the_first_job_is_given_whatever_its_size() -> None:
    shop = Shop()
    append(shop, CLAIM_BYTES + 1, *[10] * 20)
    assert shop.claim("a", 1000) == [1]
