"""Which seqs of a topic are live, what they weigh, and which losses a reader is told of.

A seq is *live* when it has a record, lies above the floor (`max(cap_hi, ttl_hi)`), was not deleted
and is not inside a run of holes. Nothing here is stored per record except the tail's columns:
deletes are runs of seqs, losses are two floors and a few runs, and records below the tail live in
segments that the topic asks about through `History`. What is live is always known in memory; what
records weigh and when they came may have to be loaded first (`loading`).

A topic of millions of records is weighed chunk by chunk, and the weights of whole chunks are
remembered: removing records takes their weight off. So the next question about the same records
costs a step for each chunk, not for each record. Chunks that were never asked about cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from topics.core.facts import SeqSkipped
from topics.core.runs import KindRuns
from topics.core.seqset import CHUNK, CHUNK_BITS, LAST_BIT, SeqSet, bits_between
from topics.core.tail import History, NoHistory, Tail

SEQ_BASE = 1
NO_HISTORY: History = NoHistory()

_NONE: dict[int, tuple[int, int]] = {}
"""Shared by all topics that were never weighed: there may be very many of them."""


class AnnouncedLoss(msgspec.Struct, frozen=True, gc=False):
    """Involuntary loss of `lo..hi` that a reader has to be told of."""

    lo: int
    hi: int
    reason: str


class Weights:
    """Records and bytes by the number of their chunk."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known = _NONE

    def __len__(self) -> int:
        return len(self._known)

    def get(self, chunk: int) -> tuple[int, int] | None:
        return self._known.get(chunk)

    def put(self, chunk: int, weight: tuple[int, int]) -> None:
        if self._known is _NONE:
            self._known = {}
        self._known[chunk] = weight

    def clear(self) -> None:
        self._known = _NONE

    def has_all(self, lo: int, below: int) -> bool:
        """Whether every chunk from that of `lo` up to that of the seq before `below` is known,
        the last one aside."""
        chunks = range(lo >> CHUNK_BITS, below - 1 >> CHUNK_BITS)
        return len(chunks) <= len(self._known) and all(map(self._known.__contains__, chunks))

    def take_off(self, chunk: int, count: int, nbytes: int) -> None:
        """Records of a chunk are gone."""
        known = self._known.get(chunk)
        if known is not None:
            self._known[chunk] = known[0] - count, known[1] - nbytes

    def forget(self, lo: int, hi: int) -> None:
        """Nothing is left in the chunks of `lo..hi`."""
        known, first, last = self._known, lo >> CHUNK_BITS, hi >> CHUNK_BITS
        if last - first < len(known):
            for chunk in range(first, last + 1):
                known.pop(chunk, None)
        elif known:
            self._known = {at: each for at, each in known.items() if not first <= at <= last}


