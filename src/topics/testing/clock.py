"""A clock that stands still until a test moves it."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

Callback: TypeAlias = Callable[[], None]

DEFAULT_START_MS = 1_700_000_000_000


@dataclass(order=True, slots=True)
class Timer:
    """A callback waiting for its moment. Timers due together run in the order they were set."""

    due_ms: int
    number: int
    callback: Callback = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Never run the callback; harmless when it already ran."""
        self.cancelled = True


class ManualClock:
    """Wall time and elapsed time under a test's control.

    `advance` moves both and runs the timers that fall due on the way. `set` moves the wall clock
    alone, backwards if asked, the way an operator or a time server steps it: elapsed time and
    hence timers do not notice, while code that compares `now_ms()` with a deadline does.
    """

    def __init__(self, start_ms: int = DEFAULT_START_MS) -> None:
        self._now_ms = start_ms
        self._elapsed_ms = 0
        self._timers: list[Timer] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds this clock was advanced by; never goes back."""
        return self._elapsed_ms / 1000

    def set(self, now_ms: int) -> None:
        """Step the wall clock, forwards or backwards, without time passing."""
        self._now_ms = now_ms

    def advance(self, delta_ms: int) -> None:
        """Let time pass; each timer runs at its own moment, also those set by other timers."""
        if delta_ms < 0:
            raise ValueError("time cannot pass backwards; step the wall clock with set()")
        end_ms = self._elapsed_ms + delta_ms
        while self._timers and self._timers[0].due_ms <= end_ms:
            timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self._pass_until(timer.due_ms)
            timer.callback()
        self._pass_until(end_ms)

    def call_later(self, delay_ms: int, callback: Callback) -> Timer:
        """Run `callback` once `delay_ms` have passed; never from inside this call."""
        timer = Timer(self._elapsed_ms + max(0, delay_ms), next(self._numbers), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def pending(self) -> int:
        """How many timers still wait."""
        return sum(not timer.cancelled for timer in self._timers)

    def _pass_until(self, elapsed_ms: int) -> None:
        # A callback may have advanced the clock further than its own timer.
        step = max(0, elapsed_ms - self._elapsed_ms)
        self._elapsed_ms += step
        self._now_ms += step
