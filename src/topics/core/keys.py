"""Idempotency keys of one topic, inside their window.

Entries leave in the order they came, so that no write ever scans the window; finding the oldest of
a plain dict would be a scan over the places of all that have left. The window is judged at lookup:
a shorter one in a new configuration applies to what is already remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from topics.core.facts import KeyRemembered

MAX_EXPIRED = 64
"""How many keys outside their window a write drops; more than it adds, so that they get fewer."""


class KeyEntry(msgspec.Struct, frozen=True, gc=False):
    first_seq: int
    count: int
    head: int
    ts: int


class KeyWindow:
    """Key to answer, oldest first; at most `limit` of them."""

    __slots__ = ("_entries", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[str, KeyEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[str, KeyEntry]]:
        return iter(self._entries.items())

    def find(self, key: str, *, now_ms: int, window_ms: int, aged: int = 0) -> KeyEntry | None:
        """The remembered answer, unless its window has passed.

        Of writes up to the seq `aged` it has, whatever their times say.
        """
        entry = self._entries.get(key)
        if entry is None or now_ms - entry.ts > window_ms or entry.first_seq <= aged:
            return None
        return entry

    def remember(self, fact: KeyRemembered) -> None:
        # A key that comes again after its window starts a new life at the young end.
        self._entries.pop(fact.key, None)
        self._entries[fact.key] = KeyEntry(fact.first_seq, fact.count, fact.head, fact.ts)
        while len(self._entries) > self.limit:
            self._entries.popitem(last=False)

    def restore(self, key: str, entry: KeyEntry) -> None:
        """Put back an entry of a snapshot; they come oldest first."""
        self._entries[key] = entry

    def expire(
        self, *, now_ms: int, window_ms: int, aged: int = 0, at_most: int = MAX_EXPIRED
    ) -> None:
        """Drop entries whose window has passed, a few at a time, from the old end."""
        for _ in range(at_most):
            oldest = next(iter(self._entries), None)
            if oldest is None:
                return
            if self.find(oldest, now_ms=now_ms, window_ms=window_ms, aged=aged) is not None:
                return
            del self._entries[oldest]

    def clear(self) -> None:
        """Forget every key: no write of this topic survived."""
        self._entries.clear()

    def forget_above(self, seq: int) -> None:
        """Drop keys of writes that did not survive."""
        lost = [key for key, e in self._entries.items() if e.first_seq + e.count - 1 > seq]
        for key in lost:
            del self._entries[key]
