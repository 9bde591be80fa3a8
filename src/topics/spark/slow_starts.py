"""Streaming queries on a machine that is too busy for Spark.

Spark gives the Python process of a source ten seconds to start, and nothing can change that. On a
machine that is busy with something else it may take longer, and the query fails for no other
reason: started once more, it does what it would have done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_TRIES: Final = 4
_SAID: Final = "Python worker failed to connect back"


def was_too_slow(failed: Exception | None) -> bool:
    """Whether this is how Spark ends a query whose Python process took too long to start."""
    return _SAID in str(failed)


def again_if_too_slow(
    follow: Callable[[], Exception | None], notice: Callable[[str], None]
) -> Exception | None:
    """Start and follow a query, anew when this machine was too slow for Spark.

    Gives the error with which the last of them ended, None after a good end.
    """
    for _ in range(_TRIES - 1):
        failed = follow()
        if not was_too_slow(failed):
            return failed
        notice("this machine is too busy: a Python process took over 10 s to start; once more")
    return follow()
