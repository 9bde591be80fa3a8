"""Writing records: one way from a decoded write to its acknowledgement, for every protocol.

HTTP, long bodies and WebSockets differ in how they decode a write and present the answer. In
between are the same three steps:

    check      may the key configure the topic; is the batch within limits    `check`, `prepare`
    append     the engine's append, under the conditions of the write         `append`
    account    where the time went                                            `time_spent`

Most of the cost of a write does not depend on its records: the submission, the write to the log,
the publishing, waiting for seqs. With many writers a tick of the loop brings many writes to the
same topic, and then this is done once for the group (`WriteGroups`). Each write of a group is whole
in the log, its idempotency key included, and is answered with its own seqs.

A group does not wait for long: it is closed when its first write has waited for two milliseconds,
or when there is as much to write as is sensible at once.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from topics.engine.effects import Op
from topics.engine.engine import Engine
from topics.engine.writes.append import Timing, acked, landed
from topics.engine.writes.drafts import ANY_SIZE, check_batch
from topics.errors import TopicsError
from topics.http.api.auth import Principal, Scope
from topics.http.api.call import Call
from topics.http.api.errors import internal
from topics.http.api.service import Service
from topics.http.messages import Response
from topics.http.tick import TickBatch
from topics.storage.frames.prepared import PreparedAppend
from topics.values import Ack
from topics.wire import requests, responses
from topics.wire.requests import WriteRequest

MOST_BYTES = 1 << 18
"""How much a group writes at once; a larger write goes alone."""


# The use case


def check(
    engine: Engine,
    principal: Principal,
    topic: str,
    sent: WriteRequest,
    *,
    most_bytes: int = ANY_SIZE,
    config_needs_admin: bool = False,
) -> None:
    """Refuse a write that its key may not make, or that breaks a limit.

    No record has more bytes than `most_bytes`: with the size of the whole body, short batches need
    no look at each record. The batch of a long write is checked in slices, by `prepare`.
    """
    if sent.config is not None:
        check_config(engine, principal, topic, sent, always=config_needs_admin)
    limits = engine.kernel.settings
    check_batch(sent.drafts, limits, key=sent.idempotency_key, at_most=most_bytes)


def check_config(
    engine: Engine, principal: Principal, topic: str, sent: WriteRequest, *, always: bool
) -> None:
    """Judge the config of a write, which counts only if the write creates its topic.

    If the topic exists, the config is dropped here, so that it does not count either if the topic
    is dropped before the append. Only a key with the admin scope may configure a topic. A WebSocket
    asks for that scope `always`, also where the config turns out to be ignored; HTTP does not.
    """
    config = sent.config
    if config is None:
        return
    exists = topic in engine.kernel.catalog.by_name
    if always or not exists:
        principal.need(Scope.ADMIN, topic=topic)
        if config.dead_letter is not None:
            principal.need_name(config.dead_letter)
    if exists:
        sent.config = None


def prepare(service: Service, engine: Engine, sent: WriteRequest) -> Op[PreparedAppend]:
    """Check the batch of a long write and make its frames, in slices."""
    limits = engine.kernel.settings
    return service.long_bodies.prepared(sent.drafts, limits, key=sent.idempotency_key)


def append(
    engine: Engine,
    topic: str,
    sent: WriteRequest,
    timing: Timing,
    prepared: PreparedAppend | None = None,
) -> Op[Ack]:
    """Append what was checked, under the conditions of the write."""
    return engine.append(
        topic,
        sent.drafts,
        key=sent.idempotency_key,
        expect_head=sent.expect_head,
        create=sent.create,
        config=None if sent.config is None else sent.config.fields(),
        timing=timing,
        wait_for_room=sent.disable_backpressure,
        prepared=prepared,
    )


def time_spent(ack: Ack, timing: Timing, started_ns: int) -> bytes:
    """The `performance` object of an acknowledged write; a repeated write logged nothing."""
    spent_ns = time.perf_counter_ns() - started_ns
    if ack.deduped:
        return responses.time_spent(spent_ns)
    return responses.write_time_spent(
        spent_ns, timing.wrote_ns, timing.synced_ns, timing.throttled_ns
    )


# HTTP


class _Waiting(NamedTuple):
    """A write that waits for the end of the tick; it makes no conditions."""

    call: Call
    sent: WriteRequest
    return_seqs: bool


class WriteGroups:
    """Writes that wait for the end of the tick, by topic."""

    __slots__ = ("_batch", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, list[_Waiting]] = {}
        self._batch = TickBatch(self._serve, MOST_BYTES)

    def write(self, call: Call, topic: str, sent: WriteRequest, *, return_seqs: bool) -> None:
        """Append a write that was checked: with others, unless it is alone or has conditions."""
        if sent.expect_head is not None or sent.disable_backpressure:
            self.write_before(topic)
            timing = Timing()
            answer = partial(answer_write, call, timing, return_seqs)
            call.run(append(call.engine, topic, sent, timing), answer)
            return
        size = len(call.request.body)
        if self._batch.join(call.reply.tick, call.started_ns, weight=size):
            self._waiting.setdefault(topic, []).append(_Waiting(call, sent, return_seqs))
        else:
            _write_alone(call, topic, sent, return_seqs)

    def write_before(self, topic: str) -> None:
        """Write the waiting group of this topic, because the next write to the topic goes alone.

        Requests that were pipelined on one connection are executed in their order.
        """
        some = self._waiting.pop(topic, None)
        if some is not None:
            _write_group(topic, some)

    def _serve(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for topic, some in waiting.items():
            _write_group(topic, some)


def _write_alone(call: Call, topic: str, sent: WriteRequest, return_seqs: bool) -> None:
    timing = Timing()
    answer = partial(answer_write, call, timing, return_seqs)
    try:
        engine = call.engine
        submission = engine.submit(topic, sent.drafts, sent.idempotency_key)
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
        else:
            call.run(append(engine, topic, sent, timing), answer)


def _write_group(topic: str, writes: list[_Waiting]) -> None:
    if len(writes) == 1:
        _write_alone(writes[0].call, topic, *writes[0][1:])
        return
    timing = Timing()

    def done(acks: list[Ack] | None, error: TopicsError | None) -> None:
        if error is not None:
            for write in writes:
                write.call.refuse(error)
        elif acks is None:  # they cannot be appended as one
            for write in writes:
                _write_alone(write.call, topic, *write[1:])
        else:
            for (call, _, return_seqs), ack in zip(writes, acks, strict=True):
                call.settle(ack, partial(answer_write, call, timing, return_seqs))

    call = writes[0].call
    batches = [write.sent.drafts for write in writes]
    keys = [write.sent.idempotency_key for write in writes]
    try:
        op = call.engine.append_together(topic, batches, timing, keys)
    except TopicsError as error:
        done(None, error)
    else:
        call.service.begin(op, done)


def write_long(call: Call, topic: str, *, return_seqs: bool) -> None:
    """Write a body that takes so long to decode that other requests are served meanwhile."""
    call.request.may_run_ahead = False  # requests behind it on its connection wait unread
    timing = Timing()
    call.hold_body()
    call.run(_written(call, topic, timing), partial(answer_write, call, timing, return_seqs))


def _written(call: Call, topic: str, timing: Timing) -> Op[Ack]:
    sent, prepared = yield from call.service.long_bodies.alone(_understood(call, topic))
    # The engine is looked up again: the body may have waited behind others for long.
    return (yield from append(call.engine, topic, sent, timing, prepared))


def _understood(call: Call, topic: str) -> Op[tuple[WriteRequest, PreparedAppend]]:
    bodies, body = call.service.long_bodies, call.take_body()
    sent = yield from bodies.decoded(body, requests.decode_write_in_steps, requests.decode_write)
    take_key(call, sent)
    check_config(call.engine, call.principal, topic, sent, always=False)
    return sent, (yield from prepare(call.service, call.engine, sent))


def take_key(call: Call, sent: WriteRequest) -> None:
    """Take the idempotency key from the header if the body has none."""
    header = call.request.headers.get(b"idempotency-key")
    if header is None or sent.idempotency_key is not None:
        return
    try:
        sent.idempotency_key = header.decode()
    except UnicodeDecodeError:  # the old encoding of headers, which has a letter for every byte
        sent.idempotency_key = header.decode("latin-1")


def answer_write(call: Call, timing: Timing, return_seqs: bool, ack: Ack) -> None:
    """Answer with the seqs of a write, and where its time went."""
    spent = time_spent(ack, timing, call.started_ns)
    body = responses.write_ack(ack, spent, return_seqs=return_seqs)
    call.reply(Response(201 if ack.created else 200, body))
