"""Routers at work: records of one topic copied to another, in order, off the path of the ack.

A pass takes what the source has behind the router's cursor and logs one small frame on the
destination's shard: which source records were copied under which seqs. The payloads are not logged
again; the copies wait in memory for the checkpoint that puts them into the destination's segments,
and after a crash they are made again from the originals under the same seqs. The frame is also the
cursor, so publishing and moving on are one step.

What the source lost before it could be copied becomes a run of holes in the destination, one for
each lost seq, so that loss travels down a chain. A destination that refuses writes when full stops
the pass before the record that does not fit; the next pass tries it again.

A pass waits for several things, and each wait may undo what an earlier one waited for. So it
decides anew after every wait, and submits only when nothing is left to wait for. Records that were
removed while it waited are not copied: a checkpoint may have left them out of the segments by
then, and replay would not find them.
"""

from __future__ import annotations

from topics.batch import RecordBatch
from topics.core.facts import Appended, Forwarded, SeqSkipped
from topics.core.routers import Router
from topics.core.topic import Topic
from topics.engine.effects import Gate, Op
from topics.engine.kernel import Kernel, TopicChange
from topics.engine.reads.reading import Reader
from topics.engine.retention import may_have_expired, retain
from topics.engine.routers.passes import (
    PASS_BYTES,
    PASS_RECORDS,
    PassPlan,
    SourceRange,
    SourceRecord,
    lost_through,
    plan_pass,
    stamp_of,
)
from topics.engine.routers.signed_copies import SignedCopies
from topics.engine.writes.admission import Admission, Full, Go, Wait
from topics.errors import TopicsError
from topics.storage.crashpoints import crashpoint
from topics.storage.frames.append import record_at
from topics.storage.frames.buffer import encode
from topics.storage.frames.header import HOPS_SHIFT
from topics.storage.sources import location
from topics.storage.wal.submission import Submission

FLAGS_AT = 5
NO_RECORDS = RecordBatch([])
MAX_SHARED = 4
"""How many ranges are kept for the other routers of their source."""


class PassSubmission(TopicChange):
    """A pass on its way through the log of its destination."""

    __slots__ = ("fact", "forwarder", "frames_at", "parts", "router", "wakes")

    forwarder: Forwarder
    router: Router
    wakes: bool
    fact: Forwarded
    parts: list[tuple[bytes, Appended] | SeqSkipped]
    frames_at: int  # where logged copies begin in the submission; 0: they are not logged

    def apply(self) -> None:
        self.forwarder.apply(self)


