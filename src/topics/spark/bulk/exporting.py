"""`topics spark export`: a topic as Parquet files or JSON lines, resumable.

    <output>/<first>-<last>.parquet     the records of these seqs, in their order
    <output>/_topics_export.json        what is exported: topic, epoch, pieces, lost runs

A piece is written aside and gets its name when it is whole; the list is written after that. A run
that was cut off leaves pieces that the list does not know, and the next one writes them again under
the same names. A run over a finished export adds what the topic has got since.

An export is a copy of what was there: a later delete in the topic does not reach it. Keep what may
have to be erased in a lake table.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pyarrow as pa

from topics.client.targets import Target
from topics.errors import InvalidRequest, TopicNotFound, TopicsError
from topics.spark.jobs.queries import explain
from topics.spark.lake.parquet import ROWS, FileWriter, rows_and_gaps, sync_directory, write_json
from topics.spark.source.log import LogAddress
from topics.spark.source.options import DEFAULT_RETRY_S, options_of, parse
from topics.spark.source.partitions import PartitionReader, TopicPartition, cut
from topics.spark.source.schema import COLUMNS, Projection
from topics.wire.rendering import EVERYTHING, Row, render_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Format = Literal["parquet", "jsonl"]
MANIFEST: Final = "_topics_export.json"
_PIECES_PER_CORE: Final = 4


class ExportFailed(TopicsError):
    """A piece could not be written; the pieces in the list are whole."""

    code = "export_failed"


@dataclass(frozen=True)
class ExportTask:
    """What goes where."""

    topic: str
    output: str
    target: Target
    format: Format
    cold_dir: str | None = None

    @property
    def where(self) -> LogAddress:
        return LogAddress(self.target, self.cold_dir, DEFAULT_RETRY_S)


@dataclass(frozen=True)
class Done:
    """One piece that is written; `file` is None if it had no record."""

    first: int
    last: int
    file: str | None
    records: int
    lost: list[tuple[int, int | None, str]] = field(default_factory=list)

    def line(self) -> str:
        """For people."""
        lost = f"  LOST {len(self.lost)} runs" if self.lost else ""
        return f"seqs {self.first:,} to {self.last:,}  {self.records:,} records{lost}"


@dataclass(frozen=True)
class Exported:
    """What a run did; `skipped` pieces were there before."""

    pieces: int
    skipped: int
    records: int
    lost_runs: int
    last_seq: int
    seconds: float


def format_of(output: str, asked: str | None) -> Format:
    """The format by its name, or by how the output is called."""
    found = asked or ("jsonl" if output.rstrip("/").endswith(("jsonl", "ndjson")) else "parquet")
    if found not in ("parquet", "jsonl"):
        raise InvalidRequest(f"a topic is exported as parquet or jsonl, not as {found}")
    return found  # type: ignore[return-value]  # checked above


def export_topic(
    spark: SparkSession,
    task: ExportTask,
    to_do: ToDo,
    *,
    report: Callable[[Done], None] = lambda done: None,
    notice: Callable[[str], None] = lambda line: None,
) -> Exported:
    """Export what is not yet in the output, as the task's plan has it."""
    began = time.monotonic()
    os.makedirs(task.output, exist_ok=True)
    pieces, manifest = to_do
    skipped = len(manifest.pieces)
    if skipped:
        notice(f"{skipped} pieces, up to seq {manifest.last}, are in {task.output} already")
    wave = spark.sparkContext.defaultParallelism * _PIECES_PER_CORE
    records = lost = 0
    for at in range(0, len(pieces), wave):
        for done in _write(spark, task, pieces[at : at + wave]):
            manifest.pieces.append(done)
            records += done.records
            lost += len(done.lost)
            report(done)
        manifest.save(task.output)
    return Exported(
        pieces=len(manifest.pieces),
        skipped=skipped,
        records=records,
        lost_runs=lost,
        last_seq=manifest.last,
        seconds=time.monotonic() - began,
    )


# What is to be done


