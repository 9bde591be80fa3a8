"""Write a data frame to topics, exactly once: `df.write|writeStream.format("topics")`.

    task      encodes its rows, stages them in chunks, and says which stages are its own
    driver    commits all of them under the epoch, once; no record is visible before that

An epoch is a batch of a streaming query, or the `txnVersion` of a batch write. The server knows
the last epoch of every query or `txnAppId` and appends it only once. If a task or the driver dies,
the driver's next run repeats the epoch, perhaps with other partitions, and the server appends it or
answers that it has it. The last committed epoch decides, not what was staged: stages of tasks that
failed, of attempts that lost and of dead drivers are never named by a commit, and expire.

After a commit was sent, its stages must not be touched, even if no answer came: it may have been
carried out.

An epoch is counted per app, and its targets are compared: if the epoch was committed with records
for other topics than this write has, the write is refused. Two writes under one `txnAppId` and
`txnVersion`, or a copied checkpoint with another topic, would otherwise lose their rows in silence.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from topics.errors import StaleEpoch, TopicsError
from topics.spark.errors import InvalidOption, OtherTargets
from topics.spark.sink.chunks import Chunk, RowEncoder, chunks
from topics.spark.sink.options import SinkOptions, check_columns, parse
from topics.spark.sink.stages import (
    StageClient,
    WriteRefused,
    new_attempt,
    new_run,
    run_named,
)
from topics.values import StageCommit

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RUN_ID: Final = "spark.jobGroup.id"
_SHOWN_TOPICS: Final = 5
PULSE_S: Final = 60.0
"""How often a task tells the server that its run is alive."""
_log = logging.getLogger("topics.spark")


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What one task has staged: its app, epoch, and (part, attempt) of each chunk.

    `topics` are those its rows are for, also of rows that were not staged.
    """

    app: str
    epoch: int
    parts: tuple[tuple[int, int], ...]
    rows: int
    topics: tuple[str, ...] = ()


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of `df.write`. With a transaction, asks first whether it was committed before."""
    if overwrite:
        raise InvalidOption(
            "a topic is only ever appended to: write with mode('append'). To replace what is in "
            "it, delete its records or drop it first"
        )
    asked = parse(options, streaming=False)
    check_columns(schema, asked)
    if asked.app is None:
        return BatchWriter(asked, f"{asked.app_prefix}batch-{uuid.uuid4()}", 0, is_open=True)
    return BatchWriter(asked, asked.app, asked.version, is_open=_is_open(asked, asked.app))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream`."""
    if overwrite:
        raise InvalidOption(
            "a topic is only ever appended to, and output mode complete replaces the whole result "
            "with every batch: use append. An aggregation then needs a watermark and a window, so "
            "that a group is written once, when it is complete. To write the whole result every "
            "time, write each batch with foreachBatch"
        )
    asked = parse(options, streaming=True)
    check_columns(schema, asked)
    return StreamWriter(asked)


