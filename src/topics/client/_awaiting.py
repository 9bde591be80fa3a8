"""Calls of the asyncio client that are made of others; `_blocking` has them for the other logs."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from topics.client._configuring import Steps, configuring, creating
from topics.client._scanning import Scan
from topics.client._showing import Shown
from topics.errors import TopicsError
from topics.topic_settings import TopicSettings
from topics.values import Configured, Created, Record, Tombstone

if TYPE_CHECKING:
    from topics.client.aio import AsyncRemoteLog
    from topics.client.aio_consumer import AsyncConsumer
    from topics.client.aio_producer import AsyncProducer
    from topics.client.aio_worker import AsyncWorker, Handler
    from topics.client.keywords import ConsumerOptions, ProducerOptions, WorkerOptions

T = TypeVar("T")


class AwaitingLog(Shown):
    """Calls that are made of others."""

    async def create(self, topic: str, **settings: Unpack[TopicSettings]) -> Created:
        """Create a topic. One that exists stays as it is.

        Settings are `durability` (`ephemeral`, `memory`, `disk` or `fsync`; default `disk`),
        `ttl_ms`, `cap_records`, `cap_bytes`, `discard` (`old` or `reject`), `type` (`log` or
        `queue`) and the rest. If the topic exists and a setting that you name has another value
        there, this raises `TopicExists`, which shows the difference. A setting no topic has is an
        error. On a server the key needs the scopes `read` and `admin`.
        """
        return await self._done(creating(topic, settings))

    async def configure(
        self, topic: str, *, dry_run: bool = False, **settings: Unpack[TopicSettings]
    ) -> Configured:
        """Change the settings that you name; all others keep their values.

        A tighter `ttl_ms`, `cap_records` or `cap_bytes` evicts the oldest records at once. The
        result tells which settings changed and how many records went; `dry_run=True` tells the
        same and changes nothing.

        The client reads the settings, then writes all of them. If two clients configure one topic
        at the same moment, the last one to write can undo what the other one changed. The age of
        records is counted by the clock of the client.
        """
        now_ms = int(time.time() * 1000)
        return await self._done(configuring(topic, settings, dry_run=dry_run, now_ms=now_ms))

    async def scan(
        self,
        topic: str,
        *,
        after: int = 0,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        from_ts: int | None = None,
    ) -> AsyncGenerator[Record | Tombstone]:
        """Every record of a topic with a seq above `after`, and a tombstone where some were lost.

        Ends at the last record there was when it began; `follow` goes on. `node`, `match` and
        `from_ts` are those of `read`.
        """
        log = cast("AsyncRemoteLog", self)
        scan = Scan(after, node, match, from_ts)
        while not scan.is_over:
            for item in scan.items(await log.read(topic, **scan.query)):
                yield item

    # For whole programs

    def consumer(
        self, topic: str, *, name: str, **options: Unpack[ConsumerOptions]
    ) -> AsyncConsumer:
        """A reader whose position is kept in the log under `name`; see `AsyncConsumer`."""
        from topics.client.aio_consumer import AsyncConsumer  # noqa: PLC0415 - few programs need it

        self._check()
        return AsyncConsumer(cast("AsyncRemoteLog", self), topic, name=name, **options)

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """A writer that gathers records into batches and sends them behind your back."""
        from topics.client.aio_producer import AsyncProducer  # noqa: PLC0415 - as above

        self._check()
        return AsyncProducer(cast("AsyncRemoteLog", self), topic, **options)

    def worker(self, topic: str, handler: Handler, **options: Unpack[WorkerOptions]) -> AsyncWorker:
        """Works on the jobs of a queue with several tasks; see `AsyncWorker`."""
        from topics.client.aio_worker import AsyncWorker  # noqa: PLC0415 - as above

        self._check()
        return AsyncWorker(cast("AsyncRemoteLog", self), topic, handler, **options)

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

    @abstractmethod
    def _check(self) -> None:
        """Raise if the log can no longer be used."""

    @abstractmethod
    async def _put(self, topic: str, config: Mapping[str, Any]) -> Created:
        """Create a topic, or replace the whole configuration of one that exists."""
