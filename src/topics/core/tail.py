"""The tail: records of a topic that are in the log but not yet in a segment.

Columns, not objects: about 23 bytes a record. `seq = first + index`. Slots that died stay until
the front is cut, so that a seq keeps its place. `History` is what a topic asks about the records
below its tail, which live in segments on disk; the core never opens them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import compress
from typing import Protocol

from topics.core.facts import Appended
from topics.core.seqset import selectors

FRAME_OVERHEAD = 50
"""Frame bytes that are neither names nor payload: 46 of the frame and 4 of the blob's length."""


class History(Protocol):
    """Records at or below the last checkpoint. Seqs without a record weigh nothing."""

    @property
    def last(self) -> int:
        """Highest seq kept in a segment, 0 when there is none."""
        ...

    def weigh(self, lo: int, hi: int) -> tuple[int, int]:
        """Count and bytes of the records in `lo..hi` that no delete byte marks."""
        ...

    def weigh_bits(self, lo: int, bits: int) -> tuple[int, int]:
        """The same of the records `lo + i` for each bit `i`."""
        ...

    def sizes(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """`(seq, nbytes)` of the records in `lo..hi` that no delete byte marks, in order."""
        ...

    def time_of(self, seq: int) -> int:
        """Commit time of a record."""
        ...

    def last_before(self, ts: int) -> int:
        """Highest seq whose time is below `ts`, dead or alive; 0 when there is none."""
        ...


class NoHistory:
    """A topic that has nothing in segments: a new one, or one that lives in memory."""

    last = 0

    def weigh(self, lo: int, hi: int) -> tuple[int, int]:
        return 0, 0

    def weigh_bits(self, lo: int, bits: int) -> tuple[int, int]:
        return 0, 0

    def sizes(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        return iter(())

    def time_of(self, seq: int) -> int:
        raise KeyError(seq)

    def last_before(self, ts: int) -> int:
        return 0


class Tail:
    """Columns over consecutive seqs `first .. end - 1`; a skipped seq holds an empty slot."""

    __slots__ = ("first", "flags", "is_scattered", "lengths", "locations", "name_lengths", "times")

    def __init__(self, first: int) -> None:
        self.first = first
        self.is_scattered = False
        """Whether some record lies before the one that precedes it, or in another source."""
        self.locations: array[int] = array("Q")
        self.lengths: array[int] = array("I")
        self.times: array[int] = array("Q")
        self.name_lengths: array[int] = array("H")
        self.flags: array[int] = array("B")

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def end(self) -> int:
        """The seq after the last slot."""
        return self.first + len(self.lengths)

    def extend(self, run: Appended) -> None:
        """Take over the columns of a run that starts at `end`, or later: then slots are empty."""
        lengths = self.lengths
        if not lengths:
            self.first = run.first_seq
        elif run.first_seq > self.first + len(lengths):
            self._pad(run.first_seq - self.end)
        base = run.base
        if lengths and base < self.locations[-1]:
            self.is_scattered = True
        if len(run.lengths) == 1:
            self.locations.append(base + run.offsets[0])
        else:
            # `extend` would take a list item by item, as any iterator.
            self.locations.fromlist([base + offset for offset in run.offsets])
        lengths.extend(run.lengths)
        self.times.extend(run.times)
        self.name_lengths.extend(run.name_lengths)
        self.flags.extend(run.flags)

    def _pad(self, count: int) -> None:
        self.locations.frombytes(bytes(8 * count))
        self.lengths.frombytes(bytes(self.lengths.itemsize * count))
        # The time of a hole is that of the record before it: times stay sorted.
        self.times.extend([self.times[-1]] * count)
        self.name_lengths.frombytes(bytes(2 * count))
        self.flags.frombytes(bytes(count))

    def weigh(self, lo: int, hi: int) -> tuple[int, int]:
        """Count and bytes of slots `lo..hi`, which the caller knows to be records."""
        lengths = self.lengths
        a, b = lo - self.first, hi - self.first + 1
        if a < 0 or b > len(lengths):
            a, b = max(a, 0), min(b, len(lengths))
        count = b - a
        if count <= 0:
            return 0, 0
        if count == 1:
            return 1, lengths[a] - FRAME_OVERHEAD - self.name_lengths[a]
        total = sum(lengths[a:b]) - sum(self.name_lengths[a:b])
        return count, total - FRAME_OVERHEAD * count

    def weigh_bits(self, lo: int, bits: int) -> tuple[int, int]:
        """Count and bytes of slots `lo + i` for each bit `i`; the caller knows them as records."""
        if lo < self.first:
            lo, bits = self.first, bits >> self.first - lo
        bits &= (1 << max(self.end - lo, 0)) - 1
        if not bits & (bits + 1):
            return self.weigh(lo, lo + bits.bit_length() - 1)
        a = lo - self.first
        chosen = selectors(bits)
        lengths = compress(self.lengths[a : a + len(chosen)], chosen)
        names = compress(self.name_lengths[a : a + len(chosen)], chosen)
        count = bits.bit_count()
        return count, sum(lengths) - sum(names) - FRAME_OVERHEAD * count

    def sizes(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        for at in range(max(lo, self.first) - self.first, min(hi, self.end - 1) - self.first + 1):
            nbytes = self.lengths[at] - FRAME_OVERHEAD - self.name_lengths[at]
            yield self.first + at, nbytes

    def last_before(self, ts: int) -> int:
        """Highest slot whose time is below `ts`, 0 when there is none."""
        at = bisect_left(self.times, ts)
        return self.first + at - 1 if at else 0

    def drop_front(self, first: int) -> None:
        """Forget the slots below `first`."""
        cut = min(first, self.end) - self.first
        if cut <= 0:
            return
        for column in (self.locations, self.lengths, self.times, self.name_lengths, self.flags):
            del column[:cut]
        self.first += cut
