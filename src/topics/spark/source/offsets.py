"""Positions of a stream, and how far one trigger goes.

A position is `[epoch, next_seq]`: which life of the topic, and the first seq not read yet. Spark
compares offsets as text, so topics are always in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from topics.errors import TopicNotFound
from topics.spark.errors import InvalidOption
from topics.spark.source.coverage import DELETES, LOSSES
from topics.spark.source.log import Offset, TopicLog
from topics.spark.source.options import FIRST_SEQ, ReadOptions
from topics.spark.source.partitions import MIN_PIECE_BYTES, Piece, Restart, TopicPartition, cut

Offsets = Mapping[str, Offset]
Json = dict[str, list[int]]


def encode(offsets: Offsets) -> Json:
    """As Spark stores them."""
    return {topic: [*offsets[topic]] for topic in sorted(offsets)}


def decode(stored: Mapping[str, object]) -> dict[str, Offset]:
    """Offsets from a checkpoint; refuses those of another source."""
    found: dict[str, Offset] = {}
    for topic, position in stored.items():
        match position:
            case [int(epoch), int(next_seq)]:
                found[topic] = Offset(epoch, next_seq)
            case _:
                raise InvalidOption(
                    f"the checkpoint holds {stored!r}, which is no position in topics; use another "
                    "checkpointLocation for this query"
                )
    return found


def is_restart(start: Offset, end: Offset) -> bool:
    """Whether the topic was made anew between the two."""
    return start.epoch != end.epoch or start.next_seq > end.next_seq


def pieces(log: TopicLog, start: Offsets, end: Offsets, options: ReadOptions) -> Iterator[Piece]:
    """What lies between two offsets; a topic that joined begins with its first seq."""
    for topic, until in sorted(end.items()):
        since = start.get(topic, Offset(until.epoch, FIRST_SEQ))
        if is_restart(since, until):
            yield Restart(topic, since.epoch, since.next_seq)
            since = Offset(until.epoch, FIRST_SEQ)
        whole = TopicPartition(topic, until.epoch, since.next_seq, until.next_seq - 1)
        yield from cut(log, whole, options)


class TriggerRoom(NamedTuple):
    """What a trigger may still take; None is no bound."""

    rows: int | None
    nbytes: int | None

    @property
    def is_full(self) -> bool:
        return (self.rows is not None and self.rows <= 0) or (
            self.nbytes is not None and self.nbytes <= 0
        )

    def share(self, part: int, whole: int) -> TriggerRoom:
        """The room for `part` of `whole` that is waiting, rounded up."""
        return TriggerRoom(
            None if self.rows is None else -(-self.rows * part // whole),
            None if self.nbytes is None else -(-self.nbytes * part // whole),
        )

    def less(self, rows: int, nbytes: int) -> TriggerRoom:
        return TriggerRoom(
            None if self.rows is None else self.rows - rows,
            None if self.nbytes is None else self.nbytes - nbytes,
        )


class Advance(NamedTuple):
    """How far a topic gets in a trigger, and what that takes of the room."""

    end: Offset
    rows: int
    nbytes: int


def advance(
    log: TopicLog, topic: str, span: tuple[Offset, Offset], room: TriggerRoom, gaps: Gaps
) -> Advance:
    """As far from the first towards the second position as there is room for."""
    start, end = span
    rows = 0
    if is_restart(start, end):
        rows, start = gaps.restart_rows, Offset(end.epoch, FIRST_SEQ)
    last, nbytes = end.next_seq - 1, 0
    try:
        if room.nbytes is not None:
            last, nbytes = _last_by_bytes(log, topic, (start.next_seq, last), room.nbytes)
        if room.rows is not None:
            last, more = last_by_rows(log, topic, (start.next_seq, last), room.rows - rows, gaps)
            rows += more
    except TopicNotFound:
        pass  # dropped just now: the reader will say so
    return Advance(Offset(end.epoch, last + 1), rows, nbytes)


class Gaps(NamedTuple):
    """Which runs without a record become rows, and so count."""

    lost: bool
    deleted: bool

    @classmethod
    def of(cls, options: ReadOptions) -> Gaps:
        return cls(options.on_loss == "rows", options.include_deleted)

    @property
    def restart_rows(self) -> int:
        return int(self.lost)

    def rows(self, kind: str) -> int:
        """How many rows a run of this kind becomes."""
        return int(self.lost) if kind in LOSSES else int(self.deleted and kind == DELETES)


def last_by_rows(
    log: TopicLog, topic: str, span: tuple[int, int], room: int, gaps: Gaps
) -> tuple[int, int]:
    """The last seq that fits when `room` rows do, and how many rows that makes.

    With a filter fewer may come: which records pass is not known before they are read.
    """
    (at, last), used = span, 0
    while at <= last:
        found = log.dead_runs(topic, at, last)
        runs = [(run.from_seq, run.to_seq, gaps.rows(run.kind)) for run in found.runs]
        for first, end, rows in (*runs, (found.next_from_seq, found.next_from_seq - 1, 0)):
            records = first - at
            if used + records >= room:
                return at + (room - used) - 1, room
            used += records
            if used + rows > room:
                return first - 1, used
            used += rows
            at = end + 1
        if found.next_from_seq > last or not found.runs:
            break
    return last, used


def _last_by_bytes(log: TopicLog, topic: str, span: tuple[int, int], room: int) -> tuple[int, int]:
    """The last seq that fits when `room` bytes do; the first range always fits."""
    first, last = span
    plan = log.plan(topic, first, last, max(room // 8, MIN_PIECE_BYTES))
    used, end = 0, first - 1
    for found in plan.ranges:
        if used and used + found.bytes > room:
            return end, used
        used, end = used + found.bytes, found.to_seq
    return last, used
