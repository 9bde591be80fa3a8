"""Jobs are looked at without being taken: which worker holds a job, since when, until when."""

from __future__ import annotations

import pytest
from tests.unit.queue.builders import QUEUE, Shop

from topics.batch import RecordBatch
from topics.engine.effects import run
from topics.errors import NotAQueue
from topics.queue import peeking
from topics.values import Failure, JobState, PeekedJob, PeekedJobs

LEASE_MS = 1000


def peek(shop: Shop, state: JobState | None = None, most: int = 100) -> PeekedJobs:
    return run(shop.queues.peek(QUEUE, state=state, most=most))


def seqs(found: PeekedJobs) -> list[int]:
    return [job.seq for job in found.jobs]


def test_leased_jobs_come_first_then_delayed_then_ready() -> None:
    shop = Shop({"lease_ms": LEASE_MS})
    now = shop.clock.now_ms()
    shop.append(6)
    assert shop.claim("a", most=3) == [1, 2, 3]
    shop.clock.advance(10)
    run(shop.queues.nack(QUEUE, node="a", seqs=[1], delay_ms=500, error=("E", "bad")))
    run(shop.queues.nack(QUEUE, node="a", seqs=[2]))
    run(shop.queues.extend(QUEUE, node="a", seqs=[3], lease_ms=5000))
    found = peek(shop)
    assert (found.topic, found.more, seqs(found)) == (QUEUE, False, [3, 1, 2, 4, 5, 6])
    leased, delayed, again, fresh = found.jobs[:4]
    assert leased == PeekedJob(3, "leased", 1, "a", now, now + 5010, raw=b"2")
    failure = Failure("a", now + 10, "E", "bad")
    assert delayed == PeekedJob(1, "delayed", 1, ready_ts=now + 510, last_error=failure, raw=b"0")
    assert (again.state, again.deliveries, fresh.state, fresh.deliveries) == (
        "ready",
        1,
        "ready",
        0,
    )
    assert leased.data == 2
    assert delayed.to_dict()["last_error"] == {
        "type": "E",
        "message": "bad",
        "node": "a",
        "ts": now + 10,
    }
    assert "node" not in fresh.to_dict()
    assert seqs(peek(shop)) == seqs(found), "nothing was taken"
    assert shop.claim("b", most=9) == [2, 4, 5, 6]
    shop.clock.advance(9999)
    assert {job.state for job in peek(shop).jobs} == {"ready"}


@pytest.mark.parametrize(
    ("state", "most", "expected", "more"),
    [
        ("leased", 9, [1, 2], False),
        ("leased", 1, [1], True),
        ("delayed", 9, [3], False),
        ("ready", 9, [4, 5], False),
        ("ready", 0, [4], True),
        (None, 4, [1, 2, 3, 4], True),
    ],
)
def test_a_state_and_a_number_choose(
    state: JobState | None, most: int, expected: list[int], more: bool
) -> None:
    shop = Shop({"lease_ms": LEASE_MS}, on_disk=True)
    shop.append(5)
    shop.claim("a", most=3)
    run(shop.queues.nack(QUEUE, node="a", seqs=[3], delay_ms=500))
    found = peek(shop, state, most)
    assert (seqs(found), found.more) == (expected, more)


def test_many_and_large_jobs_are_read_in_slices_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop({"lease_ms": LEASE_MS})
    shop.append(70)
    assert len(peek(shop).jobs) == 70
    monkeypatch.setattr(peeking, "PEEK_BYTES", 30)
    found = peek(shop)
    assert (len(found.jobs), found.more) == (20, True)
    run(shop.engine.append(QUEUE, RecordBatch([b"1" * 99])))
    run(shop.engine.delete(QUEUE, before=71, match=None))
    assert seqs(peek(shop)) == [71], "the first is told whatever its size"


def test_spent_jobs_that_cannot_become_letters_are_told() -> None:
    shop = Shop({"lease_ms": LEASE_MS, "max_deliveries": 1, "dead_letter": "letters"})
    run(shop.engine.put("letters", {"cap_records": 1, "discard": "reject"}))
    run(shop.engine.append("letters", RecordBatch([b"0"])))
    shop.append(2)
    assert shop.claim(most=1) == [1]
    shop.clock.advance(LEASE_MS + 1)
    assert shop.claim("b") == [2]
    found = peek(shop)
    assert [(job.seq, job.state, job.deliveries) for job in found.jobs] == [
        (2, "leased", 1),
        (1, "ready", 1),
    ]


def test_a_log_has_no_jobs() -> None:
    shop = Shop({})
    run(shop.engine.put("log", {}))
    with pytest.raises(NotAQueue):
        run(shop.queues.peek("log"))
