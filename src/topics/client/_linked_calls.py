"""What hangs on topics: staged writes, named cursors, routers. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from topics.client._call import ApiCall, Listed, at, page_query, reader
from topics.client._calls import ARROW_STREAM, rendered
from topics.values import CursorState, RouterState, StageCommit, Staged
from topics.wire.drafts import batch_of, split_topics
from topics.wire.jsonbytes import encode

# Staged writes


_staged, _commit = reader(Staged), reader(StageCommit)


def stage(
    app: str, epoch: int, part: int, rows: Iterable[Mapping[str, Any]], attempt: int
) -> ApiCall[Staged]:
    names, drafts = split_topics(rows)
    body = b'{"records":%b}' % rendered(batch_of(drafts, None), names)
    return ApiCall(*_stage_at(app, epoch, part, attempt), _staged, body, idempotent=True)


def stage_arrow(app: str, epoch: int, part: int, rows: bytes, attempt: int) -> ApiCall[Staged]:
    """The same for rows that are an Arrow stream already."""
    return ApiCall(
        *_stage_at(app, epoch, part, attempt),
        _staged,
        rows,
        headers={"Content-Type": ARROW_STREAM},
        idempotent=True,
    )


def _stage_at(app: str, epoch: int, part: int, attempt: int) -> tuple[str, str]:
    return at("stageRecords", app=app, epoch=epoch, part=part, attempt=attempt)


def commit(app: str, epoch: int, parts: Sequence[tuple[int, int]]) -> ApiCall[StageCommit]:
    where = at("commitStages", app=app, epoch=epoch)
    return ApiCall(*where, _commit, encode({"parts": list(parts)}), idempotent=True)


def last_commit(app: str) -> ApiCall[StageCommit]:
    return ApiCall(*at("getLastCommit", app=app), _commit)


# Named cursors


class _Cursors(Struct):
    cursors: list[CursorState]
    next_cursor: str | None = None


class _Gone(Struct):
    deleted: bool


_cursor, _cursors, _gone = reader(CursorState), reader(_Cursors), reader(_Gone)


def set_cursor(topic: str, cursor: str, seq: int) -> ApiCall[CursorState]:
    return ApiCall(*at("setCursor", topic=topic, cursor=cursor), _cursor, encode({"seq": seq}))


def cursor(topic: str, cursor: str) -> ApiCall[CursorState]:
    return ApiCall(*at("getCursor", topic=topic, cursor=cursor), _cursor)


def cursors(topic: str, after: str | None) -> ApiCall[Listed[CursorState]]:
    def parse(body: bytes) -> Listed[CursorState]:
        page = _cursors(body)
        return page.cursors, page.next_cursor

    return ApiCall(*at("listCursors", topic=topic), parse, query=page_query(after))


def drop_cursor(topic: str, cursor: str) -> ApiCall[bool]:
    return ApiCall(*at("dropCursor", topic=topic, cursor=cursor), lambda body: _gone(body).deleted)


# Routers


class _RouterName(Struct):
    router: str


class _Routers(Struct):
    routers: list[_RouterName]
    next_cursor: str | None = None


_router, _router_name, _routers = reader(RouterState), reader(_RouterName), reader(_Routers)


def route(
    router: str,
    *,
    source: str,
    dest: str,
    match: str | Sequence[str] | None,
    preserve_node: bool,
    preserve_tag: bool,
    create_dest: bool,
    allow_cycle: bool,
    exactly_once: bool,
) -> ApiCall[str]:
    """Makes or changes a router; its state is asked for afterwards."""
    asked = {
        "source": source,
        "dest": dest,
        "filter": match if isinstance(match, str | None) else list(match),
        "preserve_node": preserve_node,
        "preserve_tag": preserve_tag,
        "create_dest": create_dest,
        "allow_cycle": allow_cycle,
        "guarantee": "exactly_once" if exactly_once else "at_least_once",
    }
    return ApiCall(
        *at("putRouter", router=router), lambda body: _router_name(body).router, encode(asked)
    )


def router_state(router: str) -> ApiCall[RouterState]:
    return ApiCall(*at("getRouter", router=router), _router)


def routers(prefix: str, cursor: str | None) -> ApiCall[Listed[str]]:
    def parse(body: bytes) -> Listed[str]:
        page = _routers(body)
        return [found.router for found in page.routers], page.next_cursor

    return ApiCall(*at("listRouters"), parse, query=page_query(cursor, prefix=prefix))


def drop_router(router: str) -> ApiCall[bool]:
    return ApiCall(*at("dropRouter", router=router), lambda body: _gone(body).deleted)
