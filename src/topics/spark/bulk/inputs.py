"""What an import reads: files, cut into units that are the same every time they are cut.

    a Delta table     the files of its newest version, in the order of their first seq, then by name
    Parquet           one file, or every *.parquet below a directory, in the order of their names
    JSON lines        one file, or every *.jsonl and *.ndjson below a directory, likewise

Which columns rows have besides those of their file, and which rows count, is told by `columns`.

A unit is a range of rows of one row group, or the lines that begin in a range of bytes. Units in
their order make epochs of bounded size. The fingerprint covers the whole cut: two runs over the
same files agree on what epoch 7 is, and a run over other files knows that it is another import.

A row becomes a record. With a column, or a member, named `data` and nothing besides but what a
record has, that is taken for the payload, and `tag`, `node` and `meta` go with it; so what was
exported comes back as it was. Any other row is the payload itself, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from topics.errors import InvalidRequest, NotFound, TopicsError
from topics.spark.bulk.columns import (
    Constants,
    InputFile,
    completed,
    files_in_folders,
    files_of_table,
)
from topics.spark.source.schema import COLUMNS, DATA

Shape = Literal["records", "rows"]
"""Whether the rows of a file are records already, or payloads."""

EPOCH_BYTES: Final = 256 << 20
UNIT_BYTES: Final = 32 << 20
_BATCH_ROWS: Final = 10_000
_LINES: Final = (".jsonl", ".ndjson")
_RECORD: Final = ("data", "tag", "node", "meta")
_OF_RECORDS: Final = frozenset((*_RECORD, *COLUMNS))
_IN_LINES: Final = frozenset(("$seq", "$ts", "$node", "$tag", *_OF_RECORDS))


class UnreadableInput(TopicsError):
    """The input exists, but the user that runs the import may not read it."""

    code = "unreadable"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} may not be read by this user")


@dataclass(frozen=True)
class Unit:
    """Rows `first` to `end` of a row group, or lines that begin at the bytes `first` to `end`.

    `group` is -1 for lines. `schema` and `constants` are those of an `InputFile`; `kept` has a bit
    for each row, and None means that all rows count.
    """

    path: str
    group: int
    first: int
    end: int
    nbytes: int
    shape: Shape
    schema: pa.Schema | None = None
    constants: Constants = ()
    kept: bytes | None = None

    def identity(self) -> str:
        """What tells two cuts apart, whatever place the files have."""
        cut: list[object] = [self.group, self.first, self.end, self.nbytes, self.shape]
        if self.schema is not None or self.constants or self.kept is not None:
            values = [[name, str(value)] for name, value in self.constants]
            cut += [str(self.schema), values, self.kept and self.kept.hex()]
        return json.dumps(cut)


@dataclass(frozen=True)
class ImportPlan:
    """An import, cut."""

    source: str
    epochs: Sequence[Sequence[Unit]]
    fingerprint: str

    @property
    def nbytes(self) -> int:
        return sum(unit.nbytes for epoch in self.epochs for unit in epoch)


def plan(
    source: str, *, epoch_bytes: int = EPOCH_BYTES, unit_bytes: int = UNIT_BYTES
) -> ImportPlan:
    """Find the files and cut them.

    Every file is opened for that, so what is absent or may not be read is told here.
    """
    if "://" in source:
        raise InvalidRequest(
            f"{source} is no path: an import reads files that every machine of the job has under "
            "the same path"
        )
    source = os.path.abspath(source)
    files = _files(source)
    units = [unit for file in files for unit in _units(file, min(unit_bytes, epoch_bytes))]
    seen = hashlib.sha256()
    for file in files:
        status = os.stat(file.path)
        name = os.path.relpath(file.path, source)
        seen.update(json.dumps([name, status.st_size, status.st_mtime_ns]).encode())
    for unit in units:
        seen.update(unit.identity().encode())
    return ImportPlan(source, list(_epochs(units, epoch_bytes)), seen.hexdigest())


def _epochs(units: Sequence[Unit], epoch_bytes: int) -> Iterator[list[Unit]]:
    waiting: list[Unit] = []
    size = 0
    for unit in units:
        if waiting and size + unit.nbytes > epoch_bytes:
            yield waiting
            waiting, size = [], 0
        waiting.append(unit)
        size += unit.nbytes
    if waiting:
        yield waiting


# Finding


def _files(source: str) -> list[InputFile]:
    with _reading(source):
        try:
            os.stat(source)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"the input {source}") from error
        if os.path.isfile(source):
            return [InputFile(source)]
        if os.path.isdir(os.path.join(source, "_delta_log")):
            return files_of_table(source)
        return _files_below(source)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """What the system forbids in the block concerns this path, unless it names another one."""
    try:
        yield
    except PermissionError as error:
        raise UnreadableInput(str(error.filename or path)) from error


def _files_below(source: str) -> list[InputFile]:
    def refuse(error: OSError) -> None:
        raise error  # a file that is skipped in silence would be missing in the topic

    found = sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(source, onerror=refuse)
        for name in names
        if not name.startswith(("_", ".")) and name.endswith((".parquet", *_LINES))
    )
    if not found:
        raise InvalidRequest(f"{source} holds neither Parquet files nor JSON lines")
    if len({path.endswith(".parquet") for path in found}) > 1:
        raise InvalidRequest(f"{source} holds Parquet files and JSON lines; import them one by one")
    if found[0].endswith(".parquet"):
        return files_in_folders(source, found)
    return [InputFile(path) for path in found]


# Cutting


def _units(file: InputFile, unit_bytes: int) -> Iterator[Unit]:
    with _reading(file.path):
        if file.path.endswith(".parquet"):
            yield from _row_units(file, unit_bytes)
        elif file.path.endswith(_LINES):
            yield from _line_units(file.path, unit_bytes)
        else:
            raise InvalidRequest(f"{file.path} is neither .parquet nor {' nor '.join(_LINES)}")


def _row_units(file: InputFile, unit_bytes: int) -> Iterator[Unit]:
    path = file.path
    try:
        with pq.ParquetFile(path) as opened:
            names, metadata = opened.schema_arrow.names, opened.metadata
    except pa.ArrowException as error:
        raise InvalidRequest(f"{path} is no Parquet file: {error}") from error
    names = file.columns(names)
    shape: Shape = "records" if "data" in names and set(names) <= _OF_RECORDS else "rows"
    before = 0
    for group in range(metadata.num_row_groups):
        rows, nbytes = metadata.row_group(group).num_rows, metadata.row_group(group).total_byte_size
        parts = max(1, -(-nbytes // unit_bytes))
        edges = [rows * part // parts for part in range(parts + 1)]
        for first, end in pairwise(edges):
            if first < end:
                share = nbytes * (end - first) // rows
                kept = _kept(file, before + first, before + end)
                yield Unit(path, group, first, end, share, shape, file.schema, file.constants, kept)
        before += rows


def _kept(file: InputFile, first: int, end: int) -> bytes | None:
    if file.kept is None:
        return None
    told = file.kept[first:end]
    mask = np.ones(end - first, dtype=bool)
    mask[: len(told)] = told
    return np.packbits(mask).tobytes()


def _line_units(path: str, unit_bytes: int) -> Iterator[Unit]:
    size = os.path.getsize(path)
    shape = _shape_of_lines(path)
    for first in range(0, size, unit_bytes):
        end = min(first + unit_bytes, size)
        yield Unit(path, -1, first, end, end - first, shape)


def _shape_of_lines(path: str) -> Shape:
    """Judged by the first line that holds something."""
    with open(path, "rb") as file:
        for line in file:
            if line.strip():
                try:
                    value = msgspec.json.decode(line)
                except msgspec.DecodeError:
                    return "rows"  # the task that reads the line reports what is wrong with it
                is_record = isinstance(value, dict) and "data" in value and set(value) <= _IN_LINES
                return "records" if is_record else "rows"
    return "rows"


# Reading, on executors


def batches_of(unit: Unit) -> Iterator[pa.RecordBatch]:
    """The records of a unit: `data`, and `tag`, `node` and `meta` where there are any."""
    return _rows(unit) if unit.group >= 0 else _lines(unit)


def _rows(unit: Unit) -> Iterator[pa.RecordBatch]:
    at = 0
    with pq.ParquetFile(unit.path) as file:
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[unit.group]):
            first, end = max(unit.first - at, 0), min(unit.end - at, batch.num_rows)
            if first < end:
                rows = _that_count(unit, batch.slice(first, end - first), at + first - unit.first)
                yield _as_records(completed(rows, unit.schema, unit.constants), unit.shape)
            at += batch.num_rows
            if at >= unit.end:
                return


def _that_count(unit: Unit, rows: pa.RecordBatch, at: int) -> pa.RecordBatch:
    """Without those that a deletion vector has taken away."""
    if unit.kept is None:
        return rows
    bits = np.unpackbits(np.frombuffer(unit.kept, np.uint8), count=unit.end - unit.first)
    return rows.filter(pa.array(bits[at : at + rows.num_rows].astype(bool)))


def _as_records(rows: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    if shape == "rows":
        return pa.record_batch([rows.to_struct_array()], ["data"])
    if "kind" in rows.schema.names:
        rows = rows.filter(pa.compute.equal(rows.column("kind"), DATA))
    return rows.select([name for name in _RECORD if name in rows.schema.names])


_NO_META: Final = msgspec.Raw(b"null")


class _JsonLine(msgspec.Struct):
    data: msgspec.Raw
    meta: msgspec.Raw = _NO_META
    tag: str | None = None
    node: str | None = None
    tag_: str | None = msgspec.field(default=None, name="$tag")
    node_: str | None = msgspec.field(default=None, name="$node")


_decode_line = msgspec.json.Decoder(_JsonLine).decode


def _lines(unit: Unit) -> Iterator[pa.RecordBatch]:
    waiting: list[bytes] = []
    for line in _lines_between(unit):
        waiting.append(line)
        if len(waiting) >= _BATCH_ROWS:
            yield _of_lines(waiting, unit)
            waiting = []
    if waiting:
        yield _of_lines(waiting, unit)


def _lines_between(unit: Unit) -> Iterator[bytes]:
    """The lines of a unit: those that begin in it, without blank lines."""
    with open(unit.path, "rb") as file:
        at = unit.first
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < unit.end:
            line = file.readline()
            if not line:
                return
            at += len(line)
            if line.strip():
                yield line.strip()


def _of_lines(lines: Sequence[bytes], unit: Unit) -> pa.RecordBatch:
    try:
        if unit.shape == "rows":
            return pa.record_batch([_texts([line.decode() for line in lines])], ["data"])
        rows = [_decode_line(line) for line in lines]
        return pa.record_batch(
            [
                _texts([bytes(row.data).decode() for row in rows]),
                _texts([row.tag if row.tag_ is None else row.tag_ for row in rows]),
                _texts([row.node if row.node_ is None else row.node_ for row in rows]),
                _texts(
                    [None if row.meta == _NO_META else bytes(row.meta).decode() for row in rows]
                ),
            ],
            list(_RECORD),
        )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"{unit.path}, a line between the bytes {unit.first} and {unit.end}: {error}"
        ) from error


def _texts(values: Sequence[str | None]) -> pa.Array:
    return pa.array(values, pa.string())
