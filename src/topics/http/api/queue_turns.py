"""Claims and acks of one turn of the loop, done together at its end.

What a claim or an ack costs is hardly the jobs: it is finding them, the frame, the write, the way
there and back. With many workers a turn brings many of them to the same queue, and then all of this
is done once: the acks become one delete, the claims take their jobs in one go. Each is answered for
itself all the same, with its own result or its own error.

Nobody waits for long: a turn is cut when the first has waited for two milliseconds, or when as many
jobs are asked for as a single call may name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from topics.engine.effects import Op
from topics.engine.writes.append import Timing
from topics.errors import TopicsError
from topics.http.api.call import Call
from topics.http.turns import Gathering
from topics.queue import Claimed, Claimer, Named, Queues
from topics.queue.queues import MAX_CLAIM
from topics.values import Acked
from topics.wire import responses

A = TypeVar("A")
T = TypeVar("T")


class _Group(Generic[A]):
    """Calls to one queue, and what each of them asks."""

    __slots__ = ("asked", "calls", "queues")

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        self.calls: list[Call] = []
        self.asked: list[A] = []

    def add(self, call: Call, asked: A) -> None:
        self.calls.append(call)
        self.asked.append(asked)


class QueueTurns:
    """Who waits for the end of the turn, by queue."""

    __slots__ = ("_acks", "_claims", "_gathering")

    def __init__(self) -> None:
        self._acks: dict[str, _Group[Named]] = {}
        self._claims: dict[str, _Group[Claimer]] = {}
        self._gathering = Gathering(self._serve, MAX_CLAIM)

    def claim(self, call: Call, queues: Queues, claimer: Claimer) -> None:
        """Claim for a call that was checked."""
        # Who ends only its side may still listen: it is gone if it does so while jobs are fetched.
        call.reply.on_gone = claimer.presence.leave
        waits = self._join(call, claimer.most)
        _group(self._claims, call, queues).add(call, claimer)
        if not waits:
            self._serve()

    def ack(self, call: Call, queues: Queues, named: Named) -> None:
        """Ack for a call that was checked."""
        waits = self._join(call, len(named.seqs))
        _group(self._acks, call, queues).add(call, named)
        if not waits:
            self._serve()

    def _join(self, call: Call, jobs: int) -> bool:
        return self._gathering.join(call.reply.turns, call.started_ns, weight=jobs + 1)

    def _serve(self) -> None:
        """Serve who has come so far; acks first, since they make room."""
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
                if not _run(calls, claims_op, answer_claim):
                    for call, claimer in zip(calls, claiming.asked, strict=True):
                        call.reply.on_half_close = claimer.presence.leave


def _group(groups: dict[str, _Group[A]], call: Call, queues: Queues) -> _Group[A]:
    """Where a call belongs, by the queue it names."""
    (name,) = call.names
    group = groups.get(name)
    if group is None:
        group = groups[name] = _Group(queues)
    return group


def _run(
    calls: Sequence[Call], op: Op[list[T | TopicsError]], answer: Callable[[Call, T], None]
) -> bool:
    """Answer each call with what became of it; False when that will be known later."""

    def done(outcomes: list[T | TopicsError] | None, error: TopicsError | None) -> None:
        if outcomes is None:
            assert error is not None
            outcomes = [error] * len(calls)
        for call, outcome in zip(calls, outcomes, strict=True):
            call.settle(outcome, answer)

    return calls[0].service.begin(op, done)


def _answer_ack(timing: Timing, call: Call, done: Acked) -> None:
    """A call that removed nothing waited for no sync of its own, and tells of none."""
    spent = call.spent()
    if timing.synced_ns and done.acked:
        spent = responses.performance(call.elapsed_ms(), fsync_ms=timing.synced_ns / 1e6)
    call.answer(responses.present(done, spent))


def answer_claim(call: Call, done: Claimed) -> None:
    """Answer with claimed jobs."""
    jobs = done.jobs.rendered()
    call.answer(responses.claimed(done.topic, jobs, call.spent(), ready=done.ready))


def queues_of(call: Call) -> Queues:
    """The queues of a server that is ready."""
    _ = call.engine  # raises while there is none
    queues = call.service.queues
    assert queues is not None
    return queues