class Forwarder:
    def __init__(self, kernel: Kernel, reader: Reader, admission: Admission) -> None:
        self._kernel = kernel
        self._reader = reader
        self._admission = admission
        self._busy: dict[str, Gate] = {}
        self._shared: dict[int, SourceRange] = {}  # by source id
        self._signed = SignedCopies(reader)

    def forget_topic(self, topic_id: int) -> None:
        """A topic was dropped, and its routers with it."""
        self._shared.pop(topic_id, None)
        self._signed.forget(lambda router: topic_id in (router.source_id, router.dest_id))

    def forget(self, gone: Router) -> None:
        """A router was dropped."""
        self._signed.forget(lambda router: router is gone)

    # Driving

    def catch_up(self, topic: Topic) -> Op[None]:
        """Bring a topic up to date with what feeds it, upstream first, each router once."""
        for router in self._upstream(topic.id):
            yield from self._advance_to_head(router)

    def catch_up_router(self, router: Router) -> Op[None]:
        """Bring one router up to date, and before it what feeds its source."""
        for above in self._upstream(router.source_id):
            yield from self._advance_to_head(above)
        yield from self._advance_to_head(router)

    def _upstream(self, topic_id: int) -> list[Router]:
        """Every router from which records come to a topic, directly or not, farthest first."""
        routers = self._kernel.catalog.routers
        found: list[Router] = []
        seen: set[str] = set()
        ahead = routers.into(topic_id)
        entered: list[Router] = []
        while ahead:
            router = ahead.pop()
            if entered and entered[-1] is router:  # all that feeds it was found
                found.append(entered.pop())
            elif router.name not in seen:
                seen.add(router.name)
                entered.append(router)
                ahead.append(router)
                ahead += routers.into(router.source_id)
        return found

    def _advance_to_head(self, router: Router) -> Op[None]:
        """Up to the present head: a read that waits for this must not chase a busy writer."""
        source = self._kernel.catalog.by_id.get(router.source_id)
        goal = 0 if source is None else source.head
        while router.cursor < goal and (yield from self.advance(router)):
            pass

    def advance_all(self) -> Op[None]:
        """One pass for every router that has something to do."""
        for router in list(self._kernel.catalog.routers):
            if self.is_behind(router):
                yield from self.advance(router)

    def is_behind(self, router: Router) -> bool:
        source = self._kernel.catalog.by_id.get(router.source_id)
        return source is not None and router.cursor < source.head

    def advance(self, router: Router) -> Op[bool]:
        """One pass; whether the cursor moved. Passes of one router never overlap.

        A pass that fails leaves the cursor where it is; the request that asked for it goes on.
        """
        self._kernel.host.before_change()
        while (gate := self._busy.get(router.name)) is not None:
            yield gate  # look again: of several passes that wait here only one may begin
        gate = self._busy[router.name] = Gate()
        try:
            return (yield from self._pass(router))
        except TopicsError:
            return False
        finally:
            del self._busy[router.name]
            gate.open()

    # One pass

    def _pass(self, router: Router) -> Op[bool]:
        kernel = self._kernel
        found: SourceRange | None = None
        loaded: list[object] = []  # indexes
        admitted = False  # by the gate of the destination; valid for one attempt
        while (ends := self._ends(router)) is not None:
            source, dest = ends
            if (yield from self._waited(router, source, dest)):
                admitted = False
                continue
            if router.cursor >= source.head:
                return False
            if found is None or not found.still_holds(source):
                found = yield from self._range(router, source, found)
                admitted = False
                continue
            durable = dest.durability.needs_sync
            if durable and not kernel.sync_marks.is_synced(found.marks):
                yield from kernel.sync_marks.sync(found.marks)
                admitted = False
                continue
            plan = self._plan(router, source, dest, found)
            if plan.cursor == router.cursor:
                return False
            decision = self._admission.decide(
                dest, plan.batch or NO_RECORDS, admitted=admitted, pass_seqs=plan.count
            )
            admitted = False
            match decision:
                case Wait(on=wait):
                    loaded.append((yield from wait))
                    admitted = True
                case Go(losses=losses):
                    loss = losses.evicted if kernel.is_logged(dest) else None
                    if loss is None:
                        if plan.copied:
                            kernel.sync_marks.note_copies(dest, found.marks)
                        return (yield from self._log(router, source, dest, plan, losses.held))
                    held = yield from kernel.indexes.prepare_loss(
                        dest, max(loss.cap_hi, loss.ttl_hi)
                    )
                    yield from kernel.commit([loss], topic_id=dest.id, durable=durable)
                    del held
                case Full():
                    raise kernel.no_room(dest)
                case _:  # the plan takes only what fits
                    return False
        return False

    def _waited(self, router: Router, source: Topic, dest: Topic) -> Op[bool]:
        """Wait for one of the things that stand in the way; False when nothing does."""
        kernel = self._kernel
        if kernel.standstill is not None:
            yield kernel.standstill
        elif may_have_expired(kernel, source) or may_have_expired(kernel, dest):
            yield from retain(kernel, source)
            yield from retain(kernel, dest)
        elif router.exactly_once and not self._signed.is_current(router, dest):
            yield from self._signed.look(router, source, dest)
        else:
            return False
        return True

    def _ends(self, router: Router) -> tuple[Topic, Topic] | None:
        """Source and destination, as long as all three are there."""
        catalog = self._kernel.catalog
        source, dest = catalog.by_id.get(router.source_id), catalog.by_id.get(router.dest_id)
        if source is None or dest is None:
            return None
        return (source, dest) if catalog.routers.by_name.get(router.name) is router else None

    def _plan(self, router: Router, source: Topic, dest: Topic, found: SourceRange) -> PassPlan:
        present = self._signed.present(router, dest) if router.exactly_once else frozenset()
        return plan_pass(router, source, found, self._admission.headroom(dest), present)

    # What there is to copy

    def _range(self, router: Router, source: Topic, stale: SourceRange | None) -> Op[SourceRange]:
        """What the source has behind the cursor: one run of lost seqs, or live records."""
        first = router.cursor + 1
        lost = lost_through(source, first)
        if lost:
            return SourceRange(first, lost, stamp_of(source), is_lost=True)
        if stale is not None and not stale.is_lost:
            return stale.without_removed(source)
        end = min(source.head, router.cursor + PASS_RECORDS, source.next_announced(first) - 1)
        shared = self._shared.get(source.id)
        if shared is None or shared.first != first or not shared.still_holds(source):
            shared = yield from self._fetch(source, first, end)
            self._share(source, shared)
        return shared

    def _fetch(self, source: Topic, first: int, end: int) -> Op[SourceRange]:
        """Live records of a range, as far as they make a pass; rot counts as loss."""
        found = SourceRange(first, end, stamp_of(source), marks=self._kernel.sync_marks.of(source))
        originals, size = found.originals, 0
        for lo, hi in list(source.extents(first, end)):
            at = lo
            while at <= hi:
                piece = yield from self._reader.fetch(source, at, hi, PASS_BYTES - size)
                for buf, offset, seq in zip(piece.bufs, piece.offsets, piece.seqs, strict=True):
                    if offset is None:
                        found.end, found.is_lost = max(first, seq - 1), seq == first
                        return found
                    node, tag, data, meta = record_at(buf, offset)
                    hops = buf[offset + FLAGS_AT] >> HOPS_SHIFT
                    originals.append(SourceRecord(seq, node, tag, data, meta, hops))
                size += sum(piece.sizes)
                at = max(piece.through, at) + 1
                if size >= PASS_BYTES:
                    found.end = min(end, at - 1)
                    return found
        return found

    def _share(self, source: Topic, found: SourceRange) -> None:
        """Keep a range: other routers of this source usually need the same records next."""
        self._shared.pop(source.id, None)
        if len(self._kernel.catalog.routers.out_of(source.id)) > 1:
            self._shared[source.id] = found
            if len(self._shared) > MAX_SHARED:
                del self._shared[next(iter(self._shared))]

    # Through the log

    def _log(
        self, router: Router, source: Topic, dest: Topic, plan: PassPlan, held: object
    ) -> Op[bool]:
        submission = self._submit(router, source, dest, plan, held)
        if not submission.done:
            yield submission
        return submission.error is None

    def _submit(
        self, router: Router, source: Topic, dest: Topic, plan: PassPlan, held: object
    ) -> PassSubmission:
        kernel = self._kernel
        ts = dest.last_ts = max(kernel.clock.now_ms(), dest.last_ts)
        first = dest.handed_out + 1
        fact = plan.fact(router, ts=ts, dest_first=first)
        parts = list(plan.parts(dest, ts=ts, first=first))
        durable = dest.durability.needs_sync and bool(plan.count)
        log_copies = self._must_log_copies(source, dest, plan)
        frames = head = encode(fact, durable=durable, cont=log_copies)
        if log_copies:
            frames += b"".join(part[0] for part in parts if not isinstance(part, SeqSkipped))
        submission = PassSubmission(
            shard=kernel.committer.shard_of(dest.id),
            frames=frames,
            count=1 + (len(plan.copied) if log_copies else 0),
            durable=durable,
            on_done=self._passed,
        )
        submission.topic, submission.router, submission.fact = dest, router, fact
        submission.parts, submission.held, submission.forwarder = parts, held, self
        submission.frames_at = len(head) if log_copies else 0
        submission.wakes = bool(parts)
        dest.handed_out += plan.count
        dest.pending += 1
        submission.counted = plan.batch.nbytes if plan.batch is not None else 0
        kernel.catalog.expect(dest, submission.counted)
        if kernel.in_memory:
            kernel.finish_unlogged(submission)
        else:
            kernel.passes[submission] = dest.id
            kernel.committer.submit(submission)
        return submission

    def _must_log_copies(self, source: Topic, dest: Topic, plan: PassPlan) -> bool:
        """Whether replay could not find the originals: they were never logged."""
        if not dest.durability.is_logged or not plan.copied or self._kernel.in_memory:
            return False
        first, last = plan.copied[0].seq, plan.copied[-1].seq
        if source.volatile_from and last >= source.volatile_from:
            return True
        return source.volatile.count_between(first, last) > 0

    def _passed(self, submission: Submission) -> None:
        self._kernel.passes.pop(submission, None)
        self._kernel.publish(submission)

    def apply(self, submission: PassSubmission) -> None:
        """Show the copies, and move the router on."""
        crashpoint("fwd.logged")
        kernel, dest, router = self._kernel, submission.topic, submission.router
        self._apply_parts(submission)
        router.cursor = submission.fact.cursor
        router.forwarded_total = submission.fact.forwarded_total
        self._signed.passed(router, submission.fact, dest.head)
        kernel.dirty_routers.add(router.name)
        if kernel.derived_bytes >= kernel.settings.checkpoint_bytes and kernel.is_logged(dest):
            kernel.must_checkpoint = True

    def _apply_parts(self, submission: PassSubmission) -> None:
        kernel, dest = self._kernel, submission.topic
        logged_at = submission.offset + submission.frames_at
        for part in submission.parts:
            if isinstance(part, SeqSkipped):
                dest.apply_skipped(part)
                continue
            frames, run = part
            if submission.frames_at:
                run.base = location(submission.source_id, logged_at)
                logged_at += len(frames)
            else:
                source_id, offset = kernel.arenas.keep(dest.id, frames, run.last_seq)
                run.base = location(source_id, offset)
                kernel.derived_bytes += len(frames)
            dest.apply_appended(run)
