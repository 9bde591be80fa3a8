"""How busy the server is, and what it does about it.

Pressure is the largest of three signals, each from 0 to 1: how many topics wait to be served, how
long they wait, and how full the queues of the threads are. It is sampled at regular times while
there is work. Rising pressure first makes pushes gather for some milliseconds, then lets commits
gather (the log does that itself), and if it stays high defers what can wait.
Pressure never refuses a write: only a full log queue does, and then at once.

The signals leave out every wait that pressure itself brings about, such as the window in which
pushes gather or the time a topic is withheld. Otherwise pressure would feed on itself and stay.

Nothing here knows of loops or clocks; measurements are arguments.
"""

from __future__ import annotations

from typing import Final

TICK_MS: Final = 100
TOPICS_PER_WORKER: Final = 8
FULL_DELAY_MS: Final = 5
SMOOTHING: Final = 0.2
LONGEST_DELAY_MS: Final = 10_000
"""What a longer delay counts for: it is a step of the clock, not a wait."""

GATHER_FROM: Final = 0.2
LONGEST_GATHER_MS: Final = 20
DEFER_ABOVE: Final = 0.8
DEFER_AFTER: Final = 3
DEFER_UNTIL: Final = 0.6
LONGEST_PACE_MS: Final = 20

SHORTEST_RETRY_MS: Final = 50
LONGEST_RETRY_MS: Final = 5000
UNKNOWN_RETRY_MS: Final = 1000


class Governor:
    """Feed it delays and samples; it says how hard to brake."""

    def __init__(self, *, workers: int) -> None:
        self.pressure = 0.0
        self.deferred = False
        self._workers = workers
        self._delay_ms = 0.0
        self._served = False
        self._high_samples = 0

    @property
    def is_calm(self) -> bool:
        """Whether nothing would change if no sample were taken from now on."""
        return self.pressure <= GATHER_FROM and not self.deferred

    @property
    def gather_ms(self) -> float:
        """How long pushes gather before they go out."""
        over = (self.pressure - GATHER_FROM) / (1 - GATHER_FROM)
        return LONGEST_GATHER_MS * max(0.0, over)

    @property
    def pace_ms(self) -> float:
        """How long a write to a topic of low priority waits before anything else."""
        return LONGEST_PACE_MS * self.pressure if self.deferred else 0.0

    def note_delay(self, waited_ms: int) -> None:
        """A topic was served after this wait."""
        self._served = True
        self._delay_ms += SMOOTHING * (min(waited_ms, LONGEST_DELAY_MS) - self._delay_ms)

    def sample(self, *, waiting: int, busy: float) -> None:
        """Take stock: topics left waiting, and the fullest place where threads get their work."""
        if not self._served and not waiting:
            self._delay_ms = 0.0  # no topic was ready, so none has waited
        self._served = False
        depth = waiting / (TOPICS_PER_WORKER * self._workers)
        latency = self._delay_ms / FULL_DELAY_MS
        self.pressure = min(1.0, max(depth, latency, busy))
        self._high_samples = self._high_samples + 1 if self.pressure > DEFER_ABOVE else 0
        if self.pressure < DEFER_UNTIL:
            self.deferred = False
        elif self._high_samples >= DEFER_AFTER:
            self.deferred = True

    def rest(self) -> None:
        """There is no work and there will be no samples until there is some again."""
        self.pressure = self._delay_ms = 0.0
        self._high_samples = 0


class DrainRate:
    """How fast one queue empties, and when a write that found it full may try again."""

    def __init__(self) -> None:
        self._taken = 0
        self._per_ms: float | None = None

    def begin(self, taken: int) -> None:
        """Measure from here on."""
        self._taken = taken

    def sample(self, *, taken: int, queued: int, elapsed_ms: float) -> None:
        """What was taken since the last sample. A queue that ran empty says nothing about speed."""
        rate = (taken - self._taken) / elapsed_ms
        self._taken = taken
        if not queued:
            return
        known = rate if self._per_ms is None else self._per_ms
        self._per_ms = known + SMOOTHING * (rate - known)

    def retry_after_ms(self, queued: int) -> int:
        """About how long the queue takes to empty."""
        if self._per_ms is None:
            return UNKNOWN_RETRY_MS
        if self._per_ms * LONGEST_RETRY_MS <= queued:
            return LONGEST_RETRY_MS
        return max(SHORTEST_RETRY_MS, round(queued / self._per_ms))
