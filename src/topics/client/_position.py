"""Where a consumer begins, and where it goes on after a loss."""

from __future__ import annotations

from typing import Literal

from topics.errors import InvalidRequest
from topics.values import Tombstone, TopicState

Start = Literal["earliest", "latest"]


def first_position(start: Start, state: TopicState) -> int:
    """The position of a name nobody has committed yet."""
    if start == "earliest":
        return 0
    if start == "latest":
        return state.head_seq
    raise InvalidRequest(f'a consumer starts at "earliest" or "latest", not {start!r}')


def after_loss(tombstone: Tombstone) -> int:
    """The position behind a gap; a topic made anew is read from where it now begins."""
    if tombstone.reason == "recreated":
        return tombstone.earliest_seq - 1
    return tombstone.gap_to
