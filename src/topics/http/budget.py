"""What bodies and messages that are not answered yet take in memory, of all and of each key.

Bytes count from when they arrive until their request is answered or given up. A key at its share is
refused while others go on; holders are told apart only where there is more than one key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from topics.errors import Throttled
from topics.http.limits import Limits

SHARE = 4
"""One key may take this part of what all may take together, or one body if that is more."""


class Budget:
    """Bytes of requests in memory. A holder of None has no share: only the sum counts."""

    __slots__ = ("_held_of", "_limits", "held_bytes")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held_bytes = 0
        self._held_of: Counter[Hashable] = Counter()

    def refusal(self, holder: Hashable, more_bytes: int) -> Throttled | None:
        """Why so many bytes more cannot be taken; None when they can."""
        limit = self._limits.max_request_bytes
        if not limit:
            return None
        if self.held_bytes + more_bytes > limit:
            return Throttled("max_request_bytes", maximum=limit)
        if holder is not None:
            share = max(limit // SHARE, self._limits.max_body_bytes)
            if self._held_of[holder] + more_bytes > share:
                return Throttled("max_request_bytes_per_key", maximum=share)
        return None

    def take(self, holder: Hashable, more_bytes: int) -> Throttled | None:
        """Count bytes, or say why they cannot be taken."""
        refused = self.refusal(holder, more_bytes)
        if refused is None:
            self.held_bytes += more_bytes
            if holder is not None:
                self._held_of[holder] += more_bytes
        return refused

    def give_back(self, holder: Hashable, nbytes: int) -> None:
        self.held_bytes -= nbytes
        if holder is not None:
            self._held_of[holder] -= nbytes
            if not self._held_of[holder]:
                del self._held_of[holder]


class Charge:
    """What one request or message has taken of a budget."""

    __slots__ = ("_budget", "_holder", "taken_bytes")

    def __init__(self, budget: Budget, holder: Hashable) -> None:
        self._budget = budget
        self._holder = holder
        self.taken_bytes = 0

    def raise_to(self, nbytes: int) -> Throttled | None:
        """Count this many bytes in all; when they are too many, none any more, and why."""
        refused = self._budget.take(self._holder, nbytes - self.taken_bytes)
        if refused is None:
            self.taken_bytes = nbytes
        else:
            self.give_back()
        return refused

    def give_back(self) -> None:
        """Count nothing any more; giving back twice is harmless."""
        self._budget.give_back(self._holder, self.taken_bytes)
        self.taken_bytes = 0
