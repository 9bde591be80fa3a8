"""How much nuisance a peer may cause before its connection is ended."""


class LeakyBucket:
    """A bucket that fills with nuisance and leaks over time."""

    __slots__ = ("_burst", "_level", "_per_s", "_seen_s")

    def __init__(self, *, burst: int, per_s: int) -> None:
        self._burst = burst
        self._per_s = per_s
        self._level = 0.0
        self._seen_s = 0.0

    def spend(self, cost: int, *, now_s: float) -> bool:
        """Count one nuisance; False when there has been too much of it lately."""
        leaked = (now_s - self._seen_s) * self._per_s
        self._seen_s = now_s
        self._level = max(0.0, self._level - leaked) + cost
        return self._level <= self._burst
