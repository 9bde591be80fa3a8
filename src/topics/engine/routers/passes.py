"""One router pass, decided: which source records are copied, which were lost, what fits.

Everything here is pure. `forwarding` fetches the records, waits for what has to be durable first,
and puts the decided pass through the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec

from topics.batch import RecordBatch
from topics.core.derive import derive, forwards, next_hops, rule_of
from topics.core.facts import Appended, Forwarded, SeqSkipped
from topics.core.routers import Router
from topics.core.topic import Topic
from topics.engine.writes.admission import Headroom
from topics.storage.frames.append import encode_append
from topics.wire import jsonbytes

PASS_RECORDS = 1024
PASS_BYTES = 4 << 20
"""About how much payload one pass copies at most."""


class SourceRecord(NamedTuple):
    """A source record, taken apart."""

    seq: int
    node: str | None
    tag: str | None
    data: bytes
    meta: bytes
    hops: int


class SourceRange(msgspec.Struct):
    """What a source holds behind a cursor: lost seqs, or live records up to `end`.

    `stamp` tells whether records were removed since; `marks` names, per shard, the last frame on
    which these records may rest.
    """

    first: int
    end: int
    stamp: tuple[int, int]
    is_lost: bool = False
    originals: list[SourceRecord] = msgspec.field(default_factory=list)
    marks: dict[int, int] = msgspec.field(default_factory=dict)

    def still_holds(self, source: Topic) -> bool:
        return self.stamp == stamp_of(source)

    def without_removed(self, source: Topic) -> SourceRange:
        """What is left of it after removals; the frames to wait for stay the same."""
        return SourceRange(
            self.first,
            self.end,
            stamp_of(source),
            originals=[original for original in self.originals if source.is_live(original.seq)],
            marks=self.marks,
        )


def stamp_of(source: Topic) -> tuple[int, int]:
    """Changes whenever a record of the topic is removed, by whatever cause."""
    return source.delete_version, source.evict_floor


def lost_through(source: Topic, first: int) -> int:
    """The last of the seqs from `first` on that were lost, 0 when `first` was not."""
    if source.evict_floor > first:
        return min(source.evict_floor - 1, source.head)
    gap = source.gap_at(first)
    return min(gap.hi, source.head) if gap is not None else 0


class PassPlan(msgspec.Struct):
    """A pass: the cursor goes to `cursor`; `count` seqs of the destination are used."""

    cursor: int
    lost: tuple[int, int] | None = None
    copied: list[SourceRecord] = msgspec.field(default_factory=list)
    batch: RecordBatch | None = None
    suppressed: int = 0

    @property
    def count(self) -> int:
        if self.lost is not None:
            return self.lost[1] - self.lost[0] + 1
        return len(self.copied)

    def runs(self) -> tuple[tuple[int, int, bool], ...]:
        """The source seqs as runs."""
        if self.lost is not None:
            return ((self.lost[0], self.count, True),)
        found: list[tuple[int, int, bool]] = []
        for copy in self.copied:
            if found and found[-1][0] + found[-1][1] == copy.seq:
                found[-1] = (found[-1][0], found[-1][1] + 1, False)
            else:
                found.append((copy.seq, 1, False))
        return tuple(found)

    def fact(self, router: Router, *, ts: int, dest_first: int) -> Forwarded:
        """The pass as the log knows it."""
        return Forwarded(
            router.dest_id,
            ts,
            router.name,
            router.source_id,
            router.preserve_node,
            router.preserve_tag,
            router.create_dest,
            router.allow_cycle,
            router.exactly_once,
            dest_first,
            self.cursor,
            router.forwarded_total + self.count + self.suppressed,
            self.runs(),
        )

    def parts(
        self, dest: Topic, *, ts: int, first: int
    ) -> Iterator[tuple[bytes, Appended] | SeqSkipped]:
        """The destination's side: frames of the copies, or a run of holes."""
        if self.lost is not None:
            last = first + self.count - 1
            yield SeqSkipped(dest.id, ts, first, last, SeqSkipped.SOURCE_TRIM)
            return
        batch = self.batch
        if batch is None:
            return
        durable = dest.durability.needs_sync
        start = 0
        for hops, group in groupby(self.copied, key=lambda original: original.hops):
            end = start + sum(1 for _ in group)
            yield encode_append(
                dest.id,
                first + start,
                ts,
                batch.part(start, end),
                durable=durable,
                hops=next_hops(hops),
                cont_last=end < len(self.copied),
            )
            start = end


def plan_pass(
    router: Router, source: Topic, found: SourceRange, headroom: Headroom, present: Collection[int]
) -> PassPlan:
    """Decide a pass over a range. `present` are source seqs whose signed copy is there."""
    if found.is_lost:
        return PassPlan(found.end, lost=(found.first, found.end))
    wanted = [o for o in found.originals if forwards(router, tag=o.tag, hops=o.hops)]
    suppressed = [o.seq for o in wanted if o.seq in present] if present else []
    if suppressed:
        wanted = [o for o in wanted if o.seq not in present]
    if not wanted:
        return PassPlan(found.end, suppressed=len(suppressed))
    rule = rule_of(router, source_epoch=source.epoch)
    batch = derive(rule, [original.seq for original in wanted], _batch(wanted), jsonbytes)
    cursor, fitting = found.end, _fitting(batch, headroom)
    if fitting < len(wanted):
        cursor = wanted[fitting].seq - 1
        wanted, batch = wanted[:fitting], batch.part(0, fitting)
    return PassPlan(
        cursor,
        copied=wanted,
        batch=batch if wanted else None,
        suppressed=sum(seq <= cursor for seq in suppressed),
    )


def _fitting(batch: RecordBatch, headroom: Headroom) -> int:
    """How many records of a batch fit, in order; the first that does not stops the rest."""
    count = len(batch)
    if headroom.records is not None:
        count = max(0, min(count, headroom.records))
    if headroom.nbytes is None:
        return count
    left, metas = headroom.nbytes, batch.metas
    for at in range(count):
        left -= len(batch.datas[at]) + (len(metas[at]) if metas is not None else 0)
        if left < 0:
            return at
    return count


def _batch(originals: list[SourceRecord]) -> RecordBatch:
    """Their columns; one that no record uses is left out."""
    metas = [original.meta for original in originals]
    tags = [original.tag for original in originals]
    nodes = [original.node for original in originals]
    return RecordBatch(
        [original.data for original in originals],
        metas if any(metas) else None,
        None if tags.count(None) == len(tags) else tags,
        None if nodes.count(None) == len(nodes) else nodes,
    )
