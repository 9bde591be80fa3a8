"""What consumers, producers and workers need of a log, wherever it is."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Protocol

from topics.events import Event
from topics.topic_settings import TopicSettings
from topics.values import Ack, Acked, CursorState, Extended, Job, Nacked, Page, TopicState
from topics.wire.drafts import Records


class AnyQueue(Protocol):
    """One worker of one queue."""

    def claim(self, most: int = 1, *, lease_ms: int | None = None) -> Sequence[Job]: ...

    def ack(self, jobs: Iterable[Job | int]) -> Acked: ...

    def nack(
        self,
        jobs: Iterable[Job | int],
        *,
        delay_ms: int = 0,
        error: BaseException | str | None = None,
    ) -> Nacked: ...

    def extend(self, jobs: Iterable[Job | int], *, lease_ms: int) -> Extended: ...


class AnyLog(Protocol):
    """A log that blocks: in this process, or behind an address."""

    def state(self, topic: str, *, touch: bool = True) -> TopicState: ...

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
    ) -> Ack: ...

    def read(
        self,
        topic: str,
        *,
        after: int = 0,
        limit: int = 256,
        max_bytes: int = 1 << 20,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        wait: float = 0.0,
    ) -> Page: ...

    def watch(
        self,
        topics: Iterable[str] | Mapping[str, int | None],
        *,
        limit: int = 256,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        wait: float | None = None,
    ) -> Generator[Event, None, None]: ...

    def cursor(self, topic: str, cursor: str) -> CursorState: ...

    def set_cursor(self, topic: str, cursor: str, seq: int) -> CursorState: ...

    def queue(self, topic: str, *, node: str = ...) -> AnyQueue: ...
