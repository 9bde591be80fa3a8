"""Ranges of seqs: how a topic is cut for tasks, and how a task reads its piece.

A piece names a topic, one life of it and seqs; never files or places. Its reader accounts for every
seq of it, whatever happened to the seqs since it was planned: records that retention took in
between become `lost` rows, and so do records of a topic that was dropped or made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from topics.errors import TopicNotFound
from topics.spark.errors import CoverageBroken, RecordsLost
from topics.spark.source.coverage import DELETES, LOSSES, RowPage, Run, check
from topics.spark.source.log import PAGE_BATCHES, PageQuery, TopicLog
from topics.spark.source.options import ReadOptions
from topics.spark.source.schema import DELETED, LOST, GapRow, Projection
from topics.values import PlannedRange

PIECE_BYTES: Final = 64 << 20
"""What a task reads unless told otherwise: to start one costs Spark as much as ten megabytes."""
MIN_PIECE_BYTES: Final = 64 << 10
PACK_BYTES: Final = 16 << 20
"""Pieces of several topics are packed into one task up to this size."""
PACKED_PIECE_BYTES: Final = 128 << 10
"""What the smallest piece of a pack counts for: it takes a page of its own."""
RECREATED: Final = "recreated"
DROPPED: Final = "dropped"
_SHRUNK: Final = "crash"


@dataclass
class TopicPartition(InputPartition):
    """The seqs `first` to `last`, ends included, of one life of a topic."""

    topic: str
    epoch: int
    first: int
    last: int
    delete_version: int = 0
    nbytes: int = 0
    """About what there is to read, as planned."""


@dataclass
class Restart(InputPartition):
    """A topic was made anew: what came after `seq` in its former life is lost."""

    topic: str
    epoch: int
    seq: int


@dataclass
class Pack(InputPartition):
    """Small pieces, mostly of different topics, that one task reads one after the other."""

    pieces: tuple[Piece, ...]


Piece: TypeAlias = TopicPartition | Restart


# Cutting


def packed(pieces: Iterable[Piece], options: ReadOptions) -> Iterator[InputPartition]:
    """The same pieces in the same order, for fewer tasks where they are small.

    A read that names a number of partitions, or of records in one, gets the pieces as they are.
    """
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        yield from pieces
        return
    waiting: list[Piece] = []
    total = 0
    for piece in pieces:
        nbytes = piece.nbytes if isinstance(piece, TopicPartition) else 0
        size = max(nbytes, PACKED_PIECE_BYTES)
        if waiting and total + size > PACK_BYTES:
            yield _pack(waiting)
            waiting, total = [], 0
        waiting.append(piece)
        total += size
    if waiting:
        yield _pack(waiting)


def _pack(pieces: list[Piece]) -> InputPartition:
    return pieces[0] if len(pieces) == 1 else Pack(tuple(pieces))


def cut(log: TopicLog, whole: TopicPartition, options: ReadOptions) -> list[TopicPartition]:
    """A piece in pieces that follow each other without a gap."""
    topic, epoch, first, last = whole.topic, whole.epoch, whole.first, whole.last
    if first > last:
        return []
    try:
        plan = log.plan(topic, first, last, PIECE_BYTES)
        if plan.epoch != epoch:
            return [whole]  # made anew since: the reader will say so
        if options.min_partitions is not None and len(plan.ranges) < options.min_partitions:
            total = sum(found.bytes for found in plan.ranges)
            target = max(total // options.min_partitions, MIN_PIECE_BYTES)
            plan = log.plan(topic, first, last, target)
    except TopicNotFound:
        return [whole]
    ends = list(_ends(plan.ranges, options.max_records_per_partition))
    if options.min_partitions is not None:
        ends = _at_least(options.min_partitions, first, last, ends)
    # What lies below the floor, or behind a head that has shrunk, belongs to a neighbour.
    ends = [end for end in ends[:-1] if first <= end < last] + [last]
    starts = [first, *(end + 1 for end in ends[:-1])]
    nbytes = sum(found.bytes for found in plan.ranges) // len(ends)
    return [
        TopicPartition(topic, epoch, a, b, plan.delete_version, nbytes)
        for a, b in zip(starts, ends, strict=True)
    ]


def _ends(ranges: Sequence[PlannedRange], most: int | None) -> Iterator[int]:
    """The last seqs of pieces of at most so many seqs, and so of at most so many records."""
    for found in ranges:
        if most is not None:
            yield from range(found.from_seq + most - 1, found.to_seq, most)
        yield found.to_seq


def _at_least(count: int, first: int, last: int, ends: list[int]) -> list[int]:
    """More ends when bytes alone give too few pieces: then the seqs are divided evenly."""
    if len(ends) >= count:
        return ends
    size = max((last - first + 1) // count, 1)
    even = range(first + size - 1, last, size)
    return sorted({*ends, *list(even)[: count - 1], last})


# Reading


@dataclass(frozen=True)
class PartitionReader:
    """Rows of pieces, in batches of the query's schema."""

    options: ReadOptions
    projection: Projection

    def restart(self, restart: Restart) -> Iterator[pa.RecordBatch]:
        """The row that tells of a topic made anew."""
        yield from self._gaps(
            [GapRow(restart.topic, restart.epoch, restart.seq, None, LOST, RECREATED)]
        )

    def read(self, log: TopicLog, piece: TopicPartition) -> Iterator[pa.RecordBatch]:
        """Everything about the seqs of a piece, each exactly once."""
        at = piece.first
        while at <= piece.last:
            page, gone = self._next(log, piece, at)
            if page is None:
                yield from self._gaps(
                    [GapRow(piece.topic, piece.epoch, at, piece.last, LOST, gone)]
                )
                return
            check(page, topic=piece.topic, expected=at)
            if page.coverage.last > piece.last:
                raise CoverageBroken(f"{piece.topic}: a page goes beyond seq {piece.last}")
            yield from self._gaps(list(self._wanted(piece, page.coverage.runs)))
            yield from self._records(piece, page)
            at = page.coverage.last + 1

    def _next(self, log: TopicLog, piece: TopicPartition, at: int) -> tuple[RowPage | None, str]:
        """The page from `at` on; or why there is none any more."""
        names = self.projection.names
        query = PageQuery(
            at,
            piece.last,
            self.options.batch_rows * PAGE_BATCHES,
            piece.delete_version,
            self.options.filter,
            with_tags="tag" in names,
            with_meta="meta" in names,
        )
        try:
            page = log.page(piece.topic, piece.epoch, query)
        except TopicNotFound:
            return None, DROPPED
        if page.epoch != piece.epoch:
            return None, RECREATED
        if page.coverage.first < at or page.coverage.last < at:
            # The topic ends before `at`, where it had gone on when the piece was planned.
            return None, _SHRUNK
        return page, ""

    def _wanted(self, piece: TopicPartition, runs: Sequence[Run]) -> Iterator[GapRow]:
        for run in runs:
            if run.kind in LOSSES:
                yield GapRow(piece.topic, piece.epoch, run.first, run.last, LOST, run.kind)
            elif run.kind == DELETES and self.options.include_deleted:
                yield GapRow(piece.topic, piece.epoch, run.first, run.last, DELETED, DELETES)

    def _gaps(self, gaps: Sequence[GapRow]) -> Iterator[pa.RecordBatch]:
        lost = next((gap for gap in gaps if gap.kind == LOST), None)
        if lost is not None and self.options.on_loss == "fail":
            raise RecordsLost(
                f"{lost.topic}: the records from seq {lost.seq} to {lost.last_seq or 'the end'} "
                f"are lost ({lost.reason}). Read on with onLoss=rows, which gives them as rows of "
                "kind lost, or onLoss=skip; or start behind them"
            )
        if self.options.on_loss == "skip":
            gaps = [gap for gap in gaps if gap.kind != LOST]
        if gaps:
            yield self.projection.of_gaps(gaps)

    def _records(self, piece: TopicPartition, page: RowPage) -> Iterator[pa.RecordBatch]:
        if not page.coverage.records:
            return
        batches = page.batches
        if len(batches) > PAGE_BATCHES:  # smaller ones than were asked for
            table = pa.Table.from_batches(batches).combine_chunks()
            batches = table.to_batches(max_chunksize=self.options.batch_rows)
        for batch in batches:
            yield self.projection.of_records(batch, topic=piece.topic, epoch=piece.epoch)
