"""Large reads give way to writes.

A slice of a large read keeps a thread busy for about a millisecond. A write that comes meanwhile
shares processor and interpreter with it, several times over: when its request is read, when it is
logged, when it is answered. And whoever is sent a history makes something of it, often on the same
machine. While others write, a read therefore rests after each slice for a multiple of what the
slice took. On a machine that is busy slices take longer, and so do the rests.
"""

from __future__ import annotations

from typing import Final, TypeVar

from topics.engine.clock import Clock
from topics.engine.effects import Op, Sleep
from topics.storage.wal.committer import Committer
from topics.storage.wal.submission import Position

T = TypeVar("T")
REST: Final = 2
"""A read that gives way takes a third of the time."""
LONGEST_REST_S: Final = 0.01


class GivingWay:
    """One read: its steps in turn, with rests between them while anything is written."""

    def __init__(self, committer: Committer, clock: Clock, *, shards: int) -> None:
        self._committer = committer
        self._clock = clock
        self._shards = range(shards)
        self._seen: list[Position] = []
        self._took_s = 0.0

    def step(self, work: Op[T]) -> Op[T]:
        """A step of the read, after a rest if something was written since the last one began."""
        if self._took_s and self._ends() != self._seen:
            yield Sleep(min(REST * self._took_s, LONGEST_REST_S))
        self._seen = self._ends()
        began_s = self._clock.monotonic()
        made = yield from work
        self._took_s = self._clock.monotonic() - began_s
        return made

    def _ends(self) -> list[Position]:
        return [self._committer.position(shard) for shard in self._shards]