@dataclass
class Manifest:
    """The list of what is exported."""

    topic: str
    epoch: int
    format: str
    pieces: list[Done] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The last seq that is dealt with."""
        return self.pieces[-1].last if self.pieces else 0

    @staticmethod
    def load(output: str) -> Manifest | None:
        try:
            with open(os.path.join(output, MANIFEST), encoding="utf-8") as file:
                kept: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        pieces = [Done(**piece) for piece in kept["pieces"]]
        return Manifest(kept["topic"], kept["epoch"], kept["format"], pieces)

    def save(self, output: str) -> None:
        write_json(os.path.join(output, MANIFEST), asdict(self))


class ToDo(NamedTuple):
    """The pieces to write, and the list that they go on."""

    pieces: Sequence[TopicPartition]
    manifest: Manifest


def plan_export(task: ExportTask) -> ToDo:
    """What is missing in the output; needs no Spark, and writes nothing."""
    if os.path.isfile(task.output):
        raise InvalidRequest(f"{task.output} is a file; an export writes a directory")
    log = task.where.open()
    try:
        head = log.head(task.topic)
        if head is None:
            raise TopicNotFound(task.topic)
        manifest = Manifest.load(task.output) or Manifest(task.topic, head.epoch, task.format)
        if (manifest.topic, manifest.format) != (task.topic, task.format):
            raise InvalidRequest(
                f"{task.output} holds topic {manifest.topic} as {manifest.format}; choose another"
            )
        if manifest.epoch != head.epoch:
            raise InvalidRequest(
                f"topic {task.topic} was made anew since {task.output} was written; choose another"
            )
        whole = TopicPartition(task.topic, head.epoch, manifest.last + 1, head.next_seq - 1)
        return ToDo(cut(log, whole, parse(_options(task), streaming=False)), manifest)
    finally:
        log.close()


def _options(task: ExportTask) -> dict[str, str]:
    return {"subscribe": task.topic, **options_of(task.target)}


# Writing


def _write(spark: SparkSession, task: ExportTask, pieces: Sequence[TopicPartition]) -> list[Done]:
    rows = PartitionReader(parse(_options(task), streaming=False), Projection(COLUMNS))
    write = partial(write_piece, rows, task.where, task.output, task.format)
    try:
        done: list[Done] = spark.sparkContext.parallelize(pieces, len(pieces)).map(write).collect()
    except Exception as error:
        raise ExportFailed(f"{task.topic}: {explain(error)}") from error
    return done


def write_piece(
    rows: PartitionReader, where: LogAddress, output: str, how: Format, piece: TopicPartition
) -> Done:
    """On an executor: one piece to one file."""
    log = where.open()
    lost: list[tuple[int, int | None, str]] = []
    name = f"{piece.first:020d}-{piece.last:020d}.{how}"
    scratch = f".{name}.{uuid.uuid4().hex[:8]}"

    def records() -> Iterator[pa.RecordBatch]:
        for batch in rows.read(log, piece):
            stored, gaps = rows_and_gaps(batch)
            lost.extend((gap.first, gap.last, gap.reason) for gap in gaps)
            if stored.num_rows:
                yield stored

    try:
        written = (_parquet if how == "parquet" else _jsonl)(output, scratch, records())
        if written:
            os.replace(os.path.join(output, scratch), os.path.join(output, name))
            sync_directory(output)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(output, scratch))
        raise
    finally:
        log.close()
    return Done(piece.first, piece.last, name if written else None, written, lost)


def _parquet(output: str, scratch: str, batches: Iterator[pa.RecordBatch]) -> int:
    writer: FileWriter | None = None
    for batch in batches:
        if writer is None:
            writer = FileWriter(output, scratch, ROWS)
        writer.write(batch)
    return 0 if writer is None else writer.finish().statistics.rows


def _jsonl(output: str, scratch: str, batches: Iterator[pa.RecordBatch]) -> int:
    count = 0
    with open(os.path.join(output, scratch), "wb") as file:
        for batch in batches:
            for row in _rows(batch):
                file.write(render_records([row], EVERYTHING)[1:-1] + b"\n")
            count += batch.num_rows
        file.flush()
        os.fsync(file.fileno())
    if not count:
        os.unlink(os.path.join(output, scratch))
    return count


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    columns = [batch.column("seq").to_pylist()]
    columns.append((batch.column("ts").cast(pa.int64()).to_numpy() // 1000).tolist())
    columns += [batch.column(name).to_pylist() for name in ("node", "tag", "data", "meta")]
    for seq, ts, node, tag, data, meta in zip(*columns, strict=True):
        yield seq, ts, node, tag, data.encode(), None if meta is None else meta.encode()
