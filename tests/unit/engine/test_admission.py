"""Caps and quotas count what is on its way through the log, not only what is visible."""

from __future__ import annotations

import pytest
from tests.unit.queue.builders import HeldLog, Task, VirtualLoop

from topics.batch import RecordBatch
from topics.engine.effects import run
from topics.engine.engine import Engine
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.routers.routing import RouterSpec
from topics.engine.settings import EngineSettings
from topics.errors import Throttled, TopicFull
from topics.testing import ManualClock, SimDisk
from topics.values import Ack

DATA = b'"12345678"'


class Slow:
    """An engine whose log takes its time."""

    def __init__(self, max_total_bytes: int = 0) -> None:
        clock = ManualClock()
        opening = Opening(
            EngineSettings(wal_shards=1, max_total_bytes=max_total_bytes),
            clock,
            prealloc_start=4096,
        )
        self.engine: Engine = open_engine(SimDisk().mount(), "/data", opening)
        self.log = HeldLog(self.engine.kernel.committer)
        self.engine.kernel.committer = self.log
        self.loop = VirtualLoop(clock)

    def write(self, count: int = 1) -> Task[Ack]:
        return self.loop.begin(self.engine.append("t", RecordBatch([DATA] * count)))

    def let_go(self) -> None:
        self.log.let_go()
        self.loop.settle()


@pytest.mark.parametrize("cap", [{"cap_records": 3}, {"cap_bytes": 3 * len(DATA)}])
def test_writes_that_wait_for_the_log_take_their_place_below_the_cap(cap: dict[str, int]) -> None:
    slow = Slow()
    run(slow.engine.put("t", {"discard": "reject", "durability": "fsync", **cap}))
    slow.log.is_holding = True
    waiting = [slow.write(2), slow.write(1)]
    with pytest.raises(TopicFull):
        _ = slow.write(1).result
    slow.let_go()
    assert [task.result.last_seq for task in waiting] == [2, 3]
    topic = slow.engine.kernel.topic("t")
    assert (topic.count, topic.pending_bytes) == (3, 0)


def test_a_router_leaves_room_for_what_is_on_its_way() -> None:
    slow = Slow()
    run(slow.engine.put("t", {"discard": "reject", "cap_records": 2, "durability": "fsync"}))
    run(slow.engine.routing.put("r", RouterSpec("source", "t")))
    run(slow.engine.append("source", RecordBatch([DATA] * 3)))
    slow.log.is_holding = True
    direct = slow.write()
    dest = slow.engine.kernel.topic("t")
    passing = slow.loop.begin(slow.engine.forwarder.catch_up(dest))
    while slow.log.held:
        slow.let_go()
    assert direct.is_over
    assert passing.is_over
    assert dest.count == 2


def test_the_byte_quota_counts_writes_on_their_way() -> None:
    slow = Slow(max_total_bytes=3 * len(DATA))
    run(slow.engine.put("t", {"durability": "fsync"}))
    slow.log.is_holding = True
    waiting = slow.write(2)
    with pytest.raises(Throttled):
        _ = slow.write(2).result
    slow.let_go()
    assert waiting.result.count == 2
    assert slow.engine.kernel.catalog.pending_bytes == 0
