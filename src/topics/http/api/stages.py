"""Staged writes: keep records aside part by part, then commit an epoch once.

Bodies may be large, so they are decoded on a pool thread, and long JSON in slices where it can be
cut. An app belongs to one key, which is judged before a body is read. The key has to be allowed
every topic of a stage, when it is staged and again when it is committed: its rights may have
changed in between.
"""

from __future__ import annotations

from typing import Final

from topics.engine.effects import Io, Op
from topics.engine.stages.apps import Caller
from topics.engine.stages.rows import STEP_ROWS, StageRows
from topics.errors import UnsupportedMediaType
from topics.http.api import arrow_import
from topics.http.api.auth import Principal
from topics.http.api.call import Call
from topics.http.api.pages import ARROW_STREAM
from topics.http.api.routing import Admit, Handler
from topics.http.api.service import Service
from topics.http.budget import Charge
from topics.values import StageCommit, Staged, WaitingStages
from topics.wire import requests, responses
from topics.wire.query import path_u64
from topics.wire.requests import StageRequest
from topics.wire.shapes import StagesList

ROW_BYTES: Final = 100
"""About what a record takes in memory besides its text."""

MOST_LISTED: Final = 1000
"""Epochs in one list of stages."""

MANY_TOPICS: Final = 500
"""An answer about so many topics is made on a thread."""


def stage(call: Call) -> None:
    is_arrow = call.header(b"content-type").startswith(ARROW_STREAM)
    if not is_arrow:
        call.json_body()
    app, *numbers = call.names
    epoch, part, attempt = map(path_u64, ("epoch", "part", "attempt"), numbers)

    def decoded() -> Op[StageRequest]:
        if is_arrow:
            most, body = call.service.limits.max_body_bytes, call.request.body
            # Counted before it is made: a few bytes of Arrow may stand for very many.
            count((yield Io(lambda: _arrow_bytes(body, max_bytes=most))))
            columns: StageRequest = yield Io(lambda: _decode_arrow(body, max_bytes=most))
            return columns
        if len(call.request.body) > requests.LONG_BODY_BYTES:
            call.hold_body()
            return (yield from call.service.long_bodies.alone(in_slices()))
        short: StageRequest = yield Io(lambda: requests.decode_stage(call.request.body))
        return short

    def in_slices() -> Op[StageRequest]:
        bodies, body = call.service.long_bodies, call.take_body()
        return (
            yield from bodies.decoded(body, requests.decode_stage_in_steps, requests.decode_stage)
        )

    by_run = call.query.flag("by_run", default=False)

    def kept() -> Op[Staged]:
        try:
            sent = yield from decoded()
            rows = StageRows(sent.topics, sent.drafts)
            if len(rows) > STEP_ROWS and not is_arrow:
                count(ROW_BYTES * len(rows))
            caller = caller_of(call.service, call.principal)
            stage = call.engine.stage
            return (yield from stage(app, epoch, part, attempt, rows, caller=caller, by_run=by_run))
        finally:
            charge.give_back()

    def count(nbytes: int) -> None:
        refused = charge.raise_to(nbytes)
        if refused is not None:
            raise refused

    charge = Charge(call.service.decoded, call.request.holder)
    call.run(kept(), lambda done: call.answer(responses.shown(done, call.spent())))


def _arrow_bytes(body: bytes, *, max_bytes: int) -> int:
    arrow_import.load()
    from topics.http.api import arrow  # noqa: PLC0415 - brings in numpy

    if not arrow.is_available():
        raise UnsupportedMediaType(
            content_type=f"{ARROW_STREAM.decode()} (install it on the server: {arrow.INSTALL})"
        )
    return arrow.stage_bytes(body, max_bytes=max_bytes)


def _decode_arrow(body: bytes, *, max_bytes: int) -> StageRequest:
    from topics.http.api import arrow  # noqa: PLC0415 - brings in numpy

    return arrow.decode_stage(body, max_bytes=max_bytes)


def commit(call: Call) -> None:
    sent = requests.decode_commit(call.json_body())
    app, number = call.names
    caller = caller_of(call.service, call.principal)
    epoch = path_u64("epoch", number)

    op = call.engine.commit(app, epoch, sent.parts, caller=caller)
    call.run(_shown(call, op), call.answer)


def last_commit(call: Call) -> None:
    (app,) = call.names
    caller = caller_of(call.service, call.principal)
    call.run(_shown(call, call.engine.staging.last_commit(app, caller=caller)), call.answer)


def listing(call: Call) -> None:
    caller = caller_of(call.service, call.principal)

    def answer(found: list[WaitingStages]) -> None:
        shape = StagesList(found[:MOST_LISTED], len(found) > MOST_LISTED)
        call.answer(responses.present(shape, call.spent()))

    call.run(call.engine.staging.waiting(caller), answer)


def drop(call: Call) -> None:
    (app,) = call.names
    op = call.engine.staging.drop(app, epoch=call.query.u64("epoch"))
    call.run(op, lambda done: call.answer(responses.shown(done, call.spent())))


def _shown(call: Call, commit: Op[StageCommit]) -> Op[bytes]:
    done = yield from commit
    if len(done.topics) < MANY_TOPICS:
        return responses.shown(done, call.spent())
    long: bytes = yield Io(lambda: responses.shown(done, call.spent()))
    return long


def caller_of(service: Service, principal: Principal) -> Caller:
    """The caller of a request, in the form in which the engine knows owners of apps."""
    keyring = service.keyring
    return Caller(principal.fingerprint, principal.allows, keyring.has, keyring.is_shared)


def admit(service: Service, principal: Principal, names: tuple[str, ...]) -> None:
    """Refuse a key that may not use the app."""
    service.ready_engine.staging.check_app(names[0], caller_of(service, principal))


def admit_drop(service: Service, principal: Principal, names: tuple[str, ...]) -> None:
    """Refuse a key that may not use the name. An operator may drop what another key has staged."""
    if not principal.allows(names[0]):
        admit(service, principal, names)


HANDLERS: dict[str, Handler] = {
    "stageRecords": stage,
    "commitStages": commit,
    "getLastCommit": last_commit,
    "listStages": listing,
    "dropStages": drop,
}
ADMITS: dict[str, Admit] = {
    "stageRecords": admit,
    "commitStages": admit,
    "getLastCommit": admit,
    "dropStages": admit_drop,
}
