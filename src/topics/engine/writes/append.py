"""Appending: from drafts to published records.

Order of checks: drafts are valid (the caller saw to it), the topic exists or is made, a known key
answers at once, `expect_head`, retention, the topic's own cap, the byte quota, the reserved
ceiling. Only then does a seq exist. From `handed_out` being raised to the submission being in the
log's queue nothing may fail or wait, or a seq would be burnt or logged out of order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from topics.core.batch import RecordBatch, joined
from topics.core.facts import Appended, Evicted, HeadReserved, KeyRemembered
from topics.core.keys import MAX_EXPIRED
from topics.core.loading import NotLoaded
from topics.core.topic import Topic
from topics.engine.arenas import Arenas
from topics.engine.effects import Op, Sleep
from topics.engine.kernel import CONTROL_BYTES, FactSubmission, Kernel
from topics.engine.writes.caps import NOTHING, Foreseen, foresee
from topics.engine.writes.drafts import ANY_SIZE
from topics.engine.writes.leads import leads_of, remembered_of
from topics.engine.writes.lifecycle import Lifecycle
from topics.errors import HeadMismatch, Throttled, TopicNotFound
from topics.storage.frames.append import NO_LEADS, encode_append
from topics.storage.frames.prepared import PreparedAppend
from topics.storage.wal.shard import ShardState
from topics.storage.wal.submission import Submission
from topics.values import Ack

RESERVE_BLOCK = 256
MAX_RESERVE_BLOCK = 4096
FAST_BLOCK_MS = 100
NEVER = 1 << 64
MAX_ROOM_WAIT_MS = 5000
ROOM_POLL_MS = 10
FRAME_BYTES = 64
"""About what a record costs in the log beside its payload."""


class AppendSubmission(Submission):
    """One write on its way through the log."""

    __slots__ = ("counted", "evicted", "held", "keys", "run", "topic")

    topic: Topic
    run: Appended
    counted: int  # bytes that caps and quota count while it is on its way
    evicted: Evicted | None
    held: object  # indexes that it needs when it is applied
    keys: Sequence[KeyRemembered]


class Timing:
    """Where the time of one write went; filled in for callers that report it."""

    __slots__ = ("synced_ns", "throttled_ns", "wrote_ns")

    def __init__(self) -> None:
        self.wrote_ns = 0
        self.synced_ns = 0
        self.throttled_ns = 0

    def note(self, submission: Submission, waited_ms: float) -> None:
        self.throttled_ns = round(waited_ms * 1e6)
        self.wrote_ns = submission.wrote_ns
        if submission.durable:
            self.synced_ns = submission.synced_ns


def acked(submission: AppendSubmission, timing: Timing | None = None) -> Ack:
    """The answer to a write that is done; raises what became of it instead."""
    if submission.error is not None:
        raise submission.error
    if timing is not None:
        timing.note(submission, 0)
    run = submission.run
    last, count = run.last_seq, len(run.lengths)
    return Ack(submission.topic.name, run.first_seq, last, last, count)


def landed(submission: AppendSubmission, timing: Timing) -> Op[Ack]:
    """The same for one that is still on its way."""
    yield submission
    return acked(submission, timing)


class Appender:
    def __init__(self, kernel: Kernel, lifecycle: Lifecycle, arenas: Arenas) -> None:
        self._kernel = kernel
        self._lifecycle = lifecycle
        self._arenas = arenas
        self._blocks: dict[int, tuple[int, int]] = {}  # topic id -> (block size, when taken)
        self._half_used: dict[int, int] = {}  # topic id -> the seq at which more is reserved
        self._reserving: dict[int, Submission] = {}  # topic id -> the reservation under way
        self._keys_under_way: dict[tuple[int, str], AppendSubmission] = {}
        kernel.on_dropped.append(self._forget)

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

        Everything that may wait comes first. From the look at the key to the submission nothing
        waits, so of two writes with one key, or one `expect_head`, only one can pass. That has to
        be short: of a long batch the frames are `prepared` before.
        """
        kernel, waited_ms, created = self._kernel, 0.0, False
        if kernel.pace_ms is not None and not wait_for_room:
            waited_ms = yield from self._pace(name)
        while True:
            may_wait = wait_for_room and waited_ms < MAX_ROOM_WAIT_MS
            if not may_wait or self._can_prepare(name, batch):
                topic, is_new, foreseen = yield from self._prepare(
                    name, batch, create, config, key=key, expect_head=expect_head
                )
                created = created or is_new
                if key is not None and (known := self._known(topic, key)) is not None:
                    return known
                if self._has_room(topic, batch):
                    break
                if kernel.is_logged(topic):
                    kernel.require_disk(topic.id)
                if not may_wait:
                    raise kernel.backlog()
            yield Sleep(ROOM_POLL_MS / 1000)
            waited_ms += ROOM_POLL_MS
        if expect_head is not None and topic.handed_out != expect_head:
            raise HeadMismatch(topic=name, expected=expect_head, head_seq=topic.handed_out)
        nbytes = self._admit(topic, batch)
        submission = self._stage(
            topic, batch, nbytes, foreseen, keys=() if key is None else (key,), prepared=prepared
        )
        if not submission.done:
            yield submission
        if submission.error is not None:
            raise submission.error
        if timing is not None:
            timing.note(submission, waited_ms)
        run = submission.run
        return Ack(name, run.first_seq, run.last_seq, run.last_seq, run.count, created, False)

    def append_at_once(self, name: str, batch: RecordBatch) -> Ack | None:
        """`submit_at_once` for a log that has finished a submission by the time it has taken it."""
        submission = self.submit_at_once(name, batch)
        return None if submission is None else acked(submission)

    def submit_at_once(
        self, name: str, batch: RecordBatch, key: str | None = None
    ) -> AppendSubmission | None:
        """A write without conditions that nothing holds up, without the machinery for waiting.

        None when there is more to look at than that, as with a key that was seen before: `append`
        does it then.
        """
        topic = self._unhindered(name)
        if topic is None:
            return None
        last = topic.handed_out + len(batch.datas)
        if last > topic.reserved and self._needs_ceiling(topic, last):
            return None
        if not self._has_room(topic, batch):
            return None
        foreseen = self._foreseen(topic, batch) if topic.evicts else NOTHING
        if foreseen is None or (key is not None and not self._are_new(topic, (key,))):
            return None
        return self._stage(topic, batch, 0, foreseen, keys=() if key is None else (key,))

    def append_together(
        self,
        name: str,
        batches: Sequence[RecordBatch],
        timing: Timing,
        keys: Sequence[str | None] = (),
    ) -> Op[list[Ack] | None]:
        """Several writes without conditions as one submission: what they all need is done once.

        Each is whole or not there at all, together with its key, as if it had come alone. `keys`
        has one for each write, or nothing at all. None, with nothing done, when there is more to
        look at than their seqs, as with a key that was seen before or comes twice: each has to be
        appended by itself then.
        """
        whole = joined(batches)
        named = [key for key in keys if key is not None]
        ends = [*accumulate([len(batch.datas) for batch in batches])]
        # With a key each has its own place in line: one before them may have the same, and who is
        # taken apart after the wait would have to go to the end.
        topic = self._unhindered(name, may_wait=not named)
        if topic is None or (named and not self._are_new(topic, named)):
            return None
        if topic.id in self._kernel.gates.closed:
            yield from self._kernel.gates.enter(topic.id)
            if not self._is_plain(name, topic):
                return None
        while self._has_room(topic, whole):
            last = topic.handed_out + ends[-1]
            if not self._needs_ceiling(topic, last):
                break
            reserving = self.reserve(topic, last)  # all who come wait meanwhile: nothing changes
            yield from self._kernel.gates.closed_during(topic.id, reserving)
        else:
            return None
        foreseen = self._foreseen(topic, whole)
        if foreseen is None:
            return None
        submission = self._stage(topic, whole, 0, foreseen, ends=ends, keys=keys if named else ())
        if not submission.done:
            yield submission
        if submission.error is not None:
            raise submission.error
        timing.note(submission, 0)
        acks, first = [], submission.run.first_seq
        for batch in batches:
            last = first + len(batch.datas) - 1
            acks.append(Ack(name, first, last, last, len(batch.datas)))
            first = last + 1
        return acks

    def _unhindered(self, name: str, *, may_wait: bool = False) -> Topic | None:
        """The topic if plain writes to it are only a matter of seqs and of room in the log.

        For those who may wait it can also be a matter of their turn.
        """
        kernel = self._kernel
        topic = kernel.catalog.by_name.get(name)
        if topic is None or topic.config.discard != "old" or kernel.pace_ms is not None:
            return None
        if kernel.settings.max_total_bytes or kernel.log_is_too_long:
            return None
        if (topic.id in kernel.gates.closed and not may_wait) or len(topic.volatile):
            return None
        return None if kernel.awaits_copies(topic) else topic

    def _is_plain(self, name: str, topic: Topic) -> bool:
        """Whether plain writes are still that simple, after a wait that may have brought a drop or
        another configuration. How busy the server is matters only to those who come."""
        if self._kernel.catalog.by_name.get(name) is not topic or len(topic.volatile):
            return False
        return topic.config.discard == "old" and not self._kernel.awaits_copies(topic)

    def _prepare(
        self,
        name: str,
        batch: RecordBatch,
        create: bool | None,
        config: Mapping[str, Any] | None,
        *,
        key: str | None,
        expect_head: int | None,
    ) -> Op[tuple[Topic, bool, Foreseen]]:
        """The topic, made if need be, with room for the batch below its reserved ceiling, and what
        goes with it.

        After every wait the world may have changed, so it is looked at again from the start.
        """
        kernel, created = self._kernel, False
        let_in = 0  # the topic whose section was just entered, though others may be in line still
        held: list[object] = []  # indexes that were loaded
        while True:
            topic = kernel.catalog.by_name.get(name)
            if topic is None:
                created |= yield from self._create(name, create, config, expect_head)
                continue
            if topic.id in kernel.gates.closed and topic.id != let_in:
                yield from kernel.gates.enter(topic.id)
                let_in = topic.id
                continue
            let_in = 0  # good for this once: after most other waits it is one who comes anew
            same_key = self._keys_under_way.get((topic.id, key)) if key is not None else None
            if same_key is not None:
                yield same_key
            elif self._counts_before(topic) and kernel.may_have_expired(topic):
                yield from kernel.gates.closed_during(topic.id, kernel.retain(topic))
                let_in = topic.id
            elif kernel.awaits_copies(topic):
                yield from kernel.gates.closed_during(topic.id, kernel.copies_landed(topic))
                let_in = topic.id
            elif self._needs_ceiling(topic, topic.handed_out + len(batch)):
                reserving = self.reserve(topic, topic.handed_out + len(batch))
                yield from kernel.gates.closed_during(topic.id, reserving)
                let_in = topic.id
            else:
                try:
                    return topic, created, self._foresee(topic, batch)
                except NotLoaded as missing:
                    loading = kernel.load_for_write(topic, missing.load)
                held.append((yield from kernel.gates.closed_during(topic.id, loading)))
                let_in = topic.id

    def _foresee(self, topic: Topic, batch: RecordBatch) -> Foreseen:
        """What goes with a write; raises `NotLoaded` when indexes have to be loaded first."""
        nbytes = batch.nbytes if topic.config.cap_bytes else 0
        return foresee(self._kernel, topic, count=len(batch.datas), nbytes=nbytes)

    def _foreseen(self, topic: Topic, batch: RecordBatch) -> Foreseen | None:
        """The same as far as memory can tell; None when it cannot."""
        try:
            return self._foresee(topic, batch)
        except NotLoaded:
            return None

    def _can_prepare(self, name: str, batch: RecordBatch) -> bool:
        """Whether there is room for what is logged before a write: a new topic, or more seqs."""
        kernel, topic = self._kernel, self._kernel.catalog.by_name.get(name)
        if topic is not None and not self._needs_ceiling(topic, topic.handed_out + len(batch)):
            return True
        topic_id = kernel.catalog.next_topic_id if topic is None else topic.id
        return kernel.has_room(topic_id, CONTROL_BYTES)

    def _counts_before(self, topic: Topic) -> bool:
        """Whether what TTL leaves matters before a write: to admission, or to what caps take."""
        return topic.config.discard == "reject" or len(topic.volatile) > 0

    def _pace(self, name: str) -> Op[float]:
        """Let others go first while the server is busy; returns how long."""
        kernel = self._kernel
        topic = kernel.catalog.by_name.get(name)
        if topic is None or kernel.pace_ms is None:
            return 0
        wait_ms = kernel.pace_ms(topic)
        if wait_ms:
            yield Sleep(wait_ms / 1000)
        return wait_ms

    def _needs_ceiling(self, topic: Topic, last: int) -> bool:
        """Whether seqs up to `last` have to be reserved durably before they are given out."""
        if last <= topic.reserved or self._kernel.in_memory:
            return False
        return topic.durability.reserves_seqs

    def _has_room(self, topic: Topic, batch: RecordBatch) -> bool:
        kernel = self._kernel
        if kernel.log_is_too_long:
            return False
        if not kernel.door.log_is_queued:
            return True
        committer = kernel.committer
        shard = committer.shard_of(topic.id)
        if committer.state(shard) is ShardState.FULL and kernel.is_logged(topic):
            return False
        if committer.room(shard, ANY_SIZE):
            return True  # an empty queue takes anything, so nobody needs to know how much it is
        return committer.room(shard, batch.nbytes + FRAME_BYTES * len(batch))

    def _create(
        self,
        name: str,
        create: bool | None,
        config: Mapping[str, Any] | None,
        expect_head: int | None,
    ) -> Op[bool]:
        """Make the topic; False when somebody is at it already, who is waited for."""
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

    def _known(self, topic: Topic, key: str) -> Ack | None:
        """The answer to a key seen before."""
        now_ms = self._kernel.clock.now_ms()
        window_ms = topic.config.idempotency_window_ms
        aged = self._kernel.aged_through(topic, window_ms, now_ms=now_ms)
        topic.keys.expire(now_ms=now_ms, window_ms=window_ms, aged=aged)
        entry = topic.keys.find(key, now_ms=now_ms, window_ms=window_ms, aged=aged)
        if entry is None:
            return None
        last = entry.first_seq + entry.count - 1
        return Ack(topic.name, entry.first_seq, last, entry.head, entry.count, False, True)

    def _are_new(self, topic: Topic, keys: Sequence[str]) -> bool:
        """Whether no other write has one of these keys: remembered, on its way, or among them."""
        if len(set(keys)) < len(keys):
            return False
        now_ms, window_ms = self._kernel.clock.now_ms(), topic.config.idempotency_window_ms
        aged = self._kernel.aged_through(topic, window_ms, now_ms=now_ms)
        window, under_way = topic.keys, self._keys_under_way
        window.expire(
            now_ms=now_ms, window_ms=window_ms, aged=aged, at_most=MAX_EXPIRED * len(keys)
        )
        return not any(
            (topic.id, key) in under_way
            or window.find(key, now_ms=now_ms, window_ms=window_ms, aged=aged) is not None
            for key in keys
        )

    def _admit(self, topic: Topic, batch: RecordBatch) -> int:
        """Refuse what does not fit; returns the bytes that caps and quota have to count."""
        limit = self._kernel.settings.max_total_bytes
        if topic.config.discard == "old" and not limit and not len(topic.volatile):
            return 0
        nbytes = batch.nbytes
        topic.admit(len(batch), nbytes)
        catalog = self._kernel.catalog
        if limit and catalog.bytes + catalog.pending_bytes + nbytes > limit:
            raise Throttled("max_total_bytes", maximum=limit)
        return nbytes

    def reserve(self, topic: Topic, last: int) -> Op[None]:
        """Make a ceiling above `last` durable, or wait for the one that is on its way.

        Afterwards the caller looks again: that one may have been for less.
        """
        under_way = self._reserving.get(topic.id)
        if under_way is None:
            self._kernel.require_room(topic.id, CONTROL_BYTES)
            under_way = self._begin_reserving(topic, last)
        if not under_way.done:
            yield under_way
        if under_way.error is not None:
            raise under_way.error

    def _begin_reserving(self, topic: Topic, last: int) -> Submission:
        klass = topic.durability
        block = self._block(topic) if klass.survives_restart else klass.first_block
        fact = HeadReserved(topic.id, max(self._kernel.clock.now_ms(), topic.last_ts), last + block)
        submission = self._kernel.submit(
            [fact], topic_id=topic.id, durable=True, then=self._reserved
        )
        if not submission.done:
            self._reserving[topic.id] = submission
        self._half_used[topic.id] = last + block // 2
        return submission

    def _reserved(self, submission: FactSubmission) -> None:
        (fact,) = submission.facts
        assert isinstance(fact, HeadReserved)
        self._reserving.pop(fact.topic_id, None)

    def _forget(self, topic_id: int) -> None:
        """The topic was dropped."""
        self._blocks.pop(topic_id, None)
        self._half_used.pop(topic_id, None)

    def _reserve_ahead(self, topic: Topic) -> None:
        """Half of what was reserved is used: ask for more before somebody has to wait for it."""
        del self._half_used[topic.id]
        is_wanted = topic.durability.reserves_seqs and topic.id not in self._reserving
        if is_wanted and self._kernel.has_room(topic.id, CONTROL_BYTES):
            self._begin_reserving(topic, topic.handed_out)

    def _block(self, topic: Topic) -> int:
        """The next block: twice the last one while blocks are used up faster than 100 ms."""
        now_ms = self._kernel.clock.now_ms()
        size, taken = self._blocks.get(topic.id, (RESERVE_BLOCK // 2, 0))
        fast = now_ms - taken < FAST_BLOCK_MS
        size = min(size * 2, MAX_RESERVE_BLOCK) if fast or not taken else RESERVE_BLOCK
        self._blocks[topic.id] = (size, now_ms)
        return size

    def _stage(
        self,
        topic: Topic,
        batch: RecordBatch,
        nbytes: int,
        foreseen: Foreseen,
        *,
        ends: Sequence[int] = (),
        keys: Sequence[str | None] = (),
        prepared: PreparedAppend | None = None,
    ) -> AppendSubmission:
        kernel = self._kernel
        evicted = foreseen.evicted
        if topic.config.cap_bytes:
            nbytes = batch.nbytes
        now_ms = kernel.clock.now_ms()
        ts = topic.last_ts = max(now_ms, topic.last_ts)
        first, count = topic.handed_out + 1, len(batch.datas)
        last = topic.handed_out + count
        durable, is_logged = topic.durability.needs_sync, kernel.is_logged(topic)
        leads: Mapping[int, bytes] = NO_LEADS
        remembered: Sequence[KeyRemembered] = ()
        if keys:
            remembered = remembered_of(topic.id, now_ms, first, keys, ends or (count,))
        if is_logged and (evicted is not None or remembered):
            leads = leads_of(evicted, remembered, first, durable=durable)
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
            on_done=self._published,
        )
        submission.topic, submission.run = topic, run
        submission.evicted, submission.keys = evicted, remembered
        submission.held = foreseen.held
        topic.handed_out = last
        topic.pending += 1
        submission.counted = nbytes
        if nbytes:
            kernel.catalog.expect(topic, nbytes)
        for key in remembered:
            self._keys_under_way[(topic.id, key.key)] = submission
        if is_logged:
            kernel.committer.submit(submission)
        else:
            self._arenas.take(submission, topic.id, frames, last)
            kernel.finish_unlogged(submission)
        if last >= self._half_used.get(topic.id, NEVER) and kernel.door.log_is_queued:
            self._reserve_ahead(topic)
        return submission

    def _published(self, submission: Submission) -> None:
        assert isinstance(submission, AppendSubmission)
        topic, keys = submission.topic, submission.keys
        topic.pending -= 1
        if submission.counted:
            self._kernel.catalog.expect(topic, -submission.counted)
        for key in keys:
            self._keys_under_way.pop((topic.id, key.key), None)
        if submission.error is not None:
            # Nothing of it is visible; once nobody else is on the way its seqs are free again.
            if not topic.pending:
                topic.handed_out = topic.head
            return
        kernel, run = self._kernel, submission.run
        kernel.applied[submission.shard] = submission.last_lfn
        before = topic.bytes
        if submission.evicted is not None:
            topic.apply_evicted(submission.evicted)
        run.base = (submission.source_id << 32) + submission.offset
        topic.apply_appended(run)
        for key in keys:
            topic.keys.remember(key)
            kernel.catalog.keyed.add(topic.id)
        kernel.catalog.bytes += topic.bytes - before
        kernel.dirty.add(topic.id)
        if not kernel.is_logged(topic):
            self._arenas.release(topic.id, topic.earliest)
        kernel.changed(topic)
