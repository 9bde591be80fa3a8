"""Seqs of a `disk` topic are reserved durably, and early enough that a server does not wait."""

from __future__ import annotations

import pytest
from tests.unit.engine.test_admission import DATA, Slow

from topics.batch import RecordBatch
from topics.core.topic import Topic
from topics.engine.effects import run
from topics.engine.writes.append import Timing
from topics.engine.writes.reserving import RESERVE_BLOCK
from topics.errors import Internal


def queued() -> tuple[Slow, Topic]:
    """A log with a queue, as a server has, and a topic that has just begun a block."""
    slow = Slow()
    slow.engine.kernel.committer.is_queued = True
    run(slow.engine.put("t", {"durability": "disk"}))
    topic = slow.engine.kernel.topic("t")
    slow.write(topic.reserved + 1)  # beyond what a new topic has
    assert topic.reserved == topic.handed_out + RESERVE_BLOCK
    return slow, topic


def test_the_next_block_is_asked_for_when_half_of_one_is_used() -> None:
    slow, topic = queued()
    ceiling = topic.reserved
    slow.write(RESERVE_BLOCK // 2 - 1)
    assert topic.reserved == ceiling
    slow.write()
    assert topic.reserved > ceiling


def test_writes_go_on_below_the_ceiling_while_the_next_block_is_on_its_way() -> None:
    slow, topic = queued()
    ceiling = topic.reserved
    slow.write(RESERVE_BLOCK // 2 - 1)
    slow.log.is_holding = True
    within = [slow.write(), slow.write(RESERVE_BLOCK // 4)]
    above = [slow.write(RESERVE_BLOCK), slow.write(RESERVE_BLOCK)]
    assert topic.handed_out <= ceiling == topic.reserved, "nothing beyond what is durable"
    slow.log.is_holding = False
    slow.let_go()
    assert all(task.result.last_seq <= ceiling for task in within)
    assert all(task.result.last_seq <= topic.reserved for task in above)


def test_those_who_wait_at_the_ceiling_share_one_reservation() -> None:
    slow = Slow()
    slow.engine.kernel.committer.is_queued = True
    run(slow.engine.put("t", {"durability": "disk"}))
    slow.write(RESERVE_BLOCK)
    slow.log.is_holding = True
    waiting = [slow.write() for _ in range(10)]
    assert len(slow.log.held) == 1
    slow.log.is_holding = False
    slow.let_go()
    assert sorted(task.result.last_seq for task in waiting) == list(range(257, 267))


def test_a_log_without_a_queue_reserves_only_at_the_ceiling() -> None:
    slow = Slow()
    run(slow.engine.put("t", {"durability": "disk"}))
    slow.write(RESERVE_BLOCK + 1)
    topic = slow.engine.kernel.topic("t")
    ceiling = topic.reserved
    run(slow.engine.append("t", RecordBatch([DATA] * (ceiling - topic.handed_out))))
    assert topic.reserved == ceiling == topic.handed_out


def test_a_small_write_does_not_pass_a_large_one_that_waits_at_the_ceiling() -> None:
    slow, topic = queued()
    slow.log.is_holding = True
    below = topic.reserved - topic.handed_out
    came = [slow.write(below + 1), slow.write(), slow.write(below), slow.write()]
    slow.log.is_holding = False
    slow.let_go()
    seqs = [task.result.last_seq for task in came]
    assert seqs == sorted(seqs)
    assert not slow.engine.kernel.gates.closed


def test_a_write_does_not_pass_writes_done_together_that_wait_at_the_ceiling() -> None:
    slow, topic = queued()
    slow.log.is_holding = True
    many = RecordBatch([DATA] * (topic.reserved - topic.handed_out))
    batches = [many, RecordBatch([DATA])]
    together = slow.loop.begin(slow.engine.append_together("t", batches, Timing()))
    later = slow.write()
    slow.engine.kernel.host.pace_ms = lambda topic: 0.0  # from now on others would go one by one
    slow.log.is_holding = False
    slow.let_go()
    acks = together.result
    assert acks is not None, "they are still done together"
    assert later.result.last_seq == acks[-1].last_seq + 1
    assert not slow.engine.kernel.gates.closed


def test_a_reservation_that_fails_does_not_hold_up_those_behind() -> None:
    slow, topic = queued()
    slow.log.is_holding = True
    above, below = slow.write(topic.reserved - topic.handed_out + 1), slow.write()
    (reservation,) = slow.log.held
    slow.log.held, slow.log.is_holding = [], False
    reservation.error, reservation.done = Internal("no"), True
    reservation.on_done(reservation)
    slow.loop.settle()
    with pytest.raises(Internal):
        _ = above.result
    assert below.result.last_seq == topic.handed_out
    assert not slow.engine.kernel.gates.closed
