"""What hangs on topics: staged writes, named cursors, routers. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from topics.client import _routes as routes
from topics.client._call import ApiCall, Listed, page_query
from topics.client._calls import ARROW_STREAM, rendered
from topics.values import (
    CursorState,
    DroppedStages,
    RouterState,
    StageCommit,
    Staged,
    WaitingStages,
)
from topics.wire.drafts import batch_of, split_topics
from topics.wire.jsonbytes import encode

# Staged writes


def stage(
    app: str,
    epoch: int,
    part: int,
    rows: Iterable[Mapping[str, Any]],
    attempt: int,
    *,
    by_run: bool = False,
) -> ApiCall[Staged]:
    names, drafts = split_topics(rows)
    body = b'{"records":%b}' % rendered(batch_of(drafts, None), names)
    where = _stage_at(app, epoch, part, attempt)
    parse = routes.STAGE_RECORDS.parse
    return ApiCall(*where, parse, body, query=_runs(by_run=by_run), idempotent=True)


def stage_arrow(
    app: str, epoch: int, part: int, rows: bytes, attempt: int, *, by_run: bool = False
) -> ApiCall[Staged]:
    """The same for rows that are an Arrow stream already."""
    return ApiCall(
        *_stage_at(app, epoch, part, attempt),
        routes.STAGE_RECORDS.parse,
        rows,
        query=_runs(by_run=by_run),
        headers={"Content-Type": ARROW_STREAM},
        idempotent=True,
    )


def _runs(*, by_run: bool) -> dict[str, str] | None:
    return {"by_run": "true"} if by_run else None


def _stage_at(app: str, epoch: int, part: int, attempt: int) -> tuple[str, str]:
    return routes.STAGE_RECORDS.at(app=app, epoch=epoch, part=part, attempt=attempt)


def commit(app: str, epoch: int, parts: Sequence[tuple[int, int]]) -> ApiCall[StageCommit]:
    where = routes.COMMIT_STAGES.at(app=app, epoch=epoch)
    return ApiCall(
        *where, routes.COMMIT_STAGES.parse, encode({"parts": list(parts)}), idempotent=True
    )


def last_commit(app: str) -> ApiCall[StageCommit]:
    return routes.GET_LAST_COMMIT.call(app=app)


def stages() -> ApiCall[list[WaitingStages]]:
    def parse(body: bytes) -> list[WaitingStages]:
        return routes.LIST_STAGES.parse(body).stages

    return ApiCall(*routes.LIST_STAGES.at(), parse)


def drop_stages(app: str, epoch: int | None) -> ApiCall[DroppedStages]:
    query = None if epoch is None else {"epoch": str(epoch)}
    where = routes.DROP_STAGES.at(app=app)
    return ApiCall(*where, routes.DROP_STAGES.parse, query=query, idempotent=True)


# Named cursors


def set_cursor(topic: str, cursor: str, seq: int) -> ApiCall[CursorState]:
    return routes.SET_CURSOR.call(encode({"seq": seq}), topic=topic, cursor=cursor)


def cursor(topic: str, cursor: str) -> ApiCall[CursorState]:
    return routes.GET_CURSOR.call(topic=topic, cursor=cursor)


def cursors(topic: str, after: str | None) -> ApiCall[Listed[CursorState]]:
    def parse(body: bytes) -> Listed[CursorState]:
        page = routes.LIST_CURSORS.parse(body)
        return page.cursors, page.next_cursor

    return ApiCall(*routes.LIST_CURSORS.at(topic=topic), parse, query=page_query(after))


def drop_cursor(topic: str, cursor: str) -> ApiCall[bool]:
    return ApiCall(
        *routes.DROP_CURSOR.at(topic=topic, cursor=cursor),
        lambda body: routes.DROP_CURSOR.parse(body).deleted,
    )


# Routers


class _RouterName(Struct):
    """What is read of the answer to a PUT, which lacks the counters of a `RouterState`."""

    router: str


_router_name = msgspec.json.Decoder(_RouterName).decode


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
        *routes.PUT_ROUTER.at(router=router), lambda body: _router_name(body).router, encode(asked)
    )


def router_state(router: str) -> ApiCall[RouterState]:
    return routes.GET_ROUTER.call(router=router)


def routers(prefix: str, cursor: str | None) -> ApiCall[Listed[str]]:
    def parse(body: bytes) -> Listed[str]:
        page = routes.LIST_ROUTERS.parse(body)
        return [found.router for found in page.routers], page.next_cursor

    return ApiCall(*routes.LIST_ROUTERS.at(), parse, query=page_query(cursor, prefix=prefix))


def drop_router(router: str) -> ApiCall[bool]:
    return ApiCall(
        *routes.DROP_ROUTER.at(router=router), lambda body: routes.DROP_ROUTER.parse(body).deleted
    )
