"""The columns of a typed table as its records change: new fields, and wider types.

Tasks of an epoch begin with the same columns and each add what their records need. Before the epoch
lands, the table gets all of that: a new field is only told to the log, and rows that are there
have null in it. When whole numbers become doubles, the files that are there are written anew,
because readers take a file by the types of the table. That is a version of its own; repeating it
after a crash finds nothing to do. Files of tasks that had guessed otherwise are written anew, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from topics.spark.errors import RangesDoNotJoin
from topics.spark.lake.parquet import FileWriter, WrittenFile, remove_files, row_groups
from topics.spark.lake.shape import Struct, fitted, merged, only_adds, struct_of
from topics.spark.lake.table import LakeTable, attempt

if TYPE_CHECKING:
    from topics.spark.lake.place import TablePath


def evolve(place: TablePath, files: Sequence[WrittenFile]) -> list[WrittenFile]:
    """Give the table the columns of the files, and the files those of the table; hold the lock."""
    table = LakeTable.open(place)
    typed = table.typed
    if typed is None or not files:
        return list(files)
    shapes = [struct_of(pq.read_schema(place.inside(file.name))) for file in files]
    have = wanted = struct_of(table.schema)
    for shape in shapes:
        joined = merged(wanted, shape)
        assert isinstance(joined, Struct)
        wanted = joined
    schema = typed.schema(wanted)
    if wanted != have:
        _require_continues(place, have, wanted)
        if only_adds(have, wanted):
            attempt(place, lambda now: now.add_columns(schema))
        else:
            attempt(place, lambda now: _widen(now, schema))
    return [
        file if _has_columns_of(shape, wanted) else _rewritten(place, file, schema)
        for file, shape in zip(files, shapes, strict=True)
    ]


def _require_continues(place: TablePath, have: Struct, wanted: Struct) -> None:
    """Text would take the place of another type only if tasks had seen another table."""
    for key, (name, shape) in have.fields.items():
        if shape not in ("string", "long") and wanted.type_of(key) == "string":
            raise RangesDoNotJoin(f"the column {name} of {place.path} changed under the sync")


def _has_columns_of(shape: Struct, wanted: Struct) -> bool:
    """Whether a file can stay: its columns are some of the table's, spelled as there."""
    spelled = {name for name, _ in wanted}
    return only_adds(shape, wanted) and all(name in spelled for name, _ in shape)


def _widen(table: LakeTable, schema: pa.Schema) -> None:
    names = [file.name for file in table.files()]
    written: list[WrittenFile] = []
    try:
        for name in names:
            made = f"kept-{uuid.uuid4().hex}.parquet"
            written += [_copied(table.place, name, made, schema)]
        table.replace_all(written, schema)
    except BaseException:
        remove_files(table.place.path, [file.name for file in written])
        raise


def _rewritten(place: TablePath, file: WrittenFile, schema: pa.Schema) -> WrittenFile:
    """A staged file under a name of the same epoch, so that it is a leftover with it."""
    parts = file.name.split("-")
    parts[-2] = uuid.uuid4().hex[:8]
    made = _copied(place, file.name, "-".join(parts), schema)
    remove_files(place.path, [file.name])
    return made


def _copied(place: TablePath, name: str, to: str, schema: pa.Schema) -> WrittenFile:
    writer = FileWriter(place.path, to, schema)
    try:
        for group in row_groups(place.inside(name)):
            for batch in group.to_batches():
                writer.write(_with_columns(batch, schema))
        return writer.finish()
    except BaseException:
        writer.drop()
        raise


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    own = {name.lower(): name for name in batch.schema.names}
    shapes = struct_of(schema)
    columns = []
    for field in schema:
        name = own.get(field.name.lower())
        if name is None:
            columns.append(pa.nulls(batch.num_rows, field.type))
        elif batch.column(name).type == field.type:
            columns.append(batch.column(name))
        else:
            shape = shapes.type_of(field.name.lower())
            values = [fitted(value, shape, field.name) for value in batch.column(name).to_pylist()]
            columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
