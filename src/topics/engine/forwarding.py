"""Routers at work: records of one topic copied to another, in order, off the path of the ack.

A pass takes what the source has behind the router's cursor, at most 1024 records, and logs one
small frame on the destination's shard: which source records were copied under which seqs. The
payloads are not logged again; the copies wait in memory for the checkpoint that puts them into the
destination's segments, and after a crash they are made again from the originals under the same
seqs. The frame is also the cursor, so publishing and moving on are one step.

What the source lost before it could be copied becomes a run of holes in the destination, one for
each lost seq, so that loss travels down a chain. A destination that refuses writes when full stops
the pass before the record that does not fit; the next pass tries it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

from topics.core.batch import RecordBatch
from topics.core.derive import derive, forwards, key_for, key_in, next_hops, rule_of
from topics.core.facts import Appended, Forwarded, HeadReserved, SeqSkipped
from topics.core.routers import Router
from topics.core.topic import Topic
from topics.engine.effects import Gate, Io, Op
from topics.engine.kernel import CONTROL_BYTES, Kernel
from topics.engine.reading import Reader
from topics.storage.crashpoints import crashpoint
from topics.storage.frames import HOPS_SHIFT, encode, encode_append, record_at
from topics.storage.wal.submission import Submission
from topics.wire import jsonbytes

PASS_RECORDS = 1024
MAX_DERIVED_BYTES = 16 << 20
FLAGS_AT = 5
CEILING_BLOCK = {"disk": 4096, "ephemeral": 65_536}


class _Original(NamedTuple):
    seq: int
    node: str | None
    tag: str | None
    data: bytes
    meta: bytes
    hops: int


class _Plan:
    """One pass, decided: what to copy, what was lost, and where the cursor goes."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.copies: list[_Original] = []
        self.lost: tuple[int, int] | None = None
        self.suppressed = 0

    @property
    def count(self) -> int:
        lost = self.lost[1] - self.lost[0] + 1 if self.lost else 0
        return lost + len(self.copies)

    def runs(self) -> tuple[tuple[int, int, bool], ...]:
        if self.lost is not None:
            return ((self.lost[0], self.lost[1] - self.lost[0] + 1, True),)
        found: list[tuple[int, int, bool]] = []
        for copy in self.copies:
            if found and found[-1][0] + found[-1][1] == copy.seq:
                found[-1] = (found[-1][0], found[-1][1] + 1, False)
            else:
                found.append((copy.seq, 1, False))
        return tuple(found)


class PassSubmission(Submission):
    """A pass on its way through the log."""

    __slots__ = ("dest", "fact", "frames_at", "parts", "router")

    dest: Topic
    router: Router
    fact: Forwarded
    parts: list[tuple[bytes, Appended] | SeqSkipped]
    frames_at: int  # where logged copies begin in the submission; 0: they are not logged


