"""What a task does with its rows: data to Parquet files, and an account of every seq it saw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from topics.spark.arrays import values_of
from topics.spark.lake.columns import ROWS
from topics.spark.lake.parquet import FileSeries, WrittenFile
from topics.spark.lake.place import Place
from topics.spark.lake.seqs import KeySet, Run, Seqs
from topics.spark.schema import DELETED


@dataclass(frozen=True)
class Gap:
    """Seqs without a record, lost or deleted; `last` is None if nobody knows where they end."""

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
    lost: list[Gap] = field(default_factory=list)


def staged_stem(query: str, epoch: int) -> str:
    """How the names of an epoch's files begin; `leftovers` reads it back."""
    return f"part-{query}-{epoch}-"


def write_rows(place: Place, stem: str, batches: Iterator[pa.RecordBatch]) -> Arrived:
    """The rows of one task to files, and which seqs they and the gaps among them account for."""
    series = FileSeries(place.path, stem, ROWS)
    seen = KeySet()
    lost: list[Gap] = []
    try:
        for batch in batches:
            rows, gaps = rows_and_gaps(batch)
            if rows.num_rows:
                seen.add_column(_numbers(rows, "epoch"), _numbers(rows, "seq"))
                series.write(rows)
            for gap in gaps:
                if gap.last is not None:
                    seen.add(gap.epoch, gap.first, gap.last)
            lost += [gap for gap in gaps if gap.reason != DELETED]
        return Arrived(series.finish(), list(seen), lost)
    except BaseException:
        series.drop()
        raise


def rows_and_gaps(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Gap]]:
    """What the source reads, taken apart: records as they are stored, and runs without any.

    A run has a reason and a record has none. Comparing `kind` with a word would say the same, but
    make Arrow import pandas, which takes a worker the better part of a second.
    """
    reasons = batch.column("reason")
    if reasons.null_count == batch.num_rows:
        return _as_stored(batch), []
    gaps = batch.filter(reasons.is_valid())
    named = gaps.select(["epoch", "seq", "last_seq", "reason"]).to_pylist()
    runs = [Gap(run["epoch"], run["seq"], run["last_seq"], run["reason"]) for run in named]
    return _as_stored(batch.filter(reasons.is_null())), runs


def _numbers(rows: pa.RecordBatch, name: str) -> Seqs:
    return values_of(rows.column(name), np.int64)


def _as_stored(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [rows.column(field.name).cast(field.type) for field in ROWS]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)
