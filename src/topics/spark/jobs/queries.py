"""Streaming queries that a command starts and follows: their checkpoint, their failures.

Spark gives the Python process of a source ten seconds to start, and nothing can change that. On a
machine that is busy with something else it may take longer, and the query fails for no other
reason: started once more, it does what it would have done.

Spark wraps an error of a task in an error of its stage, of its job and of the query, each with a
stack trace. The cause, which a person has to read, is the innermost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from topics.spark.flows.views import first_line

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


def has_read(checkpoint: str | os.PathLike[str]) -> bool:
    """Whether a query has planned a batch there, so that the next run goes on behind it.

    A query that ended before its first batch has left a checkpoint that knows nothing yet.
    """
    began = os.path.join(checkpoint, "offsets")
    return os.path.isdir(began) and any(name.isdecimal() for name in os.listdir(began))


# raise_error in SQL: its own words and nothing else.
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?) SQLSTATE", re.DOTALL)
# The end of a Python traceback, from a worker or from the driver's side of a source: the line
# behind the indented ones.
_PYTHON: Final = re.compile(r"^    .*\n(?:\w+\.)*[A-Z]\w+: (.+)$", re.MULTILINE)
_HINTS: Final = {
    "watermark": "give the topic a watermark, as in FROM orders WATERMARK at DELAY OF "
    "INTERVAL 10 SECONDS"
}


def explain(error: Exception) -> str:
    """One line for a person, with the remedy where there is one."""
    said = str(error)
    line = _cause(said) or first_line(error)
    hint = next((remedy for word, remedy in _HINTS.items() if word in line.lower()), None)
    return f"{line}; {hint}" if hint else line


def _cause(said: str) -> str | None:
    raised = _RAISED.search(said)
    if raised is not None:
        return raised[1]
    lines = _PYTHON.findall(said)
    return lines[-1] if lines else None
