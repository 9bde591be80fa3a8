"""How old records are at least, where their own times cannot tell.

A clock that was wrong for a while may have stamped records with a time far ahead. Times of a topic
never go back, so every later record has that time too, and by `now - ts` none of them is old: a TTL
would expire nothing, for years. But a record that existed an hour ago is at least an hour old. So
while the times of a topic are ahead of the clock, marks note how far the topic was at a moment, in
hours of running that no step of the wall clock moves.

A mark never makes a record older than it is, whichever of the two clocks was wrong. Marks get
scarcer with age: a record counts as aged at most an eighth of its age too late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

AHEAD_MS = 3_600_000
"""Times this far ahead of the clock come from a wrong clock; a smaller lead passes by itself."""
SPACING_MS = 1000
SHARE = 8


class Ages:
    """Pairs of a seq and a running time at which the topic had come as far as that seq."""

    __slots__ = ("_seqs", "_times")

    def __init__(self, marks: Iterable[tuple[int, int]] = ()) -> None:
        self._seqs: list[int] = []
        self._times: list[int] = []
        for seq, at_ms in marks:
            self._seqs.append(seq)
            self._times.append(at_ms)

    def __len__(self) -> int:
        return len(self._seqs)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._seqs, self._times, strict=True))

    def note(self, seq: int, at_ms: int) -> bool:
        """Note that the topic is at `seq` now; returns whether a mark was added."""
        if self._seqs and (seq <= self._seqs[-1] or at_ms < self._times[-1] + SPACING_MS):
            return False
        self._seqs.append(seq)
        self._times.append(at_ms)
        self._thin(at_ms)
        return True

    def through(self, at_ms: int) -> int:
        """The highest seq known to have existed before a running time; 0 if there is none."""
        at = bisect_right(self._times, at_ms - 1)
        return self._seqs[at - 1] if at else 0

    def _thin(self, now_ms: int) -> None:
        """Leave out marks whose neighbours are close together for their age."""
        kept = [0]
        for at in range(1, len(self._times) - 1):
            after = self._times[at + 1]
            if (after - self._times[kept[-1]]) * SHARE > now_ms - after:
                kept.append(at)
        if len(self._times) > 1:
            kept.append(len(self._times) - 1)
        self._seqs = [self._seqs[at] for at in kept]
        self._times = [self._times[at] for at in kept]
