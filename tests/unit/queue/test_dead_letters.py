"""Jobs that were delivered too often move away whole, or stay; and come back on request."""

from __future__ import annotations

import pytest
from tests.unit.queue.builders import QUEUE, Shop

from topics.batch import RecordBatch
from topics.engine.effects import run
from topics.errors import BatchTooLarge, InvalidRequest, NotAQueue, TopicFull, TopicNotFound
from topics.testing import stop_at
from topics.values import Redriven

LETTERS = "letters"
LEASE_MS = 100


def shop_with(**config: object) -> Shop:
    return Shop(
        {"lease_ms": LEASE_MS, "max_deliveries": 1, "dead_letter": LETTERS, **config},
        on_disk=bool(config.get("durability")),
    )


def spend(shop: Shop, count: int) -> None:
    """Deliver jobs as often as they may be, without an ack."""
    assert len(shop.claim(most=count)) == count
    shop.clock.advance(LEASE_MS + 1)


def redrive(
    shop: Shop, most: int = 100, source: str | None = None, seqs: list[int] | None = None
) -> Redriven:
    return run(shop.queues.redrive(QUEUE, source=source, most=most, seqs=seqs))


def test_a_spent_job_becomes_a_letter_that_says_where_it_came_from() -> None:
    shop = shop_with()
    batch = RecordBatch([b"[1]"], [b'{"a":1}'], ["t"], ["n"])
    run(shop.engine.append(QUEUE, batch))
    spend(shop, 1)
    assert shop.claim() == []
    (letter,) = run(shop.engine.page(shop.engine.kernel.topic(LETTERS), 0, 10)).records
    assert (letter.data, letter.tag, letter.node) == ([1], "t", "n")
    assert letter.meta == {
        "a": 1,
        "$dead_letter_from": QUEUE,
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
    }
    assert shop.topic.count == 0
    assert shop.counts().dead_lettered == 1


def fail(shop: Shop, seq: int = 1, error: tuple[str, str] | None = ("ValueError", "bad")) -> None:
    assert shop.claim("w") == [seq]
    run(shop.queues.nack(QUEUE, node="w", seqs=[seq], error=error))


def test_a_letter_keeps_what_the_last_worker_failed_with_until_it_is_redriven() -> None:
    shop = shop_with()
    shop.append(1, meta=b'{"a":1}')
    fail(shop)
    assert shop.claim() == []
    ((_, _, meta),) = shop.datas(LETTERS)
    assert meta == {
        "a": 1,
        "$dead_letter_from": QUEUE,
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
        "$dead_letter_error_type": "ValueError",
        "$dead_letter_error": "bad",
        "$dead_letter_worker": "w",
        "$dead_letter_failed_at": str(shop.clock.now_ms()),
    }
    assert redrive(shop).moved == 1
    assert [meta for _, _, meta in shop.datas(QUEUE)] == [{"a": 1}]
    assert shop.topic.leases is not None
    assert not shop.topic.leases.failures, "a job that is gone leaves nothing behind"


@pytest.mark.parametrize("meta", [b"", b"[1]", b'"text"', b'{"$dead_letter_from":"other"}'])
def test_meta_that_is_no_object_or_an_old_letter_is_replaced(meta: bytes) -> None:
    shop = shop_with()
    shop.append(1, meta=meta)
    spend(shop, 1)
    shop.claim()
    ((_, _, shown),) = shop.datas(LETTERS)
    assert isinstance(shown, dict)
    assert set(shown) == {
        "$dead_letter_from",
        "$dead_letter_deliveries",
        "$dead_letter_src_seq",
    }
    assert shown["$dead_letter_from"] == QUEUE


def test_a_claim_passes_spent_jobs_and_gives_the_next_ones() -> None:
    shop = shop_with()
    shop.append(600)
    spend(shop, 500)
    assert shop.claim("b", 100) == list(range(501, 601))
    assert shop.counts().dead_lettered == 500
    assert [data for _, data, _ in shop.datas(LETTERS)] == list(range(500))


def test_no_job_is_moved_without_both_a_limit_and_a_place_for_letters() -> None:
    for config in ({"dead_letter": None}, {"max_deliveries": 0}):
        shop = shop_with(**config)
        shop.append()
        for delivery in range(1, 5):
            (job,) = shop.claiming().result.jobs
            assert job.deliveries == delivery
            shop.clock.advance(LEASE_MS + 1)


