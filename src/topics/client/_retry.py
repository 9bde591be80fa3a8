"""When a call is worth repeating, and how long to wait before.

A repeat must be safe first: nothing was carried out (the connection failed before the whole
request had left; the server said 429 or 503), or carrying it out twice is the same as once. Then
it must be polite: exponential backoff with full jitter, never sooner than the server asked for.
A failed TLS handshake is not repeated: a certificate that is not trusted stays so.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from topics.errors import (
    NotReady,
    ShuttingDown,
    Throttled,
    TopicsError,
    Unreachable,
    Untrusted,
)

FIRST_S = 0.1
MOST_S = 5.0
DEFAULT_RETRIES = 5
IDEMPOTENT_METHODS = frozenset(("GET", "HEAD", "PUT", "DELETE"))
_LEFT_NO_TRACE = (Throttled, NotReady, ShuttingDown)
_GATEWAY_CODES = frozenset(("http_502", "http_503", "http_504"))


def backoff(tries: int, *, chance: Callable[[], float] = random.random) -> float:
    """How long to wait after that many failures: anything up to a bound that doubles."""
    bound: float = min(MOST_S, FIRST_S * 2.0 ** min(tries - 1, 16))
    return chance() * bound


def is_safe(error: TopicsError, *, idempotent: bool) -> bool:
    """Whether repeating the call cannot do its work twice."""
    if isinstance(error, _LEFT_NO_TRACE):
        return True
    if isinstance(error, Unreachable):
        return not isinstance(error, Untrusted) and (idempotent or not error.sent)
    return idempotent and error.code in _GATEWAY_CODES


def is_passing(error: TopicsError) -> bool:
    """Whether the same call may well succeed later."""
    return is_safe(error, idempotent=True)


class Attempts:
    """The tries of one call. None begins after `until`, whatever is left."""

    def __init__(
        self,
        retries: float,
        *,
        idempotent: bool,
        until: float = math.inf,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._left: float = retries
        self._until = until
        self._idempotent = idempotent
        self._tries = 0
        self._chance = chance

    def wait_after(
        self, error: TopicsError, *, now: float, retry_after: float | None = None
    ) -> float:
        """Seconds to wait before the next try; raises `error` when there is none."""
        if self._left <= 0 or not is_safe(error, idempotent=self._idempotent):
            raise error
        self._left -= 1
        self._tries += 1
        left = self._until - now
        if left <= 0 or _asked(error, retry_after) > left:
            raise error
        # Jitter alone does not end the tries early: the last try is at `until`.
        wait = pause(self._tries, error, retry_after=retry_after, chance=self._chance)
        return min(wait, left)


def pause(
    tries: int,
    error: TopicsError,
    *,
    retry_after: float | None = None,
    chance: Callable[[], float] = random.random,
) -> float:
    """What the server asks for, if it asks, plus jitter so that clients do not return together."""
    return _asked(error, retry_after) + backoff(tries, chance=chance)


def _asked(error: TopicsError, retry_after: float | None) -> float:
    """Seconds that the server asks the client to wait."""
    if isinstance(error, Throttled) and error.detail and "retry_after_ms" in error.detail:
        return error.retry_after_ms / 1000
    return retry_after or 0.0
