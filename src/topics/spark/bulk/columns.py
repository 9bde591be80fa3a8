"""What belongs to the rows of a Parquet file without being in it.

    a Delta table        the values of partition columns, columns that newer files have, and which
                         rows a deletion vector has taken away: the table's log tells all three
    folders `key=value`  a column `key` for every file below; text unless every value of the key
                         is spelled as a whole number is, and null for Hive's default partition

A table is read by what its log demands of a reader. A feature that is not known here could mean
anything, so such a table is refused and the feature named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from topics.errors import InvalidRequest

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from numpy.typing import NDArray

UNDERSTOOD: Final = frozenset(
    ("deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck")
)
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
Constants = tuple[tuple[str, pa.Scalar], ...]


@dataclass(frozen=True)
class InputFile:
    """A file and what is known of its rows from elsewhere.

    `schema` has all columns in their order; None means those of the file. `constants` are columns
    with one value in every row. `kept` tells by row number which rows count; None means all.
    """

    path: str
    schema: pa.Schema | None = None
    constants: Constants = ()
    kept: NDArray[np.bool_] | None = None

    def columns(self, own: Sequence[str]) -> list[str]:
        """The columns of its rows, for a file that has `own`."""
        if self.schema is not None:
            return list(self.schema.names)
        return [*own, *(name for name, _ in self.constants if name not in own)]


def completed(
    rows: pa.RecordBatch, schema: pa.Schema | None, constants: Constants
) -> pa.RecordBatch:
    """Rows of a file with every column that belongs to them."""
    values = dict(constants)
    own = rows.schema.names
    if schema is None:
        for name, value in values.items():
            if name not in own:
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        return rows
    columns = []
    for field in schema:
        if field.name in values:
            columns.append(pa.repeat(values[field.name], rows.num_rows))
        elif field.name in own:
            columns.append(rows.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# A Delta table


def files_of_table(source: str) -> list[InputFile]:
    """The files of its newest version, in the order of their first seq, then by name."""
    from deltalake import DeltaTable  # noqa: PLC0415 - only tables need it
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    try:
        table = DeltaTable(source)
        _require_understood(source, table)
        listed = pa.table(table.get_add_actions(flatten=True))
        kept = _rows_kept(table)
        schema = pa.schema(table.schema().to_arrow())
    except DeltaError as error:
        said = str(error).partition("\n")[0]
        raise InvalidRequest(f"{source} is no Delta table that can be read: {said}") from error
    has_seqs = "min.seq" in listed.schema.names
    names = listed.column("path").to_pylist()
    firsts = listed.column("min.seq").to_pylist() if has_seqs else [None] * len(names)
    order = sorted(range(len(names)), key=lambda at: (firsts[at] or 0, names[at]))
    keys = table.metadata().partition_columns
    found = []
    for at in order:
        path = os.path.join(source, _path_of(names[at]))
        values = [(key, listed.column(f"partition.{key}")[at]) for key in keys]
        constants = tuple((key, value.cast(schema.field(key).type)) for key, value in values)
        found.append(InputFile(path, schema, constants, kept.get(path)))
    return found


def _require_understood(source: str, table: DeltaTable) -> None:
    asked = set(table.protocol().reader_features or ())
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        asked.add("columnMapping")  # which tables of older versions use without saying so
    unknown = sorted(asked - UNDERSTOOD)
    if unknown:
        raise InvalidRequest(
            f"{source} uses features of Delta that an import does not understand: "
            f"{', '.join(unknown)}. Copy it with a program that does, to a table without them"
        )


def _rows_kept(table: DeltaTable) -> dict[str, NDArray[np.bool_]]:
    """By path, which rows a deletion vector leaves; those behind its end stay."""
    listed = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all()
    masks = listed.column("selection_vector")
    paths = listed.column("filepath").to_pylist()
    return {
        _path_of(path): np.asarray(mask.values.to_numpy(zero_copy_only=False), dtype=bool)
        for path, mask in zip(paths, masks, strict=True)
    }


def _path_of(name: str) -> str:
    """A path from how the log spells it: percent signs stand for other characters."""
    if "://" not in name and not name.startswith("file:"):
        return unquote(name)
    parts = urlsplit(name)
    if parts.scheme != "file":
        raise InvalidRequest(f"{name} belongs to the table, and is no path of this machine")
    return unquote(parts.path)


# Folders


def files_in_folders(source: str, paths: Sequence[str]) -> list[InputFile]:
    """Files with the columns that the folders between them and the source stand for."""
    keys = [_keys_of(os.path.relpath(path, source)) for path in paths]
    spelled: dict[str, list[str]] = {}
    for found in keys:
        for name, text in found.items():
            if text is not None:
                spelled.setdefault(name, []).append(text)
    kinds = {name: _kind(spelled.get(name, [])) for found in keys for name in found}
    return [
        InputFile(
            path,
            constants=tuple(
                (name, pa.scalar(text, pa.string()).cast(kinds[name]))
                for name, text in found.items()
            ),
        )
        for path, found in zip(paths, keys, strict=True)
    ]


def _keys_of(path: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for folder in path.split(os.sep)[:-1]:
        name, is_key, text = folder.partition("=")
        if is_key and name:
            found[unquote(name)] = None if text == _HIVE_NULL else unquote(text)
    return found


def _kind(texts: Sequence[str]) -> pa.DataType:
    """Whole numbers if that loses nothing of how they are spelled."""
    is_whole = bool(texts) and all(_is_whole(text) for text in texts)
    return pa.int64() if is_whole else pa.string()


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 19):
        return False
    return str(int(text)) == text and -(1 << 63) <= int(text) < 1 << 63