def test_a_full_place_for_letters_leaves_jobs_where_they_are_undelivered() -> None:
    shop = shop_with()
    shop.put(LETTERS, cap_records=2, discard="reject")
    shop.append(5)
    spend(shop, 4)
    assert shop.claim("b") == [5]
    assert shop.counts().dead_lettered == 2, "as many as fit"
    assert shop.counts().ready == 2
    assert shop.claim("b") == []
    assert (shop.topic.count, shop.counts().dead_lettered) == (3, 2)
    run(shop.engine.delete(LETTERS, before=2, match=None))
    assert shop.claim("b") == []
    assert (shop.topic.count, shop.counts().dead_lettered) == (2, 3)


def test_spent_jobs_are_delivered_again_once_the_queue_allows_more() -> None:
    shop = shop_with()
    shop.put(LETTERS, cap_records=1, discard="reject")
    shop.append(1, name=LETTERS)
    shop.append(2)
    spend(shop, 2)
    assert shop.claim() == []
    shop.put(QUEUE, type="queue", lease_ms=LEASE_MS, max_deliveries=2, dead_letter=LETTERS)
    assert shop.claim(most=2) == [1, 2]
    assert shop.counts().dead_lettered == 0


def test_many_spent_jobs_that_cannot_move_cost_a_claim_nothing() -> None:
    shop = shop_with()
    shop.put(LETTERS, cap_records=1, discard="reject")
    shop.append(1, name=LETTERS)
    shop.append(2001)
    for _ in range(2):
        shop.claim(most=1000)
    shop.clock.advance(LEASE_MS + 1)
    assert shop.claim("b") == [2001]
    appends = 0
    append = shop.engine.append

    def counted(name: str, batch: RecordBatch, **more: object) -> object:
        nonlocal appends
        appends += len(batch)
        return append(name, batch, **more)  # type: ignore[arg-type]  # passed on as they came

    shop.engine.append = counted  # type: ignore[assignment]  # it counts as well
    assert shop.claim("b") == []
    assert appends == 1, "one letter is tried, not two thousand"


@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_between_copy_and_delete_loses_no_job(nth: int) -> None:
    shop = shop_with(durability="fsync", leases_durable=True)
    shop.append(2)
    spend(shop, 2)
    with stop_at("wal.after_sync", shop.disk.kill, nth=nth) as stop:
        shop.claim()
    assert stop.reached
    shop.open()
    left = {data for _, data, _ in shop.datas(QUEUE)}
    letters = {data for _, data, _ in shop.datas(LETTERS)} if nth > 1 else set()
    assert left | letters == {0, 1}
    shop.claim()
    assert {data for _, data, _ in shop.datas(LETTERS)} == {0, 1}
    assert shop.topic.count == 0


# Back into the queue


def buried(jobs: int = 3) -> Shop:
    shop = shop_with()
    shop.append(jobs, meta=b'{"a":1}')
    spend(shop, jobs)
    shop.claim()
    return shop


def test_letters_come_back_as_new_jobs_the_oldest_first() -> None:
    shop = buried()
    assert redrive(shop, most=2).to_dict() == {
        "topic": QUEUE,
        "source": LETTERS,
        "moved": 2,
        "more": True,
    }
    assert shop.datas(QUEUE) == [(4, 0, {"a": 1}), (5, 1, {"a": 1})]
    (job, _) = shop.claiming(most=2).result.jobs
    assert job.deliveries == 1
    assert redrive(shop).moved == 1
    assert redrive(shop).to_dict()["moved"] == 0
    assert shop.datas(LETTERS) == []


def test_only_letters_of_this_queue_come_back() -> None:
    shop = buried(1)
    shop.append(1, name=LETTERS, meta=b'{"$dead_letter_from":"other"}')
    shop.append(1, name=LETTERS)
    done = redrive(shop)
    assert (done.moved, done.more) == (1, False)
    assert len(shop.datas(LETTERS)) == 2


def test_a_letter_without_other_meta_comes_back_without_any() -> None:
    shop = shop_with()
    shop.append()
    spend(shop, 1)
    shop.claim()
    redrive(shop)
    assert shop.datas(QUEUE) == [(2, 0, None)]


