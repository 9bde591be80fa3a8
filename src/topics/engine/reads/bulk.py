"""Large pages: planned as a whole, then read in slices, a bounded amount of work at a time.

What a slice costs is one step on a pool thread: read, verify, and whatever the caller makes of the
frames. Where the bytes lie is looked up on the owner's thread right before each step, because a
checkpoint may move them from the log to a segment at any time; a step that comes too late is
repeated. A record that turns out to be unreadable in every copy ends the read, and is remembered,
so that the next plan announces it; a plan forgets it when it can be read again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.core.runs import RunSet
from topics.core.tail import Tail
from topics.core.topic import Topic
from topics.engine.effects import Io, Op
from topics.engine.kernel import Kernel
from topics.engine.reads.bulk_plan import BulkPlan, BulkPlanner, PageBounds
from topics.engine.reads.history import Resident, SegmentHistory
from topics.engine.reads.reading import Query, Reader
from topics.errors import Internal
from topics.storage.frames.append import verify
from topics.storage.frames.columns import Frames, Positions, headers, unreadable
from topics.storage.frames.header import JSON_LEN_SIZE
from topics.storage.segments.segment import AnySegment
from topics.storage.segments.store import SegmentStore
from topics.storage.sources import OFFSET_BITS, OFFSET_MASK, Sources

T = TypeVar("T")

SLICE_RECORDS: Final = 2048
SLICE_BYTES: Final = 1 << 20
SPAN_SLACK: Final = 4096
"""Unwanted bytes between two frames that are cheaper to read along than to skip."""
MAX_EXAMINED: Final = 1_000_000
"""Records a filter looks at for one page."""
_TRIES: Final = 4
_MAX_ROTTEN: Final = 1024

Fetch = Callable[[], Frames]


class UnreadableRecord(Internal):
    """The stored bytes of a record are damaged in every copy."""

    def __init__(self, topic: str, seq: int) -> None:
        super().__init__(f"record {seq} of topic {topic!r} cannot be read")
        self.seq = seq


class _Rotten(Exception):
    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class BulkPage(msgspec.Struct):
    """A plan whose filter has been applied: `plan.runs` are the records to deliver."""

    plan: BulkPlan
    filtered: int = 0


class BulkReader:
    def __init__(self, kernel: Kernel, reader: Reader) -> None:
        self._kernel = kernel
        self._reader = reader
        self._planner = BulkPlanner(kernel)

    # Planning

    def plan(self, topic: Topic, query: Query, start: int, bounds: PageBounds) -> Op[BulkPage]:
        """Settle what the page after `start` holds."""
        yield from self._forget_healed(topic)
        accepts = query.accepts_in(topic)
        if accepts is None:
            return BulkPage((yield from self._planner.plan(topic, query, start, bounds)))
        wide = PageBounds(MAX_EXAMINED, 1 << 62)
        while True:
            plan = yield from self._planner.plan(topic, query, start, wide)
            try:
                return (yield from self._narrowed(plan, accepts, bounds))
            except UnreadableRecord:
                continue  # it is known now: the next plan goes only as far as it

    def _narrowed(
        self, plan: BulkPlan, accepts: Callable[[bytes, int], bool], bounds: PageBounds
    ) -> Op[BulkPage]:
        """The plan with only those records the filter accepts, as many as fit."""
        kept, used = RunSet(), 0
        examined = passed = newest = 0  # records looked at; those up to the last one kept; its seq

        def names(frames: Frames) -> list[tuple[bool, int]]:
            sizes = headers(frames)["data_len"].astype(np.int64) - JSON_LEN_SIZE
            accepted = [accepts(frames.buf, start) for start in frames.starts.tolist()]
            return list(zip(accepted, sizes.tolist(), strict=True))

        for seqs in slices(plan.runs):
            left = seqs
            while len(left):
                found = yield from self.step(plan.topic, left, names)
                for seq, (accepted, size) in zip(left.tolist(), found, strict=False):
                    if accepted and kept.size and used + size > bounds.nbytes:
                        return _narrow(plan, kept, passed, newest)
                    examined += 1
                    if accepted:
                        kept.add(seq, seq)
                        used, passed, newest = used + size, examined, seq
                        if kept.size == bounds.records:
                            return _narrow(plan, kept, passed, newest)
                left = left[len(found) :]
        return _narrow(plan, kept, examined, plan.last)

    def _forget_healed(self, topic: Topic) -> Op[None]:
        """Try again what could not be read before."""
        known = self._planner.rotten.get(topic.id)
        if known is None:
            return
        still = RunSet()
        for lo, hi in list(known):
            found = yield from self._reader.records(topic, range(lo, hi + 1))
            for seq in range(lo, hi + 1):
                if seq not in found and topic.is_live(seq):
                    still.add(seq, seq)
        if len(still):
            self._planner.rotten[topic.id] = still
        else:
            self._planner.rotten.pop(topic.id, None)

    def _remember(self, topic: Topic, seq: int) -> None:
        if len(self._planner.rotten) >= _MAX_ROTTEN:
            self._planner.rotten.clear()
        self._planner.rotten.setdefault(topic.id, RunSet()).add(seq, seq)

    # Reading

    def step(
        self,
        topic: Topic,
        seqs: Positions,
        work: Callable[[Frames], T],
        *,
        nbytes: int = SLICE_BYTES,
    ) -> Op[T]:
        """Apply `work`, on a pool thread, to the verified frames of the first of `seqs`.

        The result tells how many that were: as many as lie together and make a slice. A reader
        that runs beside the event loop may ask for larger slices.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                fetch = self._locate(topic, seqs, nbytes)
                result: T = yield Io(lambda fetch=fetch: work(fetch()))  # type: ignore[misc]
            except _Rotten as rotten:
                seq = int(seqs[rotten.position])
                self._remember(topic, seq)
                raise UnreadableRecord(topic.name, seq) from rotten
            except (OSError, KeyError) as error:
                # A checkpoint may have moved the records and let their log file go meanwhile.
                if attempt == _TRIES:
                    raise Internal(
                        f"records of topic {topic.name!r} could not be read: {error}"
                    ) from error
            else:
                return result
        raise AssertionError("unreachable")

    def _locate(self, topic: Topic, seqs: Positions, nbytes: int) -> Fetch:
        history, first = topic.history, int(seqs[0])
        if first <= history.last:
            assert isinstance(history, SegmentHistory)
            part = next((part for part in history.parts if part.last >= first), None)
            if part is None or part.first > first:
                raise KeyError(first)  # dropped since the plan was made
            seqs = seqs[: int(np.searchsorted(seqs, part.last, "right"))]
            if not isinstance(part, Resident):
                store = self._kernel.segments
                assert store is not None
                return _SegmentSlice(store, topic.id, part, seqs, nbytes).fetch
            tail = part.tail
        else:
            tail = topic.tail
        if not tail.first <= first < tail.end:
            raise KeyError(first)
        return _from_slots(self._kernel.sources, topic.id, tail, seqs, nbytes)


