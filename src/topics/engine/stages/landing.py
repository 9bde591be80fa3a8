"""What follows the point of a commit: its records go into the log, then all topics show them.

Both may be tried again from where they stopped, since a chunk that is in the log says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby

import msgspec

from topics.batch import RecordBatch, joined
from topics.core.facts import Appended, StageCommitted
from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Gate, Io, Op
from topics.engine.kernel import Kernel
from topics.engine.writes.caps import due_to_caps, load_losses
from topics.engine.writes.gates import Publishing
from topics.errors import Internal
from topics.storage.frames.append import encode_append
from topics.storage.sources import location
from topics.storage.wal.submission import Submission

CHUNK_BYTES = 4 << 20
"""About how many bytes of records go into the log at once."""
CHUNK_RECORDS = 8192
"""And at most how many records."""
ENCODED_AT_ONCE = 256
"""So many records are encoded on the loop; more are encoded on a thread."""
STEP_TOPICS = 250
"""How many topics are looked at between two pauses."""
SHOWN_AT_ONCE = 1000
"""Up to so many chunks are published in one step, which is short enough for the event loop."""
SHOWN_RECORDS = 16_384
"""And at most about so many records: those with tags cost a microsecond each."""


class Piece(msgspec.Struct):
    """Some records of one topic, as many as the log takes at once."""

    batch: RecordBatch
    count: int
    nbytes: int


class TopicRecords(msgspec.Struct):
    """What a commit has for one topic."""

    pieces: list[Piece]
    count: int
    nbytes: int


class CommitChunk(msgspec.Struct):
    """Some records of one topic; `run` says where the log holds them, once it does.

    From then on they are no longer kept here.
    """

    topic: Topic
    first_seq: int
    ts: int
    batch: RecordBatch | None
    count: int
    nbytes: int
    run: Appended | None = None


class Landing(msgspec.Struct):
    """A commit from its point on."""

    fact: StageCommitted
    topics: list[Topic]
    chunks: list[CommitChunk]
    nbytes: int  # of all records; counted as on their way until they are shown
    lfn: int = 0  # of the commit point
    is_certain: bool = True  # False: only a restart can tell whether the point was reached

    @property
    def topic_ids(self) -> list[int]:
        return [topic.id for topic in self.topics]


class ChunkSubmission(Submission):
    """A chunk on its way through the log."""

    __slots__ = ("chunk", "run")

    chunk: CommitChunk
    run: Appended


def add(batches: dict[str, RecordBatch], records: dict[str, TopicRecords]) -> None:
    """Add the records of a stage to those of the stages before it; `batches` is used up."""
    for topic in list(batches):
        batch = batches.pop(topic)
        found = records.setdefault(topic, TopicRecords([], 0, 0))
        if found.pieces and found.pieces[-1].count < ENCODED_AT_ONCE:
            last = found.pieces.pop()
            found.count -= last.count
            found.nbytes -= last.nbytes
            batch = joined([last.batch, batch])
        for piece in _pieces_of(batch):
            found.pieces.append(piece)
            found.count += piece.count
            found.nbytes += piece.nbytes


def _pieces_of(batch: RecordBatch) -> Iterator[Piece]:
    start = size = 0
    for at, data in enumerate(batch.datas):
        if size >= CHUNK_BYTES or at - start == CHUNK_RECORDS:
            yield Piece(batch.part(start, at), at - start, size)
            start, size = at, 0
        size += len(data) + (len(batch.metas[at]) if batch.metas else 0)
    rest = batch.part(start, len(batch)) if start else batch
    yield Piece(rest, len(batch) - start, size)


def foresee(kernel: Kernel, landing: Landing) -> Op[object]:
    """Have in memory what it takes to show the records."""
    held: list[object] = []
    by_topic = groupby(landing.chunks, lambda chunk: chunk.topic)
    for number, (topic, chunks) in enumerate(by_topic, 1):
        if number % STEP_TOPICS == 0:
            yield PAUSE
        if not topic.evicts:
            continue
        *_, last = found = list(chunks)
        count = last.first_seq + last.count - 1 - topic.handed_out
        nbytes = sum(chunk.nbytes for chunk in found)
        foreseeing = load_losses(kernel, topic, count=count, nbytes=nbytes)
        held.append((yield from foreseeing))
    return held


def append(kernel: Kernel, landing: Landing) -> Op[Internal | None]:
    """Log every chunk that is not yet; returns what stopped one of them.

    The last chunk on each shard asks for the sync, which covers those before it. Behind one
    that failed nothing more goes to its shard: seqs would be missing in between.
    """
    stopped: dict[int, Internal] = {}  # by shard
    sent: list[ChunkSubmission] = []
    failed: Internal | None = None
    try:
        yield from _log_losses(kernel, landing, stopped)
        yield from _send(kernel, landing, sent, stopped)
    except Exception as failure:
        failed = Internal(f"its records could not be prepared for the log: {failure!r}")
    for submission in sent:  # also then: what is on its way must not be sent again
        if not submission.done:
            yield submission
    return next(iter(stopped.values()), failed)


def _send(
    kernel: Kernel,
    landing: Landing,
    sent: list[ChunkSubmission],
    stopped: dict[int, Internal],
) -> Op[None]:
    """Submit the chunks; a shard that refuses one of them, now or later, is noted in `stopped`."""
    waiting = [chunk for chunk in landing.chunks if chunk.run is None]
    last: dict[int, CommitChunk] = {}
    for count, chunk in enumerate(waiting, 1):
        last[kernel.committer.shard_of(chunk.topic.id)] = chunk
        if count % STEP_TOPICS == 0:
            yield PAUSE
    for count, chunk in enumerate(waiting, 1):
        if count % STEP_TOPICS == 0:
            yield PAUSE
        shard = kernel.committer.shard_of(chunk.topic.id)
        if shard in stopped:
            continue
        frames, run = yield from _encoded(chunk)
        if shard in stopped:  # a chunk before this one failed while this one was encoded
            continue
        on_done = partial(_appended, kernel, stopped)
        durable = chunk is last[shard]
        submission = ChunkSubmission(shard, frames, run.count, durable=durable, on_done=on_done)
        submission.chunk, submission.run = chunk, run
        _submit(kernel, submission)
        sent.append(submission)
        is_long = count % SHOWN_AT_ONCE == 0  # what ends together is told of in one step
        if not submission.done and (is_long or not kernel.committer.room(shard, CHUNK_BYTES)):
            yield submission


def _log_losses(kernel: Kernel, landing: Landing, stopped: dict[int, Internal]) -> Op[None]:
    """Log what caps take for these records, as far as replay could not tell.

    Notes in `stopped` the shards that refused, and why.
    """
    by_topic = groupby(landing.chunks, lambda chunk: chunk.topic)
    for number, (topic, chunks) in enumerate(by_topic, 1):
        if number % STEP_TOPICS == 0:
            yield PAUSE
        if not topic.counts_volatile:
            continue  # as good as always
        found = list(chunks)
        count, nbytes = sum(chunk.count for chunk in found), sum(chunk.nbytes for chunk in found)
        due = partial(due_to_caps, kernel, topic, count=count, nbytes=nbytes)
        try:
            loss = yield from kernel.indexes.ask(topic, due)
            if loss is None:
                continue
            held = yield from kernel.indexes.prepare_loss(topic, loss.cap_hi)
        except Internal as unreadable:
            stopped[kernel.committer.shard_of(topic.id)] = unreadable
            continue
        logged = kernel.submit([loss], topic_id=loss.topic_id, durable=False)
        if not logged.done:
            yield logged
        del held
        if logged.error is not None:
            stopped[logged.shard] = logged.error


def _encoded(chunk: CommitChunk) -> Op[tuple[bytes, Appended]]:
    topic = chunk.topic
    assert chunk.batch is not None, "only a chunk that is not in the log is encoded"
    encoding = partial(
        encode_append,
        topic.id,
        chunk.first_seq,
        chunk.ts,
        chunk.batch,
        durable=topic.durability.needs_sync,
    )
    # The seqs are given out and the gates are closed: nothing changes while a thread encodes.
    frames: bytes
    run: Appended
    frames, run = encoding() if chunk.count <= ENCODED_AT_ONCE else (yield Io(encoding))
    return frames, run


def _submit(kernel: Kernel, submission: ChunkSubmission) -> None:
    if kernel.in_memory:
        topic_id, last_seq = submission.chunk.topic.id, submission.run.last_seq
        kernel.arenas.take(submission, topic_id, submission.frames, last_seq)
        kernel.finish_unlogged(submission)
    else:
        kernel.committer.submit(submission)


def _appended(kernel: Kernel, stopped: dict[int, Internal], submission: Submission) -> None:
    assert isinstance(submission, ChunkSubmission)
    if submission.error is not None:
        stopped.setdefault(submission.shard, submission.error)
        return
    kernel.applied[submission.shard] = submission.last_lfn
    run = submission.run
    run.base = location(submission.source_id, submission.offset)
    submission.chunk.run, submission.chunk.batch = run, None


def publish(kernel: Kernel, landing: Landing) -> Op[None]:
    chunks = landing.chunks
    publishing = None
    records = sum([chunk.count for chunk in chunks])
    if len(chunks) > SHOWN_AT_ONCE or records > SHOWN_RECORDS:
        publishing = Publishing({topic.name for topic in landing.topics}, Gate())
        kernel.publishing.append(publishing)
    try:
        shown = 0
        for count, chunk in enumerate(chunks, 1):
            assert chunk.run is not None
            kernel.show(chunk.topic, partial(chunk.topic.apply_appended, chunk.run), wakes=False)
            shown += chunk.count
            if publishing is not None and (count % STEP_TOPICS == 0 or shown >= CHUNK_RECORDS):
                shown = 0
                yield PAUSE
        _finish(kernel, landing)
    finally:
        if publishing is not None:
            kernel.publishing.remove(publishing)
            publishing.over.open()
    for count, topic in enumerate(landing.topics, 1):
        kernel.host.changed(topic)
        if count % STEP_TOPICS == 0:
            yield PAUSE


def _finish(kernel: Kernel, landing: Landing) -> None:
    kernel.catalog.pending_bytes -= landing.nbytes
    kernel.catalog.apply(landing.fact, generation=kernel.generation)
    kernel.dirty_apps.add(landing.fact.app)
