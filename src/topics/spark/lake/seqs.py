"""Sets of (epoch, seq) as runs, and the questions a table asks of them, a column at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from topics.core.runs import RunSet

Seqs: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Run: TypeAlias = tuple[int, int]


class KeySet:
    """Which seqs of which epochs; grows, never shrinks."""

    def __init__(self, runs: Mapping[int, Iterable[Run]] | None = None) -> None:
        self._epochs: dict[int, RunSet] = {}
        for epoch, added in (runs or {}).items():
            self.add_runs(epoch, added)

    def __bool__(self) -> bool:
        return any(self._epochs.values())

    def __len__(self) -> int:
        """How many (epoch, seq) are in it."""
        return sum(runs.size for runs in self._epochs.values())

    def __iter__(self) -> Iterator[tuple[int, list[Run]]]:
        """Epochs in order, each with its runs."""
        return ((epoch, list(self._epochs[epoch])) for epoch in sorted(self._epochs))

    def runs(self, epoch: int) -> RunSet:
        return self._epochs.get(epoch, RunSet())

    def add(self, epoch: int, first: int, last: int) -> None:
        self._epochs.setdefault(epoch, RunSet()).add(first, last)

    def add_runs(self, epoch: int, runs: Iterable[Run]) -> None:
        for first, last in runs:
            self.add(epoch, first, last)

    def add_column(self, epochs: Seqs, seqs: Seqs) -> None:
        """Add the keys of rows, in whatever order they are."""
        if not len(seqs):
            return
        if (epochs == epochs[0]).all():  # nearly always
            self.add_runs(int(epochs[0]), runs_of(seqs))
            return
        for epoch in np.unique(epochs).tolist():
            self.add_runs(epoch, runs_of(seqs[epochs == epoch]))

    def mask(self, epochs: Seqs, seqs: Seqs) -> Mask:
        """Which rows have a key in the set."""
        hit = np.zeros(len(seqs), dtype=bool)
        for epoch, runs in self._epochs.items():
            if len(runs):
                hit |= (epochs == epoch) & _inside(seqs, runs)
        return hit

    def touches(self, first: int, last: int) -> bool:
        """Whether a seq of that range is in the set, in whatever epoch."""
        return any(
            runs.next_start(first, last + 1) <= last for runs in self._epochs.values() if len(runs)
        )


def runs_of(seqs: Seqs) -> list[Run]:
    """The runs that a column of seqs consists of."""
    if not len(seqs):
        return []
    steps = np.diff(seqs)
    if (steps == 1).all():  # a range without a gap
        return [(int(seqs[0]), int(seqs[-1]))]
    ordered = seqs if (steps > 0).all() else np.unique(seqs)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    firsts = ordered[np.concatenate(([0], breaks + 1))]
    lasts = ordered[np.concatenate((breaks, [len(ordered) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _inside(seqs: Seqs, runs: RunSet) -> Mask:
    edges = np.fromiter((edge for run in runs for edge in run), dtype=np.int64)
    firsts, lasts = edges[0::2], edges[1::2]
    at = np.searchsorted(firsts, seqs, side="right") - 1
    found: Mask = (at >= 0) & (seqs <= lasts[at])
    return found
