"""Queues on a virtual loop: operations wait where a server's would, time passes when told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from topics.batch import RecordBatch
from topics.core.leases import Lease, LeaseBook
from topics.core.topic import Topic
from topics.engine.effects import Gate, Io, Op, Sleep, Wait, run
from topics.engine.engine import Engine, memory_engine
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.engine.upkeep.lease_log import Presence
from topics.errors import TopicsError
from topics.queue import ClaimedJobs, Queues
from topics.storage.fs import Fs
from topics.storage.wal.committer import Committer
from topics.storage.wal.submission import Submission
from topics.testing import FaultFs, ManualClock, SimDisk
from topics.values import QueueCounts

T = TypeVar("T")
QUEUE = "jobs"


@dataclass
class Task(Generic[T]):
    """An operation under way, and how it ended."""

    op: Op[T]
    done: Callable[[T | None, TopicsError | None], None]
    wait: Wait | None = None
    is_over: bool = False
    is_due: bool = True
    answer: T | None = None
    error: TopicsError | None = None

    @property
    def result(self) -> T:
        assert self.is_over, "it still waits"
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class VirtualLoop:
    """Drives operations like a server does, on a clock that stands still."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._tasks: list[Task[Any]] = []
        self._is_settling = False

    def start(self, op: Op[T], done: Callable[[T | None, TopicsError | None], None]) -> None:
        """Begin an operation as a server does."""
        self._tasks.append(Task(op, done))
        self.settle()

    def begin(self, op: Op[T]) -> Task[T]:
        """Begin an operation, to be looked at later."""
        task = Task(op, lambda answer, error: None)
        self._tasks.append(task)
        self.settle()
        return task

    def advance(self, ms: int) -> None:
        self._clock.advance(ms)
        self.settle()

    def settle(self) -> None:
        """Go on with everything that can go on; what an operation begins goes on after it."""
        if self._is_settling:
            return
        moved = self._is_settling = True
        while moved:
            moved = False
            for task in self._tasks[:]:
                moved |= self._step(task)
            self._tasks = [task for task in self._tasks if not task.is_over]
        self._is_settling = False

    def _step(self, task: Task[Any]) -> bool:
        wait = task.wait
        if isinstance(wait, Submission):
            task.is_due = wait.done
        elif isinstance(wait, Gate):
            task.is_due = wait.is_open
        if task.is_over or not task.is_due:
            return False
        try:
            task.wait = task.op.send(wait.work() if isinstance(wait, Io) else None)
        except StopIteration as finished:
            task.is_over, task.answer = True, finished.value
            task.done(finished.value, None)
        except TopicsError as error:
            task.is_over, task.error = True, error
            task.done(None, error)
        else:
            if isinstance(task.wait, Sleep):
                task.is_due = False
                self._clock.call_later(round(task.wait.seconds * 1000), lambda: self._wake(task))
        return True

    def _wake(self, task: Task[Any]) -> None:
        task.is_due = True


class HeldLog:
    """A log that can be told to keep what it is given for a while."""

    def __init__(self, inner: Committer) -> None:
        self._inner = inner
        self.is_holding = False
        self.held: list[Submission] = []

    def submit(self, submission: Submission) -> None:
        if self.is_holding:
            self.held.append(submission)
        else:
            self._inner.submit(submission)

    def let_go(self, count: int | None = None) -> None:
        """Pass on what was held, oldest first."""
        held = self.held if count is None else self.held[:count]
        self.held = [] if count is None else self.held[count:]
        for submission in held:
            self._inner.submit(submission)

    def in_flight(self, shard: int) -> int:
        return sum(submission.shard == shard for submission in self.held)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the log has
        return getattr(self._inner, name)


@dataclass
class Shop:
    """An engine with one queue, and everything a test does to it."""

    config: dict[str, object] = field(default_factory=dict)
    on_disk: bool = False
    shards: int = 1
    segment_events: int = 4

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.disk = SimDisk()
        self.open()
        self.put(QUEUE, type="queue", **self.config)

    def open(self) -> None:
        settings = EngineSettings(
            wal_shards=self.shards, segment_max_events=self.segment_events, cache_bytes=1 << 16
        )
        self.fs = FaultFs(self.disk.mount())
        if self.on_disk:
            self.engine = self._on_disk(self.fs, settings)
        else:
            self.engine = memory_engine(settings, self.clock)
        self.log = HeldLog(self.engine.kernel.committer)
        self.engine.kernel.committer = self.log
        self.loop = VirtualLoop(self.clock)
        self.queues = Queues(self.engine)

    def _on_disk(self, fs: Fs, settings: EngineSettings) -> Engine:
        return open_engine(fs, "/data", Opening(settings, self.clock, prealloc_start=4096))

    def kill(self) -> None:
        self.disk.kill()
        self.open()

    # What clients do

    def put(self, name: str, **config: object) -> None:
        run(self.engine.put(name, config))

    def append(self, count: int = 1, *, name: str = QUEUE, meta: bytes = b"") -> None:
        batch = RecordBatch([b"%d" % i for i in range(count)], [meta] * count)
        run(self.engine.append(name, batch))

    def claiming(
        self,
        node: str = "w",
        most: int = 1,
        lease_ms: int | None = None,
        presence: Presence | None = None,
    ) -> Task[ClaimedJobs]:
        """Start a claim; it may have to wait."""
        return self.loop.begin(
            self.queues.claim(QUEUE, node=node, most=most, lease_ms=lease_ms, presence=presence)
        )

    def claim(self, node: str = "w", most: int = 1, lease_ms: int | None = None) -> list[int]:
        """The seqs a claim gives."""
        return [job.seq for job in self.claiming(node, most, lease_ms).result.jobs]

    def counts(self) -> QueueCounts:
        return run(self.queues.stats(QUEUE))

    @property
    def topic(self) -> Topic:
        return self.engine.kernel.topic(QUEUE)

    @property
    def leases(self) -> LeaseBook:
        assert self.topic.leases is not None
        return self.topic.leases

    def datas(self, name: str) -> list[tuple[int, object, object]]:
        """Seq, data and meta of what a topic holds."""
        page = run(self.engine.page(self.engine.kernel.topic(name), 0, 1000))
        return [(record.seq, record.data, record.meta) for record in page.records]


def without_claim_times(shop: Shop) -> dict[int, Lease]:
    """The leases of a queue as a restart brings them back: when a job was claimed is not logged."""
    replace = msgspec.structs.replace
    return {seq: replace(lease, claimed_ms=0) for seq, lease in shop.leases.leased.items()}
