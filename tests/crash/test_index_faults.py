"""Indexes of segments that cannot be read: who needs one is refused before anything is logged."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.engine.builders import SMALL, Store

from topics.core.seqset import CHUNK
from topics.embedded.log import Log
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.errors import Internal
from topics.storage.segments.lru import ByteLru
from topics.storage.wal.shard import ShardState
from topics.testing import FaultFs

INDEXES = "*.idx"


@dataclass
class Failing(Store):
    """A store whose indexes have left memory, on a disk that may not give them back."""

    faults: FaultFs = field(init=False)

    def open(self, **changed: Any) -> Log:  # noqa: ANN401 - EngineSettings checks them
        self.faults = FaultFs(self.disk.mount())
        settings = EngineSettings(**{**self.settings, **changed})
        opening = Opening(settings, self.clock, prealloc_start=4096)
        self.log = Log(open_engine(self.faults, "/data", opening))
        segments = self.kernel.segments
        assert segments is not None
        segments._idx = ByteLru(0)
        segments.refuses_to_wait = True  # where nobody can wait nothing may be missing
        return self.log

    def filled(self, topic: str = "t", *, records: int = 10, **config: Any) -> Failing:  # noqa: ANN401
        """Records in several segments, of which no index is in memory."""
        self.log.create(topic, durability="fsync", **config)
        for number in range(1, records + 1):
            self.log.append(topic, {"data": number, "tag": f"t{number % 2}"})
        self.restart()
        return self

    def fail(self) -> None:
        self.faults.fail("pread", errno.EIO, always=True, path=INDEXES)

    def heal(self) -> None:
        self.faults.clear()

    def check_open(self) -> None:
        assert self.kernel.committer.state(0) is ShardState.OPEN


@pytest.mark.parametrize("cap", [{"cap_records": 10}, {"cap_bytes": 12}])
def test_sg17_a_write_that_evicts_from_an_unreadable_segment_is_refused_and_done_later(
    cap: dict[str, Any],
) -> None:
    store = Failing().filled(**cap)
    before = store.log.state("t").to_dict()
    store.fail()
    for _ in range(2):
        with pytest.raises(Internal, match="could not be read"):
            store.log.append("t", {"data": 11}, idempotency_key="k")
    store.heal()
    assert store.log.state("t").to_dict() | {"last_read_ts": 0} == before | {"last_read_ts": 0}
    assert store.log.append("t", {"data": 11}, idempotency_key="k").deduped is False
    assert store.log.append("t", {"data": 11}, idempotency_key="k").deduped is True
    seqs = store.seqs("t")
    assert seqs[-1] == 11
    assert store.log.audit("t").lost_cap == 11 - len(seqs) > 0
    store.check_open()
    store.kill()
    assert store.seqs("t") == seqs


def test_a_byte_cap_needs_no_index_that_was_not_there_when_the_write_was_logged() -> None:
    store = Failing(settings={**SMALL, "segment_max_events": 100})
    store.log.create("t", durability="fsync", cap_bytes=CHUNK - 14)
    store.append("t", *[1] * (CHUNK - 20))
    store.restart()
    store.append("t", *[1] * 30)  # the chunk in which it cuts ends among them
    store.check_open()
    assert store.log.state("t").bytes == CHUNK - 14
    assert store.log.audit("t").lost_cap == 24


@pytest.mark.parametrize(
    "selector", [{"before_seq": 7}, {"match": "t1"}, {"match": "t1", "before_seq": 7}]
)
def test_sg17_a_delete_in_an_unreadable_segment_is_refused_and_done_later(
    selector: dict[str, Any],
) -> None:
    store = Failing().filled()
    store.fail()
    with pytest.raises(Internal):
        store.log.delete("t", **selector)
    store.heal()
    assert store.seqs("t") == list(range(1, 11))
    gone = store.log.delete("t", **selector).deleted
    assert store.log.state("t").count == len(store.seqs("t")) == 10 - gone
    assert store.log.state("t").bytes == sum(len(str(seq)) for seq in store.seqs("t"))
    store.check_open()
    seqs = store.seqs("t")
    store.kill()
    assert store.seqs("t") == seqs


def test_sg17_jobs_of_an_unreadable_segment_are_claimed_and_acked_later() -> None:
    store = Failing()
    store.log.create("q", type="queue", durability="fsync")
    store.log.append("q", [{"data": number} for number in range(1, 13)])
    store.restart()
    store.log.append("q", [{"data": number} for number in range(13, 25)])
    queue = store.log.queue("q")
    store.fail()
    for _ in range(2):
        with pytest.raises(Internal):
            queue.claim(12)
    store.heal()
    jobs = [*queue.claim(12), *queue.claim(12)]
    assert [job.seq for job in jobs] == list(range(1, 25))
    store.fail()
    with pytest.raises(Internal):
        queue.ack([job.seq for job in jobs])
    store.heal()
    jobs = [*queue.claim(12), *queue.claim(12)]
    assert queue.ack([job.seq for job in jobs]).acked == 24
    assert store.log.state("q").count == 0
    store.check_open()


@pytest.mark.parametrize("first", ["write", "pass", "stage"])
def test_sg17_writes_go_on_though_nobody_can_tell_what_expired(first: str) -> None:
    store = Failing().filled(ttl_ms=60_000)
    log = store.log
    log.create("source", durability="fsync")
    log.route("r", source="source", dest="t")
    log.stage("etl", 1, 0, [{"topic": "t", "data": 11}])
    store.clock.advance(61_000)
    store.fail()
    if first == "write":
        log.append("t", {"data": 11}, idempotency_key="k")
        assert log.append("t", {"data": 11}, idempotency_key="k").deduped is True
    elif first == "pass":
        log.append("source", {"data": 11})
    else:
        log.commit("etl", 1, [(0, 0)])
    assert log.state("t").head_seq == 11
    store.heal()
    store.clock.advance(1_000)
    assert store.seqs("t") == [11]
    assert log.audit("t").lost_ttl == 10
    store.check_open()


def test_sg17_reads_go_on_though_nobody_can_tell_what_expired() -> None:
    store = Failing().filled(ttl_ms=60_000, records=8)
    store.log.append("t", {"data": 9})
    store.clock.advance(30_000)
    store.log.append("t", {"data": 10})
    store.clock.advance(31_000)
    store.fail()
    assert [record.seq for record in store.log.read("t", after=8).records] == [9, 10]
    store.log.append("t", {"data": 11})
    store.heal()
    store.clock.advance(5_000)
    assert store.seqs("t") == [10, 11]
    assert store.log.audit("t").lost_ttl == 9
    store.check_open()


def test_sg17_a_smaller_cap_a_stage_and_a_pass_need_their_indexes_before_the_log() -> None:
    store = Failing().filled(cap_records=10)
    log = store.log
    log.create("source")
    log.route("r", source="source", dest="t")
    log.append("source", {"data": "a"})
    log.stage("etl", 1, 0, [{"topic": "t", "data": "b"}])
    store.fail()
    with pytest.raises(Internal):
        log._put("t", {"durability": "fsync", "cap_records": 2})
    with pytest.raises(Internal):
        log.commit("etl", 1, [(0, 0)])
    assert log.state("t").head_seq == 10
    store.heal()
    log.commit("etl", 1, [(0, 0)])
    assert log.state("t").count == 10
    log._put("t", {"durability": "fsync", "cap_records": 2})
    assert store.seqs("t") == [11, 12]
    store.check_open()


def test_a_cursor_in_an_unreadable_segment_is_refused_and_the_others_told() -> None:
    store = Failing().filled()
    store.log.set_cursor("t", "front", 10)
    store.fail()
    assert store.log.cursor("t", "front").lag_seconds == 0
    with pytest.raises(Internal):
        store.log.set_cursor("t", "back", 1)
    with pytest.raises(Internal):
        store.log.read("t", from_ts=store.clock.now_ms())
    store.heal()
    store.clock.advance(1000)
    assert store.log.cursor("t", "back").lag_seconds >= 1
