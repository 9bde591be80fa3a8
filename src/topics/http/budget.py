"""The memory of bodies and messages that are not answered yet, in all and for each key.

Bytes count from when they arrive until their request is answered or given up. A key at its share is
refused while others go on; holders are told apart only where there is more than one key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from topics.errors import Throttled

SHARE = 4
"""One key may take this part of what all may take together, or one body if that is more."""


class Budget:
    """Bytes in memory. A holder of None has no share: only the sum counts.

    A holder that holds nothing else may go beyond its share: what never fits could only be refused
    for ever.
    """

    __slots__ = ("_held_of", "_max_bytes", "_share_bytes", "held_bytes")

    def __init__(self, max_bytes: int, *, max_body_bytes: int) -> None:
        """`max_bytes` is what all may take together; 0 is no limit."""
        self._max_bytes = max_bytes
        self._share_bytes = max(max_bytes // SHARE, max_body_bytes)
        self.held_bytes = 0
        self._held_of: Counter[Hashable] = Counter()

    def refusal(self, holder: Hashable, more_bytes: int, own_bytes: int = 0) -> Throttled | None:
        """Why so many bytes more cannot be taken; None when they can.

        `own_bytes` were taken before for the same request.
        """
        if not self._max_bytes:
            return None
        if self.held_bytes + more_bytes > self._max_bytes:
            return Throttled("max_request_bytes", maximum=self._max_bytes)
        held = self._held_of[holder] if holder is not None else 0
        if held > own_bytes and held + more_bytes > self._share_bytes:
            return Throttled("max_request_bytes_per_key", maximum=self._share_bytes)
        return None

    def take(self, holder: Hashable, more_bytes: int, own_bytes: int = 0) -> Throttled | None:
        """Count bytes, or say why they cannot be taken."""
        refused = self.refusal(holder, more_bytes, own_bytes)
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
        refused = self._budget.take(self._holder, nbytes - self.taken_bytes, self.taken_bytes)
        if refused is None:
            self.taken_bytes = nbytes
        else:
            self.give_back()
        return refused

    def give_back(self) -> None:
        """Count nothing any more; giving back twice is harmless."""
        self._budget.give_back(self._holder, self.taken_bytes)
        self.taken_bytes = 0
