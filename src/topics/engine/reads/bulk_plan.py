"""Which seqs a large page covers, settled before a byte of it is read.

A bulk answer names its end and accounts for every seq in its first bytes, so the whole page is
decided first, from what is in memory and in segment indexes: sizes and delete marks, a block at a
time, as arrays. All of it has to be true of one moment. Blocks are therefore separated by pauses,
and a delete or loss that comes in between starts the plan again; the last attempt takes no pause.

A page ends at the last record its limit and budget allow, before an announced loss it cannot be the
first to tell of, where its dead runs become too many, at the head or at the seq asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.core.live import AnnouncedLoss
from topics.core.loading import NotLoaded
from topics.core.runs import RunSet
from topics.core.seqset import joined
from topics.core.tail import FRAME_OVERHEAD, Tail
from topics.core.topic import SEQ_BASE, Topic
from topics.engine.effects import PAUSE, Io, Op
from topics.engine.kernel import Kernel
from topics.engine.reads.history import Resident, SegmentHistory
from topics.engine.reads.reading import Query, begin
from topics.engine.reads.views import dead_runs, merged
from topics.errors import Internal
from topics.storage.frames.columns import Positions
from topics.storage.segments.codec import DEAD, Idx
from topics.storage.segments.segment import AnySegment
from topics.values import HoleKind

BLOCK: Final = 1 << 14
"""Seqs looked at between two pauses: well under a millisecond."""
MAX_RUNS: Final = 10_000
ATTEMPTS: Final = 4

Hole = tuple[int, int, HoleKind]


class PageBounds(NamedTuple):
    """Most records of a page, and most bytes beyond its first record."""

    records: int
    nbytes: int


class BulkPlan(msgspec.Struct):
    """One page: `first .. last` is what it examines, `runs` the live records in it."""

    topic: Topic
    epoch: int
    delete_version: int
    head: int
    earliest: int
    first: int
    last: int
    gap: AnnouncedLoss | None
    damaged: bool  # it ends before a record that is known to be unreadable
    runs: list[tuple[int, int]]
    holes: list[Hole]

    @property
    def records(self) -> int:
        return sum(hi - lo + 1 for lo, hi in self.runs)

    def check(self, filtered: int = 0) -> None:
        """Every seq is a live record, left out by a filter, or dead; else something is wrong."""
        dead = sum(hi - lo + 1 for lo, hi, _ in self.holes)
        if self.records + filtered + dead != self.last - self.first + 1:
            raise Internal(f"the seqs {self.first} to {self.last} do not add up")


class _Block(NamedTuple):
    """Consecutive seqs from `first` on: which have a record of their own, and how large."""

    first: int
    counted: NDArray[np.bool_]
    sizes: Positions


class _Changed(Exception):
    """The topic is no longer what the plan began with."""


class BulkPlanner:
    """Plans pages; `rotten` are records found unreadable by earlier reads, by topic id."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.rotten: dict[int, RunSet] = {}

    def plan(self, topic: Topic, query: Query, start: int, bounds: PageBounds) -> Op[BulkPlan]:
        """The page after `start`, without any filter."""
        attempt, held = 0, []
        while True:
            attempt += 1
            sketch = _Sketch(topic, query, start, bounds, self.rotten.get(topic.id))
            try:
                yield from self._fill(sketch, patiently=attempt < ATTEMPTS)
                return sketch.finish()
            except _Changed:
                continue
            except NotLoaded as missing:
                load = missing.load
            held.append((yield from self._kernel.indexes.load(topic, load)))

    def _fill(self, sketch: _Sketch, *, patiently: bool) -> Op[None]:
        while sketch.wants_more():
            lo, hi = sketch.next_range()
            topic = sketch.topic
            history = topic.history
            part = _part_from(history, lo) if lo <= history.last else None
            if part is None:
                sketch.take(_tail_block(topic, lo, hi))
            elif part.first > lo:
                sketch.take(_nothing(lo, min(hi, part.first - 1)))
            elif isinstance(part, Resident):
                sketch.take(_slots(part.tail, lo, min(hi, part.last)))
            else:
                idx = yield from self._idx(topic, part, patiently=patiently)
                if patiently:
                    sketch.check_unchanged()
                sketch.take(_entries(idx, part.first, lo, min(hi, part.last)))
            if patiently:
                yield PAUSE
                sketch.check_unchanged()

    def _idx(self, topic: Topic, part: AnySegment, *, patiently: bool) -> Op[Idx]:
        store = self._kernel.segments
        assert store is not None, "a topic in memory has no segments"
        known = store.known_idx(topic.id, part)
        if known is not None:
            return known
        load: Callable[[], Idx] = partial(store.idx, topic.id, part)
        if not patiently:
            raise NotLoaded(load)  # without a pause nothing can change
        try:
            idx: Idx = yield Io(load)
        except OSError as error:
            raise Internal(
                f"an index of topic {topic.name!r} could not be read: {error}"
            ) from error
        return idx


