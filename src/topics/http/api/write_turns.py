"""Writes of one turn of the loop, done together at its end.

Most of what a write costs is not its records: it is the submission, the write to the log, the
publishing, and waiting for seqs. With many writers a turn brings many writes to the same topic, and
then all of this is done once. Each is whole for itself in the log all the same, its idempotency key
included, and is answered with its own seqs.

Nobody waits for long: a turn is cut when the first has waited for two milliseconds, or when there
is as much to write as is sensible at once.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from topics.batch import RecordBatch
from topics.engine.effects import Op
from topics.engine.engine import Engine
from topics.engine.writes.append import Timing, acked, landed
from topics.errors import TopicsError
from topics.http.api.call import Call
from topics.http.api.errors import internal
from topics.http.turns import Gathering
from topics.storage.frames.prepared import PreparedAppend
from topics.values import Ack
from topics.wire import responses
from topics.wire.requests import WriteRequest

MOST_BYTES = 1 << 18
"""How much is written at once; a larger write goes alone."""


class Writer(NamedTuple):
    """One call that writes: `sent` has no conditions. The key may have come in a header."""

    call: Call
    sent: WriteRequest
    batch: RecordBatch
    key: str | None
    return_seqs: bool


class WriteTurns:
    """Who waits for the end of the turn, by topic."""

    __slots__ = ("_gathering", "_writers")

    def __init__(self) -> None:
        self._writers: dict[str, list[Writer]] = {}
        self._gathering = Gathering(self._serve, MOST_BYTES)

    def write(self, writer: Writer) -> None:
        """Write what was checked."""
        call = writer.call
        (name,) = call.names
        size = len(call.request.body)
        if self._gathering.join(call.reply.turns, call.started_ns, weight=size):
            self._writers.setdefault(name, []).append(writer)
        else:
            _write_alone(name, writer)

    def write_before(self, name: str) -> None:
        """Write what waits for this topic: one is about to go alone, and came behind it.

        Requests in line on one connection are done in that order, conditions or not.
        """
        some = self._writers.pop(name, None)
        if some is not None:
            _write_all(name, some)

    def _serve(self) -> None:
        writers, self._writers = self._writers, {}
        for name, some in writers.items():
            _write_all(name, some)


def _write_all(name: str, writers: list[Writer]) -> None:
    if len(writers) == 1:
        _write_alone(name, writers[0])
    else:
        _write_together(name, writers)


def _write_alone(name: str, writer: Writer) -> None:
    call, sent, batch, key, return_seqs = writer
    timing = Timing()
    answer = partial(answer_write, timing, return_seqs, call)
    try:
        engine = call.engine
        submission = engine.submit_at_once(name, batch, key)
        if submission is not None and submission.done:
            answer(acked(submission, timing))
            return
    except TopicsError as error:
        call.refuse(error)
    except Exception as error:
        call.refuse(internal(error))
    else:
        if submission is not None:
            call.run(landed(submission, timing), answer)
            return
        call.run(append_sent(engine, name, sent, batch, key=key, timing=timing), answer)


def _write_together(name: str, writers: list[Writer]) -> None:
    timing = Timing()

    def done(acks: list[Ack] | None, error: TopicsError | None) -> None:
        if error is not None:
            for writer in writers:
                writer.call.refuse(error)
        elif acks is None:
            for writer in writers:
                _write_alone(name, writer)
        else:
            for writer, ack in zip(writers, acks, strict=True):
                writer.call.settle(ack, partial(answer_write, timing, writer.return_seqs))

    call = writers[0].call
    batches, keys = [writer.batch for writer in writers], [writer.key for writer in writers]
    try:
        op = call.engine.append_together(name, batches, timing, keys)
    except TopicsError as error:
        done(None, error)
    else:
        call.service.begin(op, done)


def append_sent(
    engine: Engine,
    name: str,
    sent: WriteRequest,
    batch: RecordBatch,
    *,
    key: str | None,
    timing: Timing,
    prepared: PreparedAppend | None = None,
) -> Op[Ack]:
    """The append that a write asks for, under the conditions that it makes."""
    return engine.append(
        name,
        batch,
        key=key,
        expect_head=sent.expect_head,
        create=sent.create,
        config=sent.config.fields() if sent.config is not None else None,
        timing=timing,
        wait_for_room=sent.disable_backpressure,
        prepared=prepared,
    )


def answer_write(timing: Timing, return_seqs: bool, call: Call, ack: Ack) -> None:
    """Answer with the seqs of a write, and where its time went."""
    spent = write_performance(call, ack, timing)
    body = responses.write_ack(ack, spent, return_seqs=return_seqs)
    call.answer(body, 201 if ack.created else 200)


def write_performance(call: Call, ack: Ack, timing: Timing) -> bytes:
    if ack.deduped:
        return call.spent()
    return responses.performance(
        call.elapsed_ms(),
        wal_append_ms=timing.wrote_ns / 1e6,
        fsync_ms=timing.synced_ns / 1e6,
        throttle_wait_ms=timing.throttled_ns / 1e6,
    )