class LiveSeqs:
    """The questions about a topic; `Topic` answers with what facts change."""

    __slots__ = (
        "bytes",
        "cap_hi",
        "count",
        "deleted",
        "earliest",
        "floor_ts",
        "head",
        "history",
        "runs",
        "tail",
        "ttl_hi",
        "weights",
    )

    def __init__(self) -> None:
        self.head = SEQ_BASE - 1  # last published seq
        self.earliest = SEQ_BASE
        self.cap_hi = 0
        self.ttl_hi = 0
        self.floor_ts = -1
        self.count = 0
        self.bytes = 0
        self.runs = KindRuns()  # SeqSkipped kinds
        self.deleted = SeqSet()
        self.tail = Tail(SEQ_BASE)
        self.history = NO_HISTORY
        self.weights = Weights()

    @property
    def evict_floor(self) -> int:
        """First seq not lost to a cap or TTL."""
        return max(self.cap_hi, self.ttl_hi) + 1

    def is_live(self, seq: int) -> bool:
        if not self.earliest <= seq <= self.head or seq in self.deleted:
            return False
        return not len(self.runs) or self.runs.run_at(seq) is None

    def is_all_live(self, lo: int, hi: int) -> bool:
        """Whether every seq of `lo..hi` is known to be live."""
        return (
            self.earliest <= lo
            and hi <= self.head
            and not len(self.runs)
            and self.deleted.has_none_of(lo, hi)
        )

    def extents(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Runs of live seqs in `lo..hi`, in order."""
        cursor = max(lo, self.earliest)
        hi = min(hi, self.head)
        while cursor <= hi:
            skipped = self.deleted.end_of(cursor)
            hole = self.runs.run_at(cursor) if len(self.runs) else None
            if hole is not None:
                skipped = max(skipped, hole[1])
            if skipped >= cursor:
                cursor = skipped + 1
                continue
            stop = self.deleted.next_start(cursor, hi + 1)
            following = self.runs.next_from(cursor) if len(self.runs) else None
            if following is not None:
                stop = min(stop, following[0])
            stop = min(stop, hi + 1)
            yield cursor, stop - 1
            cursor = stop

    def last_live_at_or_below(self, seq: int) -> int:
        """Highest live seq not above `seq`, 0 when there is none."""
        seq = min(seq, self.head)
        while seq >= self.earliest:
            hole = self.runs.run_at(seq) if len(self.runs) else None
            below = min(self.deleted.start_of(seq) - 1, hole[0] - 1 if hole else seq)
            if below >= seq:
                return seq
            seq = below
        return 0

    def live_after(self, seq: int) -> int:
        """How many live records come after a seq, from memory alone."""
        lo, hi = max(seq + 1, self.earliest), self.head
        if lo == self.earliest:
            return self.count
        dead = self.deleted.count_between(lo, hi)
        for a, b, _ in self.runs.between(lo, hi):
            dead += b - a + 1 - self.deleted.count_between(a, b)
        return min(self.count, max(0, hi - lo + 1 - dead))

    def find_earliest(self, start: int) -> None:
        """Set `earliest`, known not to lie below `start`."""
        self.earliest = self._find_earliest(max(start, self.evict_floor))

    def _find_earliest(self, start: int) -> int:
        if not len(self.runs):
            return min(self.deleted.end_of(start), self.head) + 1
        self.earliest = start  # what `extents` begins with
        return next((lo for lo, _ in self.extents(start, self.head)), self.head + 1)

    # What records weigh

    def weigh(self, lo: int, hi: int) -> tuple[int, int]:
        """Live records and their bytes in `lo..hi`; whole chunks of it are remembered."""
        lo, hi = max(lo, self.earliest), min(hi, self.head)
        last = hi + 1 >> CHUNK_BITS
        # What lies below the first live record weighs nothing.
        first = (lo if lo == self.earliest else lo + LAST_BIT) >> CHUNK_BITS
        if last <= first or (hi - lo < 2 * CHUNK and lo != self.earliest):
            return self.weigh_part(lo, hi)
        count, nbytes = self.weigh_part(lo, (first << CHUNK_BITS) - 1)
        for chunk in range(first, last):
            n, size = self.weights.get(chunk) or self.weigh_chunk(chunk)
            count, nbytes = count + n, nbytes + size
        n, size = self.weigh_part(last << CHUNK_BITS, hi)
        return count + n, nbytes + size

    def weigh_chunk(self, chunk: int) -> tuple[int, int]:
        """Live records and their bytes in a chunk that ends at or below `head`."""
        lo = max(chunk << CHUNK_BITS, self.earliest)
        weight = self.weigh_part(lo, chunk << CHUNK_BITS | LAST_BIT)
        self.weights.put(chunk, weight)
        return weight

    def weigh_front(self, through: int) -> Iterator[None]:
        """Weigh what `lose` and deletes by position have to know, a step for each chunk.

        All of it is remembered but the last chunk: of that, sizes have to be at hand then, which
        are those from the seq on that `rest_of` tells.
        """
        for chunk in range(self.earliest >> CHUNK_BITS, min(through, self.head) >> CHUNK_BITS):
            if self.weights.get(chunk) is None:
                self.weigh_chunk(chunk)
                yield

    def rest_of(self, through: int) -> int:
        """The first seq whose size must be at hand before everything up to `through` goes."""
        return max(self.earliest, min(through, self.head) >> CHUNK_BITS << CHUNK_BITS)

    def weigh_below(self, limit: int) -> tuple[int, int]:
        """Live records and their bytes below a seq; looks at the shorter side.

        Or at the front, if all of it was weighed before.
        """
        is_short = self.head - limit >= limit - self.earliest
        if is_short or self.weights.has_all(self.earliest, limit):
            return self.weigh(self.earliest, limit - 1)
        count, nbytes = self.weigh(limit, self.head)
        return self.count - count, self.bytes - nbytes

    def weigh_part(self, lo: int, hi: int) -> tuple[int, int]:
        if lo > hi:
            return 0, 0
        if not len(self.runs) and self.deleted.has_none_of(lo, hi):
            return self.weigh_extent(lo, hi)
        return self.weigh_bits(lo, bits_between(0, hi - lo) & ~self.dead_bits(lo, hi))

    def weigh_extent(self, lo: int, hi: int) -> tuple[int, int]:
        border = self.history.last
        if lo > border:
            return self.tail.weigh(lo, hi)
        count, nbytes = self.history.weigh(lo, min(hi, border))
        if hi > border:
            more, size = self.tail.weigh(border + 1, hi)
            count, nbytes = count + more, nbytes + size
        return count, nbytes

    def weigh_bits(self, lo: int, bits: int) -> tuple[int, int]:
        """Records and bytes of `lo + i` for each bit `i`, none of them known dead."""
        behind = self.history.last - lo + 1
        if behind <= 0:
            return self.tail.weigh_bits(lo, bits)
        count, nbytes = self.history.weigh_bits(lo, bits & (1 << behind) - 1)
        if bits >> behind:
            more, size = self.tail.weigh_bits(lo + behind, bits >> behind)
            count, nbytes = count + more, nbytes + size
        return count, nbytes

    def hole_bits(self, lo: int, hi: int) -> int:
        """The seqs of a short range that lie in holes: bit 0 is `lo`."""
        bits = 0
        if len(self.runs):
            for a, b, _ in self.runs.between(lo, hi):
                bits |= bits_between(a - lo, b - lo)
        return bits

    def dead_bits(self, lo: int, hi: int) -> int:
        """The seqs of a short range that are deleted or in holes: bit 0 is `lo`."""
        return self.deleted.bits(lo, hi) | self.hole_bits(lo, hi)

    def live_bits(self, chunk: int, bits: int, below: int) -> int:
        """Those of some bits of a chunk whose seqs are live and below a seq."""
        lo = max(chunk << CHUNK_BITS, self.earliest)
        hi = min(chunk << CHUNK_BITS | LAST_BIT, below - 1, self.head)
        if lo > hi:
            return 0
        bits &= bits_between(lo & LAST_BIT, hi & LAST_BIT) & ~self.deleted.chunk(chunk)
        return bits & ~(self.hole_bits(lo, hi) << (lo & LAST_BIT))

    def sizes(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """`(seq, nbytes)` of the live records in `lo..hi`."""
        border = self.history.last
        for a, b in self.extents(lo, hi):
            if a <= border:
                yield from self.history.sizes(a, min(b, border))
            if b > border:
                yield from self.tail.sizes(max(a, border + 1), b)

    # When records came

    def time_of(self, seq: int) -> int:
        if seq >= self.tail.first and seq < self.tail.end:
            return self.tail.times[seq - self.tail.first]
        return self.history.time_of(seq)

    def last_before(self, ts: int) -> int:
        """Highest seq with a slot whose time is below `ts`, 0 when there is none."""
        if len(self.tail):
            seq = self.tail.last_before(ts)
            if seq:
                return seq
        return self.history.last_before(ts)

    def first_after(self, cursor: int) -> tuple[int, int] | None:
        """The first live record behind a cursor and its time; None when there is none."""
        for seq, _ in self.extents(cursor + 1, self.head):
            return seq, self.time_of(seq)
        return None

    def start_of(self, from_ts: int) -> int:
        """Cursor from which every record with time >= `from_ts` is read or announced as lost."""
        seq = self.last_before(from_ts)
        if seq >= self.evict_floor:
            return seq
        return self.evict_floor - 1 if self.floor_ts < from_ts else SEQ_BASE - 1

    # What readers are told

    def gap_below(self, cursor: int) -> AnnouncedLoss | None:
        """Loss to a floor that a reader at `cursor` has to be told of."""
        if cursor + 1 >= self.evict_floor:
            return None
        cap, ttl = self.cap_hi > cursor, self.ttl_hi > cursor
        reason = "mixed" if cap and ttl else "cap" if cap else "ttl"
        return AnnouncedLoss(cursor + 1, self.evict_floor - 1, reason)

    def gap_at(self, seq: int) -> AnnouncedLoss | None:
        """The rest of the announced run that holds `seq`."""
        run = self.runs.run_at(seq) if len(self.runs) else None
        if run is None or run[2] == SeqSkipped.UNASSIGNED:
            return None
        reason = "source_trim" if run[2] == SeqSkipped.SOURCE_TRIM else "cap"
        return AnnouncedLoss(seq, run[1], reason)

    def next_announced(self, seq: int) -> int:
        """First seq at or after `seq` that lies in an announced run; beyond head when none."""
        for lo, _, kind in self.runs.between(seq, self.head):
            if kind != SeqSkipped.UNASSIGNED:
                return lo
        return self.head + 1
