"""The Spark sink `topics_lake`: rows of `format("topics")` into the Delta table of their topic.

    spark.dataSource.register(LakeSink)
    (spark.readStream.format("topics")
        .option("subscribe", "orders").option("includeDeleted", True).load()
        .writeStream.format("topics_lake")
        .option("topic", "orders").option("url", url).option("path", "./lake/orders")
        .option("checkpointLocation", "./lake/orders/_topics_checkpoint").start())

Tasks write Parquet files that are in no log yet; the driver commits all of an epoch's files at
once, under the query's id and the number of its micro-batch, so a repeated epoch lands once. Rows
need every column of the source, and lost and deleted runs among them: that is how the commit knows
that nothing is missing.

`topics lake sync` is this query with its deletes, leftovers and progress looked after.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from topics.spark.errors import InvalidOption
from topics.spark.lake.origin import RETRY_S, SourceTopic
from topics.spark.lake.parquet import FILE_BYTES, TaskRows, remove_files, staged_stem, write_rows
from topics.spark.lake.place import TablePath, committing
from topics.spark.lake.typed import Fitter, TypedAs
from topics.spark.source.options import Given, check_names
from topics.spark.source.schema import COLUMNS as READ_COLUMNS

if TYPE_CHECKING:
    from topics.spark.lake.table import LakeTable

FORMAT: Final = "topics_lake"
COLUMNS: Final = tuple(name for name in READ_COLUMNS if name != "topic")
"""All but the topic's name, which is the same in every row."""
_OPTIONS: Final = ("topic", "url", "token", "caFile", "path", "cursor", "retrySeconds")


class LakeSink(DataSource):
    """Registered under `topics_lake`; writes streams only."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeWriter:  # noqa: N802 - Spark's name
        options = {name.lower(): text for name, text in dict(self.options).items()}
        check_names(options, _OPTIONS, what=f'format("{FORMAT}")')
        for needed in ("topic", "url", "path"):
            if not options.get(needed):
                raise InvalidOption(f"{FORMAT} needs the option {needed!r}")
        absent = [name for name in COLUMNS if name not in schema.names]
        if absent:
            raise InvalidOption(
                f"{FORMAT} needs the column {absent[0]!r}: write what format('topics') reads, "
                "with includeDeleted, and nothing taken away"
            )
        writer = LakeWriter(options)
        table = writer.make_table()  # tasks only write files
        writer.typed, writer.file_bytes = table.typed, table.file_bytes
        return writer


class Message(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, query: str, arrived: TaskRows) -> None:
        self.query = query
        self.arrived = arrived


class LakeWriter(DataSourceStreamArrowWriter):
    """Made on the driver, run on executors; the commit runs in a process of the driver's."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self.typed: TypedAs | None = None
        self.file_bytes = FILE_BYTES
        self._place = TablePath.of(options["path"])
        self._target = Given(options).target()
        self._retry_s = Given(options).seconds("retrySeconds", RETRY_S)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Write one partition of one epoch."""
        task = TaskContext.get()
        assert task is not None
        query = task.getLocalProperty("sql.streaming.queryId")
        epoch = task.getLocalProperty("streaming.sql.batchId")
        assert query is not None
        assert epoch is not None
        attempt = f"{task.partitionId()}-{task.taskAttemptId()}-{uuid.uuid4().hex[:8]}"
        stem = staged_stem(query, int(epoch)) + attempt
        fitter = None if self.typed is None else Fitter.of_table(self._place, self.typed)
        arrived = write_rows(self._place, stem, iterator, fitter, file_bytes=self.file_bytes)
        return Message(query, arrived)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Land the epoch: all of it, once."""
        from topics.spark.lake.epochs import EpochCommit  # noqa: PLC0415 - not needed by tasks

        made = [message for message in messages if isinstance(message, Message)]
        if not made:
            return
        self.make_table()
        with self._origin() as origin:
            EpochCommit(
                self._place,
                origin,
                app=made[0].query,
                version=batchId,
                cursor=self._options.get("cursor"),
            ).run([message.arrived for message in made])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Take away what the tasks wrote, unless the commit had come through after all."""
        from topics.spark.lake.table import LakeTable  # noqa: PLC0415 - not needed by tasks

        made = [message for message in messages if isinstance(message, Message)]
        if not made or not LakeTable.exists(self._place):
            return
        with committing(self._place):
            landed = LakeTable.open(self._place).transaction(made[0].query)
            if landed is None or landed < batchId:
                for message in made:
                    names = [file.name for file in message.arrived.files]
                    remove_files(self._place.path, names)
                    misfits = [file.name for file in message.arrived.bad]
                    remove_files(self._place.bad.path, misfits)

    def _origin(self) -> SourceTopic:
        return SourceTopic(self._target, self._options["topic"], retry_s=self._retry_s)

    def make_table(self) -> LakeTable:
        """Make the table if it is not there; refuse one of another topic."""
        from topics.spark.lake.table import LakeTable  # noqa: PLC0415 - not needed by tasks

        return LakeTable.of_topic(self._place, self._options["topic"], origin=self._options["url"])
