"""Queue operations: claim, ack, nack, extend, dead letters, redrive.

Lease events are logged for queues with durable leases and never waited for: losing one only makes
a job claimable again. An ack is a delete of the log, waited for as the topic's class asks; the job
stays leased until the delete is applied, and goes back to be handed out if it could not be logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topics.core.batch import RecordBatch
from topics.core.config import MAX_LEASE_MS, MIN_LEASE_MS
from topics.core.facts import LeaseChanged
from topics.core.leases import LeaseBook
from topics.core.topic import Topic
from topics.engine.effects import Gate, Op, Sleep
from topics.engine.engine import Engine
from topics.errors import BatchTooLarge, InvalidRequest, NotAQueue, TopicFull, TopicsError
from topics.queue.claiming import Claimer, Pass, claim_pass
from topics.values import Acked, Claimed, Extended, Job, Nacked, Record, Redriven
from topics.wire.jsonbytes import drop_members, splice_members

MAX_NODE_BYTES = 128
MAX_DELAY_MS = 86_400_000
MAX_CLAIM = 1000
LETTER_MEMBERS = ("$dead_letter_from", "$dead_letter_deliveries", "$dead_letter_src_seq")
GENERATION_SHIFT = 40
REDRIVE_PAGE = 256


class Cohort(NamedTuple):
    """Claims of one window, and the gate that opens once they were served."""

    claimers: list[Claimer]
    served: Gate


class Queues:
    """All queues of one engine."""

    def __init__(self, engine: Engine, *, max_claim: int = MAX_CLAIM) -> None:
        self._engine = engine
        self._kernel = engine.kernel
        self._max_claim = max_claim
        self._lease_id = self._kernel.generation << GENERATION_SHIFT
        self._cohorts: dict[int, Cohort] = {}

    def next_lease_id(self) -> int:
        """Ids never repeat: not after a restart, not for a queue created again."""
        self._lease_id += 1
        return self._lease_id

    # Claiming

    def claim(
        self, name: str, *, node: str, most: int = 1, lease_ms: int | None = None
    ) -> Op[Claimed]:
        """Lease up to `most` jobs to a worker; fewer or none is a normal answer."""
        topic, _ = self._queue(name)
        _check_node(node)
        claimer = Claimer(node, min(max(most, 1), self._max_claim), _lease_ms(topic, lease_ms))
        jitter_ms = topic.config.claim_jitter_ms
        if not jitter_ms:
            yield from self._serve(topic, [claimer])
        else:
            yield from self._join_cohort(topic, claimer, jitter_ms)
        jobs = yield from self._jobs(topic, claimer)
        return Claimed(name, jobs, ready=self.counts(topic)[0])

    def _join_cohort(self, topic: Topic, claimer: Claimer, jitter_ms: int) -> Op[None]:
        """Claims that arrive within a window are served together, at its end."""
        cohort = self._cohorts.get(topic.id)
        if cohort is not None:
            cohort.claimers.append(claimer)
            yield cohort.served
            return
        cohort = self._cohorts[topic.id] = Cohort([claimer], Gate())
        yield Sleep(jitter_ms / 1000)
        del self._cohorts[topic.id]
        try:
            yield from self._serve(topic, cohort.claimers)
        finally:
            cohort.served.open()

    def _serve(self, topic: Topic, cohort: Sequence[Claimer]) -> Op[None]:
        yield from self._kernel.catch_up(topic)
        yield from self._kernel.retain(topic)
        now_ms = self._sweep(topic)
        done = claim_pass(topic, cohort, now_ms=now_ms, next_lease_id=self.next_lease_id)
        self._log(topic, done.events)
        yield from self._bury(topic, done)

    def _jobs(self, topic: Topic, claimer: Claimer) -> Op[list[Job]]:
        records = yield from self._engine.records(topic, claimer.seqs)
        return [_job(event, records[event.seq]) for event in claimer.leases if event.seq in records]

    def _sweep(self, topic: Topic) -> int:
        assert topic.leases is not None
        now_ms = self._kernel.clock.now_ms()
        topic.leases.sweep(now_ms)
        return now_ms

    def _log(self, topic: Topic, events: Sequence[LeaseChanged]) -> None:
        """Durable leases leave a trace; nobody waits for it."""
        if events and topic.config.leases_durable and self._kernel.is_logged(topic):
            self._kernel.submit_unapplied(list(events), topic_id=topic.id, durable=False)

    # Finishing, giving back, prolonging

    def ack(
        self, name: str, *, node: str, seqs: Sequence[int], lease_ids: Sequence[int | None] = ()
    ) -> Op[Acked]:
        """Remove finished jobs; those no longer held are `skipped`."""
        topic, leases = self._checked(name, node, seqs, lease_ids)
        yield from self._kernel.retain(topic)
        self._sweep(topic)
        held, skipped = _held(leases, node, seqs, lease_ids)
        acked = 0
        if held:
            try:
                acked = yield from self._engine.delete_seqs(topic, held)
            except TopicsError:
                for seq in held:
                    if topic.is_live(seq):
                        leases.put_back(seq)
                raise
        ready, in_flight = self.counts(topic)
        return Acked(name, acked, skipped, ready, in_flight)

    def nack(
        self,
        name: str,
        *,
        node: str,
        seqs: Sequence[int],
        lease_ids: Sequence[int | None] = (),
        delay_ms: int = 0,
    ) -> Op[Nacked]:
        """Give jobs back, for now or for later."""
        topic, leases = self._checked(name, node, seqs, lease_ids)
        yield from self._kernel.retain(topic)
        now_ms = self._sweep(topic)
        held, skipped = _held(leases, node, seqs, lease_ids)
        ready_at = now_ms + min(delay_ms, MAX_DELAY_MS)
        events = [
            LeaseChanged(
                topic.id,
                seq,
                now_ms,
                LeaseChanged.RELEASED,
                leases.leased[seq].lease_id,
                ready_at,
                leases.deliveries.get(seq, 0),
                node,
            )
            for seq in held
        ]
        self._apply(topic, events)
        ready, in_flight = self.counts(topic)
        return Nacked(name, len(held), skipped, ready, in_flight)

    def extend(
        self,
        name: str,
        *,
        node: str,
        seqs: Sequence[int],
        lease_ids: Sequence[int | None] = (),
        lease_ms: int,
    ) -> Op[Extended]:
        """Hold jobs for `lease_ms` from now; lease id and delivery count stay."""
        topic, leases = self._checked(name, node, seqs, lease_ids)
        yield from self._kernel.retain(topic)
        now_ms = self._sweep(topic)
        held, skipped = _held(leases, node, seqs, lease_ids)
        deadline_ms = now_ms + _lease_ms(topic, lease_ms)
        events = [
            LeaseChanged(
                topic.id,
                seq,
                now_ms,
                LeaseChanged.EXTENDED,
                leases.leased[seq].lease_id,
                deadline_ms,
                leases.deliveries.get(seq, 0),
                node,
            )
            for seq in held
        ]
        self._apply(topic, events)
        return Extended(name, len(held), skipped, dict.fromkeys(held, deadline_ms))

    def release(self, topic: Topic, events: Sequence[LeaseChanged]) -> None:
        """Give back leases whose holder has gone; stale ones are left alone."""
        if topic.leases is None:
            return
        now_ms = self._kernel.clock.now_ms()
        self._apply(
            topic,
            [
                LeaseChanged(
                    topic.id,
                    event.seq,
                    now_ms,
                    LeaseChanged.RELEASED,
                    event.lease_id,
                    now_ms,
                    event.deliveries,
                    event.node,
                )
                for event in events
            ],
        )
        self._kernel.changed(topic)

    def _apply(self, topic: Topic, events: Sequence[LeaseChanged]) -> None:
        assert topic.leases is not None
        for event in events:
            topic.leases.apply(event)
        self._log(topic, events)

    # Dead letters

    def _bury(self, topic: Topic, done: Pass) -> Op[None]:
        """Move spent jobs: first the copy, then the delete. A crash between may duplicate."""
        leases = topic.leases
        assert leases is not None
        if not done.dead:
            return
        dead_letter = topic.config.dead_letter
        assert dead_letter is not None
        records = yield from self._engine.records(topic, sorted(done.dead))
        for seq in sorted(done.dead):
            record = records.get(seq)
            if record is None:
                continue
            letter = _letter(topic.name, record, leases.deliveries.get(seq, 0))
            try:
                yield from self._engine.append(dead_letter, letter)
                yield from self._engine.delete_seqs(topic, [seq])
            except TopicsError:
                leases.put_back(seq)
            else:
                leases.dead_lettered += 1

    def redrive(self, name: str, *, source: str | None = None, most: int = 100) -> Op[Redriven]:
        """Put dead letters of this queue back into it, oldest first."""
        topic, _ = self._queue(name)
        source = source or topic.config.dead_letter
        if source is None:
            raise InvalidRequest(f'queue "{name}" has no dead_letter; say from which topic')
        letters = self._kernel.topic(source)
        most = min(max(most, 1), self._max_claim)
        moved, more = 0, False
        cursor = letters.earliest - 1
        while cursor < letters.head and not more:
            page = yield from self._engine.page(letters, cursor, REDRIVE_PAGE)
            for record in page.records:
                if not _is_letter_of(record, name):
                    continue
                if moved == most:
                    more = True
                    break
                try:
                    yield from self._engine.append(name, _redriven(record))
                except TopicFull:
                    if not moved:
                        raise
                    return Redriven(name, source, moved, True)
                yield from self._engine.delete_seqs(letters, [record.seq])
                moved += 1
            cursor = page.next_from_seq
        return Redriven(name, source, moved, more)

    # Shared

    def counts(self, topic: Topic) -> tuple[int, int]:
        """Jobs ready to be claimed, and jobs on lease."""
        leases = topic.leases
        assert leases is not None
        leases.sweep(self._kernel.clock.now_ms())
        in_flight = len(leases.leased)
        return topic.count - in_flight - len(leases.delayed), in_flight

    def _queue(self, name: str) -> tuple[Topic, LeaseBook]:
        topic = self._kernel.topic(name)
        if topic.leases is None:
            raise NotAQueue(name)
        return topic, topic.leases

    def _checked(
        self, name: str, node: str, seqs: Sequence[int], lease_ids: Sequence[int | None]
    ) -> tuple[Topic, LeaseBook]:
        _check_node(node)
        if len(seqs) > self._max_claim:
            raise BatchTooLarge(seqs=len(seqs), maximum=self._max_claim)
        if lease_ids and len(lease_ids) != len(seqs):
            raise InvalidRequest(
                f"{len(lease_ids)} lease_ids for {len(seqs)} seqs: send one for each, or none"
            )
        return self._queue(name)


def _check_node(node: str) -> None:
    if not node or len(node.encode()) > MAX_NODE_BYTES:
        raise InvalidRequest(f"node must have 1 to {MAX_NODE_BYTES} bytes")


def _lease_ms(topic: Topic, sent: int | None) -> int:
    wanted = topic.config.lease_ms if sent is None else sent
    return min(max(wanted, MIN_LEASE_MS), MAX_LEASE_MS)


def _held(
    leases: LeaseBook, node: str, seqs: Sequence[int], lease_ids: Sequence[int | None]
) -> tuple[list[int], list[int]]:
    """Which of these seqs the node holds, by the lease it names; and the rest, in order."""
    held: list[int] = []
    skipped: list[int] = []
    seen: set[int] = set()
    for at, seq in enumerate(seqs):
        lease = leases.leased.get(seq)
        token = lease_ids[at] if lease_ids else None
        if (
            lease is None
            or seq in seen
            or lease.node != node
            or (token is not None and token != lease.lease_id)
        ):
            skipped.append(seq)
        else:
            held.append(seq)
            seen.add(seq)
    return held, skipped


def _job(event: LeaseChanged, record: Record) -> Job:
    return Job(
        record.seq,
        event.lease_id,
        event.deadline_ms,
        record.ts,
        event.deliveries,
        record.raw,
        record.tag,
        record.raw_meta,
    )


def _letter(queue: str, record: Record, deliveries: int) -> RecordBatch:
    """The copy that goes to the dead letters; meta that is no object is replaced."""
    meta = record.raw_meta or b"{}"
    if not meta.startswith(b"{"):
        meta = b"{}"
    values = (queue, str(deliveries), str(record.seq))
    meta = splice_members(
        drop_members(meta, LETTER_MEMBERS), dict(zip(LETTER_MEMBERS, values, strict=True))
    )
    return RecordBatch([record.raw], [meta], [record.tag], [record.node])


def _is_letter_of(record: Record, queue: str) -> bool:
    meta = record.meta
    return isinstance(meta, dict) and meta.get(LETTER_MEMBERS[0]) == queue


def _redriven(record: Record) -> RecordBatch:
    meta = drop_members(record.raw_meta or b"{}", LETTER_MEMBERS)
    return RecordBatch([record.raw], [b"" if meta == b"{}" else meta], [record.tag], [record.node])
