"""Rows to Parquet files, with statistics without personal data, and an account of every seq.

A Delta log repeats the least and the greatest value of columns in clear, and keeps them when the
rows are long gone. So statistics exist for `seq` and `ts` alone, in the log and in the files.

Tasks need this module, and nothing else that takes delta-rs to import.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topics.spark.lake.place import TablePath
from topics.spark.lake.seqs import KeySet, Run, Seqs
from topics.spark.source.arrays import values_of
from topics.spark.source.schema import DELETED

if TYPE_CHECKING:
    from topics.spark.lake.typed import Fitter

GROUP_ROWS: Final = 131_072
FILE_BYTES: Final = 256 << 20
_GROUP_BYTES: Final = 64 << 20
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Statistics:
    """What a Delta log may say of a file: `seq` and `ts` (microseconds), and how many rows."""

    rows: int = 0
    seqs: tuple[int, int] | None = None
    times: tuple[int, int] | None = None
    timeless: int = 0

    def with_batch(self, batch: pa.RecordBatch) -> Statistics:
        """With the rows of a batch of a topic's table, or of its loss table."""
        seqs, times, timeless = _widened(self.seqs, batch.column("seq")), self.times, self.timeless
        if "ts" in batch.schema.names:
            stamps = batch.column("ts")
            timeless += stamps.null_count
            times = _widened(times, stamps.cast(pa.int64()))
        return Statistics(self.rows + batch.num_rows, seqs, times, timeless)

    def to_json(self) -> str:
        """As Delta writes it; times have milliseconds, and the later one is rounded up."""
        least: dict[str, Any] = {}
        greatest: dict[str, Any] = {}
        if self.seqs is not None:
            least["seq"], greatest["seq"] = self.seqs
        if self.times is not None:
            least["ts"] = _iso(self.times[0] // 1000)
            greatest["ts"] = _iso(-(-self.times[1] // 1000))
        nulls = {name: self.timeless if name == "ts" else 0 for name in least}
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": least,
                "maxValues": greatest,
                "nullCount": nulls,
            },
            separators=(",", ":"),
        )


@dataclass(frozen=True)
class WrittenFile:
    """A file that is on disk for good, but in no log yet."""

    name: str
    size: int
    statistics: Statistics


class FileWriter:
    """One Parquet file: batches in, a synced file out; when dropped, nothing is left of it.

    A file of a topic has statistics of its seqs and times. Any other table names the columns whose
    values may stand in the file's `statistics`; the log gets the number of rows only.
    """

    def __init__(
        self,
        directory: str,
        name: str,
        schema: pa.Schema,
        statistics: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.statistics = Statistics()
        self._path = os.path.join(directory, name)
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._schema = schema
        self._is_of_a_topic = is_of_a_topic = statistics is None
        named, public = frozenset(schema.names), list(statistics or ())
        self._open = pq.ParquetWriter(
            self._path,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=sorted(named & {"epoch", "node", "tag"}) if named == _ROWS else True,
            write_statistics=sorted(named & {"epoch", "seq", "ts"}) if is_of_a_topic else public,
        )

    @property
    def size(self) -> int:
        """What is on disk so far, in whole row groups."""
        with suppress(FileNotFoundError):
            return os.path.getsize(self._path)
        return 0

    def write(self, batch: pa.RecordBatch) -> None:
        if self._is_of_a_topic:
            self.statistics = self.statistics.with_batch(batch)
        else:
            self.statistics = Statistics(self.statistics.rows + batch.num_rows)
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self) -> WrittenFile:
        """Close it and make it durable, name included."""
        self._flush()
        self._open.close()
        sync_file(self._path)
        sync_directory(os.path.dirname(self._path))
        return WrittenFile(self.name, os.path.getsize(self._path), self.statistics)

    def drop(self) -> None:
        with suppress(OSError, pa.ArrowException):
            self._open.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _flush(self) -> None:
        if self._held_rows:
            self._open.write_table(pa.Table.from_batches(self._held, self._schema), GROUP_ROWS)
        self._held, self._held_rows, self._held_bytes = [], 0, 0


class FileSeries:
    """Files `<stem>-0.parquet`, `<stem>-1.parquet`, ...: the next one begins when one is large.

    It begins as well when a batch comes with other columns than the one before.
    """

    def __init__(
        self,
        directory: str,
        stem: str,
        schema: pa.Schema,
        statistics: Sequence[str] | None = None,
        *,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._statistics = statistics
        self._stem = stem
        self._schema = schema
        self._writer: FileWriter | None = None
        self._done: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if batch.schema != self._schema:
            self._end_file()
            self._schema = batch.schema
        if self._writer is None:
            name = f"{self._stem}-{len(self._done)}.parquet"
            self._writer = FileWriter(self._directory, name, self._schema, self._statistics)
        self._writer.write(batch)
        if self._writer.size >= self._file_bytes:
            self._end_file()

    def finish(self) -> list[WrittenFile]:
        self._end_file()
        return self._done

    def drop(self) -> None:
        """Remove everything written."""
        if self._writer is not None:
            self._writer.drop()
        remove_files(self._directory, [file.name for file in self._done])
        self._writer, self._done = None, []

    def _end_file(self) -> None:
        if self._writer is not None:
            self._done.append(self._writer.finish())
            self._writer = None


def row_groups(path: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """A file's rows, one row group at a time."""
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=columns)


def remove_files(directory: str, names: Sequence[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, name))


def sync_file(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


sync_directory = sync_file


def write_json(path: str, value: object) -> None:
    """Put a value on disk for good, in one step."""
    scratch = f"{path}.{os.getpid()}"
    with open(scratch, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)
    sync_directory(os.path.dirname(os.path.abspath(path)))


def _widened(span: tuple[int, int] | None, column: pa.Array) -> tuple[int, int] | None:
    found = pc.min_max(column)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is None:
        return span
    return (low, high) if span is None else (min(low, span[0]), max(high, span[1]))


def _iso(ms: int) -> str:
    stamp = _EPOCH + dt.timedelta(milliseconds=ms)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.") + f"{stamp.microsecond // 1000:03d}Z"


ROWS: Final = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("node", pa.string()),
        pa.field("tag", pa.string()),
        pa.field("data", pa.string()),
        pa.field("meta", pa.string()),
    ]
)
_ROWS: Final = frozenset(ROWS.names)
LOSS: Final = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("last_seq", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("noticed_ts", pa.timestamp("us", "UTC")),
    ]
)


@dataclass(frozen=True)
class MissingRange:
    """Seqs without a record, lost or deleted; `last` is None if their end is unknown."""

    epoch: int
    first: int
    last: int | None
    reason: str


@dataclass
class Counts:
    """How many records of one epoch of the topic came, how many fit, and when the last was made."""

    fit: int = 0
    unfit: int = 0
    newest_ms: int = 0

    def add(self, other: Counts) -> None:
        self.fit += other.fit
        self.unfit += other.unfit
        self.newest_ms = max(self.newest_ms, other.newest_ms)


@dataclass(frozen=True)
class TaskRows:
    """What one task made of its rows."""

    files: list[WrittenFile] = field(default_factory=list)
    seen: list[tuple[int, list[Run]]] = field(default_factory=list)
    """Per epoch of the topic, the seqs of rows, lost and deleted runs."""
    lost: list[MissingRange] = field(default_factory=list)
    bad: list[WrittenFile] = field(default_factory=list)
    """Files of the table of records that do not fit."""
    counts: dict[int, Counts] = field(default_factory=dict)
    """By epoch of the topic."""


def staged_stem(query: str, epoch: int) -> str:
    """How the names of an epoch's files begin; `leftovers` reads it back."""
    return f"part-{query}-{epoch}-"


def write_rows(
    place: TablePath,
    stem: str,
    batches: Iterator[pa.RecordBatch],
    fitter: Fitter | None = None,
    *,
    file_bytes: int = FILE_BYTES,
) -> TaskRows:
    """The rows of one task to files, and which seqs they and the gaps among them account for.

    With a fitter they become columns, and those that do not fit go to a table of their own.
    """
    series = FileSeries(place.path, stem, ROWS, file_bytes=file_bytes)
    misfits = FileSeries(place.bad.path, stem, ROWS)
    seen = KeySet()
    lost: list[MissingRange] = []
    counts: dict[int, Counts] = {}
    try:
        for batch in batches:
            rows, gaps = rows_and_gaps(batch)
            if rows.num_rows:
                seen.add_column(_numbers(rows, "epoch"), _numbers(rows, "seq"))
                _count(counts, rows)
                if fitter is None:
                    series.write(rows)
                else:
                    for typed, bad in fitter.fit(rows):
                        series.write(typed)
                        if bad is not None:
                            os.makedirs(place.bad.path, exist_ok=True)
                            misfits.write(bad)
                            _count(counts, bad, are_unfit=True)
            for gap in gaps:
                if gap.last is not None:
                    seen.add(gap.epoch, gap.first, gap.last)
            lost += [gap for gap in gaps if gap.reason != DELETED]
        return TaskRows(series.finish(), list(seen), lost, misfits.finish(), counts)
    except BaseException:
        series.drop()
        misfits.drop()
        raise


def _count(counts: dict[int, Counts], rows: pa.RecordBatch, *, are_unfit: bool = False) -> None:
    """Count the rows of a batch; those that do not fit are counted a second time, as that."""
    epochs = _numbers(rows, "epoch")
    times = values_of(rows.column("ts").cast(pa.int64()), np.int64)
    for epoch in np.unique(epochs).tolist():
        mine = epochs == epoch
        size = int(mine.sum())
        found = (
            Counts(-size, size) if are_unfit else Counts(size, 0, int(times[mine].max()) // 1000)
        )
        counts.setdefault(epoch, Counts()).add(found)


def rows_and_gaps(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[MissingRange]]:
    """What the source reads, taken apart: records as they are stored, and runs without any.

    A run has a reason and a record has none. Comparing `kind` with a word would say the same, but
    make Arrow import pandas, which takes a worker the better part of a second.
    """
    reasons = batch.column("reason")
    if reasons.null_count == batch.num_rows:
        return _as_stored(batch), []
    gaps = batch.filter(reasons.is_valid())
    named = gaps.select(["epoch", "seq", "last_seq", "reason"]).to_pylist()
    runs = [MissingRange(run["epoch"], run["seq"], run["last_seq"], run["reason"]) for run in named]
    return _as_stored(batch.filter(reasons.is_null())), runs


def _numbers(rows: pa.RecordBatch, name: str) -> Seqs:
    return values_of(rows.column(name), np.int64)


def _as_stored(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [rows.column(field.name).cast(field.type) for field in ROWS]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)
