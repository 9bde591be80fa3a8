"""Streaming queries that a command starts and follows: their checkpoint, batches and failures.

Spark gives the Python process of a source ten seconds to start, and nothing can change that. On a
machine that is busy with something else it may take longer, and the query fails for no other
reason: started once more, it does what it would have done.

Spark wraps an error of a task in an error of its stage, of its job and of the query, each with a
stack trace. The cause, which a person has to read, is the innermost.
"""

from __future__ import annotations

import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 0.2
_IN_A_BATCH: Final = ("Processing", "No new data but cleaning up state")
_TRIES: Final = 4
_SAID: Final = "Python worker failed to connect back"
# raise_error in SQL: its own words and nothing else.
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?) SQLSTATE", re.DOTALL)
# The end of a Python traceback, from a worker or from the driver's side of a source: the line
# behind the indented ones.
_PYTHON: Final = re.compile(r"^    .*\n(?:\w+\.)*[A-Z]\w+: (.+)$", re.MULTILINE)
_HINTS: Final = {
    "watermark": "give the topic a watermark, as in FROM orders WATERMARK at DELAY OF "
    "INTERVAL 10 SECONDS"
}


def has_read(checkpoint: str | os.PathLike[str]) -> bool:
    """Whether a query has planned a batch there, so that the next run goes on behind it.

    A query that ended before its first batch has left a checkpoint that knows nothing yet.
    """
    began = os.path.join(checkpoint, "offsets")
    return os.path.isdir(began) and any(name.isdecimal() for name in os.listdir(began))


class QueryFollower(ABC):
    """Follows a query from its start to its end; every batch is reported once."""

    _last_batch = -1

    @abstractmethod
    def batch_ended(self, report: Mapping[str, Any]) -> None:
        """Take Spark's report of a batch."""

    def while_running(self) -> None:  # noqa: B027 - most have nothing to do
        """Do what else is to be done between two looks at the query."""

    def run_query(
        self,
        start: Callable[[], StreamingQuery],
        stopping: threading.Event,
        notice: Callable[[str], None],
    ) -> Exception | None:
        """Start a query and wait for its end, or end it when told to; gives its error.

        A query that Spark was too slow for is started again.
        """
        return again_if_too_slow(lambda: self.follow(start(), stopping), notice)

    def follow(self, query: StreamingQuery, stopping: threading.Event) -> Exception | None:
        """The same for a query that has been started."""
        try:
            while query.isActive and not stopping.wait(_POLL_S):
                self._look(query)
                self.while_running()
            self._finish_batch(query)
        finally:
            query.stop()
        self._look(query)
        return query.exception()

    def _finish_batch(self, query: StreamingQuery) -> None:
        """Wait until the running batch has ended; Spark would tear it down in the middle."""
        last = self._last_batch
        while query.isActive and self._last_batch == last:
            status = query.status
            if not status["isTriggerActive"] or not status["message"].startswith(_IN_A_BATCH):
                return
            time.sleep(_POLL_S / 2)
            self._look(query)

    def _look(self, query: StreamingQuery) -> None:
        """Report the batches that ended since the last look."""
        newest = query.lastProgress
        if newest is None or newest["batchId"] <= self._last_batch:
            return
        for report in query.recentProgress:
            # An idle trigger reports too, under the number of a batch that is still to come.
            if report["batchId"] > self._last_batch and "addBatch" in report["durationMs"]:
                self._last_batch = report["batchId"]
                self.batch_ended(report)


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


def first_line(error: Exception) -> str:
    """What an error of Spark says before its stack trace and its plan."""
    said = str(error).strip().partition("\n")[0]
    return re.sub(r" SQLSTATE: \w+$", "", said)
