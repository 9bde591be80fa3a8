"""`RemoteLog`: what `topics.open("http://...")` returns.

The calls, results and errors of a log in this process (`topics.embedded.Log`), over HTTP. Each
method says what to do through `_calls`; this shell only sends it. Safe for threads, and for
forked children and pickles, which connect anew.
"""

# Made from `aio.py` by tools/make_sync.py: change that, then `make fmt`.

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from topics.client import _calls, _linked_calls
from topics.client._call import ApiCall, Listed
from topics.client._retry import DEFAULT_RETRIES
from topics.client.interface import AnyLog
from topics.client.keywords import DEFAULT_LIMIT, DEFAULT_MAX_BYTES, DEFAULT_NODE, PLAN_BYTES
from topics.client.sync_http import MAX_CONNECTIONS, Http
from topics.events import item_of
from topics.values import (
    Ack,
    Audit,
    Created,
    CursorState,
    DeleteResult,
    Dropped,
    DroppedStages,
    ErasureState,
    Holes,
    Page,
    ReadPlan,
    Record,
    RouterState,
    StageCommit,
    Staged,
    Tombstone,
    TopicState,
    TopicSummary,
    WaitingStages,
)
from topics.wire.drafts import Records

if TYPE_CHECKING:
    from topics.client._sync_stream import Transport
    from topics.client.sync_queue import RemoteQueue
    from topics.events import Event
    from topics.topic_settings import TopicSettings

T = TypeVar("T")


