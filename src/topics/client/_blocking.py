"""What a log in this process and a client that blocks do alike."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from topics.client._showing import Shown
from topics.errors import TopicsError
from topics.topic_settings import TopicSettings
from topics.values import Configured, Created, Record, Tombstone

if TYPE_CHECKING:
    from topics.client._configuring import Steps
    from topics.client._protocols import AnyLog
    from topics.client.consumer import Consumer
    from topics.client.keywords import ConsumerOptions, ProducerOptions, WorkerOptions
    from topics.client.producer import Producer
    from topics.client.worker import Handler, Worker

T = TypeVar("T")


class BlockingLog(Shown):
    """Calls that are made of others."""

    def create(self, topic: str, **settings: Unpack[TopicSettings]) -> Created:
        """Create a topic. One that exists stays as it is.

        Settings are `durability` (`ephemeral`, `memory`, `disk` or `fsync`; default `disk`),
        `ttl_ms`, `cap_records`, `cap_bytes`, `discard` (`old` or `reject`), `type` (`log` or
        `queue`) and the rest. If the topic exists and a setting that you name has another value
        there, this raises `TopicExists`, which shows the difference. A setting no topic has is an
        error. On a server the key needs the scopes `read` and `admin`.
        """
        from topics.client._configuring import creating  # noqa: PLC0415 - few programs configure

        return self._done(creating(topic, settings))

    def configure(
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

        now_ms = self._now_ms()
        return self._done(configuring(topic, settings, dry_run=dry_run, now_ms=now_ms))

    def scan(
        self,
        topic: str,
        *,
        after: int = 0,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        from_ts: int | None = None,
    ) -> Iterator[Record | Tombstone]:
        """Every record of a topic with a seq above `after`, and a tombstone where some were lost.

        Ends at the last record there was when it began; `follow` goes on. `node`, `match` and
        `from_ts` are those of `read`.
        """
        from topics.client._scanning import Scan  # noqa: PLC0415 - as above

        log = cast("AnyLog", self)
        scan = Scan(after, node, match, from_ts)
        while not scan.is_over:
            yield from scan.items(log.read(topic, **scan.query))

    # For whole programs

    def consumer(self, topic: str, *, name: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A reader whose position is kept in the log under `name`; see `Consumer`."""
        from topics.client.consumer import Consumer  # noqa: PLC0415 - as above

        self._check()
        return Consumer(cast("AnyLog", self), topic, name=name, **options)

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A writer that gathers records into batches and sends them behind your back."""
        from topics.client.producer import Producer  # noqa: PLC0415 - as above

        self._check()
        return Producer(cast("AnyLog", self), topic, **options)

    def worker(self, topic: str, handler: Handler, **options: Unpack[WorkerOptions]) -> Worker:
        """Works on the jobs of a queue with several threads; see `Worker`."""
        from topics.client.worker import Worker  # noqa: PLC0415 - as above

        self._check()
        return Worker(cast("AnyLog", self), topic, handler, **options)

    # Inside

    def _done(self, steps: Steps[T]) -> T:
        """The outcome of calls that follow each other."""
        with self._undisturbed():
            try:
                call = next(steps)
                while True:
                    try:
                        answer = call(self)
                    except TopicsError as error:
                        call = steps.throw(error)
                    else:
                        call = steps.send(answer)
            except StopIteration as done:
                outcome: T = done.value
                return outcome

    def _undisturbed(self) -> AbstractContextManager[object]:
        """Nobody else changes anything meanwhile, as far as that is in our hands.

        A server has no lock that a client could take.
        """
        return nullcontext()

    @abstractmethod
    def _check(self) -> None:
        """Raise if the log can no longer be used."""

    def _now_ms(self) -> int:
        """The time by which records are judged to be too old, as far as it is known here."""
        return int(time.time() * 1000)

    @abstractmethod
    def _put(self, topic: str, config: Mapping[str, Any]) -> Created:
        """Create a topic, or replace the whole configuration of one that exists."""