def slices(runs: list[tuple[int, int]], size: int = SLICE_RECORDS) -> Iterator[Positions]:
    """The seqs of ascending runs, so many at a time."""
    gathered: list[Positions] = []
    room = size
    for lo, hi in runs:
        at = lo
        while at <= hi:
            end = min(hi, at + room - 1)
            gathered.append(np.arange(at, end + 1))
            room -= end - at + 1
            at = end + 1
            if not room:
                yield np.concatenate(gathered)
                gathered, room = [], size
    if gathered:
        yield np.concatenate(gathered)


def _narrow(plan: BulkPlan, kept: RunSet, examined: int, last: int) -> BulkPage:
    holes = plan.holes
    if last < plan.last:
        at = bisect_right(holes, last, key=lambda hole: hole[0])
        holes = [(lo, min(hi, last), kind) for lo, hi, kind in holes[:at]]
    narrowed = msgspec.structs.replace(
        plan,
        runs=list(kept),
        holes=holes,
        last=last,
        damaged=plan.damaged and last == plan.last,
    )
    page = BulkPage(narrowed, filtered=examined - kept.size)
    narrowed.check(page.filtered)
    return page


# Bytes. These run on pool threads and touch no state of the engine.


def _fitting(lengths: Positions, nbytes: int) -> int:
    """How many frames make a slice; one always does."""
    return max(int(np.searchsorted(np.cumsum(lengths), nbytes, "right")), 1)


