"""What every blocking log can do: one in this process, or one behind an address."""

# Made from `aio.py` by tools/make_sync.py: change that, then `make fmt`.

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from topics.client._showing import Shown
from topics.client.keywords import DEFAULT_LIMIT, DEFAULT_MAX_BYTES, PLAN_BYTES
from topics.errors import TopicsError
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
    from topics.client._configuring import Steps
    from topics.client.consumer import Consumer
    from topics.client.keywords import ConsumerOptions, ProducerOptions, WorkerOptions
    from topics.client.producer import Producer
    from topics.client.queue_interface import AnyQueue
    from topics.client.worker import Handler, Worker
    from topics.events import Event
    from topics.topic_settings import TopicSettings

T = TypeVar("T")


class AnyLog(Shown):
    """What every blocking log can do: one in this process, or one behind an address."""

    # Topics

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

        return self._done(configuring(topic, settings, dry_run=dry_run))

    @abstractmethod
    def drop(self, topic: str, *, if_empty: bool = False) -> Dropped:
        """Remove a topic and every router that touches it; `deleted` is False if it was absent."""

    @abstractmethod
    def state(self, topic: str, *, touch: bool = True) -> TopicState:
        """Head, earliest, count, bytes and configuration of a topic."""

    @abstractmethod
    def topics(self, *, prefix: str = "", details: bool = False) -> list[TopicSummary]:
        """Every topic, sorted by name; `details` adds type, durability, losses and jobs."""

    @abstractmethod
    def audit(self, topic: str) -> Audit:
        """The ledger of a topic: where every seq went."""

    @abstractmethod
    def holes(self, topic: str, *, from_seq: int, to_seq: int) -> Holes:
        """The dead seqs of a range, as runs with what removed them first."""

    # Records

    @abstractmethod
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
        """Append records, all or none, and return once they are as safe as the topic promises.

        A record is `{"data": ...}` with optional `tag`, `node` and `meta`. `data` is any
        JSON-serialisable object, or ready JSON as bytes. An absent topic is created (with
        `config`) unless `create=False`. `expect_head` appends only if it is the last seq.

        A key seen within the topic's window returns the first answer instead of appending again.
        A client makes up a key if none is given, so that a write whose answer was lost is sent
        again and still appended once.
        """

    @abstractmethod
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
        """One page of records with a seq above `after`.

        A page has at most `limit` records, however many there are: 256 unless told otherwise, and
        never more than the log's `max_limit` (1000). It ends earlier at `max_bytes`. If
        `page.caught_up` is False there is more: continue with `page.next_from_seq`, or use `scan`,
        which reads all pages. Loss comes as `page.tombstone`, before the records.

        `node` hides records of those nodes, `match` shows only records whose tag fits, `from_ts`
        starts at a time instead. `wait` holds an empty read back for up to that many seconds until
        something is appended.
        """

    def scan(
        self,
        topic: str,
        *,
        after: int = 0,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        from_ts: int | None = None,
    ) -> Generator[Record | Tombstone, None, None]:
        """Every record of a topic with a seq above `after`, and a tombstone where some were lost.

        Ends at the last record there was when it began; `follow` goes on. `node`, `match` and
        `from_ts` are those of `read`.
        """
        from topics.client._positions import Scan  # noqa: PLC0415 - as above

        scan = Scan(after, node, match, from_ts)
        while not scan.is_over:
            yield from scan.items(self.read(topic, **scan.query))

    @abstractmethod
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
        """Records and tombstones from `after` on, live; None begins at the head.

        Ends after `wait` seconds without anything new; None waits for ever. A client that loses
        its connection makes it again; nothing is skipped and nothing comes twice. `watch` also
        tells when that was.
        """

    @abstractmethod
    def watch(
        self,
        topics: Iterable[str] | Mapping[str, int | None],
        *,
        limit: int = DEFAULT_LIMIT,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
        wait: float | None = None,
    ) -> Generator[Event, None, None]:
        """Events of many topics in one stream: `Arrived`, `Lost`, `CaughtUp`, `TopicDropped`.

        Name topics to read them from the beginning, or map each to the seq to read after (None:
        only what comes). A client reconnects like `follow`, and says `Resumed`. Ends when no topic
        is left, or after `wait` seconds without news.
        """

    @abstractmethod
    def delete(
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

    @abstractmethod
    def erase(
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

    @abstractmethod
    def erasures(self, topic: str) -> list[ErasureState]:
        """The erasures of a topic, the oldest first; each has its receipt once it is done."""

    @abstractmethod
    def plan(
        self, topic: str, *, from_seq: int, to_seq: int, target_bytes: int = PLAN_BYTES
    ) -> ReadPlan:
        """Cut a range of seqs, ends included, for parallel readers; no payload is read."""

    # Staged writes

    @abstractmethod
    def stage(
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

    @abstractmethod
    def commit(self, app: str, epoch: int, parts: Sequence[tuple[int, int]]) -> StageCommit:
        """Append the named `(part, attempt)` stages to all their topics, all visible or none.

        An epoch that is already committed gives its first answer again, with `deduped`; so after
        any error, or a crash, the same call may simply be repeated.
        """

    @abstractmethod
    def last_commit(self, app: str) -> StageCommit:
        """The last epoch that an app committed, and the seqs it gave; `NotFound` without one."""

    @abstractmethod
    def stages(self) -> list[WaitingStages]:
        """What is staged and not committed, by app and epoch, the oldest first; at most 1000."""

    @abstractmethod
    def drop_stages(self, app: str, *, epoch: int | None = None) -> DroppedStages:
        """Discard what an app has staged and not committed, in one epoch or in all."""

    # Named cursors

    @abstractmethod
    def set_cursor(self, topic: str, cursor: str, seq: int) -> CursorState:
        """Leave a consumer's position with the log; it may also move back."""

    @abstractmethod
    def cursor(self, topic: str, cursor: str) -> CursorState:
        """A consumer's position and how far it is behind."""

    @abstractmethod
    def cursors(self, topic: str) -> list[CursorState]:
        """Every named cursor of a topic, sorted by name."""

    @abstractmethod
    def drop_cursor(self, topic: str, cursor: str) -> bool:
        """Forget a named cursor; False if there was none."""

    # Queues and routers

    @abstractmethod
    def queue(self, topic: str, *, node: str = ...) -> AnyQueue:
        """The queue of that name, for the worker `node`: claim, ack, nack, extend, redrive.

        Make it first with `create(topic, type="queue")`. Workers that share a name share leases.
        """

    @abstractmethod
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
        """Copy what is appended to `source` from now on to `dest`, in order, on and on.

        Missing topics are made. Copies follow soon (a log in this process makes them in later
        calls), and always before `dest` is read. `match` copies only records whose tag fits.
        Calling it again changes the settings and keeps the position. `exactly_once` signs each
        copy in its meta.
        """

    @abstractmethod
    def routers(self, *, prefix: str = "") -> list[RouterState]:
        """Every router, sorted by name."""

    @abstractmethod
    def drop_router(self, router: str) -> bool:
        """Stop a router; what it copied stays. False if there was none."""

    # Consumers, producers, workers

    def consumer(self, topic: str, *, name: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A reader whose position is kept in the log under `name`; see `Consumer`."""
        from topics.client.consumer import Consumer  # noqa: PLC0415 - as above

        self._check()
        return Consumer(self, topic, name=name, **options)

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A writer that gathers records into batches and sends them in the background."""
        from topics.client.producer import Producer  # noqa: PLC0415 - as above

        self._check()
        return Producer(self, topic, **options)

    def worker(self, topic: str, handler: Handler, **options: Unpack[WorkerOptions]) -> Worker:
        """Works on the jobs of a queue with several threads; see `Worker`."""
        from topics.client.worker import Worker  # noqa: PLC0415 - as above

        self._check()
        return Worker(self, topic, handler, **options)

    # Closing

    @abstractmethod
    def close(self) -> None:
        """Let go of the log: a directory, or the connections to a server.

        A second call does nothing. A log in this process writes a checkpoint first. A checkpoint
        that takes longer than `stop_checkpoint_ms` (15 s) is given up: the log has everything, and
        the next `open` reads it. A `close` that is interrupted lets go of the directory too,
        without the checkpoint.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Inside

    def _done(self, steps: Steps[T]) -> T:
        """The outcome of calls that follow each other."""
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

    @abstractmethod
    def _check(self) -> None:
        """Raise if the log can no longer be used."""

    @abstractmethod
    def _put(self, topic: str, config: Mapping[str, Any], *, dry_run: bool = False) -> Created:
        """Create a topic, or replace the whole configuration of one that exists."""
