"""The parts of a server that scheduling looks at, under a test's control."""

from __future__ import annotations

from collections.abc import Callable


class FakeLog:
    """A log with one queue, as full as the test wants it."""

    def __init__(self) -> None:
        self.share = 0.0

    def fill(self, shard: int) -> float:
        return self.share

    def room(self, shard: int, size: int) -> bool:
        return self.share < 1

    def queued(self, shard: int) -> int:
        return round(self.share * 4096)

    def taken(self, shard: int) -> int:
        return 0


class FakeWork:
    """Operations under way."""

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = _nobody
        self.in_flight = 0
        self.on_pool = 0


def _nobody() -> None:
    """Nobody wants to know."""