def test_a_full_queue_stops_a_redrive_and_refuses_one_that_moves_nothing() -> None:
    shop = buried()
    shop.put(
        QUEUE, type="queue", cap_records=1, discard="reject", max_deliveries=1, dead_letter=LETTERS
    )
    done = redrive(shop)
    assert (done.moved, done.more) == (1, True)
    with pytest.raises(TopicFull):
        redrive(shop)
    assert len(shop.datas(LETTERS)) == 2


def test_two_redrives_at_once_move_each_letter_once() -> None:
    shop = shop_with(durability="fsync")
    shop.append(4)
    spend(shop, 4)
    shop.claim()
    shop.log.is_holding = True
    tasks = [shop.loop.begin(shop.queues.redrive(QUEUE)) for _ in range(2)]
    while shop.log.held:
        shop.log.let_go()
        shop.loop.settle()
    assert sorted(task.result.moved for task in tasks) == [0, 4]
    assert [data for _, data, _ in shop.datas(QUEUE)] == [0, 1, 2, 3]


def test_a_redrive_is_refused_without_a_known_place_for_letters() -> None:
    shop = Shop()
    with pytest.raises(InvalidRequest):
        redrive(shop)
    with pytest.raises(TopicNotFound):
        redrive(shop, source="absent")
    shop.put("log")
    with pytest.raises(NotAQueue):
        run(shop.queues.redrive("log"))
    with pytest.raises(TopicNotFound):
        run(shop.queues.redrive("absent"))


def test_a_queue_dropped_while_its_letters_move_is_not_found_and_forgotten() -> None:
    shop = shop_with(durability="fsync")
    shop.append(4)
    spend(shop, 4)
    shop.log.is_holding = True
    claiming = shop.claiming()  # it moves the spent jobs first
    dropping = shop.loop.begin(shop.engine.drop(QUEUE))
    while shop.log.held:
        shop.log.let_go()
        shop.loop.settle()
    assert dropping.result.deleted
    assert isinstance(claiming.error, TopicNotFound)
    assert not shop.queues._letters._at_once


def test_nothing_is_remembered_of_a_dropped_queue_whose_letters_found_no_room() -> None:
    shop = shop_with()
    shop.put(LETTERS, cap_records=1, discard="reject")
    shop.append(1, name=LETTERS)
    shop.append(2)
    spend(shop, 2)
    assert shop.claim() == []
    assert shop.queues._letters._at_once
    run(shop.engine.drop(QUEUE))
    assert not shop.queues._letters._at_once


def test_letters_dropped_beside_a_redrive_are_not_found_and_none_is_counted_twice() -> None:
    shop = shop_with(durability="fsync")
    shop.append(1)
    spend(shop, 1)
    assert shop.claim() == []
    shop.log.is_holding = True
    redriving = shop.loop.begin(shop.queues.redrive(QUEUE))
    dropping = shop.loop.begin(shop.engine.drop(LETTERS))
    while shop.log.held:
        shop.log.let_go()
        shop.loop.settle()
    assert dropping.result.deleted
    assert isinstance(redriving.error, TopicNotFound)
    assert shop.engine.kernel.catalog.bytes == shop.topic.bytes


def test_exactly_the_letters_that_are_named_go_back() -> None:
    shop = shop_with(durability="disk")
    shop.append(5)
    spend(shop, 5)
    assert shop.claim() == []
    run(shop.engine.append(LETTERS, RecordBatch([b"6"])))  # no letter of this queue
    named = [4, 2, 4, 6, 77]
    assert redrive(shop, most=1, seqs=named) == Redriven(QUEUE, LETTERS, 2, False)
    assert [seq for seq, _, _ in shop.datas(LETTERS)] == [1, 3, 5, 6]
    assert [data for _, data, _ in shop.datas(QUEUE)] == [1, 3]
    assert redrive(shop, seqs=named).moved == redrive(shop, seqs=[]).moved == 0
    with pytest.raises(BatchTooLarge):
        redrive(shop, seqs=list(range(1001)))


def test_named_letters_stay_when_the_queue_is_full() -> None:
    shop = shop_with(cap_records=2, discard="reject")
    for _ in range(4):
        shop.append()
        spend(shop, 1)
        assert shop.claim() == []
    assert redrive(shop, seqs=[1, 2, 3]) == Redriven(QUEUE, LETTERS, 2, True)
    with pytest.raises(TopicFull):
        redrive(shop, seqs=[3])
    assert [seq for seq, _, _ in shop.datas(LETTERS)] == [3, 4]
