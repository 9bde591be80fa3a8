"""Requests without a valid key: told in the server's log, and answered slowly when they are many.

An address that guesses keys gets its refusals a second late, so that each of its connections makes
few guesses. Nobody else is slowed: a request with a valid key is never looked at here, whatever
address it comes from. Against a secret that can be guessed this is no defence, only a delay with a
trace in the log.
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


class _Stranger:
    """One address, and what was not told of it yet."""

    __slots__ = ("patience", "told_s", "untold")

    def __init__(self) -> None:
        self.patience = LeakyBucket(burst=BURST, per_s=PER_SECOND)
        self.told_s: float | None = None
        self.untold = 0


class Strangers:
    """Who came without a valid key lately. Lines are bounded too: addresses cost nothing."""

    def __init__(self) -> None:
        self._by_address: dict[str, _Stranger] = {}
        self._lines = LeakyBucket(burst=LINES_AT_ONCE, per_s=LINES_PER_MINUTE // 60)

    def turn_away(self, peer: str, answer: Response, *, now_s: float) -> Response:
        """Note a refusal for want of a key; the answer, late if this address had many of them."""
        address = peer.rpartition(":")[0]
        stranger = self._by_address.pop(address, None) or _Stranger()
        if len(self._by_address) >= MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]
        self._by_address[address] = stranger  # the one that came last is forgotten last
        self._tell(address, stranger, now_s)
        if stranger.patience.spend(1, now_s=now_s):
            return answer
        return Late(answer, LATE_SECONDS)

    def _tell(self, address: str, stranger: _Stranger, now_s: float) -> None:
        stranger.untold += 1
        is_due = stranger.told_s is None or now_s - stranger.told_s >= TELL_SECONDS
        if is_due and self._lines.spend(1, now_s=now_s):
            _log.warning("requests without a valid key from %s: %d", address, stranger.untold)
            stranger.told_s, stranger.untold = now_s, 0
