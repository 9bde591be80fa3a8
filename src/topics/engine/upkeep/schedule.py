"""Work that falls due by the clock: log ticks, checkpoints, moving old segments to the cold tier.

All of it is one operation, so no two of these run at the same time. The driver decides how long it
may run now; it pauses and goes on later where it stopped.

A stop has only so much time for all of it. What is under way by then is given up, as after an
error: the log has everything, and the exact heads that a stop leaves behind are written all the
same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from topics.core.facts import CheckpointMarked, ClosedCleanly, Fact
from topics.engine.effects import PAUSE, Io, Op, Pause, fulfil, run
from topics.engine.kernel import Kernel
from topics.engine.settings import GIB
from topics.engine.upkeep.checkpoint import Checkpointer
from topics.engine.upkeep.erasing import Eraser
from topics.engine.upkeep.relocation import relocate_old
from topics.errors import Internal, LogFull
from topics.storage.interrupts import is_interrupt
from topics.storage.wal.shard import ShardState

_log = logging.getLogger("topics.engine")

POLL_MS = 5000
BACKOFF_MAX_MS = 60_000
FORCE_CHECKPOINT_BYTES = GIB
REFUSE_WRITES_BYTES = 4 * GIB
TRIES_ON_FULL = 2
"""Checkpoints on a full disk after something was logged: two snapshots are kept."""
FULL_RETRY_MS = 600_000
"""How often a checkpoint is tried on a full disk when nothing was logged meanwhile."""
RETRIED = (OSError, EOFError, MemoryError, Internal)
"""Failures of maintenance that the log lives with."""

Chore: TypeAlias = Callable[[], Op[None]]
"""Small work that is due at every poll."""


class Upkeep:
    """The maintenance work of one engine."""

    def __init__(
        self,
        kernel: Kernel,
        checkpointer: Checkpointer,
        chores: Sequence[Chore],
        *,
        eraser: Eraser,
        shards: int,
    ) -> None:
        self._kernel = kernel
        self._checkpointer = checkpointer
        self._eraser = eraser
        self._shards = shards
        self._chores = chores
        self._work: Op[None] | None = None
        # In time of running: a wall clock that was ahead once would put everything off for long.
        self._next_poll_ms = kernel.running_ms() + POLL_MS
        self._checkpoint_at_ms = kernel.running_ms() + kernel.settings.checkpoint_ms
        self._backoff_ms = POLL_MS
        self._erase_at_ms = 0  # no sooner, after an erasure that failed
        self._erase_backoff_ms = POLL_MS
        self._bytes_at_checkpoint = [0, 0]  # of the newest checkpoint and the one before it
        self._tries_on_full = 0  # checkpoints since something else was logged
        self._bytes_after_try: dict[int, int] = {}  # of each full shard
        self._tried_at_ms = 0
        self._fenced: dict[int, int] = {}  # per shard: the last frame when `sync` was called
        self.failures = 0
        self.last_error: Exception | None = None
        self._stop_at: float | None = None  # by the monotonic clock: own work ends there
        self.gave_up = False  # a stop left its checkpoint out

    @property
    def is_due(self) -> bool:
        return self._work is not None or self._kernel.running_ms() >= self._next_poll_ms

    def hurry(self) -> None:
        """Something was begun: look now what is due."""
        self._next_poll_ms = self._erase_at_ms = 0

    def run(self, within_ms: int | None = None, *, now: bool = False) -> None:
        """Do what is due, for about `within_ms`; with `now` a poll is due at once."""
        self._kernel.committer.tick()
        if self._work is None and (now or self.is_due):
            self._work = self.poll()
        monotonic = self._kernel.clock.monotonic
        end = None if within_ms is None else monotonic() + within_ms / 1000
        while self._work is not None and (end is None or monotonic() < end):
            self._step()

    def poll(self) -> Op[None] | None:
        """What is due now, as one operation that ends by itself; None when nothing is."""
        now_ms = self._kernel.running_ms()
        self._next_poll_ms = now_ms + POLL_MS
        checkpoint = self._wants_checkpoint(now_ms)
        has_work = self._chores or self._eraser.is_due
        if checkpoint or has_work or self._kernel.settings.cold_dir is not None:
            return self._bounded(self._guarded(self._due(checkpoint=checkpoint)))
        return None

    def _due(self, *, checkpoint: bool) -> Op[None]:
        yield from self._do_chores()
        if checkpoint:
            yield from self.checkpoint()
        yield from relocate_old(self._kernel, self._checkpointer.is_settled)
        if self._kernel.running_ms() >= self._erase_at_ms:
            yield from self._try_to_erase()

    def _try_to_erase(self) -> Op[None]:
        """Its failures put off erasures only, less often each time, though its checkpoints work."""
        try:
            yield from self._erase()
        except RETRIED as error:
            if is_interrupt(error):
                raise
            self.failures += 1
            self.last_error = error
            self._erase_at_ms = self._kernel.running_ms() + self._erase_backoff_ms
            self._erase_backoff_ms = min(self._erase_backoff_ms * 2, BACKOFF_MAX_MS)
        else:
            self._erase_backoff_ms = POLL_MS

    def _erase(self) -> Op[None]:
        yield from self._eraser.advance(self.checkpoint, self._checkpoint_if_due)

    def _checkpoint_if_due(self) -> Op[None]:
        """Between two steps of long work: the log must not grow meanwhile without an end."""
        if self._wants_checkpoint(self._kernel.running_ms()):
            yield from self.checkpoint()

    def erase_now(self) -> None:
        """Finish what is under way, then every erasure that has begun; raises when one fails."""
        while self._work is not None:
            self._step()
        run(self._guarded(self._do_chores()))
        run(self._erase())

    def _do_chores(self) -> Op[None]:
        for chore in self._chores:
            yield from chore()
            yield PAUSE

    def _guarded(self, work: Op[None]) -> Op[None]:
        """Work whose failure is noted and tried again later; the log goes on serving."""
        try:
            yield from work
        except RETRIED as error:
            if is_interrupt(error):
                raise
            self._failed(error)
        self._judge_backlog()

    def stop_within(self, limit_ms: int) -> None:
        """From now on there is so much time left, for what is under way and the last checkpoint."""
        end = self._kernel.clock.monotonic() + limit_ms / 1000
        self._stop_at = end if self._stop_at is None else min(end, self._stop_at)

    def _bounded(self, work: Op[None]) -> Op[None]:
        """Work that a stop gives up once its time is over, before the next step or file call."""
        value: object = None
        error: Exception | None = None
        while True:
            try:
                wait = work.send(value) if error is None else work.throw(error)
            except StopIteration:
                return
            value = error = None
            if isinstance(wait, Pause | Io) and self._is_out_of_time():
                work.close()
                self._give_up()
                return
            try:
                value = yield wait
            except Exception as failure:  # the work knows which failures it can live with
                error = failure

    def _is_out_of_time(self) -> bool:
        return self._stop_at is not None and self._kernel.clock.monotonic() >= self._stop_at

    def _give_up(self) -> None:
        if self._kernel.dirty or self._kernel.must_checkpoint:
            self.gave_up = True
            _log.warning(
                "no time left for the last checkpoint; nothing is lost, the log has everything "
                "and the next start reads it"
            )

    def _wants_checkpoint(self, now_ms: int) -> bool:
        full = self._full_shards()
        if full:
            return self._wants_relief(full, now_ms)
        written = self.bytes_written() - self._bytes_at_checkpoint[0]
        if written >= self._kernel.settings.checkpoint_bytes or self._kernel.must_checkpoint:
            return True
        return now_ms >= self._checkpoint_at_ms and self._has_work_for_checkpoint()

    def _full_shards(self) -> list[int]:
        state = self._kernel.committer.state
        return [shard for shard in range(self._shards) if state(shard) is ShardState.FULL]

    def _wants_relief(self, full: Sequence[int], now_ms: int) -> bool:
        """On a full disk: two checkpoints after whatever was logged, soon.

        The first may not let go of what the snapshot before it needs; the second does. There is no
        third for a long time: their marks use up the room that is kept for deletes.
        """
        if any(self._bytes_after_try.get(shard) != self._bytes_of(shard) for shard in full):
            self._tries_on_full = 0
        return self._tries_on_full < TRIES_ON_FULL or now_ms >= self._tried_at_ms + FULL_RETRY_MS

    def _has_work_for_checkpoint(self) -> bool:
        """Something changed, or there are files of dropped topics, which a checkpoint removes."""
        store = self._kernel.segments
        return bool(self._kernel.dirty) or (store is not None and bool(store.dropped_topics))

    def bytes_written(self) -> int:
        return sum(map(self._bytes_of, range(self._shards)))

    def _bytes_of(self, shard: int) -> int:
        return self._kernel.committer.stats(shard).bytes_written

    @property
    def untrimmed_bytes(self) -> int:
        """Log bytes that no pair of snapshots allows to go yet, about."""
        return self.bytes_written() - self._bytes_at_checkpoint[1]

    def checkpoint(self) -> Op[None]:
        written, derived = self.bytes_written(), self._kernel.derived_bytes
        try:
            yield from self._checkpointer.checkpoint()
        finally:
            self._tries_on_full += 1
            self._bytes_after_try = {shard: self._bytes_of(shard) for shard in self._full_shards()}
            self._tried_at_ms = self._kernel.running_ms()
        self._kernel.derived_bytes -= derived
        self._bytes_at_checkpoint = [written, self._bytes_at_checkpoint[0]]
        self._kernel.must_checkpoint = False
        self._checkpoint_at_ms = self._kernel.running_ms() + self._kernel.settings.checkpoint_ms
        self._backoff_ms = POLL_MS

    def _step(self) -> None:
        """Run the work to its next pause; while routers have to wait for it, without pausing."""
        work = self._work
        assert work is not None
        try:
            wait = next(work)
            while not isinstance(wait, Pause) or self._holds_up_routers():
                wait = fulfil(work, wait)
        except StopIteration:
            self._work = None

    def _holds_up_routers(self) -> bool:
        kernel = self._kernel
        return kernel.standstill is not None and bool(kernel.catalog.routers.by_name)

    def _failed(self, error: Exception) -> None:
        """Keep serving from the log; try again later, less often each time."""
        self.failures += 1
        self.last_error = error
        self._next_poll_ms = self._kernel.running_ms() + self._backoff_ms
        self._backoff_ms = min(self._backoff_ms * 2, BACKOFF_MAX_MS)

    def _judge_backlog(self) -> None:
        untrimmed = self.untrimmed_bytes
        if untrimmed >= FORCE_CHECKPOINT_BYTES:
            self._kernel.must_checkpoint = True
        self._kernel.log_is_too_long = untrimmed >= REFUSE_WRITES_BYTES

    def sync(self) -> None:
        """Make everything in the log durable, and leave a durable frame behind it.

        The frame tells a recovery not to overwrite what lies before it: a second power cut could
        ruin bytes that were safe.
        """
        kernel, committer = self._kernel, self._kernel.committer
        for shard in range(self._shards):
            if committer.position(shard).lfn == self._fenced.get(shard):
                continue
            fence = CheckpointMarked(kernel.clock.now_ms(), self._checkpointer.snapshot_id, ())
            error = kernel.submit_to(shard, [fence], durable=True).error
            if isinstance(error, LogFull):
                committer.sync(shard)  # no room for a frame, but what is there can be synced
            elif error is not None:
                raise error
            self._fenced[shard] = committer.position(shard).lfn

    def checkpoint_now(self) -> None:
        """Finish what is under way, then write a checkpoint; raises when it was given up."""
        while self._work is not None:
            self._step()
        run(self._guarded(self._do_chores()))
        run(self.checkpoint())

    def close(self) -> None:
        """Stop cleanly; raises when acked bytes may not be durable."""
        self.stop_within(self._kernel.settings.stop_checkpoint_ms)
        while self._work is not None:
            self._step()
        run(self.closing())
        self._kernel.committer.close()

    def closing(self) -> Op[None]:
        """Last checkpoint, then exact heads on every shard: the last frames before the end."""
        kernel = self._kernel
        yield from self._bounded(self._last_work())
        heads: list[list[tuple[int, int]]] = [[] for _ in range(self._shards)]
        for topic in kernel.catalog:
            heads[kernel.committer.shard_of(topic.id)].append((topic.id, topic.head))
        for shard, exact in enumerate(heads):
            facts: list[Fact] = [ClosedCleanly(kernel.clock.now_ms(), tuple(exact))]
            submission = kernel.submit_to(shard, facts, durable=True)
            if not submission.done:
                yield submission

    def _last_work(self) -> Op[None]:
        yield from self._guarded(self._do_chores())
        if self._kernel.dirty or self._kernel.must_checkpoint:
            yield from self._guarded(self.checkpoint())