class Forwarder:
    def __init__(self, kernel: Kernel, reader: Reader) -> None:
        self._kernel = kernel
        self._reader = reader
        self._busy: dict[str, Gate] = {}
        self._keys: dict[int, dict[str, int]] = {}  # dest id -> key of a live copy -> its seq

    # Driving

    def catch_up(self, topic: Topic, seen: set[str] | None = None) -> Op[None]:
        """Bring a topic up to date with what feeds it, upstream first, each router once."""
        seen = set() if seen is None else seen
        for router in self._kernel.catalog.routers.into(topic.id):
            if router.name in seen:
                continue
            seen.add(router.name)
            source = self._kernel.catalog.by_id.get(router.source_id)
            if source is not None:
                yield from self.catch_up(source, seen)
                while (yield from self.advance(router)):
                    pass

    def advance_all(self) -> Op[None]:
        """One pass for every router that has something to do."""
        for router in list(self._kernel.catalog.routers.by_name.values()):
            source = self._kernel.catalog.by_id.get(router.source_id)
            if source is not None and router.cursor < source.head:
                yield from self.advance(router)

    def advance(self, router: Router) -> Op[bool]:
        """One pass; whether the cursor moved. Passes of one router never overlap."""
        while (gate := self._busy.get(router.name)) is not None:
            yield gate
        gate = self._busy[router.name] = Gate()
        try:
            return (yield from self._pass(router))
        finally:
            del self._busy[router.name]
            gate.open()

    # One pass

    def _pass(self, router: Router) -> Op[bool]:
        kernel = self._kernel
        source = kernel.catalog.by_id.get(router.source_id)
        dest = kernel.catalog.by_id.get(router.dest_id)
        if source is None or dest is None or kernel.routers_stand_still:
            return False
        yield from kernel.retain(source)
        yield from kernel.retain(dest)
        if router.cursor >= source.head:
            return False
        if router.exactly_once:
            yield from self._load_keys(dest)
        plan = yield from self._plan(router, source, dest)
        if plan.cursor == router.cursor:
            return False
        yield from self._make_safe(source, dest, plan)
        if kernel.catalog.routers.by_name.get(router.name) is not router:
            return False  # dropped or replaced meanwhile
        if dest.id not in kernel.catalog.by_id or kernel.routers_stand_still:
            return False
        submission = self._submit(router, source, dest, plan)
        if not submission.done:
            yield submission
        return submission.error is None

    def _plan(self, router: Router, source: Topic, dest: Topic) -> Op[_Plan]:
        plan = _Plan(router.cursor)
        lowest = router.cursor + 1
        gap = source.gap_at(lowest)
        through = source.evict_floor - 1 if source.evict_floor > lowest else gap.hi if gap else 0
        if through >= lowest:
            through = min(through, source.head)
            plan.lost = (lowest, through)
            plan.cursor = through
            return plan
        end = min(source.head, router.cursor + PASS_RECORDS, source.next_announced(lowest) - 1)
        originals, rotten = yield from self._originals(source, lowest, end)
        if rotten is not None:
            if rotten == lowest:
                plan.lost = (rotten, rotten)
                plan.cursor = rotten
                return plan
            end = rotten - 1
        room = _Room(dest)
        rule = rule_of(router, source_epoch=source.epoch)
        keys = self._keys.get(dest.id, {})
        for original in originals:
            plan.cursor = original.seq - 1
            if not forwards(router, tag=original.tag, hops=original.hops):
                continue
            if router.exactly_once:
                copied = keys.get(key_for(rule, original.seq))
                if copied is not None and dest.is_live(copied):
                    plan.suppressed += 1
                    continue
            if not room.takes(len(original.data) + len(original.meta)):
                return plan
            plan.copies.append(original)
        plan.cursor = end
        return plan

    def _originals(self, source: Topic, lo: int, hi: int) -> Op[tuple[list[_Original], int | None]]:
        """Live records of a range, up to the first whose bytes are rotten in every copy."""
        found: list[_Original] = []
        for a, b in list(source.extents(lo, hi)):
            for buf, offset, seq in (yield from self._reader.frames(source, a, b)):
                if offset is None:
                    return found, seq
                node, tag, data, meta = record_at(buf, offset)
                hops = buf[offset + FLAGS_AT] >> HOPS_SHIFT
                found.append(_Original(seq, node, tag, data, meta, hops))
        return found, None

    def _make_safe(self, source: Topic, dest: Topic, plan: _Plan) -> Op[None]:
        """What must be durable before the pass is logged: ceilings, and originals of a synced
        destination. Only then is the destination's section free to take the seqs."""
        kernel = self._kernel
        klass = dest.config.durability
        if kernel.in_memory:
            return
        if klass == "fsync" and kernel.is_logged(source):
            shard = kernel.committer.shard_of(source.id)
            yield Io(partial(kernel.committer.sync, shard))
        kernel.require_room(dest.id, CONTROL_BYTES)
        while True:  # each wait may undo what the other waited for
            if klass in CEILING_BLOCK and dest.handed_out + plan.count > dest.reserved:
                ceiling = dest.handed_out + plan.count + CEILING_BLOCK[klass]
                ts = max(kernel.clock.now_ms(), dest.last_ts)
                fact = HeadReserved(dest.id, ts, ceiling)
                yield from kernel.commit([fact], topic_id=dest.id, durable=True)
            elif dest.id in kernel.sections.barred:
                yield from kernel.sections.enter(dest.id)
            else:
                return

    def _submit(self, router: Router, source: Topic, dest: Topic, plan: _Plan) -> PassSubmission:
        kernel = self._kernel
        ts = dest.last_ts = max(kernel.clock.now_ms(), dest.last_ts)
        fact = Forwarded(
            dest.id,
            ts,
            router.name,
            source.id,
            router.preserve_node,
            router.preserve_tag,
            router.create_dest,
            router.allow_cycle,
            router.exactly_once,
            dest.handed_out + 1,
            plan.cursor,
            router.forwarded_total + plan.count + plan.suppressed,
            plan.runs(),
        )
        parts = list(self._parts(router, source, dest, plan, ts))
        durable = dest.config.durability == "fsync" and bool(plan.count)
        copies = b"".join(part[0] for part in parts if not isinstance(part, SeqSkipped))
        log_copies = self._must_log_copies(source, dest, plan)
        head = encode(fact, durable=durable, cont=log_copies)
        submission = PassSubmission(
            shard=kernel.committer.shard_of(dest.id),
            frames=head + copies if log_copies else head,
            count=1 + (len(plan.copies) if log_copies else 0),
            durable=durable,
            on_done=self._passed,
        )
        submission.dest, submission.router, submission.fact = dest, router, fact
        submission.parts = parts
        submission.frames_at = len(head) if log_copies else 0
        dest.handed_out += plan.count
        dest.pending += 1
        if kernel.in_memory:
            kernel.finish_unlogged(submission)
        else:
            kernel.committer.submit(submission)
        return submission

    def _parts(
        self, router: Router, source: Topic, dest: Topic, plan: _Plan, ts: int
    ) -> Iterator[tuple[bytes, Appended] | SeqSkipped]:
        """The destination's side of a pass: frames of the copies, or a run of holes."""
        seq = dest.handed_out + 1
        if plan.lost is not None:
            yield SeqSkipped(dest.id, ts, seq, seq + plan.count - 1, SeqSkipped.SOURCE_TRIM)
            return
        rule = rule_of(router, source_epoch=source.epoch)
        durable = dest.config.durability == "fsync"
        last = plan.copies[-1] if plan.copies else None
        for hops, group in groupby(plan.copies, key=lambda original: original.hops):
            originals = list(group)
            batch = RecordBatch(
                [original.data for original in originals],
                [original.meta for original in originals],
                [original.tag for original in originals],
                [original.node for original in originals],
            )
            copies = derive(rule, [original.seq for original in originals], batch, jsonbytes)
            yield encode_append(
                dest.id,
                seq,
                ts,
                copies,
                durable=durable,
                hops=next_hops(hops),
                cont_last=originals[-1] is not last,
            )
            seq += len(originals)

    def _must_log_copies(self, source: Topic, dest: Topic, plan: _Plan) -> bool:
        """Whether replay could not find the originals: they were never logged."""
        if dest.config.durability == "ephemeral" or not plan.copies or self._kernel.in_memory:
            return False
        first, last = plan.copies[0].seq, plan.copies[-1].seq
        if source.volatile_from and last >= source.volatile_from:
            return True
        return source.volatile.count_between(first, last) > 0

    def _passed(self, submission: Submission) -> None:
        assert isinstance(submission, PassSubmission)
        kernel, dest, router = self._kernel, submission.dest, submission.router
        dest.pending -= 1
        if submission.error is not None:
            if not dest.pending:
                dest.handed_out = dest.head
            return
        kernel.applied[submission.shard] = submission.last_lfn
        crashpoint("fwd.logged")
        before = dest.bytes
        logged_at = submission.offset + submission.frames_at
        for part in submission.parts:
            if isinstance(part, SeqSkipped):
                dest.apply_skipped(part)
                continue
            frames, run = part
            if submission.frames_at:
                run.base = (submission.source_id << 32) + logged_at
                logged_at += len(frames)
            else:
                source_id, offset = kernel.arenas.keep(dest.id, frames, run.last_seq)
                run.base = (source_id << 32) + offset
            dest.apply_appended(run)
            self._note_keys(router, submission.fact, run)
        kernel.catalog.bytes += dest.bytes - before
        router.cursor = submission.fact.cursor
        router.forwarded_total = submission.fact.forwarded_total
        kernel.dirty.add(dest.id)
        if kernel.arenas.size_of(dest.id) > MAX_DERIVED_BYTES and not kernel.in_memory:
            kernel.must_checkpoint = True
        if submission.parts:
            kernel.changed(dest)

    # Exactly once

    def _load_keys(self, dest: Topic) -> Op[None]:
        """The signed copies a destination holds, read once."""
        if dest.id in self._keys:
            return
        keys: dict[str, int] = {}
        for lo, hi in list(dest.extents(dest.earliest, dest.head)):
            for buf, offset, seq in (yield from self._reader.frames(dest, lo, hi)):
                if offset is None:
                    continue
                key = key_in(record_at(buf, offset)[3])
                if key is not None:
                    keys[key] = seq
        self._keys[dest.id] = keys

    def _note_keys(self, router: Router, fact: Forwarded, run: Appended) -> None:
        keys = self._keys.get(fact.topic_id)
        if keys is None or not router.exactly_once:
            return
        source = self._kernel.catalog.by_id.get(router.source_id)
        epoch = source.epoch if source is not None else router.source_id
        rule = rule_of(router, source_epoch=epoch)
        at = fact.dest_first
        for source_first, count, _ in fact.runs:
            for offset in range(count):
                if run.first_seq <= at <= run.last_seq:
                    keys[key_for(rule, source_first + offset)] = at
                at += 1


class _Room:
    """What a destination that refuses at its cap still takes in this pass."""

    def __init__(self, dest: Topic) -> None:
        self._config = dest.config
        self._count = dest.count
        self._bytes = dest.bytes

    def takes(self, nbytes: int) -> bool:
        config = self._config
        self._count += 1
        self._bytes += nbytes
        if config.discard == "old":
            return True
        fits_count = not config.cap_records or self._count <= config.cap_records
        return fits_count and (not config.cap_bytes or self._bytes <= config.cap_bytes)
