"""Claims and acks do not depend on the past of a queue: steps are counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

import topics
from topics.embedded import Log
from topics.testing import ManualClock

BATCH = 8
ROUNDS = 5


def steps(work: Callable[[], object]) -> int:
    """How many calls, of Python or of C, a piece of work takes."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.fixture
def log() -> Iterator[Log]:
    with topics.open(None, clock=ManualClock()) as opened:
        yield opened


def fill(log: Log, count: int) -> None:
    log.append("jobs", [{"data": n} for n in range(count)])


def with_a_past(log: Log, size: int) -> None:
    """So many jobs done, and as many on lease, delayed and dead."""
    log.create("jobs", type="queue", max_deliveries=1, dead_letter="letters")
    worker = log.queue("jobs", node="past")
    fill(log, 4 * size)
    worker.ack(worker.claim(size))
    worker.claim(size, lease_ms=3_600_000)
    worker.nack(worker.claim(size), delay_ms=3_600_000)
    worker.nack(worker.claim(size))
    worker.claim()  # finds them all spent
    assert worker.stats().to_dict() == {"ready": 0, "in_flight": size, "dead_lettered": size}


def one_round(log: Log) -> int:
    """The steps of a claim and the ack of what it gave, when nothing is due beside them."""
    worker = log.queue("jobs", node="now")

    def work() -> None:
        assert worker.ack(worker.claim(BATCH)).acked == BATCH

    return min(steps(work) for _ in range(ROUNDS))


def test_a_claim_and_its_ack_take_as_many_steps_whatever_was_before(log: Log) -> None:
    with_a_past(log, 10)
    fill(log, ROUNDS * BATCH)
    few = one_round(log)
    with topics.open(None, clock=ManualClock()) as other:
        with_a_past(other, 900)
        fill(other, 20 * ROUNDS * BATCH)
        assert one_round(other) <= few + 4
    assert few < 400, "a batch of jobs must not cost hundreds of calls"
