"""Rows of a data frame as the chunks a task stages: Arrow streams of at most 16 MiB.

A server counts a row as 64 bytes at least, so a chunk has a limited number of rows, too.

A chunk is a part of a stage of its own. Parts are ordered by partition first and chunk second, so
that records come out of a commit in the order of partitions and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from topics.spark.sink.encode import (
    Unencodable,
    checked_json,
    checked_text,
    first_refused,
    json_of,
    text_of,
)
from topics.spark.source.arrays import NO_TEXT, always, literal

CHUNK_BYTES: Final = 16 << 20
CHUNK_ROWS: Final = CHUNK_BYTES // 64
_ENVELOPE_BYTES: Final = 8 << 10
"""Room for what surrounds the batches in a stream: schema, the one topic's name, end."""
_SCHEMA_ORDER: Final = ("topic", "data", "tag", "node", "meta")

Encode = Callable[[pa.Array], pa.Array]


class Chunk(NamedTuple):
    """Some rows of a partition, ready to be staged. Rows are counted from 0."""

    number: int
    first_row: int
    rows: int
    body: bytes

    def part(self, partition: int) -> int:
        return (partition << 32) + self.number

    @property
    def shown_rows(self) -> str:
        return f"rows {self.first_row} to {self.first_row + self.rows - 1}"


@dataclass(frozen=True)
class RowEncoder:
    """Turns rows of a partition into records. `topic` is for rows that name none."""

    partition: int
    topic: str | None
    as_text: bool

    def encode(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """The columns a stage has, one record for each row."""
        columns = {name: self._column(batch, name, first_row) for name in batch.schema.names}
        if "topic" not in columns:
            assert self.topic is not None, "options without a topic are refused"
            columns["topic"] = always(self.topic, batch.num_rows)
        names = [name for name in _SCHEMA_ORDER if name in columns]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names)

    def _column(self, batch: pa.RecordBatch, name: str, first_row: int) -> pa.Array:
        column = batch.column(name)
        encode, remedy = self._encoding(name, column.type)
        try:
            return encode(column)
        except Unencodable as error:
            row, reason = first_refused(column, encode)
            raise Unencodable(
                f"partition {self.partition}, row {first_row + row} (counted from 0), column "
                f"{name}: {reason}{remedy}"
            ) from error

    def _encoding(self, name: str, kind: pa.DataType) -> tuple[Encode, str]:
        """How a column becomes what is stored, and what to do about a row that cannot."""
        if name == "topic":
            return self._topics, ""
        if name in ("tag", "node"):
            return checked_text, ""
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return (json_of if name == "data" else _metas), ""
        if name == "meta":
            return checked_json, ". A string in this column is JSON text: to_json makes it"
        if self.as_text:
            return text_of, ""
        return checked_json, (
            ". A string in this column is JSON text: let to_json make it, give a struct, or set "
            "the option dataFormat to text to store strings as they are"
        )

    def _topics(self, column: pa.Array) -> pa.Array:
        topics = checked_text(column)
        if self.topic is not None:
            topics = pc.fill_null(topics, literal(self.topic))
        if topics.null_count:
            raise Unencodable(
                "the row names no topic; fill the column, or set the option topic for such rows"
            )
        return topics


def chunks(
    batches: Iterable[pa.RecordBatch], encoder: RowEncoder, *, limit: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """The rows of a partition in their order. No rows give no chunk."""
    waiting: list[pa.RecordBatch] = []
    size = rows = first_row = number = 0
    room = limit - _ENVELOPE_BYTES
    for piece in _pieces(batches, encoder, room // 4):
        grown = size + pa.ipc.get_record_batch_size(piece)
        if waiting and (grown > room or rows + piece.num_rows > CHUNK_ROWS):
            chunk = _chunk(number, first_row, waiting)
            yield chunk
            number, first_row = number + 1, first_row + chunk.rows
            waiting, grown, rows = [], grown - size, 0
        waiting.append(piece)
        size = grown
        rows += piece.num_rows
    if waiting:
        yield _chunk(number, first_row, waiting)


def _pieces(
    batches: Iterable[pa.RecordBatch], encoder: RowEncoder, limit: int
) -> Iterator[pa.RecordBatch]:
    """Encoded rows in small batches; one row can be larger."""
    row = 0
    for batch in batches:
        for slice_ in _halved(batch, lambda part: part.nbytes <= limit):
            encoded = encoder.encode(slice_, row)
            row += slice_.num_rows
            yield from _halved(encoded, lambda part: _is_small(part, limit))


def _is_small(part: pa.RecordBatch, limit: int) -> bool:
    size: int = pa.ipc.get_record_batch_size(part)
    return part.num_rows <= CHUNK_ROWS // 4 and size <= limit


def _halved(
    batch: pa.RecordBatch, is_small: Callable[[pa.RecordBatch], bool]
) -> Iterator[pa.RecordBatch]:
    """A batch in parts that are small enough, or of one row; none if it is empty."""
    left = [batch] if batch.num_rows else []
    while left:
        part = left.pop()
        if part.num_rows == 1 or is_small(part):
            yield part
        else:
            middle = part.num_rows // 2
            left += [part.slice(middle), part.slice(0, middle)]


def _chunk(number: int, first_row: int, batches: list[pa.RecordBatch]) -> Chunk:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    rows = sum(batch.num_rows for batch in batches)
    return Chunk(number, first_row, rows, sink.getvalue().to_pybytes())


def _metas(column: pa.Array) -> pa.Array:
    """JSON for every value but null: a record without meta has none."""
    texts = json_of(column)
    return pc.if_else(pc.is_valid(column), texts, NO_TEXT)
