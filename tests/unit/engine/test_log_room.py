"""A full queue of the log refuses every call that must log, before anything is done; a full disk
every call that makes no room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.queue.builders import VirtualLoop

from topics.batch import RecordBatch
from topics.engine.effects import Op, run
from topics.engine.engine import Engine
from topics.engine.kernel import CONTROL_BYTES
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.retention import due_eviction, lose_expired
from topics.engine.routers.routing import RouterSpec
from topics.engine.settings import EngineSettings
from topics.engine.stages.rows import StageRows
from topics.engine.upkeep.schedule import FULL_RETRY_MS, POLL_MS
from topics.errors import LogFull, Throttled
from topics.storage.wal.inline import InlineCommitter
from topics.storage.wal.shard import Shard, ShardState
from topics.testing import ManualClock, SimDisk

ONE = RecordBatch([b"1"])
LARGE = RecordBatch([b'"%b"' % (b"x" * 2 * CONTROL_BYTES)])


class CrowdedLog(InlineCommitter):
    """A log whose queue takes nothing more on some shards, or whose disk has no room."""

    is_disk_full = False

    def __init__(self, shards: list[Shard]) -> None:
        super().__init__(shards)
        self.full: set[int] = set()
        self.most = 1 << 30

    def room(self, shard: int, size: int) -> bool:
        return shard not in self.full and size <= self.most

    def state(self, shard: int) -> ShardState:
        return ShardState.FULL if self.is_disk_full else super().state(shard)

    def tick(self) -> None:
        if not self.is_disk_full:  # which leaves no beacons behind
            super().tick()

    def refusal(self, shard: int) -> LogFull | None:
        return LogFull(shard=shard, reason="", needed_bytes=1) if self.is_disk_full else None


def crowded() -> tuple[Engine, CrowdedLog]:
    """Some topics, a router, a cursor and a stage on a log of two shards."""
    opening = Opening(EngineSettings(wal_shards=2), ManualClock(), make_committer=CrowdedLog)
    engine = open_engine(SimDisk().mount(), "/data", opening)
    for name in ("odd", "even", "lasting"):  # on both shards
        run(engine.put(name, {}))
        run(engine.append(name, RecordBatch([b"1", b"2"])))
    run(engine.routing.put("r", RouterSpec("odd", "even")))
    run(engine.cursors.put("lasting", "c", 1))
    run(engine.stage("app", 1, 0, 0, StageRows(["staged"], ONE.part(0, 1))))
    log = engine.kernel.committer
    assert isinstance(log, CrowdedLog)
    engine.kernel.committer.is_queued = True
    return engine, log


def loop_of(engine: Engine) -> VirtualLoop:
    clock = engine.kernel.clock
    assert isinstance(clock, ManualClock)
    return VirtualLoop(clock)


CALLS: dict[str, Callable[[Engine], Op[Any]]] = {
    "create": lambda engine: engine.put("new", {}),
    "configure": lambda engine: engine.put("odd", {"ttl_ms": 5}),
    "drop": lambda engine: engine.drop("odd"),
    "write": lambda engine: engine.append("odd", ONE),
    "creating write": lambda engine: engine.append("new", ONE),
    "delete": lambda engine: engine.delete("odd", before=2, match=None),
    "router": lambda engine: engine.routing.put("s", RouterSpec("new", "newer")),
    "drop router": lambda engine: engine.routing.drop("r"),
    "cursor": lambda engine: engine.cursors.put("lasting", "c", 0),
    "drop cursor": lambda engine: engine.cursors.drop("lasting", "c"),
    "commit": lambda engine: engine.commit("app", 1, [(0, 0)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_must_be_logged_is_refused_while_the_queue_is_full(name: str) -> None:
    engine, log = crowded()
    log.full = {0, 1}
    with pytest.raises(Throttled) as caught:
        run(CALLS[name](engine))
    assert (caught.value.detail or {})["reason"] == "backlog"
    catalog = engine.kernel.catalog
    assert sorted(catalog.by_name) == ["even", "lasting", "odd"]
    assert list(catalog.routers.by_name) == ["r"]
    log.full = set()
    run(CALLS[name](engine))


MAKE_ROOM = {"configure", "drop", "delete", "drop router"}


@pytest.mark.parametrize("name", CALLS)
def test_a_full_disk_refuses_before_anything_is_queued_what_makes_no_room(name: str) -> None:
    engine, log = crowded()
    written = log.position(0), log.position(1)
    log.is_disk_full = True
    if name in MAKE_ROOM:
        run(CALLS[name](engine))
        return
    with pytest.raises(LogFull):
        run(CALLS[name](engine))
    assert (log.position(0), log.position(1)) == written
    log.is_disk_full = False
    run(CALLS[name](engine))


def test_on_a_full_disk_writes_that_need_none_go_on_and_nobody_waits_for_room() -> None:
    engine, log = crowded()
    run(engine.put("fleeting", {"durability": "ephemeral"}))
    log.is_disk_full = True
    assert run(engine.append("fleeting", ONE)).last_seq == 1
    assert engine.submit("fleeting", ONE) is not None
    assert engine.submit("odd", ONE) is None
    with pytest.raises(LogFull):
        run(engine.append("odd", ONE, wait_for_room=True))


def test_a_full_disk_gets_two_checkpoints_after_whatever_was_logged_and_then_few() -> None:
    engine, log = crowded()
    loop, upkeep = loop_of(engine), engine.upkeep
    assert upkeep is not None
    log.is_disk_full = True

    def checkpoints(polls: int) -> int:
        before = upkeep._checkpointer.snapshot_id
        for _ in range(polls):
            loop.advance(POLL_MS)
            upkeep.run()
        return upkeep._checkpointer.snapshot_id - before

    assert checkpoints(polls=5) == 2
    run(engine.delete("odd", before=2, match=None))
    assert checkpoints(polls=5) == 2
    assert checkpoints(polls=FULL_RETRY_MS // POLL_MS) == 1


@pytest.mark.parametrize("name", ["odd", "new"])
def test_a_patient_write_waits_for_room_even_for_its_topic(name: str) -> None:
    engine, log = crowded()
    loop = loop_of(engine)
    log.full = {0, 1}
    patient = loop.begin(engine.append(name, ONE, wait_for_room=True))
    loop.advance(1000)
    assert not patient.is_over
    log.full = set()
    loop.advance(1000)
    assert (patient.result.count, patient.result.created) == (1, name == "new")


def test_a_patient_write_whose_key_is_known_need_not_wait() -> None:
    engine, log = crowded()
    first = run(engine.append("odd", ONE, key="k"))
    log.full = {0, 1}
    again = loop_of(engine).begin(engine.append("odd", ONE, key="k", wait_for_room=True))
    assert (again.result.first_seq, again.result.deduped) == (first.first_seq, True)


def test_a_patient_write_that_needs_more_seqs_waits_for_room_for_them() -> None:
    engine, log = crowded()
    loop = loop_of(engine)
    topic = engine.kernel.topic("odd")
    many = RecordBatch([b"1"] * (topic.reserved + 1))
    log.full = {0, 1}
    patient = loop.begin(engine.append("odd", many, wait_for_room=True))
    loop.advance(1000)
    assert not patient.is_over
    log.full = set()
    loop.advance(1000)
    assert patient.result.count == len(many)


def test_a_patient_write_is_refused_in_the_end() -> None:
    engine, log = crowded()
    loop = loop_of(engine)
    log.full = {0, 1}
    patient = loop.begin(engine.append("new", ONE, wait_for_room=True))
    while not patient.is_over:
        loop.advance(100)
    with pytest.raises(Throttled):
        _ = patient.result
    assert "new" not in engine.kernel.catalog.by_name


def test_a_write_that_made_its_topic_and_waited_then_says_so() -> None:
    engine, log = crowded()
    loop = loop_of(engine)
    log.most = CONTROL_BYTES
    patient = loop.begin(engine.append("new", LARGE, wait_for_room=True))
    loop.advance(1000)
    assert "new" in engine.kernel.catalog.by_name
    assert not patient.is_over
    log.most = 1 << 30
    loop.advance(1000)
    assert patient.result.created


def test_a_drop_that_has_begun_is_completed_though_the_other_queue_is_full() -> None:
    engine, log = crowded()
    name = next(
        n for n in ("odd", "even") if log.shard_of(engine.kernel.catalog.by_name[n].id) == 1
    )
    log.full = {0}
    assert run(engine.drop(name)).routers_removed == ["r"]
    assert name not in engine.kernel.catalog.by_name
    assert not engine.kernel.catalog.routers.by_name


def test_a_checkpoint_is_not_refused_for_a_full_queue() -> None:
    engine, log = crowded()
    kernel = engine.kernel
    run(engine.put("odd", {"ttl_ms": 5}))
    loop_of(engine).advance(10)
    topic = kernel.topic("odd")
    fact = due_eviction(kernel, topic)
    assert fact is not None
    lose_expired(kernel, topic, fact)  # as when the log could not take it
    log.full = {0, 1}
    assert engine.upkeep is not None
    run(engine.upkeep.checkpoint())
    assert topic.ttl_logged_hi == fact.ttl_hi
    assert not kernel.refused_for_room
