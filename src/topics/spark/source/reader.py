"""`spark.read` and `spark.readStream` over topics.

A batch reads a range that is fixed when it is planned; later actions on the same DataFrame see the
same range. A stream reads on from its checkpoint, with every topic's epoch in the offset, so that a
topic made anew is noticed however long it has become.

The methods of a stream run in one long-lived process on the driver, where an exception ends the
query: what may pass is waited out below (`log.patiently`). `read` runs on executors, on copies that
know nothing but the options and their partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from topics.errors import TopicNotFound, TopicsError
from topics.spark.errors import InvalidOption
from topics.spark.source import offsets
from topics.spark.source.log import LogAddress, Offset, TopicLog
from topics.spark.source.offsets import Gaps, Json, TriggerRoom
from topics.spark.source.options import FIRST_SEQ, ReadOptions, Start, parse
from topics.spark.source.partitions import (
    Pack,
    PartitionReader,
    Piece,
    Restart,
    TopicPartition,
    cut,
    packed,
)
from topics.spark.source.schema import Projection, projection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

LONG_POLL_S: Final = 1.0
"""How long a stream with nothing to do waits for the log before Spark asks again."""
_MISSING_PAUSE_S: Final = 0.2

_log = logging.getLogger("topics.spark")


def batch_reader(options: Mapping[str, str], schema: StructType) -> TopicsReader:
    """The reader of `spark.read.format("topics")`."""
    return TopicsReader(*_checked(options, schema, streaming=False))


def stream_reader(options: Mapping[str, str], schema: StructType) -> TopicsStreamReader:
    """The reader of `spark.readStream.format("topics")`."""
    return TopicsStreamReader(*_checked(options, schema, streaming=True))


def _checked(
    options: Mapping[str, str], schema: StructType, *, streaming: bool
) -> tuple[ReadOptions, Projection]:
    asked, columns = parse(options, streaming=streaming), projection(schema)
    if not columns.has_kind:
        if asked.on_loss == "rows":
            raise InvalidOption(
                "without the column kind a lost run would pass for a record: add kind to the "
                "schema, or choose onLoss=fail or onLoss=skip"
            )
        if asked.include_deleted:
            raise InvalidOption(
                "without the column kind a deleted run would pass for a record: add kind to the "
                "schema, or leave includeDeleted out"
            )
    return asked, columns


class _LogReader:
    """What both have in common: a log, opened where it is used, and pieces to read from it."""

    def __init__(self, options: ReadOptions, columns: Projection) -> None:
        self.options = options
        self._where = LogAddress(options.target, options.cold_dir, options.retry_s)
        self._rows = PartitionReader(options, columns)
        self._opened: TopicLog | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def log(self) -> TopicLog:
        if self._opened is None:
            self._opened = self._where.open()
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        pieces = partition.pieces if isinstance(partition, Pack) else (partition,)
        log: TopicLog | None = None
        try:
            for piece in pieces:
                if isinstance(piece, Restart):
                    yield from self._rows.restart(piece)
                elif isinstance(piece, TopicPartition):
                    log = log or self._where.open()
                    yield from self._rows.read(log, piece)
                # Else Spark made it up, for want of any: there is nothing to read.
        finally:
            if log is not None:
                log.close()

    def topics(self) -> list[str]:
        """The topics subscribed to; those of a pattern are looked up anew each time."""
        if self.options.pattern is None:
            return list(self.options.topics)
        return sorted(topic for topic in self.log.names() if self.options.wants(topic))

    def heads(self) -> dict[str, Offset]:
        """Where the topics end, as far as they exist."""
        return self.log.heads(self.topics())

    def existing_heads(self) -> dict[str, Offset]:
        """The same when a query begins: then a topic that is missing is a mistake."""
        heads = self.heads()
        for topic in self.options.topics:
            if topic not in heads:
                raise TopicNotFound(topic)
        if not heads and self.options.pattern is not None:
            _log.warning("no topic matches %s yet", self.options.pattern)
        return heads

    def first_seq(self, topic: str, head: Offset, default: Start) -> int:
        """The first seq to read."""
        if self.options.starting_ms is not None:
            return self.log.first_at(topic, self.options.starting_ms)
        found = _of(topic, self.options.starting or default, "earliest")
        if found == "latest":
            return head.next_seq
        if found != "earliest":
            if int(found) > head.next_seq:
                raise InvalidOption(
                    f"startingOffsets begins at seq {found} of {topic}, which ends at "
                    f"{head.next_seq - 1}"
                )
            return int(found)
        if self.options.on_loss == "fail":
            # Losses of the past are no reason to fail: what is there is read from its beginning.
            return max(self._floor(topic, head), FIRST_SEQ)
        return FIRST_SEQ

    def end_seq(self, topic: str, head: Offset) -> int:
        """The first seq not to read any more."""
        if self.options.ending_ms is not None:
            end = self.log.first_at(topic, self.options.ending_ms)
            # Lost records may be older or newer than that time, so they are reported.
            return self._floor(topic, head) if end == FIRST_SEQ else end
        found = _of(topic, self.options.ending or "latest", "latest")
        if found == "earliest":
            return FIRST_SEQ
        return head.next_seq if found == "latest" else min(int(found), head.next_seq)

    def _floor(self, topic: str, head: Offset) -> int:
        if head.next_seq == FIRST_SEQ:
            return FIRST_SEQ
        return self.log.plan(topic, FIRST_SEQ, FIRST_SEQ, 1).evict_floor


def _of(topic: str, edges: Start, default: str) -> int | str:
    return edges if isinstance(edges, str) else edges.get(topic, default)


class TopicsReader(_LogReader, DataSourceReader):
    """A fixed range of one or more topics."""

    def partitions(self) -> list[InputPartition]:
        pieces: list[Piece] = []
        try:
            for topic, head in self.existing_heads().items():
                first, end = self.first_seq(topic, head, "earliest"), self.end_seq(topic, head)
                pieces += cut(
                    self.log, TopicPartition(topic, head.epoch, first, end - 1), self.options
                )
        finally:
            self.close()
        return list(packed(pieces, self.options))


class TopicsStreamReader(_LogReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Topics as they grow."""

    def __init__(self, options: ReadOptions, columns: Projection) -> None:
        super().__init__(options, columns)
        self._stop_at: dict[str, Offset] | None = None
        self._first: dict[str, Offset] | None = None
        self._has_looked = self._has_planned = False
        self._is_checked = False
        self._missing: set[str] = set()
        self._reported: Mapping[str, Offset] = {}
        self._turn = 0
        self._triggered = monotonic()

    # Where a query begins

    def initialOffset(self) -> Json:  # noqa: N802
        """Where the query begins. Spark asks again when it runs the first batch."""
        if self._first is None:
            heads = self.existing_heads()
            self._first = {
                topic: Offset(head.epoch, self.first_seq(topic, head, "latest"))
                for topic, head in heads.items()
            }
            if self._stop_at is not None:
                # Spark asked for the end before the beginning. If the topic grew in between, its
                # beginning would lie behind that end, which would look like a recreated topic.
                self._stop_at = self.heads()
        return offsets.encode(self._first)

    def _check_checkpoint(self, start: Mapping[str, Offset]) -> None:
        if self._is_checked:
            return
        self._is_checked = True
        foreign = [topic for topic in start if not self.options.wants(topic)]
        if foreign:
            wanted = self.options.pattern or ",".join(self.options.topics)
            raise InvalidOption(
                f"the checkpoint is that of a query over {', '.join(sorted(start))}, and this one "
                f"reads {wanted}; give it a checkpointLocation of its own"
            )
        if self._first is None and (self.options.starting or self.options.starting_ms):
            _log.warning(
                "the query goes on from its checkpoint; startingOffsets and startingTimestamp "
                "count only for a new one"
            )

    @property
    def _has_to_begin(self) -> bool:
        """Whether the first batch only puts down where the query begins.

        Spark stores where a batch ends. Where the first batch began it asks the source, also when a
        new driver repeats that batch. If `startingOffsets` is a time or `latest`, the answer may
        have changed by then. So the first batch ends where it begins.
        """
        return self._first is not None and self.options.start_moves

    # How far a trigger goes

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limits = self.options.limits
        if limits.max_records is not None:
            return ReadMaxRows(limits.max_records)
        return ReadAllAvailable() if limits.max_bytes is None else ReadMaxBytes(limits.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stop_at = self.heads()

    def reportLatestOffset(self) -> Json:  # noqa: N802
        return offsets.encode(self.heads())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Json:  # noqa: N802
        position = offsets.decode(start)
        self._check_checkpoint(position)
        self._report(position)  # Spark asks for a new end when the last batch is done
        is_first = not (self._has_looked or self._has_planned)
        self._has_looked = True
        if is_first and self._has_to_begin:
            return offsets.encode(position)
        ends = self._stop_at
        if ends is None:
            ends = self._grown(position)
            if not self._is_enough(position, ends):
                return offsets.encode(position)
        reached = self._admitted(position, ends, self._room(limit))
        if reached != position:
            self._triggered = monotonic()
        return offsets.encode(position | reached)

    def _room(self, limit: ReadLimit) -> TriggerRoom:
        if isinstance(limit, ReadAllAvailable):
            return TriggerRoom(None, None)
        return TriggerRoom(self.options.limits.max_records, self.options.limits.max_bytes)

    def _grown(self, position: Mapping[str, Offset]) -> dict[str, Offset]:
        """Where the topics end; waits a moment if that is where the stream is already."""
        heads = self._present_heads(position)
        if any(position.get(topic) != head for topic, head in heads.items()):
            return heads
        self._wait(heads, LONG_POLL_S)
        return self._present_heads(position)

    def _present_heads(self, position: Mapping[str, Offset]) -> dict[str, Offset]:
        heads = self.heads()
        missing = {topic for topic in (*position, *self.options.topics) if topic not in heads}
        for topic in sorted(missing - self._missing):
            _log.warning("topic %s does not exist any more; the stream waits for it", topic)
        self._missing = missing
        return heads

    def _wait(self, heads: Mapping[str, Offset], seconds: float) -> None:
        if not heads:
            sleep(min(seconds, _MISSING_PAUSE_S))
        for topic, head in heads.items():
            try:
                self.log.wait(topic, head, seconds / len(heads))
            except TopicNotFound:
                sleep(min(seconds, _MISSING_PAUSE_S))
            if len(heads) > 1 and self.log.head(topic) != head:
                return

    def _is_enough(self, position: Mapping[str, Offset], ends: Mapping[str, Offset]) -> bool:
        """Whether what is there is worth a trigger, or has waited for one long enough."""
        limits = self.options.limits
        if limits.min_records is None:
            return True
        waited = monotonic() - self._triggered
        if waited * 1000 >= limits.max_delay_ms:
            return True
        if self._rows_between(position, ends, limits.min_records) >= limits.min_records:
            return True
        left = limits.max_delay_ms / 1000 - waited
        self._wait(ends, max(min(LONG_POLL_S, left), 0.0))
        return False

    def _rows_between(
        self, position: Mapping[str, Offset], ends: Mapping[str, Offset], most: int
    ) -> int:
        gaps, rows = Gaps.of(self.options), 0
        for topic, end in ends.items():
            start = position.get(topic, Offset(end.epoch, FIRST_SEQ))
            span = start, end
            rows += offsets.advance(
                self.log, topic, span, TriggerRoom(most - rows, None), gaps
            ).rows
            if rows >= most:
                break
        return rows

    def _admitted(
        self, position: Mapping[str, Offset], ends: Mapping[str, Offset], room: TriggerRoom
    ) -> dict[str, Offset]:
        """How far each topic gets: the room is shared in proportion to what waits in each topic,
        and every trigger begins with another topic."""
        spans = {
            topic: (position.get(topic, Offset(end.epoch, FIRST_SEQ)), end)
            for topic, end in sorted(ends.items())
            if position.get(topic) != end
        }
        if room == TriggerRoom(None, None):
            return {topic: end for topic, (_, end) in spans.items()}
        self._turn += 1
        names = list(spans)
        shift = self._turn % len(names) if names else 0
        waiting = {topic: _seqs(*span) for topic, span in spans.items()}
        total, gaps = sum(waiting.values()), Gaps.of(self.options)
        reached: dict[str, Offset] = {}
        for topic in names[shift:] + names[:shift]:
            if room.is_full:
                break
            share = room.share(waiting[topic], max(total, 1))
            done = offsets.advance(self.log, topic, spans[topic], share, gaps)
            reached[topic] = done.end
            room = room.less(done.rows, done.nbytes)
            total -= waiting[topic]
        return reached

    # What it comes to

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._has_planned = True
        if self._has_to_begin and not self._has_looked:
            return []  # a first batch, repeated
        since, until = offsets.decode(start), offsets.decode(end)
        pieces = offsets.pieces(self.log, since, until, self.options)
        return list(packed(pieces, self.options))

    def commit(self, end: dict[str, Any]) -> None:
        self._report(offsets.decode(end))

    def _report(self, position: Mapping[str, Offset]) -> None:
        """Leave the position with the log; a failure to do so is no reason to end the query."""
        if self.options.cursor is not None and position != self._reported:
            self._reported = position
            report_position(self.log, self.options.cursor, position)

    def stop(self) -> None:
        self.close()


def _seqs(start: Offset, end: Offset) -> int:
    """About how much lies between, at least one."""
    if offsets.is_restart(start, end):
        return end.next_seq
    return max(end.next_seq - start.next_seq, 1)


def report_position(log: TopicLog, cursor: str, position: Mapping[str, Offset]) -> None:
    """Tell the log how far a query has come in each topic; failures are only logged."""
    for topic, reached in position.items():
        try:
            head = log.head(topic)
            if head is not None and not offsets.is_restart(reached, head):
                log.report(topic, cursor, reached.next_seq - 1)
        except TopicsError as error:
            _log.warning("the cursor %s of %s is not up to date: %s", cursor, topic, error)
