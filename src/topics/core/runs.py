"""Sets of seqs kept as runs, because removals come in runs and a topic has millions of seqs.

`RunSet` holds disjoint, non-adjacent runs `lo..hi` (inclusive). `KindRuns` does the same with a
kind on each run; runs of one kind are merged when they touch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Runs(ABC):
    """What every ordered set of runs can tell."""

    __slots__ = ()

    @abstractmethod
    def between(self, lo: int, hi: int) -> Iterator[tuple[int, ...]]:
        """Runs cut to `lo..hi`, in order."""

    def gaps_between(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """The parts of `lo..hi` that are in no run, in order."""
        for run in self.between(lo, hi):
            if lo < run[0]:
                yield lo, run[0] - 1
            lo = run[1] + 1
        if lo <= hi:
            yield lo, hi

    def count_between(self, lo: int, hi: int) -> int:
        return sum([run[1] - run[0] + 1 for run in self.between(lo, hi)])


class RunSet(Runs):
    """A set of integers as sorted runs; two columns, no object per run."""

    __slots__ = ("_hi", "_lo", "size")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self._lo: array[int] = array("Q")
        self._hi: array[int] = array("Q")
        self.size = 0  # seqs in the set
        for lo, hi in runs:
            self.add(lo, hi)

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._lo)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._lo, self._hi, strict=True)

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._lo, seq) - 1
        return at >= 0 and self._hi[at] >= seq

    def add(self, lo: int, hi: int) -> None:
        """Add every seq of `lo..hi`, merging with what overlaps or touches."""
        los, his = self._lo, self._hi
        if not los or lo > his[-1] + 1:
            los.append(lo)
            his.append(hi)
            self.size += hi - lo + 1
            return
        first = bisect_left(his, lo - 1)  # first run that touches or follows lo
        last = bisect_right(los, hi + 1)  # one past the last run that touches hi
        if last - first == 1:
            # By far the most common case: the run beside it grows.
            run_lo, run_hi = los[first], his[first]
            if lo < run_lo:
                self.size += run_lo - lo
                los[first] = lo
            if hi > run_hi:
                self.size += hi - run_hi
                his[first] = hi
        elif first < last:
            merged_lo = min(lo, los[first])
            merged_hi = max(hi, his[last - 1])
            self.size -= sum(his[first:last]) - sum(los[first:last]) + (last - first)
            los[first:last] = array("Q", (merged_lo,))
            his[first:last] = array("Q", (merged_hi,))
            self.size += merged_hi - merged_lo + 1
        else:
            los.insert(first, lo)
            his.insert(first, hi)
            self.size += hi - lo + 1

    def run_at(self, seq: int) -> tuple[int, int] | None:
        at = bisect_right(self._lo, seq) - 1
        if at >= 0 and self._hi[at] >= seq:
            return self._lo[at], self._hi[at]
        return None

    def next_start(self, seq: int, default: int) -> int:
        """First seq at or after `seq` that is in the set."""
        at = bisect_left(self._hi, seq)
        return max(seq, self._lo[at]) if at < len(self._lo) else default

    def between(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        at = bisect_left(self._hi, lo)
        while lo <= hi and at < len(self._lo) and self._lo[at] <= hi:
            yield max(lo, self._lo[at]), min(hi, self._hi[at])
            at += 1

    def discard_through(self, seq: int) -> None:
        at = bisect_right(self._hi, seq)
        if at:
            self.size -= sum(self._hi[:at]) - sum(self._lo[:at]) + at
            del self._lo[:at]
            del self._hi[:at]
        if self._lo and self._lo[0] <= seq:
            self.size -= seq + 1 - self._lo[0]
            self._lo[0] = seq + 1


class KindRuns(Runs):
    """Sorted runs, each with a kind. Short in practice: one entry per accident."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Iterable[tuple[int, int, int]] = ()) -> None:
        self._runs: list[tuple[int, int, int]] = []
        for lo, hi, kind in runs:
            self.add(lo, hi, kind)

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter(self._runs)

    def add(self, lo: int, hi: int, kind: int) -> None:
        """Add a run; runs never overlap, and touching runs of one kind become one."""
        at = bisect_left(self._runs, (lo, hi, kind))
        if at < len(self._runs):
            next_lo, next_hi, next_kind = self._runs[at]
            if next_lo == hi + 1 and next_kind == kind:
                hi = next_hi
                del self._runs[at]
        if at:
            last_lo, last_hi, last_kind = self._runs[at - 1]
            if last_hi == lo - 1 and last_kind == kind:
                at -= 1
                lo = last_lo
                del self._runs[at]
        self._runs.insert(at, (lo, hi, kind))

    def run_at(self, seq: int) -> tuple[int, int, int] | None:
        run = self.next_from(seq)
        return run if run is not None and run[0] <= seq else None

    def next_from(self, seq: int) -> tuple[int, int, int] | None:
        """The first run that ends at or after `seq`."""
        at = bisect_right(self._runs, (seq, 1 << 64, 0)) - 1
        if at >= 0 and self._runs[at][1] >= seq:
            return self._runs[at]
        return self._runs[at + 1] if at + 1 < len(self._runs) else None

    def between(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        run = self.next_from(lo) if lo <= hi else None
        while run is not None and run[0] <= hi:
            yield max(lo, run[0]), min(hi, run[1]), run[2]
            run = self.next_from(run[1] + 1)

    def discard_through(self, seq: int) -> None:
        """Forget what lies at or below `seq`; a run that straddles it keeps its upper part."""
        kept = [(max(lo, seq + 1), hi, kind) for lo, hi, kind in self._runs if hi > seq]
        if len(kept) != len(self._runs) or kept != self._runs:
            self._runs = kept


def runs_of(seqs: Iterable[int]) -> Iterator[tuple[int, int]]:
    lo = hi = 0
    for seq in seqs:
        if lo and seq == hi + 1:
            hi = seq
            continue
        if lo:
            yield lo, hi
        lo = hi = seq
    if lo:
        yield lo, hi