class RemoteLog(AnyLog):
    """A log behind a URL.

    `timeout` is the patience with one try of a call, `retries` how often a call that can safely be
    repeated is, `heartbeat` how often a live read expects a sign of life (three missing ones mean
    that the connection is dead).
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: float = DEFAULT_RETRIES,
        heartbeat: float = 5.0,
        ca_file: str | None = None,
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._http = Http(
            url,
            token=token,
            timeout=timeout,
            retries=retries,
            ca_file=ca_file,
            connections=connections,
        )
        self._heartbeat = heartbeat

    @property
    def url(self) -> str:
        """The server's address."""
        return self._http.url

    def _words(self) -> str:
        return self.url

    def drop(self, topic: str, *, if_empty: bool = False) -> Dropped:
        if not topic:
            return Dropped(topic, False, [])
        return self._run(_calls.drop(topic, if_empty=if_empty))

    def state(self, topic: str, *, touch: bool = True) -> TopicState:
        return self._run(_calls.state(topic, touch=touch))

    def topics(self, *, prefix: str = "", details: bool = False) -> list[TopicSummary]:
        return self._all(lambda cursor: _calls.topics(prefix, cursor, details=details))

    def audit(self, topic: str) -> Audit:
        return self._run(_calls.audit(topic))

    def holes(self, topic: str, *, from_seq: int, to_seq: int) -> Holes:
        return self._run(_calls.holes(topic, from_seq=from_seq, to_seq=to_seq))

    # Records

    def append(
        self,
        topic: str,
        records: Records,
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        expect_head: int | None = None,
        create: bool | None = None,
        config: TopicSettings | None = None,
    ) -> Ack:
        return self._run(
            _calls.append(
                topic,
                records,
                node=node,
                idempotency_key=idempotency_key,
                expect_head=expect_head,
                create=create,
                config=config,
            )
        )

    def read(
        self,
        topic: str,
        *,
        after: int = 0,
        limit: int = DEFAULT_LIMIT,
        max_bytes: int = DEFAULT_MAX_BYTES,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        wait: float = 0.0,
    ) -> Page:
        end = _now() + wait
        while True:
            call = _calls.read(
                topic,
                after=after,
                limit=limit,
                max_bytes=max_bytes,
                node=node,
                match=match,
                from_ts=from_ts,
                wait=wait,
            )
            page = self._run(call)
            wait = end - _now()
            if wait <= 0 or call.longer < _calls.MOST_WAIT_S or not _calls.is_empty(page):
                return page

    def follow(
        self,
        topic: str,
        *,
        after: int | None = 0,
        limit: int = DEFAULT_LIMIT,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        wait: float | None = None,
        transport: Transport = "sse",
    ) -> Generator[Record | Tombstone, None, None]:
        events = self._events(
            {topic: after}, limit=limit, node=node, match=match, wait=wait, transport=transport
        )
        with closing(events):
            for event in events:
                item = item_of(event)
                if item is not None:
                    yield item

    def watch(
        self,
        topics: Iterable[str] | Mapping[str, int | None],
        *,
        limit: int = DEFAULT_LIMIT,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        wait: float | None = None,
        transport: Transport = "sse",
    ) -> Generator[Event, None, None]:
        events = self._events(
            topics, limit=limit, node=node, match=match, wait=wait, transport=transport
        )
        with closing(events):
            yield from events

    def delete(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: str | Sequence[str] | None = None,
        seqs: Sequence[int] | None = None,
    ) -> DeleteResult:
        return self._run(_calls.delete(topic, before_seq=before_seq, match=match, seqs=seqs))

    def erase(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: str | Sequence[str] | None = None,
    ) -> ErasureState:
        return self._run(_calls.erase(topic, before_seq=before_seq, match=match))

    def erasures(self, topic: str) -> list[ErasureState]:
        return self._run(_calls.erasures(topic))

    def plan(
        self, topic: str, *, from_seq: int, to_seq: int, target_bytes: int = PLAN_BYTES
    ) -> ReadPlan:
        return self._run(
            _calls.plan(topic, from_seq=from_seq, to_seq=to_seq, target_bytes=target_bytes)
        )

    # Staged writes

    def stage(
        self,
        app: str,
        epoch: int,
        part: int,
        rows: Iterable[Mapping[str, Any]],
        *,
        attempt: int = 0,
    ) -> Staged:
        return self._run(_linked_calls.stage(app, epoch, part, rows, attempt))

    def commit(self, app: str, epoch: int, parts: Sequence[tuple[int, int]]) -> StageCommit:
        return self._run(_linked_calls.commit(app, epoch, parts))

    def last_commit(self, app: str) -> StageCommit:
        return self._run(_linked_calls.last_commit(app))

    def stages(self) -> list[WaitingStages]:
        return self._run(_linked_calls.stages())

    def drop_stages(self, app: str, *, epoch: int | None = None) -> DroppedStages:
        return self._run(_linked_calls.drop_stages(app, epoch))

    # Named cursors

    def set_cursor(self, topic: str, cursor: str, seq: int) -> CursorState:
        return self._run(_linked_calls.set_cursor(topic, cursor, seq))

    def cursor(self, topic: str, cursor: str) -> CursorState:
        return self._run(_linked_calls.cursor(topic, cursor))

    def cursors(self, topic: str) -> list[CursorState]:
        return self._all(lambda after: _linked_calls.cursors(topic, after))

    def drop_cursor(self, topic: str, cursor: str) -> bool:
        return self._run(_linked_calls.drop_cursor(topic, cursor))

    # Queues and routers

    def queue(self, topic: str, *, node: str = DEFAULT_NODE) -> RemoteQueue:
        from topics.client.sync_queue import RemoteQueue  # noqa: PLC0415 - as above

        self._check()
        return RemoteQueue(self, topic, node)

    def route(
        self,
        router: str,
        *,
        source: str,
        dest: str,
        match: str | Sequence[str] | None = None,
        preserve_node: bool = True,
        preserve_tag: bool = True,
        create_dest: bool = True,
        allow_cycle: bool = False,
        exactly_once: bool = False,
    ) -> RouterState:
        made = self._run(
            _linked_calls.route(
                router,
                source=source,
                dest=dest,
                match=match,
                preserve_node=preserve_node,
                preserve_tag=preserve_tag,
                create_dest=create_dest,
                allow_cycle=allow_cycle,
                exactly_once=exactly_once,
            )
        )
        return self._run(_linked_calls.router_state(made))

    def routers(self, *, prefix: str = "") -> list[RouterState]:
        names = self._all(lambda cursor: _linked_calls.routers(prefix, cursor))
        return [self._run(_linked_calls.router_state(name)) for name in names]

    def drop_router(self, router: str) -> bool:
        return bool(router) and self._run(_linked_calls.drop_router(router))

    # Closing

    def close(self) -> None:
        self._http.close()

    def _check(self) -> None:
        self._http.check_open()

    def _put(self, topic: str, config: Mapping[str, Any], *, dry_run: bool = False) -> Created:
        return self._run(_calls.put(topic, config, dry_run=dry_run))

    def _run(self, call: ApiCall[T]) -> T:
        return call.read(self._answer(call), url=self.url)

    def _answer(self, call: ApiCall[T]) -> bytes:
        answer = self._http.request(
            call.method,
            call.path,
            body=call.body,
            headers=call.headers,
            query=call.query,
            idempotent=call.idempotent,
            timeout=self._http.timeout + call.longer,
            within=call.within,
        )
        return answer.body

    def _reason(self, topic: str, after: int) -> Tombstone | None:
        return (self.read(topic, after=after, limit=1)).tombstone

    def _all(self, page: Callable[[str | None], ApiCall[Listed[T]]]) -> list[T]:
        found, cursor = self._run(page(None))
        while cursor is not None:
            more, cursor = self._run(page(cursor))
            found += more
        return found

    def _events(
        self,
        topics: Iterable[str] | Mapping[str, int | None],
        *,
        limit: int,
        node: str | Sequence[str],
        match: str | Sequence[str] | None,
        wait: float | None,
        transport: Transport,
    ) -> Generator[Event, None, None]:
        from topics.client._following import Following  # noqa: PLC0415 - as above
        from topics.client._sync_stream import events  # noqa: PLC0415 - for live reads only

        heartbeat_ms = int(self._heartbeat * 1000)
        return events(
            self._http,
            Following(topics, node=node, match=match, limit=limit, heartbeat_ms=heartbeat_ms),
            wait=wait,
            heartbeat=self._heartbeat,
            transport=transport,
            run=self._run,
            reason=self._reason,
        )


def _now() -> float:
    return time.monotonic()
