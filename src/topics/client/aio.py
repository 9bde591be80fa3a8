"""`AsyncRemoteLog`: what `topics.aio.open("http://...")` returns.

The calls, results and errors of `RemoteLog` with `await` before them; `follow` and `watch` are for
`async for`. Each method says what to do through `_calls`; this shell only sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from topics.client import _calls, _linked_calls
from topics.client._call import ApiCall, Listed
from topics.client._retry import DEFAULT_RETRIES
from topics.client._showing import Shown
from topics.client.aio_http import MAX_CONNECTIONS, AsyncHttp
from topics.client.keywords import DEFAULT_LIMIT, DEFAULT_MAX_BYTES, DEFAULT_NODE, PLAN_BYTES
from topics.errors import TopicsError
from topics.events import item_of
from topics.values import (
    Ack,
    Audit,
    Configured,
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
    from topics.client._aio_stream import Transport
    from topics.client._configuring import Steps
    from topics.client.aio_consumer import AsyncConsumer
    from topics.client.aio_producer import AsyncProducer
    from topics.client.aio_queue import AsyncRemoteQueue
    from topics.client.aio_worker import AsyncWorker, Handler
    from topics.client.keywords import ConsumerOptions, ProducerOptions, WorkerOptions
    from topics.events import Event
    from topics.topic_settings import TopicSettings

T = TypeVar("T")


class AsyncRemoteLog(Shown):
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

    async def create(self, topic: str, **settings: Unpack[TopicSettings]) -> Created:
        """Create a topic. One that exists stays as it is.

        Settings are `durability` (`ephemeral`, `memory`, `disk` or `fsync`; default `disk`),
        `ttl_ms`, `cap_records`, `cap_bytes`, `discard` (`old` or `reject`), `type` (`log` or
        `queue`) and the rest. If the topic exists and a setting that you name has another value
        there, this raises `TopicExists`, which shows the difference. A setting no topic has is an
        error. On a server the key needs the scopes `read` and `admin`.
        """
        from topics.client._configuring import creating  # noqa: PLC0415 - few programs configure

        return await self._done(creating(topic, settings))

    async def configure(
        self, topic: str, *, dry_run: bool = False, **settings: Unpack[TopicSettings]
    ) -> Configured:
        """Change the settings that you name; all others keep their values.

        A tighter `ttl_ms`, `cap_records` or `cap_bytes` evicts the oldest records at once. The
        result tells which settings changed and how many records went; `dry_run=True` tells the
        same and changes nothing.

        A client reads the settings, then writes all of them. If two clients configure one topic
        at the same moment, the last one to write can undo what the other one changed. The age of
        records is counted by the clock of the client.
        """
        from topics.client._configuring import configuring  # noqa: PLC0415 - as above

        return await self._done(configuring(topic, settings, dry_run=dry_run))

    async def drop(self, topic: str, *, if_empty: bool = False) -> Dropped:
        """Remove a topic and every router that touches it; `deleted` is False if it was absent."""
        if not topic:
            return Dropped(topic, False, [])
        return await self._run(_calls.drop(topic, if_empty=if_empty))

    async def state(self, topic: str, *, touch: bool = True) -> TopicState:
        """Head, earliest, count, bytes and configuration of a topic."""
        return await self._run(_calls.state(topic, touch=touch))

    async def topics(self, *, prefix: str = "", details: bool = False) -> list[TopicSummary]:
        """Every topic, sorted by name; `details` adds type, durability, losses and jobs."""
        return await self._all(lambda cursor: _calls.topics(prefix, cursor, details=details))

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
        `config`) unless `create=False`. `expect_head` appends only if it is the last seq.

        A key seen within the topic's window returns the first answer instead of appending again.
        A client makes up a key if none is given, so that a write whose answer was lost is sent
        again and still appended once.
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

    async def scan(
        self,
        topic: str,
        *,
        after: int = 0,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        from_ts: int | None = None,
    ) -> AsyncGenerator[Record | Tombstone, None]:
        """Every record of a topic with a seq above `after`, and a tombstone where some were lost.

        Ends at the last record there was when it began; `follow` goes on. `node`, `match` and
        `from_ts` are those of `read`.
        """
        from topics.client._positions import Scan  # noqa: PLC0415 - as above

        scan = Scan(after, node, match, from_ts)
        while not scan.is_over:
            for item in scan.items(await self.read(topic, **scan.query)):
                yield item

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

        Ends after `wait` seconds without anything new; None waits for ever. A client that loses
        its connection makes it again; nothing is skipped and nothing comes twice. `watch` also
        tells when that was.
        """
        events = self._events(
            {topic: after}, limit=limit, node=node, match=match, wait=wait, transport=transport
        )
        async with aclosing(events):
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
        only what comes). A client reconnects like `follow`, and says `Resumed`. Ends when no topic
        is left, or after `wait` seconds without news.
        """
        events = self._events(
            topics, limit=limit, node=node, match=match, wait=wait, transport=transport
        )
        async with aclosing(events):
            async for event in events:
                yield event

    async def delete(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: str | Sequence[str] | None = None,
        seqs: Sequence[int] | None = None,
    ) -> DeleteResult:
        """Remove records for good, silently: those below a seq, those with a tag, those named by
        `seqs` (at most 1000), or what several of these have in common.

        `match` is a tag, or a prefix that ends in `*`. Records appended later are not touched.
        """
        return await self._run(_calls.delete(topic, before_seq=before_seq, match=match, seqs=seqs))

    async def erase(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: str | Sequence[str] | None = None,
    ) -> ErasureState:
        """Delete records as `delete` does, and remove their bytes from every file of the log.

        A server answers when the records are deleted; it removes the bytes afterwards, also behind
        a restart, and `erasures` tells how far it is. A log in the program answers when it is done.
        """
        return await self._run(_calls.erase(topic, before_seq=before_seq, match=match))

    async def erasures(self, topic: str) -> list[ErasureState]:
        """The erasures of a topic, the oldest first; each has its receipt once it is done."""
        return await self._run(_calls.erasures(topic))

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

    async def last_commit(self, app: str) -> StageCommit:
        """The last epoch that an app committed, and the seqs it gave; `NotFound` without one."""
        return await self._run(_linked_calls.last_commit(app))

    async def stages(self) -> list[WaitingStages]:
        """What is staged and not committed, by app and epoch, the oldest first; at most 1000."""
        return await self._run(_linked_calls.stages())

    async def drop_stages(self, app: str, *, epoch: int | None = None) -> DroppedStages:
        """Discard what an app has staged and not committed, in one epoch or in all."""
        return await self._run(_linked_calls.drop_stages(app, epoch))

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
        from topics.client.aio_queue import AsyncRemoteQueue  # noqa: PLC0415 - as above

        self._check()
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

        Missing topics are made. Copies follow soon (a log in this process makes them in later
        calls), and always before `dest` is read. `match` copies only records whose tag fits.
        Calling it again changes the settings and keeps the position. `exactly_once` signs each
        copy in its meta.
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

    # Consumers, producers, workers

    def consumer(
        self, topic: str, *, name: str, **options: Unpack[ConsumerOptions]
    ) -> AsyncConsumer:
        """A reader whose position is kept in the log under `name`; see `AsyncConsumer`."""
        from topics.client.aio_consumer import AsyncConsumer  # noqa: PLC0415 - as above

        self._check()
        return AsyncConsumer(self, topic, name=name, **options)

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """A writer that gathers records into batches and sends them in the background."""
        from topics.client.aio_producer import AsyncProducer  # noqa: PLC0415 - as above

        self._check()
        return AsyncProducer(self, topic, **options)

    def worker(self, topic: str, handler: Handler, **options: Unpack[WorkerOptions]) -> AsyncWorker:
        """Works on the jobs of a queue with several tasks; see `AsyncWorker`."""
        from topics.client.aio_worker import AsyncWorker  # noqa: PLC0415 - as above

        self._check()
        return AsyncWorker(self, topic, handler, **options)

    # Closing

    async def close(self) -> None:
        """Let go of the log: a directory, or the connections to a server.

        A second call does nothing. A log in this process writes a checkpoint first. A checkpoint
        that takes longer than `stop_checkpoint_ms` (15 s) is given up: the log has everything, and
        the next `open` reads it. A `close` that is interrupted lets go of the directory too,
        without the checkpoint.
        """
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # Inside

    async def _done(self, steps: Steps[T]) -> T:
        """The outcome of calls that follow each other."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = await call(self)
                except TopicsError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as done:
            outcome: T = done.value
            return outcome

    def _check(self) -> None:
        """Raise if the log can no longer be used."""
        self._http.check_open()

    async def _put(
        self, topic: str, config: Mapping[str, Any], *, dry_run: bool = False
    ) -> Created:
        """Create a topic, or replace the whole configuration of one that exists."""
        return await self._run(_calls.put(topic, config, dry_run=dry_run))

    async def _run(self, call: ApiCall[T]) -> T:
        return call.read(await self._answer(call), url=self.url)

    async def _answer(self, call: ApiCall[T]) -> bytes:
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

    async def _all(self, page: Callable[[str | None], ApiCall[Listed[T]]]) -> list[T]:
        found, cursor = await self._run(page(None))
        while cursor is not None:
            more, cursor = await self._run(page(cursor))
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
    ) -> AsyncGenerator[Event, None]:
        from topics.client._aio_stream import events  # noqa: PLC0415 - for live reads only
        from topics.client._following import Following  # noqa: PLC0415 - as above

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
    return asyncio.get_running_loop().time()
