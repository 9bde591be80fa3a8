"""What the live records of whole chunks weigh, remembered from when somebody asked.

A topic of millions of records is weighed chunk by chunk, and what was found stays true: removing
records takes their weight off. So the next question about the same records costs a step for each
chunk, not for each record. Chunks that nobody asked about cost nothing.
"""

from __future__ import annotations

from topics.core.seqset import CHUNK_BITS

_NONE: dict[int, tuple[int, int]] = {}
"""What topics that nobody weighs share: there may be very many of them."""


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
