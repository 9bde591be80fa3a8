"""Appending: from drafts to published records.

The caller has checked the drafts. `Admission.decide` tells whether a write may go; only then does a
seq exist. From `handed_out` being raised to the submission being in the log's queue nothing may
fail or wait, or a seq would be burnt or logged out of order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from topics.batch import RecordBatch, joined
from topics.core.facts import Appended, Evicted, KeyRemembered
from topics.core.topic import Topic
from topics.engine.effects import Op, Sleep
from topics.engine.kernel import CONTROL_BYTES, Kernel, TopicChange
from topics.engine.writes.admission import Admission, Full, Go, Refuse, Repeat, Wait
from topics.engine.writes.lifecycle import Lifecycle
from topics.engine.writes.reserving import NEVER, Ceilings
from topics.errors import HeadMismatch, TopicNotFound
from topics.storage.frames.append import NO_LEADS, encode_append
from topics.storage.frames.buffer import encode
from topics.storage.frames.prepared import PreparedAppend
from topics.storage.sources import OFFSET_BITS
from topics.storage.wal.submission import Submission
from topics.values import Ack

MAX_ROOM_WAIT_MS = 5000
ROOM_POLL_MS = 10


class AppendSubmission(TopicChange):
    """One write, or a group of writes, on its way through the log."""

    __slots__ = ("evicted", "keys", "run")

    run: Appended
    evicted: Evicted | None
    keys: Sequence[KeyRemembered]

    def apply(self) -> None:
        topic, run = self.topic, self.run
        if self.evicted is not None:
            topic.apply_evicted(self.evicted)
        run.base = (self.source_id << OFFSET_BITS) + self.offset
        topic.apply_appended(run)
        for key in self.keys:
            topic.keys.remember(key)


class Timing:
    """Where the time of one write went; filled in for callers that report it."""

    __slots__ = ("synced_ns", "throttled_ns", "wrote_ns")

    def __init__(self) -> None:
        self.wrote_ns = 0
        self.synced_ns = 0
        self.throttled_ns = 0

    def note(self, submission: Submission, waited_ms: float = 0) -> None:
        self.throttled_ns = round(waited_ms * 1e6)
        self.wrote_ns = submission.wrote_ns
        if submission.durable:
            self.synced_ns = submission.synced_ns


def acked(submission: AppendSubmission, timing: Timing | None = None, waited_ms: float = 0) -> Ack:
    """The answer to a write that is done; raises what became of it instead."""
    if submission.error is not None:
        raise submission.error
    if timing is not None:
        timing.note(submission, waited_ms)
    first, count = submission.run.first_seq, len(submission.run.lengths)
    last = first + count - 1
    return Ack(submission.topic.name, first, last, last, count)


def landed(submission: AppendSubmission, timing: Timing) -> Op[Ack]:
    """The same for one that is still on its way."""
    yield submission
    return acked(submission, timing)


class Appender:
    def __init__(
        self, kernel: Kernel, lifecycle: Lifecycle, admission: Admission, ceilings: Ceilings
    ) -> None:
        self._kernel = kernel
        self._lifecycle = lifecycle
        self._admission = admission
        self._ceilings = ceilings

    def submit(
        self, name: str, batch: RecordBatch, key: str | None = None
    ) -> AppendSubmission | None:
        """Ask early: submit a write without conditions if it may go now.

        None when it has to wait, or to be refused or answered in another way: `append` does that.
        """
        topic = self._kernel.catalog.by_name.get(name)
        if topic is None or self._kernel.host.pace_ms is not None:
            return None
        keys = () if key is None else (key,)
        decision = self._admission.decide(topic, batch, keys)
        return self._submit(topic, batch, decision, keys=keys) if type(decision) is Go else None

    def append(
        self,
        name: str,
        batch: RecordBatch,
        *,
        key: str | None = None,
        expect_head: int | None = None,
        create: bool | None = None,
        config: Mapping[str, Any] | None = None,
        timing: Timing | None = None,
        wait_for_room: bool = False,
        prepared: PreparedAppend | None = None,
    ) -> Op[Ack]:
        """Append a batch whole, or raise with nothing done.

        Of a long batch the frames are `prepared` before: from the decision to the submission
        nothing waits, so that has to be short.
        """
        kernel, keys = self._kernel, () if key is None else (key,)
        waited_ms, created = 0.0, False
        admitted = 0  # the topic whose gate admitted the write; valid for one attempt
        held: list[object] = []  # indexes that were loaded
        if kernel.host.pace_ms is not None and not wait_for_room:
            waited_ms = yield from self._pace(name)
        while True:
            may_wait = wait_for_room and waited_ms < MAX_ROOM_WAIT_MS
            topic = kernel.catalog.by_name.get(name)
            if topic is None:
                if may_wait and not kernel.has_room(kernel.catalog.next_topic_id, CONTROL_BYTES):
                    waited_ms += yield from _poll()
                else:
                    created |= yield from self._create(name, create, config, expect_head)
                continue
            decision = self._admission.decide(
                topic, batch, keys, expect_head, admitted=admitted == topic.id
            )
            admitted = 0
            match decision:
                case Go():
                    break
                case Wait(on=wait):
                    held.append((yield from wait))
                    admitted = topic.id if decision.admits else 0
                case Full():
                    if not may_wait or kernel.full_disk(topic):
                        raise kernel.no_room(topic)
                    waited_ms += yield from _poll()
                case Repeat(entry=entry):
                    last = entry.first_seq + entry.count - 1
                    return Ack(name, entry.first_seq, last, entry.head, entry.count, False, True)
                case Refuse(error=error):
                    raise error
        submission = self._submit(topic, batch, decision, keys=keys, prepared=prepared)
        if not submission.done:
            yield submission
        ack = acked(submission, timing, waited_ms)
        return msgspec.structs.replace(ack, created=True) if created else ack

    def append_together(
        self,
        name: str,
        batches: Sequence[RecordBatch],
        timing: Timing,
        keys: Sequence[str | None] = (),
    ) -> Op[list[Ack] | None]:
        """Several writes without conditions as one submission: what they all need is done once.

        Each is whole or not there at all, together with its key, as if it had come alone. `keys`
        has one for each write, or nothing at all. None, with nothing done, when they cannot all go
        alike, as with a key that was seen before or comes twice: each has to be appended by itself
        then.
        """
        kernel, whole = self._kernel, joined(batches)
        named = [key for key in keys if key is not None]
        ends = [*accumulate([len(batch.datas) for batch in batches])]
        topic = kernel.catalog.by_name.get(name)
        if topic is None or kernel.host.pace_ms is not None or len(set(named)) < len(named):
            return None
        decision = self._admission.decide(topic, whole, named)
        while isinstance(decision, Wait) and self._may_share(decision, named):
            yield from decision.on
            # The wait may have brought a drop or another configuration.
            if kernel.catalog.by_name.get(name) is not topic:
                return None
            decision = self._admission.decide(topic, whole, named, admitted=True)
        # Where replay cannot tell what caps evict, each write has to log its own share of it.
        if not isinstance(decision, Go) or len(topic.volatile):
            return None
        submission = self._submit(topic, whole, decision, ends=ends, keys=keys if named else ())
        if not submission.done:
            yield submission
        acks, first = [], acked(submission, timing).first_seq
        for batch in batches:
            last = first + len(batch.datas) - 1
            acks.append(Ack(name, first, last, last, len(batch.datas)))
            first = last + 1
        return acks

    def _may_share(self, wait: Wait, named: Sequence[str]) -> bool:
        """Whether a group waits for this together.

        With keys each write has its own place in the queue of the gate: a write before them may
        have the same key, and a group that is taken apart after the wait would have to queue again.
        """
        return wait.question == "seqs" or (wait.question == "gate" and not named)

    def _pace(self, name: str) -> Op[float]:
        """Let others go first while the server is busy; returns how long."""
        kernel = self._kernel
        topic = kernel.catalog.by_name.get(name)
        if topic is None or kernel.host.pace_ms is None:
            return 0
        wait_ms = kernel.host.pace_ms(topic)
        if wait_ms:
            yield Sleep(wait_ms / 1000)
        return wait_ms

    def _create(
        self,
        name: str,
        create: bool | None,
        config: Mapping[str, Any] | None,
        expect_head: int | None,
    ) -> Op[bool]:
        """Make the topic; False after waiting for another operation that makes it already."""
        under_way = self._lifecycle.being_created.get(name)
        if under_way is not None:
            yield under_way
            return False
        parsed = self._lifecycle.parse(config or {}, name)
        if create is False or (create is None and not parsed.auto_create):
            raise TopicNotFound(name)
        if expect_head:
            raise HeadMismatch(topic=name, expected=expect_head, head_seq=0)
        yield from self._lifecycle.create(name, parsed)
        return True

    def _submit(
        self,
        topic: Topic,
        batch: RecordBatch,
        go: Go,
        *,
        ends: Sequence[int] = (),
        keys: Sequence[str | None] = (),
        prepared: PreparedAppend | None = None,
    ) -> AppendSubmission:
        kernel, (evicted, held) = self._kernel, go.losses
        now_ms = kernel.clock.now_ms()
        ts = topic.last_ts = max(now_ms, topic.last_ts)
        first, count = topic.handed_out + 1, len(batch.datas)
        last = topic.handed_out + count
        durable = topic.durability.needs_sync
        is_logged = kernel.segments is not None and topic.durability.is_logged
        leads: Mapping[int, bytes] = NO_LEADS
        remembered: Sequence[KeyRemembered] = ()
        if keys:
            remembered = _remembered(topic.id, now_ms, first, keys, ends or (count,))
        if is_logged and (evicted is not None or remembered):
            leads = _leads(evicted, remembered, first, durable=durable)
            count += len(remembered) + (evicted is not None)
        frames: bytes | memoryview
        if prepared is None:
            frames, run = encode_append(
                topic.id, first, ts, batch, durable=durable, ends=ends, leads=leads
            )
        else:
            frames, run = prepared.finish(topic.id, first, ts, durable=durable, leads=leads)
        submission = AppendSubmission(
            kernel.committer.shard_of(topic.id),
            frames,
            count,
            durable=durable,
            on_done=self._publish_keyed if remembered else kernel.publish,
        )
        submission.topic, submission.run, submission.held = topic, run, held
        submission.evicted, submission.keys = evicted, remembered
        topic.handed_out = last
        topic.pending += 1
        submission.counted = go.counted
        if go.counted:
            kernel.catalog.expect(topic, go.counted)
        for key in remembered:
            self._admission.keys_under_way[(topic.id, key.key)] = submission
        if is_logged:
            kernel.committer.submit(submission)
        else:
            kernel.arenas.take(submission, topic.id, frames, last)
            kernel.finish_unlogged(submission)
        if last >= self._ceilings.half_used.get(topic.id, NEVER) and kernel.committer.is_queued:
            self._ceilings.reserve_ahead(topic)
        return submission

    def _publish_keyed(self, submission: Submission) -> None:
        assert isinstance(submission, AppendSubmission)
        topic_id = submission.topic.id
        for key in submission.keys:
            self._admission.keys_under_way.pop((topic_id, key.key), None)
        if submission.error is None:
            self._kernel.catalog.keyed.add(topic_id)
        self._kernel.publish(submission)


def _remembered(
    topic_id: int, now_ms: int, first: int, keys: Sequence[str | None], ends: Sequence[int]
) -> list[KeyRemembered]:
    """What is to be remembered of writes that lie one behind the other, from seq `first` on."""
    facts, begin = [], 0
    for key, end in zip(keys, ends, strict=True):
        if key is not None:
            seq, last = first + begin, first + end - 1
            facts.append(KeyRemembered(topic_id, now_ms, key, seq, end - begin, last))
        begin = end
    return facts


def _leads(
    evicted: Evicted | None, keys: Sequence[KeyRemembered], first: int, *, durable: bool
) -> dict[int, bytes]:
    """The frames before the records of each write: its key, and before the first what was lost.

    They belong to the write, and are there if and only if its records are. By the place of the
    write's first record in the batch.
    """
    leads = {key.first_seq - first: encode(key, durable=durable, cont=True) for key in keys}
    if evicted is not None:
        leads[0] = encode(evicted, durable=durable, cont=True) + leads.get(0, b"")
    return leads


def _poll() -> Op[int]:
    """Wait for room in the log; returns the milliseconds."""
    yield Sleep(ROOM_POLL_MS / 1000)
    return ROOM_POLL_MS
