"""Time as an argument. Tests pass `topics.testing.ManualClock`, production passes `SystemClock`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch; may step back."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never steps back."""
        ...


class SystemClock:
    monotonic = staticmethod(time.monotonic)
    monotonic_ns = staticmethod(time.monotonic_ns)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def nanoseconds(clock: Clock) -> Callable[[], int]:
    """The monotonic time of a clock as a whole number; asked for at every write."""
    if isinstance(clock, SystemClock):
        return clock.monotonic_ns
    return lambda: int(clock.monotonic() * 1e9)
