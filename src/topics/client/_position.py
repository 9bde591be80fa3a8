"""Where a consumer begins, and where it goes on after each event."""

from __future__ import annotations

from typing import Literal

from topics.errors import InvalidRequest
from topics.events import Arrived, CaughtUp, Event, Lost
from topics.values import Tombstone, TopicState

Start = Literal["earliest", "latest"]


def first_position(start: Start, state: TopicState) -> int:
    """The position of a name nobody has committed yet."""
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
