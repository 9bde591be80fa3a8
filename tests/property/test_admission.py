"""A write asks whether it may go early, without a generator, or late: both give the same answer.

Two engines get the same generated history: configurations, writes held in the log, closed gates,
router passes, expired records, a full queue. Then one of them gets a write the early way and, if
that says no, the late way; the other one only the late way. They must end alike. The same goes for
a group of writes beside the same writes one by one.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queue.builders import HeldLog, Task, VirtualLoop

from topics.batch import RecordBatch
from topics.engine.effects import Gate, run
from topics.engine.reads.reading import Query
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.routers.routing import RouterSpec
from topics.engine.settings import EngineSettings
from topics.engine.writes.append import Timing, acked
from topics.testing import ManualClock, SimDisk
from topics.values import Ack

CONFIGS = st.fixed_dictionaries(
    {"durability": st.sampled_from(["ephemeral", "memory", "disk", "fsync"])},
    optional={
        "cap_records": st.integers(1, 6),
        "cap_bytes": st.integers(1, 40),
        "discard": st.sampled_from(["old", "reject"]),
        "ttl_ms": st.just(50),
        "idempotency_window_ms": st.sampled_from([20, 1000]),
    },
)
KEYS = st.sampled_from([None, "a", "b"])
SIZES = st.integers(1, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), SIZES, KEYS),
        st.tuples(st.just("many"), st.sampled_from([200, 300])),
        st.tuples(st.just("configure"), CONFIGS),
        st.tuples(st.sampled_from(["hold", "let go", "checkpoint", "close", "route", "drop"])),
        st.tuples(st.just("pass time"), st.sampled_from([10, 60])),
        st.tuples(st.sampled_from(["forward", "full", "pace", "too long"])),
    ),
    max_size=12,
)
Write = tuple[int, str | None]
WRITES = st.tuples(SIZES, KEYS)
GROUPS = st.lists(WRITES, min_size=2, max_size=4)


class CrowdedLog(HeldLog):
    """A log that can also say that its queue is full."""

    is_queued = True
    is_full = False

    def room(self, shard: int, size: int) -> bool:
        del shard, size
        return not self.is_full


class World:
    """An engine with a history. Everything that waits is driven by one loop."""

    def __init__(self, quota: int, steps: list[Any]) -> None:
        self.clock = ManualClock()
        settings = EngineSettings(wal_shards=1, segment_max_events=4, max_total_bytes=quota)
        opening = Opening(settings, self.clock, prealloc_start=4096)
        self.engine = open_engine(SimDisk().mount(), "/data", opening)
        self.kernel = self.engine.kernel
        self.log = CrowdedLog(self.kernel.committer)
        self.kernel.committer = self.log
        self.loop = VirtualLoop(self.clock)
        self.closed: Gate | None = None
        run(self.engine.put("t", {"durability": "disk"}))
        for step, *given_ in steps:
            getattr(self, step.replace(" ", "_"))(*given_)

    def begin(self, op: Any) -> Task[Any]:  # noqa: ANN401 - any operation
        task = self.loop.begin(op)
        self.loop.settle()
        return task

    def write(self, size: int, key: str | None) -> Task[Ack]:
        return self.begin(self.engine.append("t", batch(size), key=key))

    def many(self, size: int) -> None:
        self.begin(self.engine.append("t", RecordBatch([b"1"] * size)))

    def configure(self, config: dict[str, Any]) -> None:
        self.begin(self.engine.put("t", config))

    def hold(self) -> None:
        self.log.is_holding = True

    def let_go(self) -> None:
        self.log.is_holding = False
        self.log.let_go()
        self.loop.settle()

    def checkpoint(self) -> None:
        if not self.log.held and self.closed is None:
            assert self.engine.upkeep is not None
            self.begin(self.engine.upkeep.checkpoint())

    def close(self) -> None:
        topic = self.kernel.catalog.by_name.get("t")
        if self.closed is None and topic is not None and not self.kernel.gates.closed:
            self.closed = run(self.kernel.gates.close([topic.id]))

    def route(self) -> None:
        if not self.log.held and self.closed is None:
            self.begin(self.engine.routing.put("r", RouterSpec("source", "t")))
            self.begin(self.engine.append("source", batch(2)))

    def forward(self) -> None:
        self.begin(self.engine.forwarder.advance_all())

    def drop(self) -> None:
        self.begin(self.engine.drop("t"))

    def pass_time(self, milliseconds: int) -> None:
        self.loop.advance(milliseconds)

    def full(self) -> None:
        self.log.is_full = not self.log.is_full

    def pace(self) -> None:
        self.kernel.host.pace_ms = (
            None if self.kernel.host.pace_ms is not None else lambda topic: 5.0
        )

    def too_long(self) -> None:
        self.kernel.log_is_too_long = not self.kernel.log_is_too_long

    # The write that is compared

    def early(self, size: int, key: str | None) -> Any:  # noqa: ANN401 - a submission or a task
        before = self.seen()
        submission = self.engine.submit("t", batch(size), key)
        if submission is not None:
            return submission
        assert self.seen() == before, "the answer no leaves everything as it was"
        return self.write(size, key)

    def together(self, writes: list[Write]) -> Any:  # noqa: ANN401 - one task, or several
        batches = [batch(size) for size, _ in writes]
        task = self.begin(
            self.engine.append_together("t", batches, Timing(), [key for _, key in writes])
        )
        if task.is_over and outcome(task) == "apart":
            return [self.write(*each) for each in writes]
        return task

    def seen(self) -> object:
        topic = self.kernel.catalog.by_name.get("t")
        if topic is None:
            return None
        counts = (topic.head, topic.handed_out, topic.pending, topic.pending_bytes, topic.reserved)
        return counts, topic.count, topic.bytes, self.kernel.catalog.bytes, len(self.log.held)

    def end(self) -> None:
        """Nothing is in the way any more: whatever waits goes on."""
        self.log.is_full = False
        self.kernel.log_is_too_long = False
        if self.closed is not None:
            self.kernel.gates.open(self.closed)
        self.let_go()
        self.loop.advance(20)
        assert not self.kernel.gates.closed
        assert self.kernel.catalog.pending_bytes == 0
        assert self.kernel.catalog.bytes == sum(topic.bytes for topic in self.kernel.catalog)

    def records(self) -> object:
        if "t" not in self.kernel.catalog.by_name:
            return None
        page = run(self.engine.read("t", Query(limit=1000)))
        loss = None if page.tombstone is None else page.tombstone.gap_to
        return [(record.seq, record.data) for record in page.records], loss, page.head_seq


def batch(size: int) -> RecordBatch:
    return RecordBatch([b'"%d"' % number for number in range(size)])


def outcome(done: Any) -> object:  # noqa: ANN401 - a submission or a task
    """What became of a write; a submission stands for a task that has ended."""
    if isinstance(done, Task):
        assert done.is_over, "it still waits"
        error, answer = done.error, done.answer
    else:
        error, answer = done.error, None if done.error else acked(done)
    if error is not None:
        return type(error), str(error)
    return "apart" if answer is None else answer


@given(STEPS, st.sampled_from([0, 60]), WRITES)
def test_early_and_late_agree(steps: list[Any], quota: int, write: Write) -> None:
    early, late = World(quota, steps), World(quota, steps)
    tried, waited = early.early(*write), late.write(*write)
    early.end()
    late.end()
    assert outcome(tried) == outcome(waited)
    assert early.records() == late.records()


@given(STEPS, st.sampled_from([0, 60]), GROUPS)
def test_a_group_and_its_writes_one_by_one_agree(
    steps: list[Any], quota: int, writes: list[Write]
) -> None:
    group, alone = World(quota, steps), World(quota, steps)
    done = group.together(writes)
    each = [alone.write(*write) for write in writes]
    group.end()
    alone.end()
    if isinstance(done, Task):
        found = outcome(done)
        if found == "apart":  # taken apart after a wait
            return
        assert found == [outcome(task) for task in each]
    else:
        assert [outcome(task) for task in done] == [outcome(task) for task in each]
    assert group.records() == alone.records()
