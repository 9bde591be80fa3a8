"""`Log`: what `topics.open` returns for a directory, or for memory. How calls run is in `calls`.

Its signatures are those of the client, and a test compares them: help texts are in `AnyLog`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from topics.batch import RecordBatch
from topics.client.interface import AnyLog
from topics.client.keywords import DEFAULT_LIMIT, DEFAULT_MAX_BYTES, PLAN_BYTES
from topics.core.facts import Match
from topics.embedded.calls import Calls
from topics.engine.effects import Op
from topics.engine.engine import Engine
from topics.engine.reads.reading import Query
from topics.engine.routers.routing import RouterSpec
from topics.engine.stages.rows import stage_rows_of
from topics.engine.writes.deleting import parse_match
from topics.engine.writes.drafts import check_batch
from topics.errors import InvalidRequest, ReadOnly
from topics.topic_settings import U64_MAX, known_settings
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
from topics.wire.drafts import batch_of

if TYPE_CHECKING:
    from topics.client._configuring import Steps
    from topics.embedded.queues import Queue
    from topics.events import Event
    from topics.topic_settings import TopicSettings
    from topics.wire.drafts import Records

T = TypeVar("T")


class Log(Calls, AnyLog):
    """A durable log in this process. Safe for its threads; not for its forked children."""

    def __init__(
        self, engine: Engine, *, background: bool = False, path: str | None = None
    ) -> None:
        self._path = path
        super().__init__(engine, background=background)

    def _words(self) -> str:
        where = "in memory" if self._path is None else repr(self._path)
        if self._closed:
            return f"{where}, closed"
        topics = len(self._engine.kernel.catalog.by_name)
        return f"{where}: {topics} {'topic' if topics == 1 else 'topics'}"

    # Topics

    def drop(self, topic: str, *, if_empty: bool = False) -> Dropped:
        return self._change(lambda engine: engine.drop(topic, if_empty=if_empty))

    def state(self, topic: str, *, touch: bool = True) -> TopicState:
        return self._run(lambda engine: engine.views.state(topic, touch=touch))

    def topics(self, *, prefix: str = "", details: bool = False) -> list[TopicSummary]:
        return self._run(lambda engine: engine.views.topics(prefix=prefix, details=details))

    def audit(self, topic: str) -> Audit:
        return self._run(lambda engine: engine.views.audit(topic))

    def holes(self, topic: str, *, from_seq: int, to_seq: int) -> Holes:
        return self._run(lambda engine: engine.views.holes(topic, from_seq=from_seq, to_seq=to_seq))

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
        batch = batch_of(records, node)
        check_batch(batch, self._engine.kernel.settings, key=idempotency_key)
        if idempotency_key is None and expect_head is None and create is None and config is None:
            ack = self._append_at_once(topic, batch)
            if ack is not None:
                return ack
        return self._append(
            topic, batch, idempotency_key, expect_head, create=create, config=config
        )

    def _append(
        self,
        topic: str,
        batch: RecordBatch,
        key: str | None,
        expect_head: int | None,
        *,
        create: bool | None,
        config: Mapping[str, Any] | None,
    ) -> Ack:
        fields = None if config is None else known_settings(config)
        return self._change(
            lambda engine: engine.append(
                topic, batch, key=key, expect_head=expect_head, create=create, config=fields
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
        if not 0 <= after <= U64_MAX or limit < 0 or max_bytes < 0:
            raise InvalidRequest(f"after, limit, max_bytes start at 0, after ends at {U64_MAX}")
        query = Query(after, limit, max_bytes, _nodes(node), _selector(match), from_ts)
        page = self._run(lambda engine: engine.read(topic, query))
        if wait <= 0 or page.records or page.tombstone or not page.caught_up:
            return page
        if not self._await_append({topic: page.head_seq}, wait):
            return page
        return self._run(lambda engine: engine.read(topic, query))

    def follow(
        self,
        topic: str,
        *,
        after: int | None = 0,
        limit: int = DEFAULT_LIMIT,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        wait: float | None = None,
    ) -> Generator[Record | Tombstone, None, None]:
        from topics.embedded.watching import follow  # noqa: PLC0415 - few programs follow

        return follow(self, topic, after, limit=limit, node=node, match=match, wait=wait)

    def watch(
        self,
        topics: Iterable[str] | Mapping[str, int | None],
        *,
        limit: int = DEFAULT_LIMIT,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        wait: float | None = None,
    ) -> Generator[Event, None, None]:
        from topics.embedded.watching import events  # noqa: PLC0415 - as above

        return events(self, topics, limit=limit, node=node, match=match, wait=wait)

    def delete(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: str | Sequence[str] | None = None,
        seqs: Sequence[int] | None = None,
    ) -> DeleteResult:
        selector = _selector(match)
        return self._change(
            lambda engine: engine.delete(topic, before=before_seq, match=selector, seqs=seqs)
        )

    def erase(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: str | Sequence[str] | None = None,
    ) -> ErasureState:
        selector = _selector(match)
        begun = self._change(
            lambda engine: engine.erasing.begin(topic, before=before_seq, match=selector)
        )
        self._do(lambda engine: engine.erase_now())
        return next(found for found in self.erasures(topic) if found.erasure == begun.erasure)

    def erasures(self, topic: str) -> list[ErasureState]:
        return self._run(lambda engine: engine.erasing.of_topic(topic))

    def plan(
        self, topic: str, *, from_seq: int, to_seq: int, target_bytes: int = PLAN_BYTES
    ) -> ReadPlan:
        return self._run(
            lambda engine: engine.plan(
                topic, from_seq=from_seq, to_seq=to_seq, target_bytes=target_bytes
            )
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
        staged = stage_rows_of(rows)
        return self._change(lambda engine: engine.stage(app, epoch, part, attempt, staged))

    def commit(self, app: str, epoch: int, parts: Sequence[tuple[int, int]]) -> StageCommit:
        return self._change(lambda engine: engine.commit(app, epoch, parts))

    def last_commit(self, app: str) -> StageCommit:
        return self._run(lambda engine: engine.staging.last_commit(app))

    def stages(self) -> list[WaitingStages]:
        return self._run(lambda engine: engine.staging.waiting())

    def drop_stages(self, app: str, *, epoch: int | None = None) -> DroppedStages:
        return self._change(lambda engine: engine.staging.drop(app, epoch=epoch))

    # Named cursors

    def set_cursor(self, topic: str, cursor: str, seq: int) -> CursorState:
        return self._change(lambda engine: engine.cursors.put(topic, cursor, seq))[1]

    def cursor(self, topic: str, cursor: str) -> CursorState:
        return self._run(lambda engine: engine.cursors.get(topic, cursor))

    def cursors(self, topic: str) -> list[CursorState]:
        return self._run(lambda engine: engine.cursors.list(topic))

    def drop_cursor(self, topic: str, cursor: str) -> bool:
        return self._change(lambda engine: engine.cursors.drop(topic, cursor))

    # Queues and routers

    def queue(self, topic: str, *, node: str = "embedded") -> Queue:
        from topics.embedded.queues import Queue  # noqa: PLC0415 - few logs have queues

        self._check()
        return Queue(self, topic, node)

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
        spec = RouterSpec(
            source,
            dest,
            preserve_node,
            preserve_tag,
            create_dest,
            _selector(match),
            allow_cycle,
            exactly_once,
        )
        return self._change(lambda engine: _route(engine, router, spec))

    def routers(self, *, prefix: str = "") -> list[RouterState]:
        return self._run(lambda engine: engine.routing.all(prefix=prefix))

    def drop_router(self, router: str) -> bool:
        return self._change(lambda engine: engine.routing.drop(router))

    # Upkeep

    def sync(self) -> None:
        """Make everything acknowledged so far safe against a power cut."""
        self._do(Engine.sync)

    def maintain(self) -> None:
        """Do now what is due: forward, sync the log's tail, expire, checkpoint, move segments."""
        self._do(_maintain)

    def checkpoint(self) -> None:
        """Write a checkpoint now, so that the next open replays nothing before this moment."""
        self._do(Engine.checkpoint)

    def close(self) -> None:
        self._close()

    # For `AnyLog`

    def _put(self, topic: str, config: Mapping[str, Any], *, dry_run: bool = False) -> Created:
        return self._change(lambda engine: engine.put(topic, config, dry_run=dry_run))

    def _done(self, steps: Steps[T]) -> T:
        self._check()
        if self._engine.read_only:
            raise ReadOnly
        with self._lock:  # held over all steps
            return super()._done(steps)


def _route(engine: Engine, router: str, spec: RouterSpec) -> Op[RouterState]:
    _, made = yield from engine.routing.put(router, spec)
    return engine.routing.state(made)


def _maintain(engine: Engine) -> None:
    engine.forward()
    engine.maintain()


def _selector(match: str | Sequence[str] | None) -> Match | None:
    return parse_match(match if isinstance(match, str | None) else list(match))


def _nodes(node: str | Sequence[str]) -> frozenset[str]:
    return frozenset((node,) if isinstance(node, str) else node)
