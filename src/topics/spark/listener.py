"""Positions of running queries, left with the log as each batch ends.

Spark tells a source that a batch is done only when it plans the next one: of the last batch a
source never hears. A listener does. It learns a query's options from its plan when the query
starts, and reports every finished batch to the cursor named there. The log then knows the lag, in
records and in seconds, and shows it to whoever asks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from topics.spark import offsets
from topics.spark.log import TopicLog, Where
from topics.spark.options import ReadOptions, parse
from topics.spark.source import report_position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger("topics.spark")
_SHORT_PATIENCE_S = 1.0
_reporting: set[str] = set()
"""Applications that have a reporter."""


@dataclass(frozen=True)
class _Reported:
    """One source of a query that has a cursor."""

    options: ReadOptions
    log: TopicLog

    def covers(self, stored: object) -> bool:
        return isinstance(stored, dict) and bool(stored) and all(map(self.options.wants, stored))


class CursorReporter(StreamingQueryListener):
    """Reports what queries have finished reading. One per session is enough."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: dict[str, list[_Reported]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        try:
            found = [_opened(options) for options in self._sources(str(event.id))]
        except Exception as error:  # a query must not fail for want of a report
            _log.warning("the position of query %s will not be reported: %s", event.id, error)
            return
        if found:
            self._queries[str(event.runId)] = found

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        for source in event.progress.sources:
            try:
                stored = json.loads(source.endOffset)
                for reported in self._queries.get(str(event.progress.runId), ()):
                    if reported.covers(stored):
                        cursor = reported.options.cursor
                        assert cursor is not None
                        report_position(reported.log, cursor, offsets.decode(stored))
            except Exception as error:
                _log.warning("the position of a query is not up to date: %s", error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing was read: the position is where it was."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        for reported in self._queries.pop(str(event.runId), ()):
            reported.log.close()

    def _sources(self, query_id: str) -> Iterator[ReadOptions]:
        """The options of those sources of a query that are topics and have a cursor."""
        query = self._spark.streams.get(query_id)
        if query is None:
            return
        leaves = query._jsq.streamingQuery().analyzedPlan().collectLeaves()
        for at in range(leaves.size()):
            leaf = leaves.apply(at)
            if leaf.getClass().getSimpleName() != "StreamingRelationV2":
                continue
            if leaf.sourceName() == "topics":
                yield from _with_cursor(dict(leaf.extraOptions().asCaseSensitiveMap()))


def _with_cursor(options: Mapping[str, Any]) -> Iterator[ReadOptions]:
    if any(name.lower() == "cursor" for name in options):
        yield parse(options, streaming=True)


def _opened(options: ReadOptions) -> _Reported:
    where = Where(options.target, options.cold_dir, _SHORT_PATIENCE_S)
    return _Reported(options, where.open())


def report_cursors(spark: SparkSession) -> None:
    """Have this session report positions; `topics.spark.session` does so by itself."""
    application = str(spark.sparkContext.applicationId)
    if application not in _reporting:
        spark.streams.addListener(CursorReporter(spark))
        _reporting.add(application)