def _picked(entries: NDArray[np.void], places: Positions) -> NDArray[np.void]:
    """Entries at ascending places; those of neighbours are looked at where they lie, because to
    copy entries one by one takes as long as half of their checksums."""
    first, last = int(places[0]), int(places[-1])
    return entries[first : last + 1] if last - first + 1 == len(places) else entries[places]


def _spans(starts: Positions, lengths: Positions) -> list[tuple[int, int]]:
    """Positions of neighbours that are read together: from, to (exclusive)."""
    between = starts[1:] - (starts + lengths)[:-1]
    cuts = np.flatnonzero((between < 0) | (between > SPAN_SLACK)) + 1
    edges = [0, *cuts.tolist(), len(starts)]
    return list(pairwise(edges))


def _together(
    starts: Positions, lengths: Positions, read: Callable[[int, int, int], bytes]
) -> Frames:
    """The frames in one buffer; `read` gets the first position of a span, its start and size."""
    bufs: list[bytes] = []
    places = np.empty_like(starts)
    done = 0
    for a, b in _spans(starts, lengths):
        base = int(starts[a])
        size = int(starts[b - 1] + lengths[b - 1]) - base
        buf = read(a, base, size)
        bufs.append(buf)
        places[a:b] = starts[a:b] - base + done
        done += size
    return Frames(bufs[0] if len(bufs) == 1 else b"".join(bufs), places, lengths)


class _SegmentSlice(NamedTuple):
    """Records of one segment."""

    store: SegmentStore
    topic_id: int
    part: AnySegment
    seqs: Positions
    nbytes: int

    def fetch(self) -> Frames:
        entries = _picked(
            self.store.idx(self.topic_id, self.part).columns, self.seqs - self.part.first
        )
        lengths = entries["length"].astype(np.int64)
        count = _fitting(lengths, self.nbytes)
        starts = entries["offset"][:count].astype(np.int64)
        frames = _together(starts, lengths[:count], self._read)
        bad = unreadable(frames, topic_id=self.topic_id, seqs=self.seqs[:count])
        return self._mended(frames, bad) if bad else frames

    def _read(self, _first: int, base: int, size: int) -> bytes:
        return self.store.read(self.topic_id, self.part, base, size)

    def _mended(self, frames: Frames, bad: list[int]) -> Frames:
        """The frames again, each bad one from another copy."""
        buf, starts, lengths = frames
        whole = [buf[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
        for at in bad:
            position = int(self.seqs[at]) - self.part.first
            (frame,) = self.store.frames(self.topic_id, self.part, position, position + 1)
            if not frame:
                raise _Rotten(at)
            whole[at] = frame
        sizes = np.array([len(frame) for frame in whole])
        return Frames(b"".join(whole), np.cumsum(sizes) - sizes, sizes)


def _from_slots(sources: Sources, topic_id: int, tail: Tail, seqs: Positions, nbytes: int) -> Fetch:
    """Reads slots of a tail; what it needs of the tail is copied now."""
    a, b = int(seqs[0]) - tail.first, min(int(seqs[-1]) + 1, tail.end) - tail.first
    slots = seqs[: int(np.searchsorted(seqs, tail.first + b, "left"))] - tail.first - a
    locations = np.array(tail.locations[a:b], np.int64)[slots]
    lengths = np.array(tail.lengths[a:b], np.int64)[slots]
    count = _fitting(lengths, nbytes)
    # Sources may alternate: rebuilt records lie in memory, those between them in a log file.
    others = np.flatnonzero(locations[:count] >> OFFSET_BITS != locations[0] >> OFFSET_BITS)
    if len(others):
        count = int(others[0])
    locations, lengths = locations[:count], lengths[:count]
    source = sources.get(int(locations[0]) >> OFFSET_BITS)

    def read(first: int, base: int, size: int) -> bytes:
        buf = source.view(base, size)
        if buf is not None:
            return buf
        buf = source.pread(base, size)
        for at in range(first, count):
            place, length = int(starts[at]) - base, int(lengths[at])
            if place >= size:
                break
            if not verify(buf, place, length, topic_id=topic_id, seq=int(seqs[at])):
                raise _Rotten(at)
        return buf

    starts = locations & OFFSET_MASK
    return lambda: _together(starts, lengths, read)
