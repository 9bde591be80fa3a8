"""What a task does with its rows: data to Parquet files, and an account of every seq it saw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topics.spark.lake.parquet import FileSeries, WrittenFile
from topics.spark.lake.place import Place
from topics.spark.lake.seqs import KeySet, Run, Seqs
from topics.spark.lake.table import ROWS


@dataclass(frozen=True)
class LostRun:
    """Seqs that the log had lost before the table could have them; `last` is None if unknown."""

    epoch: int
    first: int
    last: int | None
    reason: str


@dataclass(frozen=True)
class Arrived:
    """What one task made of its rows."""

    files: list[WrittenFile] = field(default_factory=list)
    seen: list[tuple[int, list[Run]]] = field(default_factory=list)
    """Per epoch of the topic, the seqs of rows, lost and deleted runs."""
    lost: list[LostRun] = field(default_factory=list)


def staged_stem(query: str, epoch: int) -> str:
    """How the names of an epoch's files begin; `leftovers` reads it back."""
    return f"part-{query}-{epoch}-"


def write_rows(place: Place, stem: str, batches: Iterator[pa.RecordBatch]) -> Arrived:
    """The rows of one task to files, and which seqs they and the gaps among them account for."""
    series = FileSeries(place.path, stem, ROWS)
    seen = KeySet()
    lost: list[LostRun] = []
    try:
        for batch in batches:
            is_data = pc.equal(batch.column("kind"), "data")
            rows = batch.filter(is_data) if not pc.all(is_data).as_py() else batch
            if rows.num_rows:
                seen.add_column(_numbers(rows, "epoch"), _numbers(rows, "seq"))
                series.write(_as_stored(rows))
            if rows.num_rows < batch.num_rows:
                lost += _gaps(batch.filter(pc.invert(is_data)), seen)
        return Arrived(series.finish(), list(seen), lost)
    except BaseException:
        series.drop()
        raise


def _gaps(batch: pa.RecordBatch, seen: KeySet) -> list[LostRun]:
    """Note the lost and deleted runs of a batch as seen; return the lost ones."""
    lost: list[LostRun] = []
    for row in batch.select(["epoch", "seq", "last_seq", "kind", "reason"]).to_pylist():
        if row["last_seq"] is not None:
            seen.add(row["epoch"], row["seq"], row["last_seq"])
        if row["kind"] == "lost":
            lost.append(LostRun(row["epoch"], row["seq"], row["last_seq"], row["reason"]))
    return lost


def _numbers(rows: pa.RecordBatch, name: str) -> Seqs:
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False))


def _as_stored(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [rows.column(field.name).cast(field.type) for field in ROWS]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)
