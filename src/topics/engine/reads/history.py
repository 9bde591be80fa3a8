"""The records of one topic that live in segments, as the core and the reader ask for them.

`marks_below` says up to which seq delete bytes on disk count. While the log is replayed, a byte
may already be on disk whose delete comes later in the log: counting it early would let a cap
evict less than it did. After replay every byte counts.

A `Resident` stands in the same row: records of a past ephemeral life, which no checkpoint writes
and which stay readable until restart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, compress

from topics.core.loading import NotLoaded
from topics.core.seqset import CHUNK_BITS, LAST_BIT, bits_between, selectors
from topics.core.tail import Tail
from topics.core.topic import Topic
from topics.engine.effects import Io, Op
from topics.engine.reads.ranges import Fetched
from topics.engine.reads.tail_frames import fetch_slots
from topics.storage.segments.codec import DEAD, DEAD_AT, ENTRY_SIZE, Idx
from topics.storage.segments.segment import COLD, ActiveSegment, AnySegment, Segment
from topics.storage.segments.store import SegmentStore
from topics.storage.segments.tagfile import TagFile
from topics.storage.sources import Sources

ALL = 1 << 64
_UNCOUNTED = 50
_READ_RECORDS = 2048
_LIVE_DIGITS = bytes(ord("0") + (byte != DEAD) for byte in range(256))


class Resident:
    """Records kept in memory between segments."""

    __slots__ = ("first", "last", "tail")

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.first = tail.first
        self.last = tail.end - 1


class SegmentHistory:
    """Segments in order of their first seq; the last one may be active; often there are none."""

    def __init__(self, topic_id: int, store: SegmentStore | None, sources: Sources) -> None:
        self._topic_id = topic_id
        self._disk = store  # None: the topic lives in memory and has no segments
        self._sources = sources
        self._parts: list[AnySegment | Resident] = []
        self._firsts: list[int] = []
        self.marks_below = ALL
        self.last = 0

    # The row of segments

    @property
    def parts(self) -> list[AnySegment | Resident]:
        return list(self._parts)

    @property
    def sealed(self) -> list[Segment]:
        return [part for part in self._parts if isinstance(part, Segment)]

    @property
    def active(self) -> ActiveSegment | None:
        growing = (part for part in reversed(self._parts) if isinstance(part, ActiveSegment))
        return next(growing, None)

    @property
    def residents(self) -> list[Resident]:
        return [part for part in self._parts if isinstance(part, Resident)]

    def replace(self, parts: list[AnySegment | Resident], *, last: int) -> None:
        """Set the row; `last` is the highest seq it accounts for, records or not."""
        self._parts = sorted(parts, key=lambda part: part.first)
        self._firsts = [part.first for part in self._parts]
        self.last = last

    def move(self, first: int, tier: int) -> None:
        """The files of the sealed segment that begins at `first` are in another tier now."""
        self._parts = [
            part.in_tier(tier) if isinstance(part, Segment) and part.first == first else part
            for part in self._parts
        ]

    def put_in_place(self, segment: Segment) -> None:
        """A sealed segment was written anew: this stands for its seqs now."""
        self._parts[self._firsts.index(segment.first)] = segment

    def _from(self, seq: int) -> int:
        """Index of the part that holds `seq`, or of the next one."""
        at = bisect_right(self._firsts, seq) - 1
        if at >= 0 and self._parts[at].last >= seq:
            return at
        return at + 1

    def _ranges(self, lo: int, hi: int) -> Iterator[tuple[AnySegment | Resident, int, int]]:
        """Parts that overlap `lo..hi`, with the positions in them: `i` to `j - 1`."""
        at = self._from(lo)
        while at < len(self._parts) and self._parts[at].first <= hi:
            part = self._parts[at]
            yield part, max(lo, part.first) - part.first, min(hi, part.last) - part.first + 1
            at += 1

    @property
    def _store(self) -> SegmentStore:
        assert self._disk is not None, "a topic in memory has no segments"
        return self._disk

    def _idx(self, part: AnySegment) -> Idx:
        """The index of a part; `NotLoaded` if it is not in memory and must not be read here."""
        store = self._store
        found = store.known_idx(self._topic_id, part)
        if found is not None:
            return found
        load = partial(store.idx, self._topic_id, part)
        if store.refuses_to_wait:
            raise NotLoaded(load)
        store.loaded_in_place += 1
        return load()

    def indexes(self, lo: int, hi: int) -> list[Idx]:
        """The indexes of all parts in `lo..hi`; a reference keeps them in memory."""
        return [
            self._idx(part) for part, _, _ in self._ranges(lo, hi) if not isinstance(part, Resident)
        ]

    def _counts(self, seq: int, length: int, dead: int) -> bool:
        """Whether the record of an index entry is there and no delete byte removes it."""
        return length != 0 and (dead != DEAD or seq >= self.marks_below)

    # What the core asks

    def weigh(self, lo: int, hi: int) -> tuple[int, int]:
        count = nbytes = 0
        for part, i, j in self._ranges(lo, hi):
            if isinstance(part, Resident):
                n, size = part.tail.weigh(part.first + i, part.first + j - 1)
            elif part.last < self.marks_below:
                n, size = self._idx(part).live_between(i, j)
            else:
                sizes = [size for _, size in self._sizes(part, i, j)]
                n, size = len(sizes), sum(sizes)
            count, nbytes = count + n, nbytes + size
        return count, nbytes

    def weigh_bits(self, lo: int, bits: int) -> tuple[int, int]:
        count = nbytes = 0
        for part, i, j in self._ranges(lo, lo + bits.bit_length() - 1):
            some = bits >> part.first + i - lo & (1 << j - i) - 1
            if not some:
                continue  # a segment without a live record may be gone
            if isinstance(part, Resident):
                n, size = part.tail.weigh_bits(part.first + i, some)
            else:
                chosen = selectors(some)
                found = compress(enumerate(self._idx(part).entries(i, j), part.first + i), chosen)
                sizes = [
                    length - _UNCOUNTED - names
                    for seq, (_, length, _, _, dead, names) in found
                    if self._counts(seq, length, dead)
                ]
                n, size = len(sizes), sum(sizes)
            count, nbytes = count + n, nbytes + size
        return count, nbytes

    def sizes(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        for part, i, j in self._ranges(lo, hi):
            if isinstance(part, Resident):
                yield from part.tail.sizes(part.first + i, part.first + j - 1)
            else:
                yield from self._sizes(part, i, j)

    def _sizes(self, part: AnySegment, i: int, j: int) -> Iterator[tuple[int, int]]:
        entries = self._idx(part).entries(i, j)
        for seq, (_, length, _, _, dead, names) in enumerate(entries, part.first + i):
            if self._counts(seq, length, dead):
                yield seq, length - _UNCOUNTED - names

    def time_of(self, seq: int) -> int:
        for part, i, _ in self._ranges(seq, seq):
            if isinstance(part, Resident):
                return part.tail.times[i]
            return self._idx(part).ts(i)
        raise KeyError(seq)

    def last_before(self, ts: int) -> int:
        for part in reversed(self._parts):
            if isinstance(part, Resident):
                seq = part.tail.last_before(ts)
                if seq:
                    return seq
            elif part.min_ts < ts:
                if part.max_ts < ts:
                    return part.last
                return part.first + self._idx(part).first_at_or_after_ts(ts) - 1
        return 0

    def absent(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Seqs of `lo..hi` that delete bytes mark or that have no record here: chunks and bits."""
        hi = min(hi, self.last)
        if lo > hi:
            return
        for chunk in range(lo >> CHUNK_BITS, (hi >> CHUNK_BITS) + 1):
            base = chunk << CHUNK_BITS
            a, b = max(lo, base), min(hi, base | LAST_BIT)
            bits = bits_between(a - base, b - base)
            for part, i, j in self._ranges(a, b):
                bits &= ~(self._live_bits(part, i, j) << part.first + i - base)
            if bits:
                yield chunk, bits

    def _live_bits(self, part: AnySegment | Resident, i: int, j: int) -> int:
        """Which of the seqs `i` to `j - 1` of a part no delete byte marks: bit 0 is `i`."""
        if isinstance(part, Resident):
            return bits_between(0, j - i - 1)
        try:
            raw = self._idx(part).raw
        except FileNotFoundError:  # recovery judges whether that is a loss
            return bits_between(0, j - i - 1)
        dead = raw[i * ENTRY_SIZE + DEAD_AT : j * ENTRY_SIZE : ENTRY_SIZE]
        return int(dead.translate(_LIVE_DIGITS)[::-1], 2)

    # Tags

    def part_from(self, seq: int) -> AnySegment | Resident | None:
        """The part that holds `seq`, or the next one."""
        at = self._from(seq)
        return self._parts[at] if at < len(self._parts) else None

    def tag_reader(self, part: Segment) -> Callable[[], TagFile]:
        """Reads the tags of a sealed segment, dead records included; file work, may fail."""
        return partial(self._store.tags, self._topic_id, part)

    # Bytes

    def fetch(self, lo: int, hi: int, room: int) -> Op[Fetched]:
        """Records of `lo..hi` from the first part that has any, at least one if there is one."""
        found = next(iter(self._ranges(lo, hi)), None)
        if found is None:
            return Fetched([], [], [], [], hi)
        part, i, j = found
        if isinstance(part, Resident):
            return (yield from fetch_slots(self._sources, self._topic_id, part.tail, (i, j), room))
        store, topic_id = self._store, self._topic_id
        idx = store.known_idx(topic_id, part)
        if idx is None:
            idx = yield Io(lambda: store.idx(topic_id, part))
        j = _cut_to_room(idx, i, min(j, i + _READ_RECORDS), room)
        frames, cold = yield Io(lambda: _read(store, topic_id, part, idx, (i, j)))
        if not idx.has_dead(i, j) and None not in frames:
            entries = idx.entries(i, j)
            sizes = [length - _UNCOUNTED - names for _, length, _, _, _, names in entries]
            seqs = range(part.first + i, part.first + j)
            offsets: list[int | None] = [0] * len(frames)
            return Fetched(seqs, sizes, frames, offsets, seqs[-1], cold)
        fetched = Fetched([], [], [], [], part.first + j - 1, cold)
        for seq, (_, length, _, _, dead, names), frame in zip(
            range(part.first + i, part.first + j), idx.entries(i, j), frames, strict=True
        ):
            if self._counts(seq, length, dead):
                fetched.seqs.append(seq)  # type: ignore[union-attr]  # made as a list above
                fetched.sizes.append(length - _UNCOUNTED - names)
                fetched.bufs.append(frame or b"")
                fetched.offsets.append(0 if frame else None)
        return fetched


