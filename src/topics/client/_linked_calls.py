"""What hangs on topics: staged writes, named cursors, routers. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from topics.client._call import (
    Call,
    Listed,
    cursor_path,
    page_query,
    reader,
    router_path,
    topic_path,
)
from topics.client._calls import ARROW_STREAM, rendered
from topics.client._names import quoted
from topics.values import CursorState, RouterState, StageCommit, Staged
from topics.wire.drafts import batch_of, split_topics
from topics.wire.jsonbytes import encode

# Staged writes


_staged, _commit = reader(Staged), reader(StageCommit)


def stage(
    app: str, epoch: int, part: int, rows: Iterable[Mapping[str, Any]], attempt: int
) -> Call[Staged]:
    names, drafts = split_topics(rows)
    body = b'{"records":%b}' % rendered(batch_of(drafts, None), names)
    return Call("POST", _stage_path(app, epoch, part, attempt), _staged, body, idempotent=True)


def stage_arrow(app: str, epoch: int, part: int, rows: bytes, attempt: int) -> Call[Staged]:
    """The same for rows that are an Arrow stream already."""
    return Call(
        "POST",
        _stage_path(app, epoch, part, attempt),
        _staged,
        rows,
        headers={"Content-Type": ARROW_STREAM},
        idempotent=True,
    )


def _stage_path(app: str, epoch: int, part: int, attempt: int) -> str:
    return f"/v0/stages/{quoted(app)}/{epoch}/{part}/{attempt}"


def commit(app: str, epoch: int, parts: Sequence[tuple[int, int]]) -> Call[StageCommit]:
    path = f"/v0/stages/{quoted(app)}/{epoch}/commit"
    return Call("POST", path, _commit, encode({"parts": list(parts)}), idempotent=True)


# Named cursors


class _Cursors(Struct):
    cursors: list[CursorState]
    next_cursor: str | None = None


class _Gone(Struct):
    deleted: bool


_cursor, _cursors, _gone = reader(CursorState), reader(_Cursors), reader(_Gone)


def set_cursor(topic: str, cursor: str, seq: int) -> Call[CursorState]:
    return Call("PUT", cursor_path(topic, cursor), _cursor, encode({"seq": seq}))


def cursor(topic: str, cursor: str) -> Call[CursorState]:
    return Call("GET", cursor_path(topic, cursor), _cursor)


def cursors(topic: str, after: str | None) -> Call[Listed[CursorState]]:
    def parse(body: bytes) -> Listed[CursorState]:
        page = _cursors(body)
        return page.cursors, page.next_cursor

    return Call("GET", topic_path(topic, "cursors"), parse, query=page_query(after))


def drop_cursor(topic: str, cursor: str) -> Call[bool]:
    return Call("DELETE", cursor_path(topic, cursor), lambda body: _gone(body).deleted)


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
) -> Call[str]:
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
    return Call("PUT", router_path(router), lambda body: _router_name(body).router, encode(asked))


def router_state(router: str) -> Call[RouterState]:
    return Call("GET", router_path(router), _router)


def routers(prefix: str, cursor: str | None) -> Call[Listed[str]]:
    def parse(body: bytes) -> Listed[str]:
        page = _routers(body)
        return [found.router for found in page.routers], page.next_cursor

    return Call("GET", "/v0/routers", parse, query=page_query(cursor, prefix=prefix))


def drop_router(router: str) -> Call[bool]:
    return Call("DELETE", router_path(router), lambda body: _gone(body).deleted)
