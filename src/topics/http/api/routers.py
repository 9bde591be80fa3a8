"""Routers: create or replace, look at, list, drop."""

from __future__ import annotations

from msgspec import UNSET

from topics.core.facts import Match
from topics.core.routers import Router
from topics.engine.effects import Op
from topics.engine.routers.routing import RouterSpec
from topics.errors import RouterCycle, TopicExistsIncompatible, TopicsError
from topics.http.api.auth import Principal
from topics.http.api.call import Call
from topics.http.api.reading import match_of
from topics.http.api.routing import Handler
from topics.http.api.topics import page_size
from topics.wire import requests, responses
from topics.wire.cursors import list_cursor, parse_list_cursor
from topics.wire.predicates import Triple
from topics.wire.shapes import RouterDropped, RouterList, RouterShape, RouterSummary
from topics.wire.words import Guarantee


def put(call: Call) -> None:
    (name,) = call.names
    sent = requests.decode_router(call.json_body())
    call.principal.need_name(sent.source)
    call.principal.need_name(sent.dest)
    spec = RouterSpec(
        sent.source,
        sent.dest,
        sent.preserve_node,
        sent.preserve_tag,
        sent.create_dest,
        match_of(sent.predicate),
        sent.allow_cycle,
        sent.guarantee == "exactly_once",
    )

    def answer(done: tuple[bool, Router]) -> None:
        created, router = done
        shape = _shape(router)
        shape.created = created
        call.answer(responses.present(shape, call.spent()), 201 if created else 200)

    def put_or_told() -> Op[tuple[bool, Router]]:
        try:
            return (yield from call.engine.routing.put(name, spec))
        except (RouterCycle, TopicExistsIncompatible) as error:
            raise _told(error, name, call.principal) from error

    call.run(put_or_told(), answer)


def _told(error: RouterCycle | TopicExistsIncompatible, name: str, who: Principal) -> TopicsError:
    """The refusal of a router, without the names of topics that the key may not use."""
    detail = error.detail or {}
    if isinstance(error, RouterCycle):
        return error.without(lambda topic: not who.allows(topic))
    existing = (detail.get("existing_source"), detail.get("existing_dest"))
    if all(topic is None or who.allows(topic) for topic in existing):
        return error
    return TopicExistsIncompatible.repoint_unseen(name)


def get(call: Call) -> None:
    (name,) = call.names
    _check_ends(call, name)

    def answer(router: Router) -> None:
        shape = _shape(router)
        shape.forwarded_total = router.forwarded_total
        shape.lag = call.engine.routing.state(router).lag or 0
        call.answer(responses.present(shape, call.spent()))

    call.run(call.engine.routing.get(name), answer)


def listing(call: Call) -> None:
    query = call.query
    after = parse_list_cursor(query.text("cursor") or "")
    size = page_size(query.u64("page_size"))
    prefix, source, dest = query.text("prefix") or "", query.text("source"), query.text("dest")
    allows = call.principal.allows_all
    found = [
        router
        for name, router in sorted(call.engine.kernel.catalog.routers.by_name.items())
        if name.startswith(prefix)
        and (after is None or name > after)
        and source in (None, router.source)
        and dest in (None, router.dest)
        and allows(name, router.source, router.dest)
    ]
    details, state = query.flag("details", default=False), call.engine.routing.state
    shape = RouterList(
        [
            RouterSummary(
                r.name,
                r.source,
                r.dest,
                _guarantee(r),
                r.forwarded_total,
                state(r).lag if details else UNSET,
            )
            for r in found[:size]
        ]
    )
    if len(found) > size:
        shape.next_cursor = list_cursor(found[size - 1].name)
    call.answer(responses.present(shape, call.spent()))


def drop(call: Call) -> None:
    (name,) = call.names
    _check_ends(call, name)
    call.run(
        call.engine.routing.drop(name),
        lambda deleted: call.answer(responses.present(RouterDropped(name, deleted), call.spent())),
    )


def _check_ends(call: Call, name: str) -> None:
    """A key that may not use a router's topics may not use the router."""
    router = call.engine.kernel.catalog.routers.by_name.get(name)
    if router is None:
        return
    for topic in (router.source, router.dest):
        call.allow_hidden_name(topic)


def _shape(router: Router) -> RouterShape:
    return RouterShape(
        router=router.name,
        source=router.source,
        dest=router.dest,
        preserve_node=router.preserve_node,
        preserve_tag=router.preserve_tag,
        filter=_triple(router.match),
        allow_cycle=router.allow_cycle,
        guarantee=_guarantee(router),
    )


def _guarantee(router: Router) -> Guarantee:
    return "exactly_once" if router.exactly_once else "at_least_once"


def _triple(match: Match | None) -> Triple | None:
    if match is None:
        return None
    return ("tag", "Glob", match.value + "*") if match.is_prefix else ("tag", "Eq", match.value)


HANDLERS: dict[str, Handler] = {
    "listRouters": listing,
    "putRouter": put,
    "getRouter": get,
    "dropRouter": drop,
}
