"""What a source asks of a log, wherever it is: a server, or a directory without one.

    ServerLog      over HTTP; rows come as Arrow
    DirectoryLog   from the files, beside whoever has them open

Both are made on the machine that uses them; what travels to executors is a `Where`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from topics.client.targets import Target
from topics.errors import NotReady, ShuttingDown, Throttled, TopicsError, Unreachable
from topics.spark.coverage import Page, Run
from topics.spark.options import NO_FILTER, Filter

T = TypeVar("T")
PASSING: Final = (Unreachable, NotReady, ShuttingDown, Throttled)
"""Errors that go away by themselves: the server starts, ends or has too much to do."""
PAGE_BYTES: Final = 16 << 20
PAGE_BATCHES: Final = 4
"""Batches of a page: enough for the round trip not to matter, few enough to be held in memory."""
UNREADABLE_RECORDS: Final = 1000
"""How many damaged records may be found in one page, each at the cost of reading it again."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
COUNT_BYTES: Final = 1 << 30
"""For a plan whose ranges are only counted: the fewer of them the better."""


class Head(NamedTuple):
    """Where a topic ends: `next_seq` is the first seq that is not there yet."""

    epoch: int
    next_seq: int


class PlannedRange(NamedTuple):
    """Seqs for one reader, ends included, and what they hold."""

    first: int
    last: int
    records: int
    nbytes: int


class Plan(NamedTuple):
    """A range cut for parallel readers. It begins at the evict floor if that lies inside."""

    epoch: int
    delete_version: int
    evict_floor: int
    ranges: Sequence[PlannedRange]


class DeadRuns(NamedTuple):
    """The runs without a record up to `next_seq`, the first seq that was not looked at."""

    epoch: int
    runs: Sequence[Run]
    next_seq: int


@dataclass(frozen=True)
class PageQuery:
    """Which part of a topic a page is to hold. It begins at `first`; it may end before `last`.

    `delete_version` is that of the plan: a reader must not know less of deletes than the plan did.
    """

    first: int
    last: int
    rows: int
    delete_version: int = 0
    filter: Filter = NO_FILTER
    with_tags: bool = True
    with_meta: bool = True


class TopicLog(Protocol):
    """A log to read from. A topic that does not exist is None, or raises `TopicNotFound`."""

    def names(self) -> Mapping[str, int]:
        """Every topic, with its head."""

    def head(self, topic: str) -> Head | None:
        """The end of a topic."""

    def plan(self, topic: str, first: int, last: int, target_bytes: int) -> Plan:
        """Cut a range into pieces of about `target_bytes`."""

    def dead_runs(self, topic: str, first: int, last: int) -> DeadRuns:
        """The runs of a range that hold no record."""

    def first_at(self, topic: str, moment_ms: int) -> int:
        """The first seq at or after a time; what may be lost from then on is included."""

    def page(self, topic: str, epoch: int, query: PageQuery) -> Page:
        """Some of the records from `query.first` on."""

    def wait(self, topic: str, head: Head, seconds: float) -> None:
        """Return when the topic may have grown beyond `head`, or the time is over."""

    def report(self, topic: str, cursor: str, seq: int) -> None:
        """Leave a position with the log: `seq` is the last one that is done with."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Where:
    """How to reach a log, from a driver or from an executor."""

    target: Target
    cold_dir: str | None
    retry_s: float

    def open(self) -> TopicLog:
        """The log; a directory that this process has open already is shared."""
        if self.target.path is not None:
            from topics.spark.path_reader import shared_log  # noqa: PLC0415 - brings in the engine

            return shared_log(self.target.path, self.cold_dir)
        from topics.spark.http_reader import ServerLog  # noqa: PLC0415

        assert self.target.url is not None
        return ServerLog(self.target.url, self.target.token, retry_s=self.retry_s)


def patiently(call: Callable[[], T], *, seconds: float) -> T:
    """Repeat a call while its error may pass, for so long; then raise the last one."""
    end = time.monotonic() + seconds
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except PASSING as error:
            left = end - time.monotonic()
            if left <= 0:
                raise _given_up(error, seconds) from error
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE_S)


def _given_up(error: TopicsError, seconds: float) -> TopicsError:
    """The error again, saying that it was not for want of trying."""
    error.args = (f"{error} (tried for {seconds:g} s; retrySeconds sets how long)", *error.args[1:])
    return error


def live_records(log: TopicLog, topic: str, first: int, last: int) -> int:
    """How many live records a range of seqs holds."""
    return sum(found.records for found in log.plan(topic, first, last, COUNT_BYTES).ranges)
