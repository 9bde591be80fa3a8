"""A set of seqs that stays quick however scattered it is: what was deleted from a topic.

Theory of operation. Seqs are grouped in chunks of 1024. A chunk that is partly in the set is one
integer with a bit for each seq; chunks that are wholly in the set are runs of chunk numbers. So a
queue that was worked off from the front costs one run, and a topic of which every second record is
gone costs a bit for each. Adding a selection of records costs one step for each chunk, not for each
run, and so does counting: removing half a million single records does not block the loop.

Integers do not change, so a copy shares them: `copy` costs a reference for each chunk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from topics.core.runs import Runs, RunSet

CHUNK_BITS = 10
CHUNK = 1 << CHUNK_BITS
LAST_BIT = CHUNK - 1
ALL_BITS = (1 << CHUNK) - 1
FEW_CHUNKS = 16
"""So many new chunks are put in their places one by one; for more all are sorted anew."""

_NONE = RunSet()
"""What sets without a whole chunk share: there may be very many of them."""


class SeqSet(Runs):
    __slots__ = ("_bits", "_full", "_order")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self._bits: dict[int, int] = {}  # chunks that are partly in the set
        self._order: list[int] = []  # their numbers, in order
        self._full = _NONE  # numbers of chunks that are wholly in the set
        for lo, hi in runs:
            self.add(lo, hi)

    def __bool__(self) -> bool:
        return bool(self._bits) or bool(len(self._full))

    def __contains__(self, seq: int) -> bool:
        bits = self._bits.get(seq >> CHUNK_BITS)
        if bits is None:
            return seq >> CHUNK_BITS in self._full
        return bits >> (seq & LAST_BIT) & 1 == 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The runs `lo..hi` of the set, in order; no two of them touch."""
        return joined(self._pieces(0, 1 << 64))

    def __len__(self) -> int:
        """The number of runs; a step for each chunk."""
        return sum(starts for _, starts in self._starts())

    @property
    def pieces(self) -> int:
        """In how many integers and runs it is kept; each integer holds up to 512 runs."""
        return len(self._order) + len(self._full)

    def copy(self) -> SeqSet:
        """The same set; later changes to this one do not reach the copy."""
        copy = SeqSet()
        copy._bits, copy._order = self._bits.copy(), self._order.copy()
        if len(self._full):
            copy._full = RunSet(self._full)
        return copy

    # Adding and removing

    def add(self, lo: int, hi: int) -> None:
        first, last = lo >> CHUNK_BITS, hi >> CHUNK_BITS
        if first == last:
            self._merge(first, bits_between(lo & LAST_BIT, hi & LAST_BIT))
            return
        if lo & LAST_BIT:
            self._merge(first, bits_between(lo & LAST_BIT, LAST_BIT))
            first += 1
        if hi & LAST_BIT != LAST_BIT:
            self._merge(last, bits_between(0, hi & LAST_BIT))
            last -= 1
        if first <= last:
            self._fill(first, last)

    def _merge(self, chunk: int, bits: int) -> None:
        known = self._bits.get(chunk)
        if known is None:
            if len(self._full) and chunk in self._full:
                return
            if bits == ALL_BITS:
                self._fill(chunk, chunk)
                return
            order = self._order
            if order and chunk < order[-1]:
                insort(order, chunk)
            else:
                order.append(chunk)
            self._bits[chunk] = bits
            return
        bits |= known
        if bits == ALL_BITS:
            self._fill(chunk, chunk)
        else:
            self._bits[chunk] = bits

    def _fill(self, first: int, last: int) -> None:
        self._forget(bisect_left(self._order, first), bisect_right(self._order, last))
        if self._full is _NONE:
            self._full = RunSet()
        self._full.add(first, last)

    def _forget(self, start: int, end: int) -> None:
        """Chunks that are no longer partly in the set, by their places in order."""
        for chunk in self._order[start:end]:
            del self._bits[chunk]
        del self._order[start:end]

    def update(self, chunks: Mapping[int, int]) -> None:
        """Add the bits of many chunks; a step for each of them."""
        new = [chunk for chunk in chunks if chunk not in self._bits]
        if len(new) <= FEW_CHUNKS:
            for chunk, bits in chunks.items():
                self._merge(chunk, bits)
            return
        for chunk in new:
            if chunk not in self._full:
                self._bits[chunk] = 0
        self._order = sorted(self._bits)
        for chunk, bits in chunks.items():
            self._merge(chunk, bits)

    def merge(self, other: SeqSet) -> None:
        if not other:
            return
        self.update(other._bits)
        for first, last in other._full:
            self._fill(first, last)

    def discard_through(self, seq: int) -> None:
        chunk, bit = seq >> CHUNK_BITS, seq & LAST_BIT
        left = self.chunk(chunk) & ~bits_between(0, bit)
        self._forget(0, bisect_right(self._order, chunk))
        if len(self._full):
            self._full.discard_through(chunk)
        if left:
            self._bits[chunk] = left
            self._order.insert(0, chunk)

    def forget_below(self, floor: int, *, keep: SeqSet) -> None:
        """Forget every seq below `floor` that is not in `keep`, which is part of this set."""
        kept = keep._below(floor)
        self.discard_through(floor - 1)
        self.update(kept)

    def below(self, floor: int) -> SeqSet:
        """The part of the set below a seq; a step for each chunk."""
        part = SeqSet()
        part.update(self._below(floor))
        return part

    def _below(self, floor: int) -> dict[int, int]:
        """The bits below a seq, by chunk."""
        last = floor - 1 >> CHUNK_BITS
        found = {chunk: self.chunk(chunk) for chunk in self.chunks_between(0, last)}
        if last in found:
            found[last] &= bits_between(0, floor - 1 & LAST_BIT)
        return found

    # Asking

    def start_of_newest(self, runs: int) -> int:
        """The seq behind the last run that is not among so many newest ones; 1 if all are."""
        surplus = len(self) - runs
        if surplus <= 0:
            return 1
        chunks = self._starts()
        start, begun = next(chunks)
        while begun < surplus:
            surplus -= begun
            start, begun = next(chunks)
        pieces = self._pieces(start >> CHUNK_BITS, 1 << 64)
        begins = (lo for lo, _ in pieces if lo - 1 not in self)
        return self.end_of(next(islice(begins, surplus - 1, None))) + 1

    def chunk(self, number: int) -> int:
        """The bits of a chunk: bit 0 is its lowest seq."""
        bits = self._bits.get(number)
        if bits is None:
            return ALL_BITS if number in self._full else 0
        return bits

    def bits(self, lo: int, hi: int) -> int:
        """The seqs of a short range as one integer: bit 0 is `lo`."""
        first, last = lo >> CHUNK_BITS, hi >> CHUNK_BITS
        found = self.chunk(first) >> (lo & LAST_BIT)
        for chunk in range(first + 1, last + 1):
            found |= self.chunk(chunk) << ((chunk << CHUNK_BITS) - lo)
        return found & ((1 << (hi - lo + 1)) - 1)

    def has_none_of(self, lo: int, hi: int) -> bool:
        if lo >> CHUNK_BITS == hi >> CHUNK_BITS:
            bits = self._bits.get(lo >> CHUNK_BITS)
            if bits is not None:
                return not bits & bits_between(lo & LAST_BIT, hi & LAST_BIT)
            return lo >> CHUNK_BITS not in self._full
        return self.next_start(lo, hi + 1) > hi

    def end_of(self, seq: int) -> int:
        """Last seq of the run that holds `seq`, or `seq - 1` when none does."""
        chunk, bit = seq >> CHUNK_BITS, seq & LAST_BIT
        while True:
            bits = self._bits.get(chunk)
            if bits is not None:
                rest = ~(bits >> bit)
                bit += (rest & -rest).bit_length() - 1
                if bit < CHUNK:
                    return (chunk << CHUNK_BITS) + bit - 1
                chunk += 1
            else:
                run = self._full.run_at(chunk)
                if run is None:
                    return (chunk << CHUNK_BITS) + bit - 1
                chunk = run[1] + 1
            bit = 0

    def start_of(self, seq: int) -> int:
        """First seq of the run that holds `seq`, or `seq + 1` when none does."""
        chunk, bit = seq >> CHUNK_BITS, seq & LAST_BIT
        while chunk >= 0:
            bits = self._bits.get(chunk)
            if bits is not None:
                start = (~bits & bits_between(0, bit)).bit_length()
                if start:
                    return (chunk << CHUNK_BITS) + start
                chunk -= 1
            else:
                run = self._full.run_at(chunk)
                if run is None:
                    return (chunk << CHUNK_BITS) + bit + 1
                chunk = run[0] - 1
            bit = LAST_BIT
        return 0

    def next_start(self, seq: int, default: int) -> int:
        """First seq at or after `seq` that is in the set."""
        chunk = seq >> CHUNK_BITS
        bits = self.chunk(chunk) >> (seq & LAST_BIT)
        if bits:
            return seq + lowest(bits)
        at = bisect_right(self._order, chunk)
        following = self._order[at] if at < len(self._order) else -1
        full = self._full.next_start(chunk + 1, -1)
        if full >= 0 and (following < 0 or full < following):
            return full << CHUNK_BITS
        if following < 0:
            return default
        return (following << CHUNK_BITS) + lowest(self._bits[following])

    def between(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        if lo > hi:
            return
        for a, b in joined(self._pieces(lo >> CHUNK_BITS, hi >> CHUNK_BITS)):
            if a > hi:
                return
            if b >= lo:
                yield max(lo, a), min(hi, b)

    def count_between(self, lo: int, hi: int) -> int:
        """How many seqs of `lo..hi` are in the set; a step for each chunk."""
        if lo > hi:
            return 0
        first, last = lo >> CHUNK_BITS, hi >> CHUNK_BITS
        if first == last:
            return (self.chunk(first) & bits_between(lo & LAST_BIT, hi & LAST_BIT)).bit_count()
        count = (self.chunk(first) >> (lo & LAST_BIT)).bit_count()
        count += (self.chunk(last) & bits_between(0, hi & LAST_BIT)).bit_count()
        order = self._order
        for chunk in order[bisect_right(order, first) : bisect_left(order, last)]:
            count += self._bits[chunk].bit_count()
        return count + CHUNK * self._full.count_between(first + 1, last - 1)

    def chunks_between(self, first: int, last: int) -> Iterator[int]:
        """Numbers of the chunks `first..last` of which something is in the set, in order."""
        order, at = self._order, bisect_left(self._order, first)
        partly = order[at : bisect_right(order, last)]
        if not len(self._full):
            return iter(partly)
        wholly = [n for a, b in self._full.between(first, last) for n in range(a, b + 1)]
        return iter(sorted(partly + wholly))

    def _pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Runs within chunks, or of whole chunks, in order; some may touch."""
        order, at = self._order, bisect_left(self._order, first)
        fulls = self._full.between(first, last)
        full = next(fulls, None)
        while True:
            chunk = order[at] if at < len(order) and order[at] <= last else None
            if full is not None and (chunk is None or full[0] < chunk):
                yield full[0] << CHUNK_BITS, full[1] << CHUNK_BITS | LAST_BIT
                full = next(fulls, None)
            elif chunk is None:
                return
            else:
                yield from runs_of_bits(self._bits[chunk], chunk << CHUNK_BITS)
                at += 1

    def _starts(self) -> Iterator[tuple[int, int]]:
        """For each chunk or run of chunks, in order: its first seq, how many runs begin there."""
        fulls, at = iter(self._full), 0
        full = next(fulls, None)
        while full is not None or at < len(self._order):
            if full is not None and (at == len(self._order) or full[0] < self._order[at]):
                seq = full[0] << CHUNK_BITS
                yield seq, int(seq == 0 or seq - 1 not in self)
                full = next(fulls, None)
            else:
                chunk = self._order[at]
                seq, bits = chunk << CHUNK_BITS, self._bits[chunk]
                goes_on = int(seq > 0 and seq - 1 in self)
                yield seq, (bits & ~(bits << 1 | goes_on)).bit_count()
                at += 1


def lowest(bits: int) -> int:
    """The lowest bit of an integer that has one."""
    return (bits & -bits).bit_length() - 1


def bits_between(lo: int, hi: int) -> int:
    return (1 << hi + 1) - (1 << lo)


def selectors(bits: int) -> bytes:
    """A byte for each bit, from the lowest up: what `itertools.compress` takes."""
    return bin(bits)[:1:-1].encode().translate(_DIGITS) if bits else b""


_DIGITS = bytes(int(digit == ord("1")) for digit in range(256))


def runs_of_bits(bits: int, base: int) -> Iterator[tuple[int, int]]:
    """Runs of bits, in order; bit 0 stands for `base`."""
    text = bin(bits)[:1:-1]  # from the lowest bit up
    lo = text.find("1")
    while lo >= 0:
        end = text.find("0", lo)
        if end < 0:
            yield base + lo, base + len(text) - 1
            return
        yield base + lo, base + end - 1
        lo = text.find("1", end)


def joined(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Runs in order, as one where they touch."""
    last_lo = last_hi = -1
    for lo, hi in runs:
        if lo == last_hi + 1 and last_lo >= 0:
            last_hi = hi
            continue
        if last_lo >= 0:
            yield last_lo, last_hi
        last_lo, last_hi = lo, hi
    if last_lo >= 0:
        yield last_lo, last_hi
