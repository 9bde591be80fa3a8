"""Where a scan or a consumer reads next, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from topics.errors import InvalidRequest
from topics.events import Arrived, CaughtUp, Event, Lost
from topics.values import Page, Record, Tombstone, TopicState

PAGE_RECORDS = 1000
Start = Literal["earliest", "latest"]


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


def first_position(start: Start, state: TopicState) -> int:
    """The position of a name under which nothing was committed yet."""
    if start == "earliest":
        return 0
    if start == "latest":
        return state.head_seq
    raise InvalidRequest(f'a consumer starts at "earliest" or "latest", not {start!r}')


def after_event(event: Event, position: int | None) -> int | None:
    """The position once an event was handed on; one that is not about records moves nothing."""
    if isinstance(event, Arrived):
        return event.record.seq
    if isinstance(event, Lost):
        return _after_loss(event.tombstone)
    if isinstance(event, CaughtUp):
        return event.head_seq
    return position


def _after_loss(tombstone: Tombstone) -> int:
    """The position behind a gap; a topic made anew is read from where it now begins."""
    if tombstone.reason == "recreated":
        return tombstone.earliest_seq - 1
    return tombstone.gap_to