def segments_of(topic: Topic) -> SegmentHistory:
    """The segments of a topic that does not live in memory only."""
    assert isinstance(topic.history, SegmentHistory)
    return topic.history


def indexes_of(topic: Topic, lo: int, hi: int) -> list[Idx]:
    """What tells the sizes and times of all records in `lo..hi`; see `SegmentHistory.indexes`."""
    history = topic.history
    return history.indexes(lo, hi) if isinstance(history, SegmentHistory) else []


def _read(
    store: SegmentStore, topic_id: int, part: AnySegment, idx: Idx, between: tuple[int, int]
) -> tuple[list[bytes | None], int | None]:
    """The frames of a range, and the segment if it was read from the cold directory."""
    frames = store.frames_at(topic_id, part, idx, *between)
    return frames, part.first if store.tier_of(topic_id, part) == COLD else None


def _cut_to_room(idx: Idx, i: int, j: int, room: int) -> int:
    """Where to stop so that the frames fetched are not many more than `room` bytes."""
    if idx.offset(j - 1) + idx.length(j - 1) - idx.offset(i) <= room:
        return j  # frames take more than what is counted of them
    entries = idx.entries(i, j)
    sizes = (max(length - _UNCOUNTED - names, 0) for _, length, _, _, _, names in entries)
    for position, total in enumerate(accumulate(sizes), i):
        if total > room:
            return max(position, i + 1)
    return j
