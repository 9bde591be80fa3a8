"""What `scan` does, without I/O: which page to read next, and what of it to hand out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from topics.values import Page, Record, Tombstone

PAGE_RECORDS = 1000


class Scan:
    """The pages from a position on, up to the head that the first page tells.

    Without that end, a scan of a topic that is written faster than it is read would never end.
    """

    def __init__(
        self,
        after: int,
        node: str | Sequence[str],
        match: str | Sequence[str] | None,
        from_ts: int | None,
    ) -> None:
        self.query: dict[str, Any] = {
            "after": after,
            "limit": PAGE_RECORDS,
            "node": node,
            "match": match,
            "from_ts": from_ts,
        }
        """The arguments of the next read."""
        self.is_over = False
        self._end: int | None = None

    def items(self, page: Page) -> Iterator[Record | Tombstone]:
        """What a page has for the caller. Afterwards `query` is that of the page behind it."""
        if self._end is None:
            self._end = page.head_seq
        self.query.update(after=page.next_from_seq, from_ts=None)
        self.is_over = page.caught_up or page.next_from_seq >= self._end
        if page.tombstone is not None:
            yield page.tombstone
        for record in page.records:
            if record.seq <= self._end:
                yield record
