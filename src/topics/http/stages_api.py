"""Staged writes: keep records aside part by part, then commit an epoch once.

Bodies may be large, so they are decoded on a pool thread, and long JSON in slices where it can be
cut. A key has to be allowed every topic of a stage, when it is staged and again when it is
committed: the two calls may come from different keys.
"""

from __future__ import annotations

from topics.engine.effects import Io, Op
from topics.engine.staging import StageRows
from topics.errors import UnsupportedMediaType
from topics.http.auth import Scope
from topics.http.call import Call
from topics.http.pages_api import ARROW_STREAM
from topics.http.records_api import batch_of
from topics.http.routing import Endpoint, Resource, Routes
from topics.values import Staged
from topics.wire import requests, responses
from topics.wire.query import path_u64
from topics.wire.requests import StageRequest


def stage(call: Call) -> None:
    is_arrow = call.header(b"content-type").startswith(ARROW_STREAM)
    if not is_arrow:
        call.json_body()
    app, *numbers = call.names
    epoch, part, attempt = map(path_u64, ("epoch", "part", "attempt"), numbers)

    def decoded() -> Op[StageRequest]:
        if is_arrow:
            most = call.service.limits.max_body_bytes
            columns: StageRequest = yield Io(
                lambda: _decode_arrow(call.request.body, max_bytes=most)
            )
            return columns
        if len(call.request.body) > requests.LONG_BODY_BYTES:
            call.hold_body()
            return (yield from call.service.lane.alone(in_slices()))
        short: StageRequest = yield Io(lambda: requests.decode_stage(call.request.body))
        return short

    def in_slices() -> Op[StageRequest]:
        lane, body = call.service.lane, call.take_body()
        return (
            yield from lane.decoded(body, requests.decode_stage_in_steps, requests.decode_stage)
        )

    def kept() -> Op[Staged]:
        sent = yield from decoded()
        for topic in dict.fromkeys(sent.topics):
            call.allow_body_name(topic)
        rows = StageRows(sent.topics, batch_of(sent.drafts))
        return (yield from call.engine.stage(app, epoch, part, attempt, rows))

    call.run(kept(), lambda done: call.answer(responses.shown(done, call.spent())))


def _decode_arrow(body: bytes, *, max_bytes: int) -> StageRequest:
    from topics.http import arrow  # noqa: PLC0415 - brings in numpy

    if not arrow.is_available():
        raise UnsupportedMediaType(
            content_type=f"{ARROW_STREAM.decode()} (install it on the server: {arrow.INSTALL})"
        )
    return arrow.decode_stage(body, max_bytes=max_bytes)


def commit(call: Call) -> None:
    sent = requests.decode_commit(call.json_body())
    app, number = call.names
    call.run(
        call.engine.commit(
            app, path_u64("epoch", number), sent.parts, allow=call.allow_hidden_name
        ),
        lambda done: call.answer(responses.shown(done, call.spent())),
    )


def register(routes: Routes) -> None:
    for path, handler in (
        ("/v0/stages/*/*/*/*", stage),
        ("/v0/stages/*/*/commit", commit),
    ):
        resource = Resource({"POST": Endpoint(handler, Scope.WRITE)}, other_scope=Scope.WRITE)
        routes.add(path, resource)
