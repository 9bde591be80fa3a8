"""A topic as a snapshot holds it, and back.

A snapshot describes what a restart would find. Records of an ephemeral life are therefore already
written down as what they will be then: a run of lost seqs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain, islice

import msgspec

from topics.core.ages import Ages
from topics.core.catalog import StagingApp
from topics.core.facts import SeqSkipped
from topics.core.keys import KeyEntry, Slot, slots_of
from topics.core.leases import Lease, LeaseBook
from topics.core.routers import Router
from topics.core.runs import KindRuns, RunSet
from topics.core.seqset import CHUNK_BITS, LAST_BIT, SeqSet
from topics.core.tail import Tail
from topics.core.topic import SEQ_BASE, Ledger, Topic
from topics.engine.reads.history import Resident, segments_of
from topics.engine.upkeep.delete_bytes import Flips
from topics.storage.segments.segment import ActiveSegment, Segment, parts_of_label
from topics.storage.snapshots.lines import (
    AppLine,
    LedgerTotals,
    QueueState,
    RouterLine,
    TopicLine,
)

STEP_RUNS = 2048


class TopicCapture(msgspec.Struct):
    """One topic at one moment, and what has to reach its segments for that moment to hold."""

    topic: Topic
    line: TopicLine  # segments, deleted runs and keys not filled in yet
    through: int  # seqs up to here leave the tail: all but those of an ephemeral life
    live: list[tuple[int, int]]  # ranges behind the last checkpoint that begin and end alive
    deleted: SeqSet  # which also tells the dead between them
    tail: Tail  # a copy: the topic's own goes on changing
    flips: Flips  # deletes whose delete bytes are not on disk, as far as they are in segments
    drops: list[Segment]  # sealed segments without a live seq
    residents: list[Tail]
    keys: CapturedKeys


class CapturedKeys(msgspec.Struct):
    """The idempotency keys of a topic at one moment, and which of them a snapshot holds."""

    blocks: list[tuple[list[Slot], int, int]]
    volatile: RunSet  # keys go with their records
    now_ms: int
    window_ms: int
    aged: int

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def listed(self) -> Generator[None, None, list[tuple[str, int, int, int, int]]]:
        """The keys inside their window, oldest first, in steps."""
        found: dict[str, KeyEntry] = {}
        for block in self.blocks:
            for key, entry in slots_of([block]):
                found.pop(key, None)
                if entry.first_seq not in self.volatile and entry.is_inside(
                    now_ms=self.now_ms, window_ms=self.window_ms, aged=self.aged
                ):
                    found[key] = entry
            yield
        return [(key, e.first_seq, e.count, e.head, e.ts) for key, e in found.items()]


def capture(topic: Topic, flips: Flips, *, lfn: int, running_ms: int, now_ms: int) -> TopicCapture:
    """Note everything a checkpoint needs of a topic. Pure memory."""
    history = segments_of(topic)
    volatile = topic.volatile_spans()
    line = _line(topic, volatile, lfn, running_ms)
    start = max(history.last + 1, topic.earliest)
    through = topic.volatile_from - 1 if topic.volatile_from else topic.head
    return TopicCapture(
        topic=topic,
        line=line,
        through=through,
        live=list(_live_ranges(topic.deleted, KindRuns(line.runs), start, through)),
        deleted=topic.deleted.copy(),
        tail=_copy(topic.tail, start, through),
        flips=flips,
        drops=[seg for seg in history.sealed if _is_dead(topic, seg)],
        residents=[
            _copy(topic.tail, max(lo, topic.earliest), hi)
            for lo, hi in topic.volatile
            if hi > history.last and hi >= topic.earliest
        ],
        keys=_captured_keys(topic, volatile, now_ms=now_ms, running_ms=running_ms),
    )


def _captured_keys(topic: Topic, volatile: RunSet, *, now_ms: int, running_ms: int) -> CapturedKeys:
    window_ms = topic.config.idempotency_window_ms
    aged = topic.ages.through(running_ms - window_ms) if topic.is_ahead_of(now_ms) else 0
    return CapturedKeys(topic.keys.blocks(), volatile, now_ms, window_ms, aged)


def give_back(captured: TopicCapture) -> None:
    """The checkpoint failed: its flips are due again."""
    captured.topic.unflipped.merge(captured.flips.fresh)


def _live_ranges(deleted: SeqSet, runs: KindRuns, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """What lies between runs of holes, each from its first live seq to its last."""
    for a, b in runs.gaps_between(lo, hi):
        first, last = deleted.end_of(a) + 1, deleted.start_of(b) - 1
        if first <= last:
            yield first, last


def _copy(tail: Tail, lo: int, hi: int) -> Tail:
    copy = Tail(max(lo, tail.first))
    copy.is_scattered = tail.is_scattered
    a, b = copy.first - tail.first, max(hi - tail.first + 1, 0)
    copy.locations = tail.locations[a:b]
    copy.lengths = tail.lengths[a:b]
    copy.times = tail.times[a:b]
    copy.name_lengths = tail.name_lengths[a:b]
    copy.flags = tail.flags[a:b]
    return copy


def _is_dead(topic: Topic, seg: Segment) -> bool:
    if seg.last < topic.earliest:
        return True
    lowest = max(seg.first, topic.earliest)
    return topic.deleted.count_between(lowest, seg.last) == seg.last - lowest + 1


def _line(topic: Topic, volatile: RunSet, lfn: int, running_ms: int) -> TopicLine:
    count, nbytes = topic.count, topic.bytes
    ledger, runs = msgspec.structs.asdict(topic.ledger), KindRuns(topic.runs)
    for span in volatile:
        for lo, hi in topic.extents(*span):
            lost, size = topic.weigh(lo, hi)
            count, nbytes = count - lost, nbytes - size
            ledger["lost_crash"] += lost
            runs.add(lo, hi, SeqSkipped.POWER_LOSS)
    exact_from = topic.exact_from_now_on()
    return TopicLine(
        name=topic.name,
        id=topic.id,
        epoch=topic.epoch,
        seq_base=SEQ_BASE,
        config=msgspec.Raw(topic.config.to_json()),
        lfn=lfn,
        base=min(topic.earliest, topic.head + 1),
        head=topic.head,
        reserved=topic.reserved,
        cap_hi=topic.cap_hi,
        ttl_hi=topic.ttl_hi,
        floor_ts=topic.floor_ts,
        earliest=topic.earliest,
        delete_below=topic.delete_below,
        last_ts=topic.last_ts,
        count=count,
        bytes=nbytes,
        ledger=LedgerTotals(**ledger),
        delete_version=topic.delete_version,
        deleted_runs=[],
        exact_from=exact_from,
        cursors=[(name, seq, ts) for name, (seq, ts) in topic.cursors.items()],
        keys=[],
        runs=list(runs),
        segs=[],
        dropped=[],
        active=None,
        queue=_queue(topic.leases) if topic.leases else None,
        ages=[(seq, running_ms - at_ms) for seq, at_ms in topic.ages],
    )


def _queue(leases: LeaseBook) -> QueueState:
    return QueueState(
        claim_cursor=leases.claim_cursor,
        deliveries=list(leases.deliveries.items()),
        leases=[(s, x.lease_id, x.node, x.deadline_ms) for s, x in leases.leased.items()],
        delayed=list(leases.delayed.items()),
        dead_lettered=leases.dead_lettered,
    )


def deleted_runs(captured: TopicCapture) -> Iterator[tuple[int, int]]:
    """What the line tells of deletes."""
    exact_from, head = captured.line.exact_from, captured.line.head
    early = captured.flips.named.between(SEQ_BASE, exact_from - 1)
    return chain(early, captured.deleted.between(exact_from, head))


def listed(runs: Iterator[tuple[int, int]]) -> Generator[None, None, list[tuple[int, int]]]:
    """Very many runs as a list, in steps."""
    found: list[tuple[int, int]] = []
    while some := list(islice(runs, STEP_RUNS)):
        found += some
        yield
    return found


def router_line(router: Router) -> RouterLine:
    """A router as it is now."""
    return RouterLine(**msgspec.structs.asdict(router))


def app_line(name: str, app: StagingApp) -> AppLine:
    """A staging app as it is now."""
    return AppLine(
        name=name,
        epoch=app.epoch,
        result=msgspec.Raw(app.result),
        last_use_ms=app.last_use_ms,
        owner=app.owner.hex(),
    )


def with_segments(
    line: TopicLine,
    sealed: list[Segment],
    active: ActiveSegment | None,
    dropped: list[tuple[int, int]],
) -> TopicLine:
    """The line once its segments are known; `dropped` are labels and last seqs."""
    named = [(parts_of_label(label), last) for label, last in dropped]
    return msgspec.structs.replace(
        line,
        segs=sealed,
        active=None if active is None else active.recorded(),
        dropped=[(first, last) for (first, version), last in named if not version],
        dropped_versions=[(first, last, version) for (first, version), last in named if version],
    )


def restore(topic: Topic, line: TopicLine, active: ActiveSegment | None, *, since_ms: int) -> None:
    """Give a fresh topic the state of a snapshot line that was written so long ago."""
    history = segments_of(topic)
    parts: list[Segment | ActiveSegment | Resident] = [*line.segs]
    if active is not None:
        parts.append(active)
    history.replace(parts, last=line.head)
    history.marks_below = line.exact_from
    topic.head = topic.handed_out = line.head
    topic.reserved = line.reserved
    topic.cap_hi, topic.ttl_hi, topic.ttl_logged_hi = line.cap_hi, line.ttl_hi, line.ttl_hi
    topic.floor_ts = line.floor_ts
    topic.delete_below = line.delete_below
    topic.last_ts = line.last_ts
    topic.ages = Ages((seq, -age_ms - since_ms) for seq, age_ms in line.ages)
    topic.count, topic.bytes = line.count, line.bytes
    topic.ledger = Ledger(**msgspec.structs.asdict(line.ledger))
    topic.delete_version = line.delete_version
    topic.deleted = SeqSet(line.deleted_runs)
    topic.exact_from = line.exact_from
    # Named although a byte would tell of them: the byte is not there yet.
    topic.unflipped = topic.deleted.below(line.exact_from)
    topic.cursors = {name: (seq, ts) for name, seq, ts in line.cursors}
    for key, first, count, head, ts in line.keys:
        topic.keys.restore(key, KeyEntry(first, count, head, ts))
    topic.runs = KindRuns(line.runs)
    for chunk, absent in history.absent(line.earliest, line.exact_from - 1):
        lo = chunk << CHUNK_BITS
        if deleted := absent & ~topic.hole_bits(lo, lo | LAST_BIT):
            topic.deleted.update({chunk: deleted})
    topic.tail = Tail(line.head + 1)
    topic.volatile_from = 0 if topic.durability.survives_restart else line.head + 1
    if line.queue is not None and topic.leases is not None:
        _restore_queue(topic.leases, line.queue)
    topic.find_earliest(line.earliest)


def _restore_queue(leases: LeaseBook, queue: QueueState) -> None:
    leases.claim_cursor = queue.claim_cursor
    leases.restore(
        leased=((seq, Lease(lease, node, end)) for seq, lease, node, end in queue.leases),
        delayed=queue.delayed,
        deliveries=queue.deliveries,
    )
    leases.dead_lettered = queue.dead_lettered
