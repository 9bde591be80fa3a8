"""Idempotency keys of one topic, inside their window.

Entries leave in the order they came, so that no write ever scans the window: beside a dict there
are blocks of entries in that order. A block grows at its end and never changes otherwise, so that a
checkpoint takes the whole window over by holding on to its blocks. The window is judged at lookup:
a shorter one in a new configuration applies to what is already remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeAlias

import msgspec

from topics.core.facts import KeyRemembered

MAX_EXPIRED = 64
"""How many keys outside their window a write drops; more than it adds, so that they get fewer."""

BLOCK = 512


class KeyEntry(msgspec.Struct, frozen=True, gc=False):
    first_seq: int
    count: int
    head: int
    ts: int

    def is_inside(self, *, now_ms: int, window_ms: int, aged: int) -> bool:
        """Whether its window has not passed.

        Of writes up to the seq `aged` it has, whatever their times say.
        """
        return now_ms - self.ts <= window_ms and self.first_seq > aged


Slot: TypeAlias = tuple[str, KeyEntry]


class KeyWindow:
    """Key to answer, oldest first; at most `limit` of them."""

    __slots__ = ("_blocks", "_entries", "_left", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: dict[str, Slot] = {}
        self._blocks = _NONE  # in order; a slot counts while it is that of its key
        self._left = 0  # slots of the first block that have left

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[Slot]:
        for slot in slots_of(self.blocks()):
            if self._entries.get(slot[0]) is slot:
                yield slot

    def blocks(self) -> list[tuple[list[Slot], int, int]]:
        """Everything that is remembered now: blocks, with the first and the end in each.

        A key may be there more than once: the last one counts.
        """
        found = [(block, 0, len(block)) for block in self._blocks]
        if found:
            found[0] = (found[0][0], self._left, found[0][2])
        return found

    def find(self, key: str, *, now_ms: int, window_ms: int, aged: int = 0) -> KeyEntry | None:
        """The remembered answer, unless its window has passed."""
        slot = self._entries.get(key)
        if slot is None or not slot[1].is_inside(now_ms=now_ms, window_ms=window_ms, aged=aged):
            return None
        return slot[1]

    def remember(self, fact: KeyRemembered) -> None:
        # A key that comes again after its window starts a new life at the young end.
        self.restore(fact.key, KeyEntry(fact.first_seq, fact.count, fact.head, fact.ts))
        while len(self._entries) > self.limit:
            self._drop_oldest()

    def restore(self, key: str, entry: KeyEntry) -> None:
        """Put back an entry of a snapshot; they come oldest first."""
        self._entries[key] = slot = key, entry
        if self._blocks is _NONE:
            self._blocks = deque()
        if not self._blocks or len(self._blocks[-1]) == BLOCK:
            self._blocks.append([])
        self._blocks[-1].append(slot)

    def _drop_oldest(self) -> None:
        """Take the first slot out of its block, and its key if that has no younger one."""
        block = self._blocks[0]
        slot = block[self._left]
        if self._entries.get(slot[0]) is slot:
            del self._entries[slot[0]]
        self._left += 1
        if self._left == len(block):
            self._blocks.popleft()
            self._left = 0

    def expire(
        self, *, now_ms: int, window_ms: int, aged: int = 0, at_most: int = MAX_EXPIRED
    ) -> bool:
        """Drop entries whose window has passed, a few at a time, from the old end.

        Whether there may be more of them.
        """
        for _ in range(at_most):
            if not self._blocks:
                return False
            key, entry = slot = self._blocks[0][self._left]
            if self._entries.get(key) is slot and entry.is_inside(
                now_ms=now_ms, window_ms=window_ms, aged=aged
            ):
                return False
            self._drop_oldest()
        return True

    def forget(self, keys: Iterable[str]) -> None:
        """Forget these keys, wherever they are in the window."""
        for key in keys:
            self._entries.pop(key, None)
        kept = list(self.items())
        self.clear()
        for key, entry in kept:
            self.restore(key, entry)

    def clear(self) -> None:
        """Forget every key: no write of this topic survived."""
        self._entries.clear()
        self._blocks, self._left = _NONE, 0


_NONE: deque[list[Slot]] = deque()
"""What topics without keys share: there may be very many of them."""


def slots_of(blocks: list[tuple[list[Slot], int, int]]) -> Iterator[Slot]:
    for block, first, end in blocks:
        yield from islice(block, first, end)
