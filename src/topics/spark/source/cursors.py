"""Positions of running queries, left with the log as each batch ends.

In any session, also behind Spark Connect, the source itself reports where the last batch ended when
Spark plans the next one (`TopicsStreamReader.latestOffset`). With a trigger of an hour that is an
hour later, and after `trigger(once=True)` never. In a session of `topics.spark.session` a listener
reports at once when a batch ends. It learns a query's options from its plan when the query
starts, and reports every finished batch to the cursor named there. The log then knows the lag, in
records and in seconds, and shows it in metrics, commands and the console.

PySpark's own listeners get every event as Python objects, field by field, for which Python calls
the JVM back some hundred times, for every batch of every query. This one listens as they do, but
asks for what it needs, and of queries without a cursor for nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from topics.spark.source import offsets
from topics.spark.source.log import LogAddress, TopicLog
from topics.spark.source.options import ReadOptions, parse
from topics.spark.source.reader import report_position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("topics.spark")
_SHORT_PATIENCE_S = 1.0
_reporting: set[str] = set()
"""Applications that have a reporter."""


@dataclass(frozen=True)
class _Reported:
    """One source of a query that has a cursor."""

    options: ReadOptions
    log: TopicLog

    def covers(self, stored: Mapping[str, object]) -> bool:
        return bool(stored) and all(map(self.options.wants, stored))


class CursorReporter:
    """Reports what queries have finished reading. One per session is enough.

    Its methods are called by the JVM with events of Spark's as they are there. No error leaves
    them: a query must not fail for want of a report.
    """

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, queries: Any) -> None:  # noqa: ANN401 - of the JVM
        self._running = queries
        self._queries: dict[str, list[_Reported]] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: ANN401, N802
        try:
            found = [_opened(options) for options in self._sources(event.id())]
            if found:
                self._queries[event.runId().toString()] = found
        except Exception as error:
            _log.warning("the position of a query will not be reported: %s", error)

    def onQueryProgress(self, event: Any) -> None:  # noqa: ANN401, N802
        if not self._queries:
            return
        try:
            progress = json.loads(event.progress().json())
            for source in progress["sources"]:
                if isinstance(source["endOffset"], dict):  # as those of topics are
                    self._report(progress["runId"], source["endOffset"])
        except Exception as error:
            _log.warning("the position of a query is not up to date: %s", error)

    def _report(self, run: str, stored: Mapping[str, object]) -> None:
        for reported in self._queries.get(run, ()):
            if reported.covers(stored):
                cursor = reported.options.cursor
                assert cursor is not None
                report_position(reported.log, cursor, offsets.decode(stored))

    def onQueryIdle(self, event: Any) -> None:  # noqa: ANN401, N802
        """Nothing was read: the position is where it was."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: ANN401, N802
        if self._queries:
            for reported in self._queries.pop(event.runId().toString(), ()):
                reported.log.close()

    def _sources(self, query_id: Any) -> Iterator[ReadOptions]:  # noqa: ANN401
        """The options of those sources of a query that are topics and have a cursor."""
        query = self._running.get(query_id)
        if query is None:
            return
        leaves = query.streamingQuery().analyzedPlan().collectLeaves()
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
    where = LogAddress(options.target, options.cold_dir, _SHORT_PATIENCE_S)
    return _Reported(options, where.open())


def report_cursors(spark: SparkSession) -> None:
    """Have this session report positions; `topics.spark.session` does so by itself."""
    application = str(spark.sparkContext.applicationId)
    if application in _reporting:
        return
    from pyspark.java_gateway import ensure_callback_server_started  # noqa: PLC0415

    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # PySpark's
    running = spark.streams._jsqm
    wrapper = context._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
    running.addListener(wrapper(CursorReporter(running)))
    _reporting.add(application)
