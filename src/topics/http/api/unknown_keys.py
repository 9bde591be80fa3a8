"""Requests without a valid key: logged, and refused slowly when an address sends many of them.

An address that guesses keys gets its refusals a second late, so that each of its connections makes
few guesses. A request with a valid key is never slowed, whatever address it comes from. This does
not protect a secret that can be guessed: it delays the attack and leaves a trace in the log.
"""

from __future__ import annotations

import logging
from typing import Final

from topics.http.leaky_bucket import LeakyBucket
from topics.http.messages import Late, Response

BURST: Final = 100
PER_SECOND: Final = 1
LATE_SECONDS: Final = 1.0
MAX_ADDRESSES: Final = 1024
LINES_AT_ONCE: Final = 20
LINES_PER_MINUTE: Final = 60
TELL_SECONDS: Final = 60.0

_log = logging.getLogger("topics.http")


class _Address:
    """One address: how many refusals it may have at once, and how many were not logged yet."""

    __slots__ = ("patience", "told_s", "untold")

    def __init__(self) -> None:
        self.patience = LeakyBucket(burst=BURST, per_s=PER_SECOND)
        self.told_s: float | None = None
        self.untold = 0


class UnknownKeys:
    """Addresses that sent no valid key lately. Log lines are bounded: addresses are cheap."""

    def __init__(self) -> None:
        self._by_address: dict[str, _Address] = {}
        self._lines = LeakyBucket(burst=LINES_AT_ONCE, per_s=LINES_PER_MINUTE // 60)

    def refuse(self, peer: str, answer: Response, *, now_s: float) -> Response:
        """Note a refusal for want of a key; the answer, late if this address had many of them."""
        address = peer.rpartition(":")[0]
        seen = self._by_address.pop(address, None) or _Address()
        if len(self._by_address) >= MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]
        self._by_address[address] = seen  # the newest is forgotten last
        self._tell(address, seen, now_s)
        if seen.patience.spend(1, now_s=now_s):
            return answer
        return Late(answer, LATE_SECONDS)

    def _tell(self, address: str, seen: _Address, now_s: float) -> None:
        seen.untold += 1
        is_due = seen.told_s is None or now_s - seen.told_s >= TELL_SECONDS
        if is_due and self._lines.spend(1, now_s=now_s):
            _log.warning("requests without a valid key from %s: %d", address, seen.untold)
            seen.told_s, seen.untold = now_s, 0
