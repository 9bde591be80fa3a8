"""Queues: claim, ack, nack, extend, redrive.

Most of the cost of a claim or an ack does not depend on the number of jobs: finding them, the
frame, the write to the log. With many workers a tick of the loop brings many claims and acks to the
same queue, and then this is done once for all: the acks become one delete, the claims take their
jobs in one pass. Each call is answered with its own result or its own error.

A group does not wait for long: it is closed when its first call has waited for two milliseconds,
or when as many jobs are asked for as a single call may name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar, get_args

from topics.engine.effects import Op
from topics.engine.upkeep.lease_log import Presence
from topics.engine.writes.append import Timing
from topics.errors import InvalidRequest, TopicsError
from topics.http.api.call import Call
from topics.http.api.routing import Handler
from topics.http.tick import TickBatch
from topics.queue import ClaimedJobs, Claimer, Named, Queues
from topics.queue.queues import MAX_CLAIM
from topics.values import Acked, Extended, JobState, Redriven
from topics.wire import requests, responses, shapes

DEFAULT_PEEK = 100
JOB_STATES: tuple[JobState, ...] = get_args(JobState)

A = TypeVar("A")
T = TypeVar("T")


def queues_of(call: Call) -> Queues:
    """The queues of a server that is ready."""
    _ = call.engine  # raises while there is none
    queues = call.service.queues
    assert queues is not None
    return queues


def claim(groups: QueueGroups, call: Call) -> None:
    """Claim with the others of this tick, unless claims wait for each other by the clock."""
    (name,) = call.names
    if not call.request.body:
        raise InvalidRequest("a claim needs a body: say at least which node claims")
    sent = requests.decode_claim(call.json_body())
    queues, presence = queues_of(call), Presence()
    topic = queues.queue(name)
    if queues.has_window(topic):
        call.reply.on_gone = call.reply.on_half_close = presence.leave
        op = queues.claim(
            name, node=sent.node, most=sent.max, lease_ms=sent.lease_ms, presence=presence
        )
        call.run(op, partial(_answer_claim, call))
        return
    claimer = queues.claimer(
        topic, node=sent.node, most=sent.max, lease_ms=sent.lease_ms, presence=presence
    )
    groups.claim(call, queues, claimer)


def ack(groups: QueueGroups, call: Call) -> None:
    """Ack with the others of this tick."""
    sent = requests.decode_ack(call.json_body())
    queues = queues_of(call)
    lease_ids = sent.leases if sent.lease_ids else ()
    groups.ack(call, queues, queues.named(sent.node, sent.seqs, lease_ids))


def nack(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_nack(call.json_body())
    call.run(
        queues_of(call).nack(
            name,
            node=sent.node,
            seqs=sent.seqs,
            lease_ids=sent.leases,
            delay_ms=sent.delay_ms,
            error=sent.failure,
        ),
        lambda done: call.answer(responses.present(done, call.spent())),
    )


def extend(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_extend(call.json_body())

    def answer(done: Extended) -> None:
        deadlines = {str(seq): deadline for seq, deadline in done.deadlines.items()}
        shape = shapes.ExtendedShape(name, done.extended, list(done.skipped), deadlines)
        call.answer(responses.present(shape, call.spent()))

    call.run(
        queues_of(call).extend(
            name,
            node=sent.node,
            seqs=sent.seqs,
            lease_ids=sent.leases,
            lease_ms=sent.lease_ms,
        ),
        answer,
    )


def redrive(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_redrive(call.json_body())
    source = sent.source if isinstance(sent.source, str) else None
    known = call.engine.kernel.catalog.by_name.get(name)
    if source:
        call.principal.need_name(source)
    elif known is not None and known.config.dead_letter is not None:
        call.allow_hidden_name(known.config.dead_letter)

    def answer(done: Redriven) -> None:
        shape = shapes.RedrivenShape(
            source=done.source, topic=name, moved=done.moved, more=done.more
        )
        call.answer(responses.present(shape, call.spent()))

    call.run(queues_of(call).redrive(name, source=source, most=sent.max, seqs=sent.seqs), answer)


def peek(call: Call) -> None:
    (name,) = call.names
    query = call.query
    state = query.text("state") or None
    if state is not None and state not in JOB_STATES:
        raise InvalidRequest(f"state is one of {', '.join(JOB_STATES)}; the query has {state!r}")
    most = query.u64("limit")
    call.run(
        queues_of(call).peek(name, state=state, most=DEFAULT_PEEK if most is None else most),
        lambda found: call.answer(responses.shown(found, call.spent())),
    )


# Calls of one tick, done together


class _Group(Generic[A]):
    """Calls to one queue, and what each of them asks."""

    __slots__ = ("asked", "calls", "queues")

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        self.calls: list[Call] = []
        self.asked: list[A] = []


class QueueGroups:
    """Claims and acks that wait for the end of the tick, by queue."""

    __slots__ = ("_acks", "_batch", "_claims")

    def __init__(self) -> None:
        self._acks: dict[str, _Group[Named]] = {}
        self._claims: dict[str, _Group[Claimer]] = {}
        self._batch = TickBatch(self._serve, MAX_CLAIM)

    def claim(self, call: Call, queues: Queues, claimer: Claimer) -> None:
        """Claim for a call that was checked."""
        # A client that closed only its sending side may still read the answer. A client that
        # closes it while jobs are fetched counts as disconnected: see `_serve`.
        call.reply.on_gone = claimer.presence.leave
        waits = self._join(call, jobs=claimer.most)
        _add(self._claims, call, queues, claimer)
        if not waits:
            self._serve()

    def ack(self, call: Call, queues: Queues, named: Named) -> None:
        """Ack for a call that was checked."""
        waits = self._join(call, jobs=len(named.seqs))
        _add(self._acks, call, queues, named)
        if not waits:
            self._serve()

    def _join(self, call: Call, *, jobs: int) -> bool:
        """Whether the call is to wait for the end of the tick. Groups before it may be served."""
        return self._batch.join(call.reply.tick, call.started_ns, weight=jobs + 1)

    def _serve(self) -> None:
        """Serve the calls so far; acks first, since they make room."""
        if self._acks:
            acks, self._acks = self._acks, {}
            for name, finished in acks.items():
                timing = Timing()
                op = finished.queues.ack_all(name, finished.asked, timing)
                _run(finished.calls, op, partial(_answer_ack, timing))
        if self._claims:
            claims, self._claims = self._claims, {}
            for name, claiming in claims.items():
                calls = claiming.calls
                claims_op = claiming.queues.claim_all(name, claiming.asked)
                if not _run(calls, claims_op, _answer_claim):
                    for call, claimer in zip(calls, claiming.asked, strict=True):
                        call.reply.on_half_close = claimer.presence.leave


def _add(groups: dict[str, _Group[A]], call: Call, queues: Queues, asked: A) -> None:
    name = call.names[0]
    group = groups.get(name)
    if group is None:
        group = groups[name] = _Group(queues)
    group.calls.append(call)
    group.asked.append(asked)


def _run(
    calls: Sequence[Call], op: Op[list[T | TopicsError]], answer: Callable[[Call, T], None]
) -> bool:
    """Answer each call with its result or error; False when these will be known later."""

    def done(outcomes: list[T | TopicsError] | None, error: TopicsError | None) -> None:
        if outcomes is None:
            assert error is not None
            outcomes = [error] * len(calls)
        for call, outcome in zip(calls, outcomes, strict=True):
            call.settle(outcome, partial(answer, call))

    return calls[0].service.begin(op, done)


def _answer_ack(timing: Timing, call: Call, done: Acked) -> None:
    """Answer an ack. If it removed nothing, it waited for no sync, and reports none."""
    spent = call.spent()
    if timing.synced_ns and done.acked:
        spent = responses.performance(call.elapsed_ms(), fsync_ms=timing.synced_ns / 1e6)
    call.answer(responses.present(done, spent))


def _answer_claim(call: Call, done: ClaimedJobs) -> None:
    """Answer with claimed jobs."""
    jobs = done.jobs.rendered()
    call.answer(responses.claimed(done.topic, jobs, call.spent(), ready=done.ready))


def handlers() -> dict[str, Handler]:
    """The calls on jobs; claims and acks that arrive together share their work."""
    groups = QueueGroups()
    return {
        "claimJobs": partial(claim, groups),
        "ackJobs": partial(ack, groups),
        "nackJobs": nack,
        "extendJobs": extend,
        "redriveJobs": redrive,
        "listJobs": peek,
    }
