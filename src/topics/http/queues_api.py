"""Queues: claim, ack, nack, extend, redrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from topics.engine.effects import Op, resumed
from topics.engine.leasing import Presence
from topics.errors import InvalidRequest
from topics.http.auth import Scope
from topics.http.call import Call
from topics.http.routing import Endpoint, Resource, Routes
from topics.queue import Claimed, Queues
from topics.values import Extended, Redriven
from topics.wire import requests, responses, shapes

T = TypeVar("T")


def claim(call: Call) -> None:
    (name,) = call.names
    if not call.request.body:
        raise InvalidRequest("a claim needs a body: say at least which node claims")
    sent = requests.decode_claim(call.json_body())
    presence = Presence()
    op = queues_of(call).claim(
        name, node=sent.node, most=sent.max, lease_ms=sent.lease_ms, presence=presence
    )

    def answer(done: Claimed) -> None:
        jobs = done.jobs.rendered()
        call.answer(responses.claimed(name, jobs, call.spent(), ready=done.ready))

    _run(call, op, answer, presence)


def ack(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_ack(call.json_body())
    op = queues_of(call).ack(name, node=sent.node, seqs=sent.seqs, lease_ids=sent.leases)
    _run(call, op, lambda done: call.answer(responses.present(done, call.spent())))


def _run(
    call: Call, op: Op[T], answer: Callable[[T], None], presence: Presence | None = None
) -> None:
    """Answer at once if the operation need not wait, as most need not; else when it has ended.

    Only who has to wait can be gone before the answer is there.
    """
    try:
        wait = next(op)
    except StopIteration as finished:
        answer(finished.value)
        return
    if presence is not None:
        call.reply.on_gone = call.reply.on_half_close = presence.leave
    call.run(resumed(op, wait), answer)


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
        ),
        lambda done: call.answer(responses.present(done, call.spent())),
    )


def extend(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_extend(call.json_body())

    def answer(done: Extended) -> None:
        deadlines = {str(seq): deadline for seq, deadline in done.deadlines.items()}
        shape = shapes.Extended(name, done.extended, list(done.skipped), deadlines)
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
    named = source or (known.config.dead_letter if known is not None else None)
    if named is not None:
        call.allow_body_name(named)

    def answer(done: Redriven) -> None:
        shape = shapes.Redriven(source=done.source, topic=name, moved=done.moved, more=done.more)
        call.answer(responses.present(shape, call.spent()))

    call.run(queues_of(call).redrive(name, source=source, most=sent.max), answer)


def queues_of(call: Call) -> Queues:
    """The queues of a server that is ready."""
    _ = call.engine  # raises while there is none
    queues = call.service.queues
    assert queues is not None
    return queues


def register(routes: Routes) -> None:
    both = Scope.READ | Scope.WRITE
    for action, scope, handler in (
        ("claim", both, claim),
        ("ack", Scope.WRITE, ack),
        ("nack", Scope.WRITE, nack),
        ("extend", Scope.WRITE, extend),
        ("redrive", Scope.WRITE | Scope.DELETE, redrive),
    ):
        resource = Resource({"POST": Endpoint(handler, scope)}, named=True, other_scope=Scope.WRITE)
        routes.add(f"/v0/topics/*/{action}", resource)
