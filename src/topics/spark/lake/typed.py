"""Records as rows of a typed table: fields of their data as columns, or a row that does not fit.

    <table>        epoch, seq, ts, node, tag, meta, the fields of data; data as text on request
    <table>__bad   epoch, seq, ts, node, tag, meta, data, reason

A task begins with the columns that the table has, and adds what its own records need. What the
tasks of an epoch added is brought together when the epoch lands: see `evolving`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from topics.errors import InvalidRequest, NotFound
from topics.spark.errors import ForeignTable
from topics.spark.lake.quick import ROWS, QuickReader
from topics.spark.lake.shape import (
    EMPTY,
    Struct,
    Unfit,
    fields_of,
    fitted,
    has_decimals,
    only_adds,
    parsed,
    plain_of,
    struct_of,
    widened,
)

if TYPE_CHECKING:
    from topics.spark.lake.place import TablePath

Fitted = tuple[pa.RecordBatch, pa.RecordBatch | None]

SCHEMA: Final = "topics.schema"
KEEP_DATA: Final = "topics.keepData"
AUTO: Final = "auto"
_KEYS: Final = (
    pa.field("epoch", pa.int64(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("ts", pa.timestamp("us", "UTC")),
    pa.field("node", pa.string()),
    pa.field("tag", pa.string()),
    pa.field("meta", pa.string()),
)
_DATA: Final = pa.field("data", pa.string())
BAD: Final = pa.schema([*_KEYS, _DATA, pa.field("reason", pa.string())])


@dataclass(frozen=True)
class TypedAs:
    """How the records of a table become columns: as declared, or from the data (None)."""

    declared: Struct | None = None
    keep_data: bool = False

    @staticmethod
    def from_file(text: str, *, keep_data: bool) -> TypedAs:
        """What `--schema` names: `auto`, or a YAML file."""
        if text == AUTO:
            return TypedAs(None, keep_data)
        from topics.spark.flows.file import read_yaml  # noqa: PLC0415 - tasks do not need it

        path = Path(text)
        if not path.is_file():
            raise NotFound(f"the file {path.absolute()}")
        given = read_yaml(path)
        if not isinstance(given, dict):
            raise InvalidRequest(f"{path} is no schema; write `field: type` lines, or say auto")
        try:
            shape = parsed(given)
        except InvalidRequest as error:
            raise InvalidRequest(f"{path}: {error}") from error
        assert isinstance(shape, Struct)
        return TypedAs(shape, keep_data)

    @staticmethod
    def of_settings(settings: Mapping[str, str]) -> TypedAs | None:
        """What a table says of itself; None if it keeps data as text."""
        text = settings.get(SCHEMA)
        if text is None:
            return None
        shape = None if text == AUTO else parsed(json.loads(text))
        assert shape is None or isinstance(shape, Struct)
        return TypedAs(shape, settings.get(KEEP_DATA) == "true")

    def settings(self) -> dict[str, str]:
        text = AUTO if self.declared is None else json.dumps(plain_of(self.declared))
        return {SCHEMA: text, KEEP_DATA: str(self.keep_data).lower()}

    def schema(self, fields: Struct | None = None) -> pa.Schema:
        """The columns of the table with these fields."""
        shape = fields or self.declared or EMPTY
        own = (*_KEYS, _DATA) if self.keep_data else _KEYS
        return pa.schema([*own, *fields_of(shape)])

    def require_continues(self, table: str, before: TypedAs | None) -> None:
        """Refuse to make of a table what would leave it with two kinds of rows."""
        if before is None:
            raise ForeignTable(f"{table} keeps data as text; name another table for --schema")
        if (before.declared is None) != (self.declared is None):
            kind = "from the data" if before.declared is None else "from a declared schema"
            raise ForeignTable(f"{table} has its columns {kind}; name another table")
        if before.keep_data != self.keep_data:
            word = "keeps" if before.keep_data else "does not keep"
            raise ForeignTable(f"{table} {word} the column data; name another table")
        old, new = before.declared, self.declared
        if old is not None and new is not None and not only_adds(old, new):
            changed = [
                name
                for key, (name, shape) in old.fields.items()
                if not only_adds(shape, new.type_of(key))
            ]
            raise ForeignTable(
                f"the schema changes {', '.join(changed)} of {table}, and only new fields can be "
                "added; name another table"
            )


class Fitter:
    """The records of one task."""

    def __init__(self, typed: TypedAs, base: Struct = EMPTY) -> None:
        self._typed = typed
        self._base = base
        self._fields = typed.declared or base
        self._quick: QuickReader | None = None
        hook = Decimal if has_decimals(typed.declared) else None
        self._decode = msgspec.json.Decoder(float_hook=hook).decode

    @staticmethod
    def of_table(place: TablePath, typed: TypedAs) -> Fitter:
        """As the table is now."""
        if typed.declared is not None:
            return Fitter(typed)
        from deltalake import DeltaTable  # noqa: PLC0415 - only such tables need it in tasks

        return Fitter(typed, struct_of(pa.schema(DeltaTable(place.path).schema().to_arrow())))

    def fit(self, rows: pa.RecordBatch) -> Iterator[Fitted]:
        """The rows of the table and those that do not fit, some at a time."""
        for first in range(0, rows.num_rows, ROWS):
            some = rows.slice(first, ROWS)
            if self._quick is None:
                self._quick = QuickReader(self._fields)
            columns = self._quick.read(some.column("data"))
            yield self._one_by_one(some) if columns is None else (self._made(some, columns), None)

    def _made(self, rows: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        schema = self._typed.schema(self._fields)
        own = [name for name in rows.schema.names if name not in columns]
        return pa.RecordBatch.from_arrays(
            [
                rows.column(field.name) if field.name in own else columns[field.name]
                for field in schema
            ],
            schema=schema,
        )

    def _one_by_one(self, rows: pa.RecordBatch) -> Fitted:
        reasons: list[str | None] = []
        values: list[dict[str, Any]] = []
        for text in rows.column("data").to_pylist():
            try:
                values.append(self._value(text))
            except Unfit as why:
                reasons.append(str(why))
            else:
                reasons.append(None)
        if self._typed.declared is None:
            values = [fitted(value, self._fields) for value in values]
            self._quick = None  # there may be new fields
        told = pa.array(reasons, pa.string())
        good = rows if told.null_count == len(told) else rows.filter(told.is_null())
        bad = None if good is rows else self._bad(rows, told)
        columns = {
            field.name: pa.array([value.get(field.name) for value in values], field.type)
            for field in fields_of(self._fields)
        }
        return self._made(good, columns), bad

    def _value(self, text: str | None) -> dict[str, Any]:
        try:
            value = self._decode(text or "null")
        except (msgspec.DecodeError, ArithmeticError) as error:
            said = str(error).partition(" - at ")[0]
            raise Unfit(f"data cannot be read: {said}") from error
        if not isinstance(value, dict):
            raise Unfit("data is no object")
        if self._typed.declared is not None:
            made: dict[str, Any] = fitted(value, self._typed.declared)
            return made
        wider = widened(self._fields, value, self._base)
        assert isinstance(wider, Struct)
        self._fields = wider
        return value

    @staticmethod
    def _bad(rows: pa.RecordBatch, told: pa.Array) -> pa.RecordBatch:
        hit = told.is_valid()
        left = rows.filter(hit)
        columns = [left.column(field.name) for field in (*_KEYS, _DATA)]
        return pa.RecordBatch.from_arrays([*columns, told.filter(hit)], schema=BAD)
