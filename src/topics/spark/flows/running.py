"""Run a flow: Spark starts, the views are made, the query runs until it ends or is stopped.

A flow that is told to stop finishes the batch at hand and starts no other one. Should it be killed
instead, or the machine die, the next run goes on where the checkpoint says: a batch that had
reached its topic or table is recognised there and is not written twice.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from topics.client.targets import Target
from topics.errors import InvalidRequest, NotFound, TopicNotFound, TopicsError
from topics.spark.errors import CannotStartSpark, FlowFailed
from topics.spark.flows import progress, state
from topics.spark.flows.file import Flow, FlowSource, Function, ToTable, load_module
from topics.spark.flows.progress import BatchProgress, Count, FindHead, nobody_knows
from topics.spark.flows.views import as_records, create_views
from topics.spark.jobs.ending import Stopped, dying_with_spark, told_to_stop
from topics.spark.jobs.queries import QueryFollower, explain, first_line, has_read
from topics.spark.jobs.session import job_session
from topics.spark.source.log import LogAddress, Offset, TopicLog, live_records
from topics.spark.source.options import options_of, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Report = Callable[[BatchProgress], None]

_DELIVERY_MS: Final = 30_000
_log = logging.getLogger("topics.spark")


@dataclass(frozen=True)
class Outcome:
    """What a run did before it ended without an error."""

    batches: int
    rows: int
    lost: int
    seconds: float


def run(
    flow: Flow,
    target: Target,
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    report: Report = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run a flow to its end, or until SIGTERM or SIGINT; raises `FlowFailed`.

    What is wrong before Spark runs, a topic that is not there above all, is told as the log or
    Spark tells it. `report` gets every batch, `notice` a word on what is going on before the first
    one. A Spark session that is there already is used and left as it was.
    """
    options = server_options(flow, target)
    require_topics(flow, options)
    # In this order a signal sent to the holder of the lock always finds its handler.
    with told_to_stop() as stopping, state.hold(flow.name) as holder:
        holder.write(_first_state(flow, target, master, holder))
        try:
            settings = {"spark.sql.shuffle.partitions": _shuffle_partitions(master), **(conf or {})}
            with (
                dying_with_spark(stopping),
                job_session(
                    f"flow {flow.name}",
                    master,
                    notice,
                    stopping=stopping,
                    conf=settings,
                    log=holder.log,
                ) as spark,
            ):
                notice(f"{flow.name} runs, batch by batch into {flow.target}")
                watch = Watch(
                    flow,
                    holder,
                    report,
                    partial(find_head, flow, options),
                    partial(count_records, flow, options),
                )
                failed = watch.run_query(lambda: start(spark, flow, options), stopping, notice)
                if failed is not None:
                    raise failed
                deliver_reports(spark)
        except (KeyboardInterrupt, Stopped):
            holder.update(status="stopped", ended=time.time())
            raise
        except CannotStartSpark as error:
            holder.update(status="failed", ended=time.time(), error=str(error))
            raise
        except Exception as error:
            said = str(error) if isinstance(error, FlowFailed) else explain(error)
            holder.update(status="failed", ended=time.time(), error=said)
            raise FlowFailed(f"flow {flow.name} failed: {said}") from error
        holder.update(status="stopped", ended=time.time())
    return watch.outcome


def server_options(flow: Flow, target: Target) -> dict[str, str]:
    """The options that name the log, for sources and sink."""
    if target.path is not None and not isinstance(flow.target, ToTable):
        raise InvalidRequest(
            f"{flow.name} writes to a topic, and for that it needs a server; "
            "name one with --url, or write to a table"
        )
    return options_of(target)


def require_topics(flow: Flow, options: Mapping[str, str]) -> None:
    """Raise `TopicNotFound` for a topic that the flow could not begin with.

    A flow that has read before goes on without it, and waits until it is there again. A data
    directory has to be there in any case.
    """
    for source in flow.sources:
        directory = source.options.get("path")
        if directory is not None and not os.path.isdir(directory):
            raise NotFound(f"the directory {directory}")
    if has_read(flow.checkpoint):
        return
    for source in flow.sources:
        if _head(flow, source, options) is None:
            raise TopicNotFound(source.topic)


def find_head(flow: Flow, options: Mapping[str, str], topic: str) -> Offset | None:
    """Where a topic of the flow ends; None when it does not, or the log cannot be asked now."""
    (source,) = (source for source in flow.sources if source.topic == topic)
    try:
        return _head(flow, source, options)
    except TopicsError as error:
        _log.warning("how far the flow is behind %s is not known: %s", topic, error)
        return None


def count_records(flow: Flow, options: Mapping[str, str], topic: str, first: int, last: int) -> int:
    """How many live records a topic of the flow has in a range of seqs."""
    (source,) = (source for source in flow.sources if source.topic == topic)
    try:
        with _log_of(flow, source, options) as log:
            return live_records(log, topic, first, last)
    except TopicsError as error:
        _log.warning("the lag behind %s counts seqs, not records: %s", topic, error)
        return progress.every_seq(topic, first, last)


def _head(flow: Flow, source: FlowSource, options: Mapping[str, str]) -> Offset | None:
    with _log_of(flow, source, options) as log:
        return log.head(source.topic)


