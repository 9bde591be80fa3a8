"""`AsyncRemoteLog`: what `topics.aio.open("http://...")` returns.

The calls, results and errors of `RemoteLog` with `await` before them; `follow` and `watch` are for
`async for`. Each method says what to do through `_calls`; this shell only sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from topics.client import _calls, _linked_calls, _queue_calls
from topics.client._awaiting import AwaitingLog
from topics.client._call import Call, Listed
from topics.client._names import DEFAULT_NODE, starts_of
from topics.client._retry import DEFAULT_RETRIES
from topics.client._showing import Shown
from topics.client.aio_http import MAX_CONNECTIONS, AsyncHttp
from topics.events import Event, item_of
from topics.values import (
    Ack,
    Acked,
    Audit,
    Created,
    CursorState,
    DeleteResult,
    Dropped,
    Extended,
    Holes,
    Job,
    Nacked,
    Page,
    QueueCounts,
    ReadPlan,
    Record,
    Redriven,
    RouterState,
    StageCommit,
    Staged,
    Tombstone,
    TopicState,
    TopicSummary,
)
from topics.wire.drafts import Records

if TYPE_CHECKING:
    from topics.client._aio_stream import Transport
    from topics.client._following import Following
    from topics.topic_settings import TopicSettings

T = TypeVar("T")
DEFAULT_LIMIT = 256
DEFAULT_MAX_BYTES = 1 << 20
PLAN_BYTES = 64 << 20


class AsyncRemoteLog(AwaitingLog):
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
        self._http = AsyncHttp(
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

    # Topics

    async def drop(self, topic: str, *, if_empty: bool = False) -> Dropped:
        """Remove a topic and every router that touches it; `deleted` is False if it was absent."""
        if not topic:
            return Dropped(topic, False, [])
        return await self._run(_calls.drop(topic, if_empty=if_empty))

    async def state(self, topic: str, *, touch: bool = True) -> TopicState:
        """Head, earliest, count, bytes and configuration of a topic."""
        return await self._run(_calls.state(topic, touch=touch))

    async def topics(self, *, prefix: str = "") -> list[TopicSummary]:
        """Every topic, sorted by name."""
        return await self._all(lambda cursor: _calls.topics(prefix, cursor))

    async def audit(self, topic: str) -> Audit:
        """The ledger of a topic: where every seq went."""
        return await self._run(_calls.audit(topic))

    async def holes(self, topic: str, *, from_seq: int, to_seq: int) -> Holes:
        """The dead seqs of a range, as runs with what removed them first."""
        return await self._run(_calls.holes(topic, from_seq=from_seq, to_seq=to_seq))

    # Records

    async def append(
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
        """Append records, all or none, and return once they are as safe as the topic promises.

        A record is `{"data": ...}` with optional `tag`, `node` and `meta`. `data` is any
        JSON-serialisable object, or ready JSON as bytes. An absent topic is created (with
        `config`) unless `create=False`. Every write has an idempotency key, one made up if none is
        given, so that a write whose answer was lost is sent again and still appended once.
        `expect_head` appends only if it is the last seq.
        """
        return await self._run(
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

    async def read(
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
        """One page of records with a seq above `after`.

        A page has at most `limit` records, however many there are: 256 unless told otherwise, and
        never more than the log's `max_limit` (1000). It ends earlier at `max_bytes`. If
        `page.caught_up` is False there is more: continue with `page.next_from_seq`, or use `scan`,
        which reads all pages. Loss comes as `page.tombstone`, before the records.

        `node` hides records of those nodes, `match` shows only records whose tag fits, `from_ts`
        starts at a time instead. `wait` holds an empty read back for up to that many seconds until
        something is appended.
        """
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
            page = await self._run(call)
            wait = end - _now()
            if wait <= 0 or call.longer < _calls.MOST_WAIT_S or not _calls.is_empty(page):
                return page

    async def follow(
        self,
        topic: str,
        *,
        after: int | None = 0,
        limit: int = DEFAULT_LIMIT,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        wait: float | None = None,
        transport: Transport = "sse",
    ) -> AsyncGenerator[Record | Tombstone, None]:
        """Records and tombstones from `after` on, live; None begins at the head.

        Ends after `wait` seconds without anything new; None waits for ever. A lost connection is
        made again; nothing is skipped and nothing comes twice. `watch` also tells when that was.
        """
        following = self._following({topic: after}, node=node, match=match, limit=limit)
        async with aclosing(self._events(following, wait, transport)) as events:
            async for event in events:
                item = item_of(event)
                if item is not None:
                    yield item

    async def watch(
        self,
        topics: Iterable[str] | Mapping[str, int | None],
        *,
        limit: int = DEFAULT_LIMIT,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        wait: float | None = None,
        transport: Transport = "sse",
    ) -> AsyncGenerator[Event, None]:
        """Events of many topics in one stream: `Arrived`, `Lost`, `CaughtUp`, `TopicDropped`.

        Name topics to read them from the beginning, or map each to the seq to read after (None:
        only what comes). Reconnects like `follow`, with `Resumed`. Ends when no topic is left, or
        after `wait` seconds without news.
        """
        following = self._following(starts_of(topics), node=node, match=match, limit=limit)
        async with aclosing(self._events(following, wait, transport)) as events:
            async for event in events:
                yield event

    async def delete(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: str | Sequence[str] | None = None,
    ) -> DeleteResult:
        """Remove records for good, silently: those below a seq, those with a tag, or both.

        `match` is a tag, or a prefix that ends in `*`. Records appended later are not touched.
        """
        return await self._run(_calls.delete(topic, before_seq=before_seq, match=match))

    async def plan(
        self, topic: str, *, from_seq: int, to_seq: int, target_bytes: int = PLAN_BYTES
    ) -> ReadPlan:
        """Cut a range of seqs, ends included, for parallel readers; no payload is read."""
        return await self._run(
            _calls.plan(topic, from_seq=from_seq, to_seq=to_seq, target_bytes=target_bytes)
        )

    # Staged writes

    async def stage(
        self,
        app: str,
        epoch: int,
        part: int,
        rows: Iterable[Mapping[str, Any]],
        *,
        attempt: int = 0,
    ) -> Staged:
        """Keep records aside until their epoch is committed; safe against a power cut on return.

        A row is a record as `append` takes it, with the name of its `topic`. The same part and
        attempt again replaces what was staged.
        """
        return await self._run(_linked_calls.stage(app, epoch, part, rows, attempt))

    async def commit(self, app: str, epoch: int, parts: Sequence[tuple[int, int]]) -> StageCommit:
        """Append the named `(part, attempt)` stages to all their topics, all visible or none.

        An epoch that is already committed gives its first answer again, with `deduped`; so after
        any error, or a crash, the same call may simply be repeated.
        """
        return await self._run(_linked_calls.commit(app, epoch, parts))

    # Named cursors

    async def set_cursor(self, topic: str, cursor: str, seq: int) -> CursorState:
        """Leave a consumer's position with the log; it may also move back."""
        return await self._run(_linked_calls.set_cursor(topic, cursor, seq))

    async def cursor(self, topic: str, cursor: str) -> CursorState:
        """A consumer's position and how far it is behind."""
        return await self._run(_linked_calls.cursor(topic, cursor))

    async def cursors(self, topic: str) -> list[CursorState]:
        """Every named cursor of a topic, sorted by name."""
        return await self._all(lambda after: _linked_calls.cursors(topic, after))

    async def drop_cursor(self, topic: str, cursor: str) -> bool:
        """Forget a named cursor; False if there was none."""
        return await self._run(_linked_calls.drop_cursor(topic, cursor))

    # Queues and routers

    def queue(self, topic: str, *, node: str = DEFAULT_NODE) -> AsyncRemoteQueue:
        """The queue of that name, for the worker `node`: claim, ack, nack, extend, redrive.

        Make it first with `create(topic, type="queue")`. Workers that share a name share leases.
        """
        self._http.check_open()
        return AsyncRemoteQueue(self, topic, node)

    async def route(
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
        """Copy what is appended to `source` from now on to `dest`, in order, on and on.

        Missing topics are made. Copies follow soon, and always before `dest` is read. `match`
        copies only records whose tag fits. Calling it again changes the settings and keeps the
        position. `exactly_once` signs each copy in its meta.
        """
        made = await self._run(
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
        return await self._run(_linked_calls.router_state(made))

    async def routers(self, *, prefix: str = "") -> list[RouterState]:
        """Every router, sorted by name."""
        names = await self._all(lambda cursor: _linked_calls.routers(prefix, cursor))
        return [await self._run(_linked_calls.router_state(name)) for name in names]

    async def drop_router(self, router: str) -> bool:
        """Stop a router; what it copied stays. False if there was none."""
        return bool(router) and await self._run(_linked_calls.drop_router(router))

    # Inside

    async def close(self) -> None:
        """Let go of the connections. A second call does nothing."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _check(self) -> None:
        self._http.check_open()

    async def _put(self, topic: str, config: Mapping[str, Any]) -> Created:
        return await self._run(_calls.put(topic, config))

    async def _run(self, call: Call[T]) -> T:
        return call.read(await self._answer(call), url=self.url)

    async def _answer(self, call: Call[T]) -> bytes:
        answer = await self._http.request(
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

    async def _reason(self, topic: str, after: int) -> Tombstone | None:
        return (await self.read(topic, after=after, limit=1)).tombstone

    async def _all(self, page: Callable[[str | None], Call[Listed[T]]]) -> list[T]:
        found, cursor = await self._run(page(None))
        while cursor is not None:
            more, cursor = await self._run(page(cursor))
            found += more
        return found

    def _following(
        self,
        starts: Mapping[str, int | None],
        *,
        node: str | Sequence[str],
        match: str | Sequence[str] | None,
        limit: int,
    ) -> Following:
        from topics.client._following import Following  # noqa: PLC0415 - for live reads only

        return Following(
            starts, node=node, match=match, limit=limit, heartbeat_ms=int(self._heartbeat * 1000)
        )

    def _events(
        self, following: Following, wait: float | None, transport: Transport
    ) -> AsyncGenerator[Event, None]:
        from topics.client._aio_stream import events  # noqa: PLC0415 - as above

        return events(
            self._http,
            following,
            wait=wait,
            heartbeat=self._heartbeat,
            transport=transport,
            run=self._run,
            reason=self._reason,
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


class AsyncRemoteQueue(Shown):
    """One queue and one worker of it. Cheap: make as many as there are workers."""

    def __init__(self, log: AsyncRemoteLog, name: str, node: str) -> None:
        self.name = name
        self.node = node
        self._log = log

    def _words(self) -> str:
        return f"{self.name!r} for worker {self.node!r}"

    async def claim(self, most: int = 1, *, lease_ms: int | None = None) -> Sequence[Job]:
        """Lease up to `most` jobs for this worker; fewer or none is a normal answer.

        Jobs given back or expired come first. `lease_ms` replaces the queue's own lease time.
        """
        call = _queue_calls.claim(self.name, self.node, most=most, lease_ms=lease_ms)
        return await self._log._run(call)

    async def ack(self, jobs: _queue_calls.Jobs) -> Acked:
        """Remove finished jobs for good; those no longer held by this worker are `skipped`."""
        return await self._log._run(_queue_calls.ack(self.name, self.node, jobs))

    async def nack(
        self,
        jobs: _queue_calls.Jobs,
        *,
        delay_ms: int = 0,
        error: BaseException | str | None = None,
    ) -> Nacked:
        """Give jobs back, to be claimed again at once or after a delay.

        `error` is what went wrong; a job that dies of it keeps it in its dead letter.
        """
        return await self._log._run(
            _queue_calls.nack(self.name, self.node, jobs, delay_ms=delay_ms, error=error)
        )

    async def extend(self, jobs: _queue_calls.Jobs, *, lease_ms: int) -> Extended:
        """Hold jobs for `lease_ms` from now on."""
        return await self._log._run(
            _queue_calls.extend(self.name, self.node, jobs, lease_ms=lease_ms)
        )

    async def redrive(self, *, source: str | None = None, most: int = 100) -> Redriven:
        """Put dead letters back into the queue, oldest first; `source` is its `dead_letter`."""
        return await self._log._run(_queue_calls.redrive(self.name, source=source, most=most))

    async def stats(self) -> QueueCounts:
        """How many jobs are ready, on lease, and moved away as dead letters."""
        return await self._log._run(_queue_calls.stats(self.name))
