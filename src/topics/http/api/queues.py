"""Queues: claim, ack, nack, extend, redrive."""

from __future__ import annotations

from functools import partial

from topics.engine.upkeep.leasing import Presence
from topics.errors import InvalidRequest
from topics.http.api.call import Call
from topics.http.api.queue_turns import QueueTurns, answer_claim, queues_of
from topics.http.api.routing import Handler
from topics.values import Extended, Redriven
from topics.wire import requests, responses, shapes


def claim(together: QueueTurns, call: Call) -> None:
    """Claim with the others of this turn, unless claims wait for each other by the clock."""
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
        call.run(op, lambda done: answer_claim(call, done))
        return
    claimer = queues.claimer(
        topic, node=sent.node, most=sent.max, lease_ms=sent.lease_ms, presence=presence
    )
    together.claim(call, queues, claimer)


def ack(together: QueueTurns, call: Call) -> None:
    """Ack with the others of this turn."""
    sent = requests.decode_ack(call.json_body())
    queues = queues_of(call)
    lease_ids = sent.leases if sent.lease_ids else ()
    together.ack(call, queues, queues.named(sent.node, sent.seqs, lease_ids))


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
    if source:
        call.allow_body_name(source)
    elif known is not None and known.config.dead_letter is not None:
        call.allow_hidden_name(known.config.dead_letter)

    def answer(done: Redriven) -> None:
        shape = shapes.Redriven(source=done.source, topic=name, moved=done.moved, more=done.more)
        call.answer(responses.present(shape, call.spent()))

    call.run(queues_of(call).redrive(name, source=source, most=sent.max), answer)


def handlers() -> dict[str, Handler]:
    """The calls on jobs; claims and acks that arrive together share their work."""
    together = QueueTurns()
    return {
        "claimJobs": partial(claim, together),
        "ackJobs": partial(ack, together),
        "nackJobs": nack,
        "extendJobs": extend,
        "redriveJobs": redrive,
    }
