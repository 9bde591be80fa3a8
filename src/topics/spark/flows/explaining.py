"""What a failed query says to a person: the one line that names the cause.

Spark wraps an error of a task in an error of its stage, of its job and of the query, each with a
stack trace. The cause is the innermost.
"""

from __future__ import annotations

import re
from typing import Final

from topics.spark.flows.views import first_line

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
