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
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

FORMAT: Final = "topics_flow_table"
_ROWS_PER_FILE: Final = 2_000_000


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote: files in the table's directory that no log names yet."""

    query: str
    schema: bytes
    files: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, bytes, rows."""


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

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = TaskContext.get()
        assert task is not None
        query = task.getLocalProperty("sql.streaming.queryId") or ""
        batch = task.getLocalProperty("streaming.sql.batchId") or "0"
        return write_files(self._path, iterator, query=query, batch=batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        commit_files(self._path, [m for m in messages if isinstance(m, Written)], batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        # Spark also says this after a commit that failed, and that commit may have arrived: files
        # that the log names must stay. Those it does not name are garbage that a vacuum removes.
        written = [m for m in messages if isinstance(m, Written)]
        with contextlib.suppress(Exception):
            if not was_committed(self._path, written, batchId):
                remove_files(self._path, written)


def write_files(path: str, batches: Iterator[pa.RecordBatch], *, query: str, batch: str) -> Written:
    """Write the rows of a task as Parquet files, synced; a task without rows writes none."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - workers import this module for its classes

    written: Written | None = None
    writer: pq.ParquetWriter | None = None
    name, rows = "", 0

    def finish() -> None:
        nonlocal writer
        assert writer is not None
        assert written is not None
        writer.close()
        full = os.path.join(path, name)
        with open(full, "rb") as file:
            os.fsync(file.fileno())
            written.files.append((name, os.fstat(file.fileno()).st_size, rows))
        writer = None

    os.makedirs(path, exist_ok=True)
    for each in batches:
        if written is None:
            written = Written(query, each.schema.serialize().to_pybytes())
        if each.num_rows == 0:
            continue
        if writer is None:
            name, rows = f"part-{batch}-{uuid.uuid4()}.parquet", 0
            writer = pq.ParquetWriter(
                os.path.join(path, name),
                each.schema,
                compression="zstd",
                write_statistics=public_columns(each.schema),
            )
        writer.write_batch(each)
        rows += each.num_rows
        if rows >= _ROWS_PER_FILE:
            finish()
    if writer is not None:
        finish()
    return written or Written(query, b"")


def commit_files(path: str, messages: Sequence[Written], *, batch: int) -> None:
    """Make a batch part of the table, unless it is already."""
    from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - 0.3 s
    from deltalake.transaction import AddAction  # noqa: PLC0415

    files = [file for message in messages for file in message.files]
    if not files:
        return
    if was_committed(path, messages, batch):
        remove_files(path, messages)
        return
    schema = pa.ipc.read_schema(pa.py_buffer(next(m.schema for m in messages if m.files)))
    now_ms = int(time.time() * 1000)
    adds = [
        AddAction(
            path=name,
            size=size,
            partition_values={},
            modification_time=now_ms,
            data_change=True,
            stats=json.dumps({"numRecords": rows}),
        )
        for name, size, rows in files
    ]
    table = open_table(path, schema)
    table.create_write_transaction(
        list(adds),
        mode="append",
        schema=table.schema(),
        commit_properties=CommitProperties(
            app_transactions=[Transaction(messages[0].query, batch)]
        ),
    )


def was_committed(path: str, messages: Sequence[Written], batch: int) -> bool:
    """Whether the table already holds this batch of this query."""
    from deltalake import DeltaTable  # noqa: PLC0415

    if not messages or not DeltaTable.is_deltatable(path):
        return False
    last = DeltaTable(path).transaction_version(messages[0].query)
    return last is not None and last >= batch


def remove_files(path: str, messages: Sequence[Written]) -> None:
    """Drop what was written for a batch that will not be committed."""
    for message in messages:
        for name, _, _ in message.files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(path, name))


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
    """Table settings that keep text out of statistics when somebody else rewrites its files."""
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