def _log_of(flow: Flow, source: FlowSource, options: Mapping[str, str]) -> closing[TopicLog]:
    asked = parse(_source_options(flow, source, options), streaming=True)
    return closing(LogAddress(asked.target, asked.cold_dir, asked.retry_s).open())


def start(spark: SparkSession, flow: Flow, options: Mapping[str, str]) -> StreamingQuery:
    """Start the query of a flow in a session and return at once."""
    views = [
        create_views(spark, source, _source_options(flow, source, options))
        for source in flow.sources
    ]
    rows = _transformed(spark, flow, views)
    if not getattr(rows, "isStreaming", False):
        raise FlowFailed(
            "the transformation reads none of the flow's topics, or gives no DataFrame; "
            f"the views are {', '.join(source.view for source in flow.sources)}"
        )
    if isinstance(flow.target, ToTable):
        from topics.spark.flows.tables import FORMAT, FlowTable  # noqa: PLC0415 - needs Spark

        spark.dataSource.register(FlowTable)
        writer = rows.writeStream.format(FORMAT).option("path", str(flow.target.path))
    else:
        writer = as_records(rows).writeStream.format("topics")
        writer = writer.options(**options).option("topic", flow.target.topic)
    writer = writer.outputMode("append").queryName(flow.name)
    writer = writer.option("checkpointLocation", str(flow.checkpoint))
    if flow.runs_once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=flow.trigger).start()


def _source_options(flow: Flow, source: FlowSource, server: Mapping[str, str]) -> dict[str, str]:
    """What the file says of a source wins over where the flow runs."""
    elsewhere = {"url", "path"} & source.options.keys()
    chosen = {} if elsewhere else dict(server)
    chosen |= {**source.options, "subscribe": source.topic}
    return chosen if "path" in chosen else chosen | {"cursor": flow.cursor}


def _transformed(spark: SparkSession, flow: Flow, views: list[DataFrame]) -> DataFrame:
    if isinstance(flow.transform, str):
        return spark.sql(flow.transform)
    function = _loaded(flow.transform)
    rows: DataFrame = function(*views)
    return rows


def _loaded(function: Function) -> Callable[..., Any]:
    from pyspark import cloudpickle  # noqa: PLC0415

    module = load_module(function.path)
    # Workers cannot import the user's file: its functions travel to them as code.
    travel: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    travel(module)
    found = getattr(module, function.name, None)
    if not callable(found):
        raise FlowFailed(f"{function.path} has no function {function.name}")
    loaded: Callable[..., Any] = found
    return loaded


def _shuffle_partitions(master: str) -> str:
    """As many as there are cores on this machine; Spark's 200 would be 200 small state stores."""
    if not master.startswith("local"):
        return "200"
    wanted = master.removeprefix("local").strip("[]").partition(",")[0]
    return wanted if wanted.isdecimal() else str(os.cpu_count() or 1)


def _first_state(flow: Flow, target: Target, master: str, holder: state.Holder) -> state.State:
    return state.State(
        name=flow.name,
        status="starting",
        pid=os.getpid(),
        host=socket.gethostname(),
        file=str(flow.file),
        checkpoint=str(flow.checkpoint),
        sources=[source.topic for source in flow.sources],
        target=str(flow.target),
        server=str(target),
        master=master,
        started=time.time(),
        log=str(holder.log),
    )


# Watching and ending


def deliver_reports(spark: SparkSession) -> None:
    """Wait until what listens to queries has heard of the last batch.

    Spark tells its listeners in a thread of its own, and drops what it has not told when it stops:
    the cursors would show a lag although there is none.
    """
    context = spark.sparkContext._jsc
    assert context is not None
    try:
        context.sc().listenerBus().waitUntilEmpty(_DELIVERY_MS)
    except Exception as error:  # any error of the JVM: the flow itself has ended well
        _log.warning("the cursors of the flow may not be up to date: %s", first_line(error))


class Watch(QueryFollower):
    """Follows the query of a flow, reports every batch and keeps the state file up to date."""

    def __init__(
        self,
        flow: Flow,
        holder: state.Holder,
        report: Report,
        find_head: FindHead = nobody_knows,
        count: Count = progress.every_seq,
    ) -> None:
        self._topics = [source.topic for source in flow.sources]
        self._holder = holder
        self._report = report
        self._find_head = find_head
        self._count = count
        self._batches = self._rows = self._lost = 0
        self._began = time.monotonic()

    @property
    def outcome(self) -> Outcome:
        return Outcome(self._batches, self._rows, self._lost, time.monotonic() - self._began)

    def follow(self, query: StreamingQuery, stopping: threading.Event) -> Exception | None:
        self._holder.update(status="running")
        return super().follow(query, stopping)

    def batch_ended(self, report: Mapping[str, Any]) -> None:
        done = progress.of_batch(report, self._topics, self._find_head, self._count)
        self._batches += 1
        self._rows += done.rows
        self._lost += sum(done.lost.values())
        self._holder.update(
            batch=done.batch,
            rows=self._rows,
            rows_per_second=round(done.rows_per_second, 1),
            batch_seconds=round(done.seconds, 3),
            lag=done.lag,
        )
        self._report(done)
