"""A flow's rows as a Delta table: executors write Parquet, the driver commits a batch once.

A batch is one Delta commit that carries the query's id and the batch's number as a Delta
transaction. A batch that Spark repeats after a crash finds its number there and is dropped with the
files just written for it. The epoch is the unit, never the task: a repeated batch may be cut into
other tasks.

Statistics are kept for numbers and times only. Delta writes them into its log in clear text, where
no clean-up of files reaches them, and a smallest and a largest e-mail address are personal data.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from topics.spark.errors import FlowFailed
from topics.spark.lake import parquet
from topics.spark.lake.parquet import FileSeries, WrittenFile
from topics.spark.lake.place import TablePath

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

FORMAT: Final = "topics_flow_table"


@dataclass
class TaskFiles(WriterCommitMessage):
    """What one task wrote: files in the table's directory that no log names yet."""

    query: str
    schema: bytes
    files: list[WrittenFile] = field(default_factory=list)


class FlowTable(DataSource):
    """The sink behind `to: {table: ...}`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        return TableWriter(self.options["path"])


class TableWriter(DataSourceStreamArrowWriter):
    """Writes on executors, commits on the driver; the two share the messages and nothing else."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        task = TaskContext.get()
        assert task is not None
        query = task.getLocalProperty("sql.streaming.queryId") or ""
        batch = task.getLocalProperty("streaming.sql.batchId") or "0"
        return write_files(self._path, iterator, query=query, batch=batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        commit_files(self._path, [m for m in messages if isinstance(m, TaskFiles)], batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        # Spark also says this after a commit that failed, and that commit may have arrived: files
        # that the log names must stay. Those it does not name are garbage that a vacuum removes.
        written = [m for m in messages if isinstance(m, TaskFiles)]
        with contextlib.suppress(Exception):
            if not was_committed(self._path, written, batchId):
                remove_files(self._path, written)


def write_files(
    path: str, batches: Iterator[pa.RecordBatch], *, query: str, batch: str
) -> TaskFiles:
    """Write the rows of a task as Parquet files, synced; a task without rows writes none."""
    os.makedirs(path, exist_ok=True)
    first = next(batches, None)
    if first is None:
        return TaskFiles(query, b"")
    schema = first.schema
    stem = f"part-{batch}-{uuid.uuid4()}"
    series = FileSeries(path, stem, schema, statistics=public_columns(schema))
    try:
        for each in chain((first,), batches):
            series.write(each)
        return TaskFiles(query, schema.serialize().to_pybytes(), series.finish())
    except BaseException:
        series.drop()
        raise


def commit_files(path: str, messages: Sequence[TaskFiles], *, batch: int) -> None:
    """Make a batch part of the table, unless it is already."""
    from topics.spark.lake.table import LakeTable, TableCommit  # noqa: PLC0415 - 0.3 s

    files = [file for message in messages for file in message.files]
    if not files:
        return
    if was_committed(path, messages, batch):
        remove_files(path, messages)
        return
    schema = pa.ipc.read_schema(pa.py_buffer(next(m.schema for m in messages if m.files)))
    change = TableCommit(add=files, transactions={messages[0].query: batch})
    LakeTable(TablePath(path), open_table(path, schema)).commit(change, rebase=True)


def was_committed(path: str, messages: Sequence[TaskFiles], batch: int) -> bool:
    """Whether the table already holds this batch of this query."""
    from deltalake import DeltaTable  # noqa: PLC0415

    if not messages or not DeltaTable.is_deltatable(path):
        return False
    last = DeltaTable(path).transaction_version(messages[0].query)
    return last is not None and last >= batch


def remove_files(path: str, messages: Sequence[TaskFiles]) -> None:
    """Drop what was written for a batch that will not be committed."""
    parquet.remove_files(path, [file.name for message in messages for file in message.files])


def open_table(path: str, schema: pa.Schema) -> DeltaTable:
    """The table, made if it is not there; refuses one with other columns."""
    from deltalake import DeltaTable, Schema  # noqa: PLC0415

    wanted = Schema.from_arrow(schema)
    if not DeltaTable.is_deltatable(path):
        return DeltaTable.create(path, wanted, configuration=settings_for(schema))
    table = DeltaTable(path)
    there = {column.name: str(column.type) for column in table.schema().fields}
    made = {column.name: str(column.type) for column in wanted.fields}
    if there != made:
        raise FlowFailed(
            f"the table {path} has the columns {_listed(there)}, and the flow makes "
            f"{_listed(made)}; change the flow, or name another table"
        )
    return table


def settings_for(schema: pa.Schema) -> dict[str, str | None]:
    """Table settings that keep text out of statistics when another program rewrites its files."""
    columns = public_columns(schema)
    if columns:
        return {"delta.dataSkippingStatsColumns": ",".join(columns)}
    return {"delta.dataSkippingNumIndexedCols": "0"}


def public_columns(schema: pa.Schema) -> list[str]:
    """The columns whose smallest and largest value say nothing about a person."""
    types = pa.types
    return [
        column.name
        for column in schema
        if types.is_integer(column.type)
        or types.is_floating(column.type)
        or types.is_timestamp(column.type)
        or types.is_date(column.type)
    ]


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()))
