"""Health, readiness, metrics, history, the rights of a key, and the description of the API."""

from __future__ import annotations

from topics.engine.effects import Io, Op
from topics.http.api.auth import Scope
from topics.http.api.call import Call
from topics.http.api.metrics import Numbers, as_json, as_text, collect
from topics.http.api.routing import Handler
from topics.http.api.service import Service
from topics.http.messages import Response
from topics.wire import responses
from topics.wire.shapes import KeyRights

_TEXT = b"text/plain; version=0.0.4"


def health(call: Call) -> None:
    service = call.service
    uptime_ms = service.clock.now_ms() - service.started_ms
    call.answer(responses.health(version=service.version, uptime_ms=max(0, uptime_ms)))


def ready(call: Call) -> None:
    call.service.check_log()
    call.answer(responses.ready(topics=len(call.engine.kernel.catalog.by_id)))


def metrics(call: Call) -> None:
    def answer(numbers: Numbers) -> None:
        if b"application/json" in call.header(b"accept"):
            call.answer(as_json(numbers))
        else:
            call.reply(Response(200, as_text(numbers), content_type=_TEXT))

    call.run(collect(call.service, call.principal), answer)


def history(call: Call) -> None:
    topic, kept = call.query.text("topic"), call.service.history
    if topic:
        call.principal.need_name(topic)
    etag = kept.etag(call.principal)
    headers = ((b"etag", etag), (b"cache-control", b"private, no-cache"))
    if not topic and call.header(b"if-none-match") == etag:
        call.reply(Response(304, content_type=None, headers=headers))
        return
    body = kept.of_topic(topic) if topic else kept.everything(call.principal)
    call.answer(responses.closed(body, call.spent()), headers=() if topic else headers)


def key_rights(call: Call) -> None:
    granted, prefixes = call.principal.scopes, [*call.principal.prefixes]
    scopes = [scope.name.lower() for scope in Scope if scope in granted and scope.name]
    rights = KeyRights(call.service.keyring.enabled, scopes, prefixes)  # type: ignore[arg-type]
    call.answer(responses.present(rights, call.spent()))


def openapi(call: Call) -> None:
    known = call.service.description
    if known is not None:
        call.answer(known)
    else:
        call.run(described(call.service), call.answer)


def described(service: Service) -> Op[bytes]:
    """The description of the API, made on a thread: it takes long, and needs no key."""

    def make() -> bytes:
        from topics.wire.openapi import document  # noqa: PLC0415 - large, and rarely asked for

        return document(service.version)

    made: bytes = yield Io(make)
    service.description = made
    return made


HANDLERS: dict[str, Handler] = {
    "health": health,
    "healthz": health,
    "ready": ready,
    "readyz": ready,
    "metrics": metrics,
    "history": history,
    "keyRights": key_rights,
    "openapi": openapi,
}
