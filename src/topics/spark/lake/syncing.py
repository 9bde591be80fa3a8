"""`topics lake sync`: a streaming query from a topic into its table, and what goes with it.

The table says where it is, so a checkpoint that was lost costs nothing: a new query begins behind
the table's position. While nothing arrives no epoch is committed, and deletes would wait; so they
are looked for between epochs as well.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topics.client.targets import Target
from topics.errors import TopicNotFound, TopicsError
from topics.spark.errors import SyncFailed
from topics.spark.flows.progress import Count, every_seq, lag_of
from topics.spark.jobs.queries import QueryFollower, explain, has_read
from topics.spark.lake.epochs import report_position
from topics.spark.lake.erasing import carry_deletes
from topics.spark.lake.origin import SourceTopic
from topics.spark.lake.place import TablePath, committing, syncing
from topics.spark.lake.sink import COLUMNS, FORMAT, LakeSink
from topics.spark.lake.table import CHECKPOINT, FILE_SIZE, LakeTable
from topics.spark.lake.typed import TypedAs
from topics.spark.lake.upkeep import remove_before_sync
from topics.spark.source.log import Offset
from topics.spark.source.options import options_of
from topics.spark.source.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EPOCH_BYTES: Final = 256 << 20
"""How much one epoch takes when there is a lot to catch up with."""
TRIGGER: Final = "5 seconds"
_DELETES_EVERY_S: Final = 2.0


@dataclass(frozen=True)
class SyncTask:
    """What to keep in step with what, and for how long."""

    topic: str
    place: TablePath
    target: Target
    once: bool = False
    reconcile: bool = False
    trigger: str = TRIGGER
    checkpoint: str | None = None
    typed: TypedAs | None = None
    """How a new table gets its columns; one that is there goes on as it was begun."""
    file_bytes: int | None = None
    """How large files should become from now on; None leaves it as it is."""

    @property
    def checkpoint_dir(self) -> str:
        return self.checkpoint or self.place.checkpoint

    def origin(self) -> SourceTopic:
        return SourceTopic(self.target, self.topic)

    def require_ready(self) -> None:
        """Raise what a sync would be refused for, which to find out needs no Spark.

        The topic is not there, or the table is another topic's, or another sync is running on it.
        """
        with self.origin() as origin:
            origin.state()
        if LakeTable.exists(self.place):
            table = LakeTable.open(self.place)
            table.require_topic(self.topic)
            if self.typed is not None:
                table.require_typed(self.typed)
        if os.path.exists(self.place.path):
            with syncing(self.place):
                pass


@dataclass(frozen=True)
class SyncedEpoch:
    """How one epoch went; `lag` is in records, None when it is unknown."""

    epoch: int
    rows: int
    rows_per_second: float
    seconds: float
    lag: int | None

    def line(self) -> str:
        """For people."""
        lag = "unknown" if self.lag is None else f"{self.lag:,}"
        return (
            f"epoch {self.epoch}  {self.rows:,} rows  {self.rows_per_second:,.0f}/s  "
            f"{self.seconds:.1f} s  lag {lag}"
        )


@dataclass(frozen=True)
class Synced:
    """What a sync did before it ended without an error."""

    epochs: int
    rows: int
    deleted: int
    position: int
    table_version: int
    seconds: float
    unfit: int = 0
    """How many records are in the table of those that do not fit."""


def start_options(task: SyncTask, epoch: int) -> dict[str, str]:
    """Where a new query begins; one that has read knows by its checkpoint."""
    if has_read(task.checkpoint_dir):
        return {}
    position = LakeTable.open(task.place).position(task.topic, epoch)
    return {"startingOffsets": json.dumps({task.topic: position + 1})}


class Sync(QueryFollower):
    """One run. `report` gets every epoch, `notice` words about the rest."""

    def __init__(
        self,
        task: SyncTask,
        *,
        report: Callable[[SyncedEpoch], None] = lambda epoch: None,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._task = task
        self._report = report
        self._notice = notice
        self._epochs = self._rows = self._deleted = self._unfit = 0
        self._seen_deletes: int | None = None
        self._look_at = 0.0

    def run(self, spark: SparkSession, stopping: threading.Event | None = None) -> Synced:
        """Sync until there is nothing left (`once`) or until told to stop."""
        task, began = self._task, time.monotonic()
        place = task.place
        stopping = stopping or threading.Event()
        with task.origin() as origin:
            self._origin = origin
            state = origin.state()  # a topic that is not there is told before anything is made
            with syncing(place):
                self._prepare()
                self._unfit = self._count_unfit()
                if task.reconcile and not task.once:
                    self._reconcile(everything=True)
                try:
                    failed = self.run_query(
                        lambda: self._start(spark, state.epoch), stopping, self._notice
                    )
                    if failed is not None:
                        raise SyncFailed(explain(failed)) from failed
                    self._reconcile(everything=task.reconcile)
                    report_position(place, origin, place.cursor)
                except SyncFailed:
                    raise
                except TopicsError as error:  # the server went away
                    raise SyncFailed(str(error)) from error
        table = LakeTable.open(place)
        return Synced(
            epochs=self._epochs,
            rows=self._rows,
            deleted=self._deleted,
            position=table.position(task.topic, state.epoch),
            table_version=table.version,
            unfit=self._count_unfit(),
            seconds=time.monotonic() - began,
        )

    def _prepare(self) -> None:
        task = self._task
        with committing(task.place):
            table = LakeTable.of_topic(
                task.place, task.topic, origin=str(task.target), typed=task.typed
            )
            table.remember(CHECKPOINT, task.checkpoint_dir)
            if task.file_bytes is not None:
                table = LakeTable.open(task.place)
                table.remember(FILE_SIZE, str(task.file_bytes))
            gone = remove_before_sync(task.place)
        if gone:
            self._notice(f"removed {len(gone)} files that an earlier run left behind")

    def _start(self, spark: SparkSession, epoch: int) -> StreamingQuery:
        task = self._task
        spark.dataSource.register(LakeSink)
        server = options_of(task.target)
        rows = (
            spark.readStream.format("topics")
            .schema(ddl(COLUMNS))
            .options(**server, **start_options(task, epoch))
            .option("subscribe", task.topic)
            .option("onLoss", "rows")
            .option("includeDeleted", "true")
            .option("maxBytesPerTrigger", str(EPOCH_BYTES))
            .load()
        )
        writer = (
            rows.writeStream.format(FORMAT)
            .options(**server)
            .option("topic", task.topic)
            .option("path", task.place.path)
            .option("checkpointLocation", task.checkpoint_dir)
            .queryName(f"lake {task.place.name}")
        )
        if task.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=task.trigger).start()

    # While it runs

    def while_running(self) -> None:
        if not self._task.once and time.monotonic() >= self._look_at:
            self._reconcile()
            self._look_at = time.monotonic() + _DELETES_EVERY_S

    def batch_ended(self, report: Mapping[str, Any]) -> None:
        epoch = epoch_of(report, self._origin, partial(_count, self._origin))
        self._epochs += 1
        self._rows += epoch.rows
        self._report(epoch)
        unfit = self._count_unfit()
        if unfit > self._unfit:
            bad = self._task.place.bad.path
            self._notice(f"{unfit - self._unfit:,} records do not fit the columns: see {bad}")
        self._unfit = unfit

    def _count_unfit(self) -> int:
        bad = self._task.place.bad
        if not LakeTable.exists(bad):
            return 0
        return sum(file.rows or 0 for file in LakeTable.open(bad).files())

    def _reconcile(self, *, everything: bool = False) -> None:
        """Carry deletes over, unless nothing was deleted since the last look."""
        try:
            version = self._origin.state().delete_version
        except TopicNotFound:
            return  # the source warns of it
        if version == self._seen_deletes and not everything:
            return
        with committing(self._task.place):
            carried = carry_deletes(self._task.place, self._origin, everything=everything)
        self._seen_deletes = version
        self._deleted += carried.rows
        if carried.rows:
            self._notice(f"{carried.rows:,} deleted records left the table")


def epoch_of(
    progress: Mapping[str, Any], origin: SourceTopic, count: Count = every_seq
) -> SyncedEpoch:
    """Read Spark's report of an epoch; the log is asked for what the report does not say."""
    rows, duration_ms = progress["numInputRows"], progress.get("batchDuration") or 0
    return SyncedEpoch(
        epoch=int(progress["batchId"]),
        rows=rows,
        rows_per_second=1000 * rows / duration_ms if duration_ms else 0.0,
        seconds=duration_ms / 1000,
        lag=lag_of(progress, lambda _: _head(origin), count).get(origin.topic),
    )


def _count(origin: SourceTopic, topic: str, first: int, last: int) -> int:
    try:
        return origin.live_records(first, last)
    except TopicsError:
        return every_seq(topic, first, last)  # dropped, or out of reach: the query itself will tell


def _head(origin: SourceTopic) -> Offset | None:
    try:
        found = origin.state()
    except TopicsError:
        return None  # dropped, or out of reach: the query itself will tell
    return Offset(found.epoch, found.head_seq + 1)