class _Sketch:
    """A plan that is being made."""

    def __init__(
        self, topic: Topic, query: Query, start: int, bounds: PageBounds, rotten: RunSet | None
    ) -> None:
        progress = begin(topic, start, query.to_seq)
        self.topic = topic
        self._first = SEQ_BASE if start > topic.head else start + 1
        self._gap = progress.gap
        self._seq = progress.cursor + 1  # next to look at
        self._stop = progress.stop
        self._bounds = bounds
        self._rotten = rotten or RunSet()
        self._head, self._earliest = topic.head, topic.earliest
        self._state = self._fingerprint()
        self._runs: list[tuple[int, int]] = []
        self._marked: list[tuple[int, int]] = []
        self._announced_rot: list[Hole] = []
        self._records = self._used = 0
        self._full = self._damaged = False

    def _fingerprint(self) -> tuple[int, int, int]:
        topic = self.topic
        # A floor below the start has nothing to do with this page.
        return topic.delete_version, max(topic.evict_floor, self._first), len(topic.runs)

    def check_unchanged(self) -> None:
        if self._fingerprint() != self._state:
            raise _Changed

    def wants_more(self) -> bool:
        """Whether there is another range to look at; tells of a loss that begins here."""
        while not self._full and self._seq <= self._stop:
            gap = self.topic.gap_at(self._seq) or self._rot_at(self._seq)
            if gap is None:
                return len(self._runs) <= MAX_RUNS
            if self._gap is not None or self._records:
                return False
            self._gap = gap
            self._seq = min(gap.hi, self._stop) + 1
        return False

    def _rot_at(self, seq: int) -> AnnouncedLoss | None:
        run = self._rotten.run_at(seq)
        if run is None or not self.topic.is_live(seq):
            return None
        if self._gap is not None or self._records:
            self._damaged = True
        else:
            self._announced_rot.append((seq, min(run[1], self._stop), "crash"))
        return AnnouncedLoss(seq, run[1], "cap")

    def next_range(self) -> tuple[int, int]:
        seq = self._seq
        end = min(self._stop, self.topic.next_announced(seq) - 1, seq + BLOCK - 1)
        return seq, min(end, self._rotten.next_start(seq, end + 1) - 1)

    def take(self, block: _Block) -> None:
        """Take over the live records of a block as far as they fit."""
        first, end = block.first, block.first + len(block.counted) - 1
        known = self._known_dead(first, end)
        self._marked += _runs(first, np.flatnonzero(~block.counted & ~known))
        places = np.flatnonzero(block.counted & ~known)
        totals = self._used + np.cumsum(block.sizes[places])
        fitting = int(np.searchsorted(totals, self._bounds.nbytes, "right"))
        if not self._records:
            fitting = max(fitting, 1)
        count = min(fitting, self._bounds.records - self._records, len(places))
        if count:
            self._runs += _runs(first, places[:count])
            self._records += count
            self._used = int(totals[count - 1])
        if self._records == self._bounds.records or count < len(places):
            self._full, end = True, self._runs[-1][1]
        self._seq = end + 1

    def _known_dead(self, lo: int, hi: int) -> NDArray[np.bool_]:
        known = np.zeros(hi - lo + 1, np.bool_)
        for a, b in self.topic.deleted.between(lo, hi):
            known[a - lo : b - lo + 1] = True
        for a, b, _ in self.topic.runs.between(lo, hi):
            known[a - lo : b - lo + 1] = True
        return known

    def finish(self) -> BulkPlan:
        topic, first, last = self.topic, self._first, self._seq - 1
        marked: list[Hole] = [(a, b, "deleted") for a, b in _cut(joined(self._marked), last)]
        dead = merge(dead_runs(topic, first, last), marked, self._announced_rot)
        holes = list(islice(merged(dead), MAX_RUNS + 1))
        if len(holes) > MAX_RUNS:
            last = holes.pop()[0] - 1
        plan = BulkPlan(
            topic=topic,
            epoch=topic.epoch,
            delete_version=topic.delete_version,
            head=self._head,
            earliest=self._earliest,
            first=first,
            last=last,
            gap=self._gap,
            damaged=self._damaged,
            runs=_cut(joined(self._runs), last),
            holes=holes,
        )
        plan.check()
        return plan


# Blocks


def _part_from(history: object, seq: int) -> AnySegment | Resident | None:
    """The first part that ends at or after `seq`."""
    return history.part_from(seq) if isinstance(history, SegmentHistory) else None


def _entries(idx: Idx, part_first: int, lo: int, hi: int) -> _Block:
    entries = idx.columns[lo - part_first : hi - part_first + 1]
    lengths = entries["length"].astype(np.int64)
    counted = (lengths != 0) & (entries["dead"] != DEAD)
    return _Block(lo, counted, lengths - FRAME_OVERHEAD - entries["name_len"])


def _tail_block(topic: Topic, lo: int, hi: int) -> _Block:
    tail = topic.tail
    if lo < tail.first or lo >= tail.end:
        return _nothing(lo, hi if lo >= tail.end else min(hi, tail.first - 1))
    return _slots(tail, lo, min(hi, tail.end - 1))


def _slots(tail: Tail, lo: int, hi: int) -> _Block:
    a, b = lo - tail.first, hi - tail.first + 1
    lengths = np.array(tail.lengths[a:b], np.int64)
    names = np.array(tail.name_lengths[a:b], np.int64)
    return _Block(lo, lengths != 0, lengths - FRAME_OVERHEAD - names)


def _nothing(lo: int, hi: int) -> _Block:
    """Seqs that no part and no slot is left of."""
    count = hi - lo + 1
    return _Block(lo, np.zeros(count, np.bool_), np.zeros(count, np.int64))


# Runs


def _runs(first: int, places: NDArray[np.intp]) -> list[tuple[int, int]]:
    """Ascending places as runs of seqs."""
    if not len(places):
        return []
    breaks = np.flatnonzero(np.diff(places) != 1)
    starts = places[np.concatenate(([0], breaks + 1))] + first
    ends = places[np.concatenate((breaks, [len(places) - 1]))] + first
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _cut(runs: Iterable[tuple[int, int]], last: int) -> list[tuple[int, int]]:
    return [(lo, min(hi, last)) for lo, hi in runs if lo <= last]
