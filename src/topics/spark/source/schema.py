"""The columns of a topic as a table, and the choice of them that a query makes.

Every row covers the seqs `seq` to `last_seq` of one life (`epoch`) of a topic:

    kind      a row is                                                       reason
    data      one record; `last_seq` equals `seq`                            null
    lost      a run of records that cannot be read any more                  cap, ttl, crash,
                                                                             source_trim, dropped,
                                                                             recreated
    deleted   a run removed on purpose; only when deletes are asked for      deleted

A topic that was dropped and made anew gives one `lost` row with the old epoch, at the first seq
that was not read, without a `last_seq`: how many records followed is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from topics.spark.errors import InvalidOption, nearest
from topics.spark.source.arrays import numbers, repeated

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DATA: Final = "data"
LOST: Final = "lost"
DELETED: Final = "deleted"
_TYPES: Final = {
    "topic": ("string", pa.string()),
    "epoch": ("bigint", pa.int64()),
    "seq": ("bigint", pa.int64()),
    "last_seq": ("bigint", pa.int64()),
    "kind": ("string", pa.string()),
    "reason": ("string", pa.string()),
    "ts": ("timestamp", pa.timestamp("us", tz="UTC")),
    "node": ("string", pa.string()),
    "tag": ("string", pa.string()),
    "data": ("string", pa.string()),
    "meta": ("string", pa.string()),
}
COLUMNS: Final = tuple(_TYPES)

_NEVER_NULL: Final = frozenset(("topic", "epoch", "seq", "kind"))
_STORED: Final = frozenset(("seq", "ts", "node", "tag", "data", "meta"))


def ddl(names: Iterable[str] = COLUMNS) -> str:
    """The schema of these columns as Spark reads it."""
    return ", ".join(f"{name} {_TYPES[name][0]}" for name in names)


DDL: Final = ddl()


@dataclass(frozen=True)
class GapRow:
    """A row that stands for a run of seqs without a record."""

    topic: str
    epoch: int
    seq: int
    last_seq: int | None
    kind: str
    reason: str


@dataclass(frozen=True)
class Projection:
    """The columns of a query in its order, and how rows get into that shape."""

    names: tuple[str, ...]
    required: frozenset[str] = frozenset()

    @property
    def has_kind(self) -> bool:
        """Whether a reader of the rows can tell records and gaps apart."""
        return "kind" in self.names

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field(name, _TYPES[name][1], nullable=name not in self.required)
                for name in self.names
            ]
        )

    def of_records(self, records: pa.RecordBatch, *, topic: str, epoch: int) -> pa.RecordBatch:
        """Stored records as rows."""
        count = records.num_rows
        made = {
            "topic": lambda: repeated(topic, count),
            "epoch": lambda: numbers(np.full(count, epoch, np.int64)),
            "last_seq": lambda: records.column("seq"),
            "kind": lambda: repeated(DATA, count),
            "reason": lambda: pa.nulls(count, pa.string()),
        }
        columns = [records.column(name) if name in _STORED else made[name]() for name in self.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def of_gaps(self, gaps: Sequence[GapRow]) -> pa.RecordBatch:
        """Gaps as rows; what only a record has is null."""
        columns = [
            pa.array([getattr(gap, name, None) for gap in gaps], _TYPES[name][1])
            for name in self.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)


def projection(schema: StructType) -> Projection:
    """The choice that `.schema(...)` makes; without one Spark passes every column."""
    for field in schema.fields:
        _check(field.name, field.dataType.simpleString(), nullable=field.nullable)
    names = tuple(schema.names)
    if len(set(names)) < len(names):
        raise InvalidOption("the schema names a column twice")
    if not names:
        raise InvalidOption(f"the schema is empty; choose among {', '.join(COLUMNS)}")
    return Projection(names, frozenset(field.name for field in schema.fields if not field.nullable))


def _check(name: str, spark_type: str, *, nullable: bool) -> None:
    if name not in _TYPES:
        near = nearest(name, COLUMNS)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(COLUMNS)}"
        raise InvalidOption(
            f"a topic has no column {name!r}; {hint} Fields of a record are inside `data`, as "
            "JSON: read them with from_json"
        )
    wanted = _TYPES[name][0]
    if spark_type != wanted:
        raise InvalidOption(f"the column {name} is of type {wanted}, not {spark_type}")
    if not nullable and name not in _NEVER_NULL:
        raise InvalidOption(f"the column {name} may be null; leave NOT NULL out of the schema")
