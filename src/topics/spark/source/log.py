"""What a source asks of a log, wherever it is: a server, or a directory without one.

    ServerLog      over HTTP; rows come as Arrow
    DirectoryLog   from the files, beside a process that has them open

Both are made on the machine that uses them; what travels to executors is a `LogAddress`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgspec

from topics.client.targets import Target
from topics.spark.source.coverage import RowPage
from topics.spark.source.options import NO_FILTER, Filter
from topics.values import Holes, ReadPlan

PAGE_BYTES: Final = 16 << 20
PAGE_BATCHES: Final = 4
"""Batches of a page: enough for the round trip not to matter, few enough to be held in memory."""
UNREADABLE_RECORDS: Final = 1000
"""How many damaged records may be found in one page, each at the cost of reading it again."""
COUNT_BYTES: Final = 1 << 30
"""For a plan whose ranges are only counted: the fewer of them the better."""


class Offset(NamedTuple):
    """Where a topic ends: `next_seq` is the first seq that is not there yet."""

    epoch: int
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

    def head(self, topic: str) -> Offset | None:
        """The end of a topic."""

    def heads(self, topics: Iterable[str]) -> dict[str, Offset]:
        """The ends of those topics that exist."""

    def plan(self, topic: str, first: int, last: int, target_bytes: int) -> ReadPlan:
        """Cut a range into pieces of about `target_bytes`."""

    def dead_runs(self, topic: str, first: int, last: int) -> Holes:
        """The runs of a range that hold no record, up to `next_from_seq`."""

    def first_at(self, topic: str, moment_ms: int) -> int:
        """The first seq at or after a time; what may be lost from then on is included."""

    def page(self, topic: str, epoch: int, query: PageQuery) -> RowPage:
        """Some of the records from `query.first` on."""

    def wait(self, topic: str, head: Offset, seconds: float) -> None:
        """Return when the topic may have grown beyond `head`, or the time is over."""

    def report(self, topic: str, cursor: str, seq: int) -> None:
        """Leave a position with the log: `seq` is the last one that is done with."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class LogAddress:
    """How to reach a log, from a driver or from an executor."""

    target: Target
    cold_dir: str | None
    retry_s: float

    def open(self) -> TopicLog:
        """The log; a directory that this process has open already is shared."""
        if self.target.path is not None:
            from topics.spark.source.directory import shared_log  # noqa: PLC0415 - brings in the engine

            return shared_log(self.target.path, self.cold_dir)
        from topics.spark.source.server import ServerLog  # noqa: PLC0415

        return ServerLog(self.target, retry_s=self.retry_s)


def whole_plan(ask: Callable[[int], ReadPlan], first: int, last: int) -> ReadPlan:
    """The plan of a range; `ask` gives as much of the plan from a seq on as fits into an answer."""
    plan = ask(first)
    ranges = [*plan.ranges]
    while plan.next_from_seq <= min(last, plan.head_seq):
        plan = ask(plan.next_from_seq)
        ranges += plan.ranges
    return msgspec.structs.replace(plan, ranges=ranges)


def live_records(log: TopicLog, topic: str, first: int, last: int) -> int:
    """How many live records a range of seqs holds."""
    return sum(found.records for found in log.plan(topic, first, last, COUNT_BYTES).ranges)
