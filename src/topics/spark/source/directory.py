"""A log straight from its data directory, without a server and without its lock.

The state is rebuilt in memory from snapshot and log, as a recovery at that moment would find it.
The owner of the directory goes on writing meanwhile: files appear, move and disappear. A read that
misses a file rebuilds the state from the newest snapshot and finds the records where they are now,
or that they are gone; after three such attempts it gives up.

What the owner has only in memory lies behind the end that a look finds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from topics.core.facts import Match
from topics.engine.clock import SystemClock
from topics.engine.effects import run
from topics.engine.reads.bulk import UnreadableRecord, slices
from topics.engine.reads.reading import Query
from topics.engine.reads.versioned_pages import Unchanged
from topics.engine.recovery.opening import Opening, open_view
from topics.engine.settings import EngineSettings
from topics.errors import Internal, InvalidRequest, TopicNotFound
from topics.spark.errors import InvalidOption
from topics.spark.source.coverage import Coverage, RowPage, Run
from topics.spark.source.log import (
    PAGE_BATCHES,
    PAGE_BYTES,
    UNREADABLE_RECORDS,
    Offset,
    PageQuery,
    whole_plan,
)
from topics.storage.frames.arrow import record_batch
from topics.storage.frames.columns import Frames, Positions
from topics.storage.fs import RealFs
from topics.values import Holes, ReadPlan
from topics.wire.predicates import parse_match

T = TypeVar("T")
LOOKS: Final = 3
POLL_S: Final = 0.05
_SLICE_BYTES: Final = 8 << 20
"""What is read and decoded at a time. A server takes smaller slices, because requests wait."""

_log = logging.getLogger("topics.spark")
_shared: dict[tuple[str, str | None, int], DirectoryLog] = {}


def shared_log(path: str, cold_dir: str | None) -> DirectoryLog:
    """The one log of this process for a directory: looking at it anew costs a recovery."""
    key = path, cold_dir, os.getpid()
    if key not in _shared:
        _shared[key] = DirectoryLog(path, cold_dir)
    return _shared[key]


class DirectoryLog:
    """A data directory as it was when last looked at."""

    def __init__(self, path: str, cold_dir: str | None = None) -> None:
        self._path = path
        self._opening = Opening(EngineSettings(cold_dir=cold_dir), SystemClock())
        self._seen = _fingerprint(path)
        self._engine = open_view(RealFs(), path, self._opening)
        self._has_told = False

    def names(self) -> Mapping[str, int]:
        self._look_again()
        summaries = run(self._engine.views.topics())
        return {summary.topic: summary.head_seq for summary in summaries}

    def head(self, topic: str) -> Offset | None:
        return self.heads([topic]).get(topic)

    def heads(self, topics: Iterable[str]) -> dict[str, Offset]:
        """One look for all topics: beside a busy owner every look is a recovery."""
        self._look_again()
        if not self._has_told:
            self._has_told = True
            _log.warning(
                "%s is read from its files: records that its owner has only in memory are not "
                "there yet",
                self._path,
            )
        found = ((topic, self._head(topic)) for topic in topics)
        return {topic: head for topic, head in found if head is not None}

    def _head(self, topic: str) -> Offset | None:
        try:
            state = run(self._engine.views.state(topic, touch=False))
        except TopicNotFound:
            return None
        if state.config["durability"] == "ephemeral":
            raise InvalidOption(
                f"the records of {topic!r} are only in the memory of its owner (class ephemeral); "
                "read them through url"
            )
        return Offset(state.epoch, state.head_seq + 1)

    def plan(self, topic: str, first: int, last: int, target_bytes: int) -> ReadPlan:
        def ask(at: int) -> ReadPlan:
            return run(
                self._engine.plan(topic, from_seq=at, to_seq=last, target_bytes=target_bytes)
            )

        return self._again(lambda: whole_plan(ask, first, last))

    def dead_runs(self, topic: str, first: int, last: int) -> Holes:
        return self._again(
            lambda: run(self._engine.views.holes(topic, from_seq=first, to_seq=last))
        )

    def first_at(self, topic: str, moment_ms: int) -> int:
        return self._again(lambda: self._engine.kernel.topic(topic).start_of(moment_ms) + 1)

    def page(self, topic: str, epoch: int, query: PageQuery) -> RowPage:
        self._catch_up(topic, epoch, query)
        return self._again(lambda: self._page(topic, query))

    def _catch_up(self, topic: str, epoch: int, query: PageQuery) -> None:
        """Look again if the last look was before the range was planned: what was deleted by then
        must not come back."""
        found = self._engine.kernel.catalog.by_name.get(topic)
        if (
            found is None
            or found.epoch != epoch
            or found.head < query.last
            or found.delete_version < query.delete_version
        ):
            self._look_again(force=True)

    def _page(self, topic: str, query: PageQuery) -> RowPage:
        """Read a page, and again after a record that cannot be read: it is known then, and told
        of as lost."""
        for left in reversed(range(UNREADABLE_RECORDS)):
            try:
                return self._read(topic, query)
            except UnreadableRecord:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _read(self, topic: str, query: PageQuery) -> RowPage:
        found = run(self._engine.pages.plan(topic, _query(query), b"spark", ()))
        assert not isinstance(found, Unchanged)
        plan = found.bulk.plan
        coverage = Coverage(
            first=plan.first,
            last=plan.last,
            records=plan.records,
            filtered=found.bulk.filtered,
            runs=[Run(*hole) for hole in plan.holes],
        )
        to_batch = partial(record_batch, with_tags=query.with_tags, with_meta=query.with_meta)

        def work(frames: Frames) -> tuple[int, pa.RecordBatch]:
            return frames.size, to_batch(frames)

        batches: list[pa.RecordBatch] = []
        left: Positions
        for left in slices(plan.runs, query.rows // PAGE_BATCHES):
            at = left
            while len(at):
                step = self._engine.pages.bulk.step(plan.topic, at, work, nbytes=_SLICE_BYTES)
                count, batch = run(step)
                batches.append(batch)
                at = at[count:]
        return RowPage(plan.epoch, coverage, batches)

    def wait(self, topic: str, head: Offset, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._look_again():
                found = self._engine.kernel.catalog.by_name.get(topic)
                if found is None or Offset(found.epoch, found.head + 1) != head:
                    return
            time.sleep(min(POLL_S, left))

    def report(self, topic: str, cursor: str, seq: int) -> None:
        raise InvalidRequest("a cursor is kept by a server; read through url to report to one")

    def close(self) -> None:
        """Shared by all who read this directory in this process: it stays."""

    # Looking

    def _look_again(self, *, force: bool = False) -> bool:
        """Rebuild the state if a file has changed since; says whether that was done."""
        now = _fingerprint(self._path)
        if now == self._seen and not force:
            return False
        fresh = open_view(RealFs(), self._path, self._opening)
        old, self._engine, self._seen = self._engine, fresh, now
        old.release()
        return True

    def _again(self, read: Callable[[], T]) -> T:
        """Read, and look again when a file is not where the last look found it."""
        for left in reversed(range(LOOKS)):
            try:
                return read()
            except (OSError, Internal) as error:
                if not left or not isinstance(error.__cause__ or error, OSError | KeyError):
                    raise
                self._look_again(force=True)
        raise AssertionError("unreachable")


def _query(query: PageQuery) -> Query:
    sent = query.filter.match
    return Query(
        after=query.first - 1,
        limit=query.rows,
        budget=PAGE_BYTES,
        nodes=frozenset(query.filter.nodes),
        match=None if sent is None else _match(sent),
        to_seq=query.last,
    )


def _match(sent: str) -> Match:
    predicate = parse_match(sent)
    return Match(predicate.literal, is_prefix=predicate.is_prefix)


def _fingerprint(path: str) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the files of log and snapshots: writing changes one of them."""
    found = []
    for folder in ("wal", "meta"):
        for root, _, names in os.walk(os.path.join(path, folder)):
            for name in names:
                where = os.path.join(root, name)
                try:
                    status = os.stat(where)
                except FileNotFoundError:
                    continue
                found.append((where, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))