class BatchWriter(DataSourceArrowWriter):
    """One write, one epoch. `is_open` is False when an earlier run has committed it."""

    def __init__(self, options: SinkOptions, app: str, epoch: int, *, is_open: bool) -> None:
        self._options = options
        self._app = app
        self._epoch = epoch
        self._is_open = is_open
        self._run = new_run()

    def write(self, iterator: Iterator[RecordBatch]) -> TaskCommit:
        if not self._is_open:
            targets = Targets(iterator, self._options.topic)
            targets.find_all()
            return TaskCommit(self._app, self._epoch, (), 0, targets.sorted)
        return _stage(self._options, self._app, self._epoch, self._run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = _commit(self._options, self._app, self._epoch, _staged(messages))
        wanted = _topics_of(messages)
        if done.deduped and wanted and wanted != set(done.topics):
            raise OtherTargets(
                f"txnVersion {self._epoch} of txnAppId {self._app!r} has written to "
                f"{_named(done.topics)}, and this write goes to {_named(wanted)}: none of its rows "
                "were written. Give each target a txnAppId of its own"
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query; its epochs are the query's batches."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> TaskCommit:
        task = _task()
        query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise InvalidOption(
                "this stream gives its batches no numbers: use a micro-batch trigger"
            )
        name = task.getLocalProperty(_RUN_ID)
        run = None if name is None else run_named(name)
        return _stage(self._options, self._options.app_prefix + query, int(batch), run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if not staged:
            return
        app, wanted = staged[0].app, _topics_of(messages)
        done = _commit(self._options, app, batchId, staged)
        if done.deduped and not wanted <= set(done.topics):
            raise OtherTargets(
                f"batch {batchId} of this query has written to {_named(done.topics)}, and now it "
                f"goes to {_named(wanted)}: none of its rows were written. Another query ran with "
                "a copy of this checkpoint, or the topic was changed. To count the batches of this "
                f"query on their own, set the option appPrefix to another value; the name was {app}"
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _abort(self._options, messages)


# On executors


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark calls write inside a task"
    return task


def _stage(
    options: SinkOptions, app: str, epoch: int, run: int | None, batches: Iterable[RecordBatch]
) -> TaskCommit:
    """Stage the rows of this task; stops early when the epoch turns out to be committed."""
    task = _task()
    partition, attempt = task.partitionId(), new_attempt(task.taskAttemptId(), run)
    by_run = run is not None
    encoder = RowEncoder(partition, options.topic, as_text=options.as_text)
    targets = Targets(batches, options.topic)
    parts: list[tuple[int, int]] = []
    rows = 0
    pulse = _pulse(options, app, epoch, attempt) if by_run else nullcontext()
    with _stages(options, app) as stages, pulse:
        try:
            for chunk in chunks(targets, encoder):
                parts.append((chunk.part(partition), attempt))
                rows += chunk.rows
                where = f"partition {partition}"
                if not _keep(stages, epoch, chunk, parts[-1], where, by_run=by_run):
                    targets.find_all()
                    break
        except BaseException:
            stages.drop(epoch, parts)
            raise
    return TaskCommit(app, epoch, tuple(parts), rows, targets.sorted)


class Targets:
    """Batches as they come, and the topics of all rows that came. `topic` is the default."""

    def __init__(self, batches: Iterable[RecordBatch], topic: str | None) -> None:
        self._batches = iter(batches)
        self._default = topic
        self._found: set[str | None] = set()

    def __iter__(self) -> Iterator[RecordBatch]:
        for batch in self._batches:
            self._note(batch)
            yield batch

    def find_all(self) -> None:
        """Go on to the end, as far as it takes to know every topic."""
        for batch in self:
            if batch.num_rows and "topic" not in batch.schema.names:
                return  # all rows go to the default

    @property
    def sorted(self) -> tuple[str, ...]:
        named = {self._default if topic is None else topic for topic in self._found}
        return tuple(sorted(topic for topic in named if topic is not None))

    def _note(self, batch: RecordBatch) -> None:
        if "topic" in batch.schema.names:
            self._found.update(batch.column("topic").unique().to_pylist())
        elif batch.num_rows:
            self._found.add(None)


@contextmanager
def _pulse(options: SinkOptions, app: str, epoch: int, attempt: int) -> Iterator[None]:
    """Tell the server now and then that the run is alive, however long its rows take to come."""
    ended = Event()

    def beat() -> None:
        while not ended.wait(PULSE_S):
            with _stages(options, app) as stages:
                stages.touch(epoch, attempt)

    beating = Thread(target=beat, name="topics-sink-pulse", daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()


def _keep(
    stages: StageClient,
    epoch: int,
    chunk: Chunk,
    part: tuple[int, int],
    where: str,
    *,
    by_run: bool,
) -> bool:
    try:
        return stages.keep(epoch, *part, chunk.body, by_run=by_run)
    except TopicsError as error:
        raise WriteRefused(
            f"{where}, {chunk.shown_rows} could not be staged: {error}", error
        ) from error


# On the driver


def _is_open(options: SinkOptions, app: str) -> bool:
    try:
        with _stages(options, app) as stages:
            return stages.is_open(options.version)
    except StaleEpoch as error:
        raise WriteRefused(
            f"txnVersion {options.version} of txnAppId {app!r} is lower than one already "
            f"committed: {error}",
            error,
        ) from error


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit]:
    return [message for message in messages if isinstance(message, TaskCommit)]


def _topics_of(messages: Sequence[WriterCommitMessage | None]) -> set[str]:
    return {topic for one in _staged(messages) for topic in one.topics}


def _named(topics: Iterable[str]) -> str:
    """Some topics for a message."""
    names = sorted(topics)
    more = f" and {len(names) - _SHOWN_TOPICS} more" if len(names) > _SHOWN_TOPICS else ""
    return ", ".join(names[:_SHOWN_TOPICS]) + more or "no topic"


def _commit(
    options: SinkOptions, app: str, epoch: int, staged: Sequence[TaskCommit]
) -> StageCommit:
    for one in staged:
        assert (one.app, one.epoch) == (app, epoch), "Spark gathers the messages of one batch"
    with _stages(options, app) as stages:
        done = stages.commit(epoch, [part for one in staged for part in one.parts])
    if done.deduped:
        _log.info("epoch %d of %s was committed before; nothing was written", epoch, app)
    return done


def _abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Free what the tasks of a failed job have staged, unless a commit may have named it.

    A job without a message for every task has failed before its commit. With all messages there
    the commit was about to be sent, or was sent and its answer lost: then the stages stay, and
    those that were not committed go with age.
    """
    if None not in messages:
        return
    for one in _staged(messages):
        with _stages(options, one.app) as stages:
            stages.drop(one.epoch, one.parts)


def _stages(options: SinkOptions, app: str) -> StageClient:
    return StageClient(options.target, app, retry_s=options.retry_s)
