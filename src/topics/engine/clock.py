"""Time as an argument. Tests bring `topics.testing.ManualClock`; production brings this."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch; may step back."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never steps back."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
