"""Cutting a range of seqs for parallel readers, without reading a payload.

Cuts fall on the edges of segments where that keeps the ranges near the size asked for, so that two
readers seldom open the same file; a segment that is too large, and the tail that is in none, are
cut between records. Every seq from the evict floor on is in exactly one range, also dead ones and
announced losses, so the readers together see what one reader would.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from topics.core.topic import SEQ_BASE, Topic
from topics.engine.effects import PAUSE, Io, Op
from topics.engine.kernel import Kernel
from topics.engine.reads.history import Resident, SegmentHistory, indexes_of
from topics.engine.retention import retain
from topics.errors import Internal, InvalidRequest
from topics.storage.segments.segment import AnySegment
from topics.values import PlannedRange, ReadPlan

MIN_TARGET = 64 << 10
MAX_TARGET = 1 << 30
MAX_RANGES = 10_000
_STEP = 2048
_BLOCK = 8192
"""Records in no segment that are looked at between two pauses."""
_FEW_BLOCKS = 32


class _Cutter:
    """Ranges that follow each other; `start` is where the next one begins."""

    def __init__(self, start: int, target: int) -> None:
        self.ranges: list[PlannedRange] = []
        self.start = start
        self._target = target
        self._records = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.ranges) >= MAX_RANGES

    def add(self, topic: Topic, lo: int, hi: int, *, is_edge: bool) -> None:
        """Take the block `lo..hi`: whole if it fits, else cut between its records, or first at
        its edge if that is the edge of a segment.

        Raises `NotLoaded` before anything is taken.
        """
        held = indexes_of(topic, lo, hi)  # in memory until the block is taken
        records, nbytes = topic.weigh(lo, hi)
        if is_edge and self._bytes + nbytes > self._target:
            self.cut(lo - 1)
        if self._bytes + nbytes > self._target:
            self._add_cut(topic, lo, hi)
        else:
            self._records += records
            self._bytes += nbytes
        del held

    def _add_cut(self, topic: Topic, lo: int, hi: int) -> None:
        """Take a block that is too large. Records are looked at only where a cut may fall."""
        for first in range(lo, hi + 1, _STEP):
            last = min(first + _STEP - 1, hi)
            records, nbytes = topic.weigh(first, last)
            if self._bytes + nbytes <= self._target:
                self._records += records
                self._bytes += nbytes
                continue
            for seq, size in topic.sizes(first, last):
                if self._bytes + size > self._target:
                    self.cut(seq - 1)
                self._records += 1
                self._bytes += size

    def cut(self, end: int) -> None:
        """End the range at `end`, unless nothing in it would be worth a reader."""
        if not self._records or self.is_full:
            return
        self._emit(end)

    def finish(self, end: int) -> None:
        """The rest is the last range, also when it holds only dead seqs."""
        if self.start <= end and not self.is_full:
            self._emit(end)

    def _emit(self, end: int) -> None:
        self.ranges.append(PlannedRange(self.start, end, self._records, self._bytes))
        self.start = end + 1
        self._records = self._bytes = 0


class Planner:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def plan(self, name: str, *, from_seq: int, to_seq: int, target_bytes: int) -> Op[ReadPlan]:
        """Cut `from_seq..to_seq` into ranges of about `target_bytes`."""
        if from_seq < 0 or to_seq < from_seq - 1:  # nothing is what follows the end
            raise InvalidRequest("a plan wants 0 <= from_seq <= to_seq + 1")
        topic = self._kernel.topic(name)
        yield from retain(self._kernel, topic)
        lo = max(from_seq, topic.evict_floor)
        hi = min(to_seq, topic.head)
        cutter = _Cutter(lo, min(max(target_bytes, MIN_TARGET), MAX_TARGET))
        blocks = list(_blocks(topic, lo, hi))
        for first, last, segment, is_edge in blocks:
            if segment is not None:
                yield from self._load(topic, segment, many=len(blocks) > _FEW_BLOCKS)
            add = partial(cutter.add, topic, first, last, is_edge=is_edge)
            yield from self._kernel.indexes.ask(topic, add)
            if cutter.is_full:
                break
            if last < hi:
                yield PAUSE
                self._kernel.require(topic)
        cutter.finish(hi)
        return ReadPlan(
            topic=name,
            epoch=topic.epoch,
            delete_version=topic.delete_version,
            head_seq=topic.head,
            evict_floor=topic.evict_floor,
            ranges=cutter.ranges,
            next_from_seq=max(cutter.start, from_seq, SEQ_BASE),
        )

    def _load(self, topic: Topic, segment: AnySegment, *, many: bool) -> Op[None]:
        """Have the index of a segment at hand; of many in the form in which a whole segment is
        weighed at once, for which the first plan has to import numpy."""
        store = self._kernel.segments
        assert store is not None, "a topic in memory has no segments"

        def load() -> object:
            idx = store.idx(topic.id, segment)
            return idx.columns if many else idx

        try:
            yield Io(load)
        except OSError as error:
            raise Internal(
                f"an index of topic {topic.name!r} could not be read: {error}"
            ) from error


def _blocks(topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int, AnySegment | None, bool]]:
    """`lo..hi` in order and without gaps: first and last seq, segment, whether this is its edge.

    What is in no segment comes in short blocks.
    """
    history = topic.history
    parts = history.parts if isinstance(history, SegmentHistory) else []
    for part in parts:
        if part.last < lo or part.first > hi:
            continue
        end = min(part.last, hi)
        yield lo, end, None if isinstance(part, Resident) else part, True
        lo = end + 1
    for first in range(lo, hi + 1, _BLOCK):
        yield first, min(first + _BLOCK - 1, hi), None, first == lo
