"""One engine: the operations, wired to one state and one log.

Every method that starts an operation returns a generator (see `effects`): `run` it, or drive it
from an event loop. The engine itself never blocks and starts no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from topics.core.catalog import Catalog
from topics.core.topic import Topic
from topics.engine.arenas import Arenas
from topics.engine.clock import Clock, SystemClock
from topics.engine.effects import Op, run
from topics.engine.erasures import Erasing, ErasureBook
from topics.engine.kernel import Kernel
from topics.engine.reads.backwards import BackReader
from topics.engine.reads.history import SegmentHistory
from topics.engine.reads.reading import Reader
from topics.engine.reads.split_plan import Planner
from topics.engine.reads.versioned_pages import Pages
from topics.engine.reads.views import Views
from topics.engine.retention import expire_keys
from topics.engine.routers.forwarding import Forwarder
from topics.engine.routers.routing import Routing
from topics.engine.settings import EngineSettings
from topics.engine.stages.staging import Staging
from topics.engine.stages.store import MemoryStageStore, StageStore
from topics.engine.upkeep.schedule import Chore, Upkeep
from topics.engine.writes.admission import Admission
from topics.engine.writes.append import Appender
from topics.engine.writes.deleting import Cursors, Deleter
from topics.engine.writes.lifecycle import Lifecycle
from topics.engine.writes.reserving import Ceilings
from topics.errors import Interrupted
from topics.storage.sources import Sources
from topics.storage.wal.inline import NullCommitter


class Home(Protocol):
    """Where an engine keeps what it must not lose."""

    @property
    def is_spoiled(self) -> bool:
        """Whether an interrupt was taken for a failure of the log: only a new start helps."""
        ...

    def abandon(self) -> None:
        """Let go of the log files and write nothing more; a second call does nothing."""
        ...

    def reopen(self) -> Engine:
        """A new engine with what a recovery finds here; the abandoned one must not be used."""
        ...

    def leave(self) -> None:
        """Unlock the directory; a second call does nothing."""
        ...


class Engine:
    """All operations. `kernel` is what they share; programs use its host and counters only."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        make_upkeep: Callable[[Sequence[Chore]], Upkeep] | None = None,
        home: Home | None = None,
        warnings: Sequence[str] = (),
        read_only: bool = False,
        stage_store: StageStore | None = None,
        erasures: ErasureBook | None = None,
    ) -> None:
        self.kernel = kernel
        self.warnings = list(warnings)  # what recovery noticed and lived with
        self.read_only = read_only
        self._home = home  # None: there is no directory, or only to read from
        self._reader = Reader(kernel, self.catch_up)
        self._ceilings = Ceilings(kernel)
        admission = Admission(kernel, self._ceilings)
        self.forwarder = Forwarder(kernel, self._reader, admission)
        self.lifecycle = Lifecycle(
            kernel, on_dropped=(self._ceilings.forget, self.forwarder.forget_topic)
        )
        self._appender = Appender(kernel, self.lifecycle, admission, self._ceilings)
        self._deleter = Deleter(kernel)
        self.erasing = Erasing(kernel, self._deleter, self._reader, erasures)
        self.routing = Routing(kernel, self.lifecycle, self.forwarder)
        self.cursors = Cursors(kernel)
        self.views = Views(kernel, self.catch_up)
        self.put = self.lifecycle.put
        self.drop = self.lifecycle.drop
        self.append = self._appender.append
        self.submit = self._appender.submit
        self.append_together = self._appender.append_together
        self.delete = self._deleter.delete
        self.delete_seqs = self._deleter.delete_seqs
        self.begin_delete = self._deleter.begin_seqs
        self.submit_delete = self._deleter.submit_seqs
        self.read = self._reader.read
        self.newest = self._reader.newest
        self.read_back = BackReader(kernel, self._reader).read
        self.staging = Staging(kernel, self.lifecycle, admission, stage_store or MemoryStageStore())
        self.stage = self.staging.stage
        self.commit = self.staging.commit
        self.plan = Planner(kernel).plan
        self.pages = Pages(kernel, self._reader)
        self.records = self._reader.records
        self.frames = self._reader.frames
        self.frames_at_hand = self._reader.frames_at_hand
        self.page = self._reader.page
        self.fetch = self._reader.fetch
        self.upkeep: Upkeep | None = None  # nothing to keep up: the engine lives in memory
        if make_upkeep is not None:
            chores = (self.lifecycle.retire, partial(expire_keys, kernel), self.staging.upkeep)
            self.upkeep = make_upkeep(chores)

    def catch_up(self, topic: Topic) -> Op[None]:
        """Bring a topic up to date with the routers that feed it; nothing when it is only read."""
        if not self.read_only:
            yield from self.forwarder.catch_up(topic)

    @property
    def work_is_due(self) -> bool:
        return self.upkeep is not None and self.upkeep.is_due

    def tick(self) -> None:
        """Sync the log's tail when it got old; cheap otherwise."""
        self.kernel.committer.tick()

    def maintain(self, within_ms: int | None = None) -> None:
        """Do what is due. Without a limit everything that is due now is done."""
        if self.upkeep is not None:
            self.upkeep.run(within_ms, now=within_ms is None)

    def forward(self) -> None:
        """One pass for every router that is behind."""
        if self.kernel.catalog.routers.by_name and not self.read_only:
            run(self.forwarder.advance_all())

    def erase_now(self) -> None:
        """Bring every erasure that has begun to its receipt; raises when one fails."""
        if self.upkeep is not None:
            self.upkeep.erase_now()

    def checkpoint(self) -> None:
        if self.upkeep is not None:
            self.upkeep.checkpoint_now()

    def sync(self) -> None:
        """Make everything written to the log durable."""
        if self.upkeep is not None:
            self.upkeep.sync()

    def close(self) -> None:
        """Stop cleanly and let go of the directory, whatever fails on the way."""
        try:
            if self.upkeep is not None:
                self.upkeep.close()
        finally:
            self.release()

    def release(self) -> None:
        """Close every descriptor without writing anything; a second call does nothing."""
        self.abandon()
        if self._home is not None:
            self._home.leave()

    def abandon(self) -> None:
        """Close every file and write nothing more, but keep the directory locked."""
        if self._home is not None:
            self._home.abandon()
        self.kernel.sources.close()
        if self.kernel.segments is not None:
            self.kernel.segments.handles.close()

    @property
    def is_spoiled(self) -> bool:
        """Whether an interrupt was taken for a failure of the log: only a new start helps."""
        return self._home is not None and self._home.is_spoiled

    def reopened(self) -> Engine:
        """A new engine with what the directory holds, as after the end of this process.

        Used when the memory of this engine cannot be trusted any more. `Interrupted` if it has no
        directory.
        """
        if self._home is None:
            raise Interrupted.in_memory()
        self.abandon()
        return self._home.reopen()


def memory_engine(settings: EngineSettings, clock: Clock | None = None) -> Engine:
    """An engine without files: the same rules, and everything is gone at the end."""
    sources = Sources()
    catalog = Catalog(
        max_keys=settings.max_idempotency_keys,
        history=lambda topic_id: SegmentHistory(topic_id, None, sources),
    )
    return Engine(
        Kernel(
            clock=clock or SystemClock(),
            settings=settings,
            catalog=catalog,
            committer=NullCommitter(),
            sources=sources,
            segments=None,
            arenas=Arenas(sources),
            generation=1,
        )
    )
