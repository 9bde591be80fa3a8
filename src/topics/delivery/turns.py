"""When things run: timers, and work done a slice at a time.

A publish may concern thousands of streams. Serving them all in one go would keep everybody else
waiting, so work is queued and each turn of the loop does a bounded part of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

_log = logging.getLogger("topics.delivery")

Callback: TypeAlias = Callable[[], None]
Schedule: TypeAlias = Callable[[Callback], object]
"""Runs a callback on the next turn of the loop."""

SLICE = 64
"""Callbacks per turn: about a millisecond of work."""

STEPS = 2
"""Steps of a callback with many of them that take as long as another callback."""


class Timer(Protocol):
    def cancel(self) -> None:
        """Never run the callback; harmless when it already ran."""


class Timers(Protocol):
    def call_later(self, delay_ms: int, callback: Callback, /) -> Timer:
        """Run `callback` once that time has passed."""
        ...


class LoopTimers:
    """Timers of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callback, /) -> Timer:
        return self._loop.call_later(delay_ms / 1000, callback)


class Turns:
    """Callbacks in the order they were added, a bounded number per turn."""

    def __init__(self, schedule: Schedule) -> None:
        self.on_slice: Callback = _nothing
        """Called when a slice is over."""
        self._schedule = schedule
        self._waiting: deque[Callback] = deque()
        self._scheduled = False
        self._left = 0  # callbacks this slice has room for

    @property
    def is_behind(self) -> bool:
        """Whether something is left to do."""
        return bool(self._waiting)

    def add(self, callback: Callback) -> None:
        """Run `callback` soon. Whoever adds the same twice gets it run twice."""
        self._waiting.append(callback)
        if not self._scheduled:
            self._ask()

    def run(self) -> None:
        """Do one slice now, the rest on later turns."""
        waiting = self._waiting
        self._left = SLICE
        for _ in range(len(waiting)):
            if self._left <= 0:
                break
            self._left -= 1
            callback = waiting.popleft()
            try:
                callback()
            except Exception:  # one stream's bug must not silence the others
                log_failure()
        self.on_slice()
        self._ask()

    def take(self, most: int) -> int:
        """How many steps a callback that has many to take may take at once."""
        taken = min(most, STEPS * (self._left + 1))  # the callback itself was counted already
        self._left -= (taken - 1) // STEPS
        return taken

    def _ask(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._schedule(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.run()


def log_failure() -> None:
    """Tell of the exception being handled."""
    _log.exception("delivering to a stream failed")


def _nothing() -> None:
    """Nobody wants to know."""
