"""May this write go now? One decision for every way in which records come to a topic.

`decide` looks at memory and waits for nothing. It changes nothing that another question could see:
keys that have left their window are forgotten, a few at a time. Its answer is `Go`, `Wait` (for
this), `Full` (wait for room in the log, or refuse), `Repeat` (of an earlier write, whose answer it
gets) or `Refuse`. The questions come in this order:

    gate      the append gate is open, or the write was just admitted from its queue
    key       no write with the same idempotency key is on its way, or was acknowledged
    expiry    where caps count what TTL leaves: nothing has expired
    copies    no router pass with lower seqs is on its way to a topic that is not logged
    seqs      the seqs are below the durable ceiling
    losses    indexes that tell what the write evicts are in memory
    room      the log takes the write
    head      `expect_head` is the last seq
    caps      the topic and the byte quota have room for the records

A write asks *early* and, if it may not go yet, *late*. Early: on `Go` it is submitted on the spot,
without a generator; any other answer sends it the waiting way. Late: the operation waits for what
`Wait` names and asks again from the first question, because after a wait all earlier answers may
be wrong. Between `Go` and the submission nothing waits. So of two writes with one key, or with one
`expect_head`, only one can pass.

    way in              asks
    single, embedded    everything, early, then late
    long body           everything, late
    group of writes     everything but `expect_head`, for all of its records at once
    router pass         no key, head and copies; it has taken only what fits (`headroom`)
    stage commit        room and caps (`judge`): it closed the gates itself, and reserves seqs and
                        loads indexes for all of its topics together
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from topics.batch import RecordBatch
from topics.core.keys import MAX_EXPIRED, KeyEntry
from topics.core.loading import NotLoaded
from topics.core.topic import Topic
from topics.engine.effects import Op
from topics.engine.kernel import CONTROL_BYTES, Kernel
from topics.engine.retention import aged_through, load_for_write, may_have_expired, retain
from topics.engine.writes.caps import NO_LOSSES, Losses, losses_of
from topics.engine.writes.drafts import ANY_SIZE
from topics.engine.writes.reserving import Ceilings
from topics.errors import HeadMismatch, Throttled, TopicsError
from topics.storage.wal.shard import ShardState
from topics.storage.wal.submission import Submission

FRAME_BYTES = 64
"""About what a record costs in the log beside its payload."""

Question: TypeAlias = Literal["gate", "key", "expiry", "copies", "seqs", "losses"]


class Go(NamedTuple):
    losses: Losses
    counted: int
    """Bytes that caps and quota count while the write is on its way."""


class Wait(NamedTuple):
    on: Op[object]
    """To be waited for. What it returns has to be kept until the write goes: loaded indexes."""
    question: Question

    @property
    def admits(self) -> bool:
        """Whether the write may go after the wait though the gate is closed for newcomers."""
        return self.question != "key"


class Full(NamedTuple):
    """The log has no room."""


class Repeat(NamedTuple):
    entry: KeyEntry


class Refuse(NamedTuple):
    error: TopicsError


Decision: TypeAlias = Go | Wait | Full | Repeat | Refuse
_GO = Go(NO_LOSSES, 0)
_FULL = Full()


class Headroom(NamedTuple):
    """What a topic still takes: records and bytes; None is no limit."""

    records: int | None
    nbytes: int | None


class Admission:
    def __init__(self, kernel: Kernel, ceilings: Ceilings) -> None:
        self._kernel = kernel
        self._ceilings = ceilings
        self.keys_under_way: dict[tuple[int, str], Submission] = {}

    def decide(  # noqa: PLR0911 - one return for each question
        self,
        topic: Topic,
        batch: RecordBatch,
        keys: Sequence[str] = (),
        expect_head: int | None = None,
        *,
        admitted: bool = False,
        pass_seqs: int | None = None,
    ) -> Decision:
        """Whether these records may go to a topic now; see the head of this module.

        `pass_seqs`: a router pass, which uses this many seqs, also for records that were lost.
        """
        kernel, config, count = self._kernel, topic.config, len(batch.datas)
        if topic.id in kernel.gates.closed and not admitted:
            return Wait(kernel.gates.enter(topic.id), "gate")
        if keys and (repeated := self._repeated(topic, keys)) is not None:
            return repeated
        if config.ttl_ms and self._expires_first(topic) and may_have_expired(kernel, topic):
            return self._closed_during("expiry", topic, retain(kernel, topic))
        if topic.pending and pass_seqs is None and kernel.awaits_copies(topic):
            return self._closed_during("copies", topic, kernel.copies_landed(topic))
        last = topic.handed_out + (count if pass_seqs is None else pass_seqs)
        reserves = topic.durability.reserves_seqs and kernel.segments is not None
        if last > topic.reserved and reserves:
            if not self._ceilings.can_reserve(topic):
                return _FULL
            return self._closed_during("seqs", topic, self._ceilings.reserve(topic, last))
        nbytes = batch.nbytes if config.cap_bytes or kernel.settings.max_total_bytes else 0
        losses = NO_LOSSES
        if count and topic.evicts:
            try:
                losses = losses_of(kernel, topic, count=count, nbytes=nbytes)
            except NotLoaded as missing:
                loading = load_for_write(kernel, topic, missing.load)
                return self._closed_during("losses", topic, loading)
        log_bytes = None if pass_seqs is None else CONTROL_BYTES
        obstacle = self.judge(topic, batch, nbytes, expect_head, log_bytes=log_bytes)
        if obstacle is not None:
            return obstacle
        return Go(losses, nbytes) if nbytes or losses is not NO_LOSSES else _GO

    def judge(
        self,
        topic: Topic,
        batch: RecordBatch,
        nbytes: int,
        expect_head: int | None = None,
        *,
        log_bytes: int | None = None,
        count: int | None = None,
    ) -> Full | Refuse | None:
        """The last three questions; None when nothing is in the way.

        `nbytes` is the size of the batch as far as caps and quota count it; `log_bytes` what the
        log has to take at once, if not all of the batch; `count` the number of records, if the
        batch is only the first piece of them.
        """
        if not self._has_room(topic, batch, log_bytes):
            return _FULL
        if expect_head is not None and topic.handed_out != expect_head:
            error = HeadMismatch(topic=topic.name, expected=expect_head, head_seq=topic.handed_out)
            return Refuse(error)
        if topic.config.discard == "reject":
            records = len(batch.datas) if count is None else count
            refusal = topic.refusal_of(records, nbytes)
            if refusal is not None:
                return Refuse(refusal)
        return self.judge_quota(nbytes) if self._kernel.settings.max_total_bytes else None

    def judge_quota(self, nbytes: int) -> Refuse | None:
        left = self._quota_left()
        if left is None or nbytes <= left:
            return None
        return Refuse(Throttled("max_total_bytes", maximum=self._kernel.settings.max_total_bytes))

    def headroom(self, topic: Topic) -> Headroom:
        """How much of a batch a topic takes, for a router that copies as much as fits."""
        records, nbytes = topic.headroom
        quota = self._quota_left()
        if quota is not None:
            quota = max(0, quota)
            nbytes = quota if nbytes is None else min(nbytes, quota)
        return Headroom(records, nbytes)

    def _quota_left(self) -> int | None:
        limit, catalog = self._kernel.settings.max_total_bytes, self._kernel.catalog
        return limit - catalog.bytes - catalog.pending_bytes if limit else None

    def _closed_during(self, question: Question, topic: Topic, wait: Op[object]) -> Wait:
        """A wait during which newcomers queue, so that no later write overtakes this one."""
        return Wait(self._kernel.gates.closed_during(topic.id, wait), question)

    def _repeated(self, topic: Topic, keys: Sequence[str]) -> Wait | Repeat | None:
        """Another write with one of these keys: on its way, or remembered."""
        for key in keys:
            same = self.keys_under_way.get((topic.id, key))
            if same is not None:
                return Wait(_answered(same), "key")
        now_ms, window_ms = self._kernel.clock.now_ms(), topic.config.idempotency_window_ms
        aged = aged_through(self._kernel, topic, window_ms, now_ms=now_ms)
        at_most = MAX_EXPIRED * len(keys)
        topic.keys.expire(now_ms=now_ms, window_ms=window_ms, aged=aged, at_most=at_most)
        for key in keys:
            entry = topic.keys.find(key, now_ms=now_ms, window_ms=window_ms, aged=aged)
            if entry is not None:
                return Repeat(entry)
        return None

    def _expires_first(self, topic: Topic) -> bool:
        """Whether what TTL leaves matters before a write: to its caps, or to what caps evict."""
        return topic.config.discard == "reject" or len(topic.volatile) > 0

    def _has_room(self, topic: Topic, batch: RecordBatch, log_bytes: int | None) -> bool:
        kernel, committer = self._kernel, self._kernel.committer
        if kernel.log_is_too_long:
            return False
        if not committer.is_queued:
            return True
        shard = committer.shard_of(topic.id)
        if committer.state(shard) is ShardState.FULL and kernel.is_logged(topic):
            return False
        if committer.room(shard, ANY_SIZE):
            return True  # an empty queue takes anything, so the size does not matter
        if log_bytes is None:
            log_bytes = batch.nbytes + FRAME_BYTES * len(batch.datas)
        return committer.room(shard, log_bytes)


def _answered(submission: Submission) -> Op[None]:
    if not submission.done:
        yield submission
