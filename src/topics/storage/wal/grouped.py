"""Commit in groups: one writer thread per shard, so that many writers share one sync.

Theory of operation. The owner submits and never waits; the shard's thread takes all that queued up
while the disk was busy, writes it at once, syncs if anybody needs it and hands the whole list back
with one call of `deliver`. The owner then passes that list to `finish` on its own thread, which
answers each submission in log order.

- With `at_once` the owner writes itself and leaves only the syncs to the thread: handing a write
  over and back costs more than the write. A write that needs no sync is then done when `submit`
  returns, if no earlier write waits; otherwise it is answered right behind the writes that wait. A
  write goes to the thread when it needs more, such as a new file, or when the disk was slow a
  moment ago; then all later writes do too, until the thread has written it.
- A durable write that comes alone is synced at once. Only when others were already waiting does the
  thread collect a little longer, for as long as every slice of the window brings more.
- A write that fails takes everything queued behind it with it: their seqs follow from it, and a
  frame with a seq whose predecessor is missing would be a gap in the log. The shard therefore
  refuses until every submission made so far is answered, which is when the owner has taken back
  the seqs of all of them.
- If the thread dies, or a submission that is in the log cannot be published, whatever is pending
  fails and so does everything submitted later. No submission is ever left without an answer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import TypeAlias

from topics.errors import Internal, LogFailed
from topics.storage.wal.committer import UNPUBLISHED, ShardCommitter, stop
from topics.storage.wal.settings import WalSettings
from topics.storage.wal.shard import Shard, ShardState
from topics.storage.wal.submission import Position, Submission

_log = logging.getLogger(__name__)

Deliver: TypeAlias = Callable[[list[Submission]], None]
"""Takes a list of submissions whose outcome is known over to the owner's thread; never raises."""

_CALM_PRESSURE = 0.4
_CALM_WINDOW_MS = 1.0
_SLOW_WRITE_NS = 20_000_000
_DISTRUST_NS = 200_000_000
"""After a slow write the owner leaves writing to the thread for so long."""
_LOCK_WAIT_S = 0.002
"""How long the owner waits for a thread that is looking at the tail."""


class _Signal(Enum):
    STOP = auto()
    HEAL = auto()
    TICK = auto()
    """The owner has written more than the thread knows of: look at the clock again."""


class _Barrier:
    """A caller that waits until everything before it is durable, and perhaps in an own file."""

    __slots__ = ("error", "position", "reached", "rotates")

    def __init__(self, *, rotates: bool = False) -> None:
        self.rotates = rotates
        self.reached = threading.Event()
        self.position: Position | None = None
        self.error: Internal | None = None


_Item: TypeAlias = Submission | _Barrier | _Signal


class _Batch:
    """What one cycle of the thread works on."""

    __slots__ = ("barriers", "bytes", "heal", "stop", "submissions", "unwritten")

    def __init__(self) -> None:
        self.submissions: list[Submission] = []
        self.barriers: list[_Barrier] = []
        self.bytes = 0
        self.unwritten = 0
        self.stop = False
        self.heal = False

    def add(self, item: _Item) -> None:
        if isinstance(item, Submission):
            self.submissions.append(item)
            self.bytes += len(item.frames)
            self.unwritten += not item.written
        elif isinstance(item, _Barrier):
            self.barriers.append(item)
        else:
            self.stop |= item is _Signal.STOP
            self.heal |= item is _Signal.HEAL

    @property
    def needs_sync(self) -> bool:
        return any(submission.durable for submission in self.submissions)


class _ShardWriter:
    """One shard, its queue and its thread.

    Counters come in pairs, one side written by the owner, the other by the thread: their
    difference needs no lock.
    """

    def __init__(
        self, shard: Shard, settings: WalSettings, deliver: Deliver, pressure: Callable[[], float]
    ) -> None:
        self.shard = shard
        self._settings = settings
        self._deliver = deliver
        self._pressure = pressure
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._current = _Batch()
        self.refusing: Internal | None = None
        """Set by a failed batch, cleared by the owner once everything is answered."""
        self.dead: Internal | None = None
        self.submitted = 0  # owner
        self.answered = 0  # owner
        self.most_waiting = 0  # owner: at the same time, ever
        self.handed = 0  # owner: submissions left to the thread to write
        self.taken = 0  # thread: those of them that left the queue
        self.wrote = 0  # thread: those of them that were written, or never will be
        self.handed_bytes = 0  # owner
        self.taken_bytes = 0  # thread
        self._open: deque[Submission] = deque()  # owner: not answered, in log order
        self._failing: Internal | None = None  # owner: what everything behind a failure gets
        self._distrusted_until_ns = 0  # owner
        self._ticked = False  # whether a tick waits in the queue
        self._is_far = False  # thread: whether it sleeps for longer than a tail may wait
        name = f"topics-wal-{shard.writer.shard}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    # The owner's side

    def put(self, item: _Item) -> None:
        self._queue.put(item)
        if self.dead is not None:
            # The thread empties the queue after it set `dead`; what came later is ours to answer.
            self._fail_queue(self.dead)

    @property
    def queued(self) -> int:
        return self.handed - self.taken

    @property
    def queued_bytes(self) -> int:
        return self.handed_bytes - self.taken_bytes

    def submit(self, submission: Submission, *, at_once: bool) -> None:
        """Write it here or leave it to the thread; answer it if nothing is to be waited for."""
        is_alone = self.submitted == self.answered
        self.submitted += 1
        if not at_once or self.handed != self.wrote or not self._write_at_once(submission):
            self._wait(submission)
            self.handed += 1
            self.handed_bytes += len(submission.frames)
            self.put(submission)
            return
        submission.written = True
        error = submission.error
        if is_alone and (error is not None or not submission.durable):
            self._answer(submission)
            return
        if error is not None:
            self.refusing = error
        submission.settled = error is not None or not submission.durable
        has_leader = bool(self._open)
        self._wait(submission)
        if not submission.settled or not has_leader:
            self.put(submission)  # for a sync, or at least to come back from there

    def _wait(self, submission: Submission) -> None:
        self._open.append(submission)
        self.most_waiting = max(self.most_waiting, len(self._open))

    def release(self) -> list[Submission]:
        """Answer the submissions that are settled, up to the first that is not; returns them.

        Behind a failure every submission fails, written or not: its seqs follow the missing ones.
        """
        answered = []
        waiting = self._open
        while waiting and waiting[0].settled:
            submission = waiting.popleft()
            if submission.error is not None:
                self._failing = submission.error
            elif self._failing is not None:
                submission.error = self._failing
            answered.append(submission)
            self._answer(submission)
        return answered

    def has_room(self, size: int) -> bool:
        if self.handed <= self.taken:
            return True
        settings = self._settings
        fits = self.queued_bytes + size <= settings.queue_bytes
        return fits and self.queued < settings.queue_submissions

    def _write_at_once(self, submission: Submission) -> bool:
        """Write on the owner's thread; False when it has to go to the queue after all.

        The thread must have nothing left to write: answers come in the order of the log.
        """
        shard = self.shard
        if not shard.takes_at_once(len(submission.frames)) or self.refusing is not None:
            return False
        if self._distrusted_until_ns and shard.clock() < self._distrusted_until_ns:
            return False
        # The thread holds the lock for moments only.
        if self.dead is not None or not shard.write_lock.acquire(timeout=_LOCK_WAIT_S):
            return False
        try:
            was_dirty = shard.is_dirty
            shard.write_one(submission)
        except Internal as error:
            submission.error = error
            self._tick()  # the thread looks for room from time to time, once it knows of the need
            return True
        except Exception as error:
            reason = f"writer stopped: {error!r}"
            shard.abandon(reason)
            submission.error = LogFailed(shard=shard.writer.shard, reason=reason)
            return True
        finally:
            shard.write_lock.release()
        self._distrusted_until_ns = 0
        if shard.wrote_ns > _SLOW_WRITE_NS:
            self._distrusted_until_ns = shard.clock() + _DISTRUST_NS
        is_news = shard.is_tail_long or (self._is_far and not was_dirty)
        if is_news and not submission.durable:
            self._tick()
        return True

    def _tick(self) -> None:
        """Have the thread look at the clock, and at how long it may sleep."""
        if not self._ticked:
            self._ticked = True
            self._queue.put(_Signal.TICK)

    def _answer(self, submission: Submission) -> None:
        """Tell a submission what became of it.

        If `on_done` raises, the shard is stopped (`committer.stop`) and everything behind this
        submission fails. When the last open submission of a shard that failed is answered, the
        shard takes writes again (unless the failure is final): every topic has its seqs back.
        """
        submission.done = True
        try:
            submission.on_done(submission)
        except Exception as error:
            self.refusing = self._failing = stop(self.shard, submission, error, UNPUBLISHED)
        self.answered += 1
        if self.answered == self.submitted:
            self.refusing = self._failing = None

    # The thread's side

    def _run(self) -> None:
        reason = "the log is closed"
        try:
            while not self._cycle():
                pass
        except BaseException as error:  # whatever ended the thread, no submission may wait for it
            reason = f"writer stopped: {error!r}"
            self.shard.abandon(reason)
            _log.critical("log shard %d: %s", self.shard.writer.shard, reason)
        refusal = LogFailed(shard=self.shard.writer.shard, reason=reason)
        self.dead = refusal
        self._fail(self._current, refusal)
        self._fail_queue(refusal)

    def _cycle(self) -> bool:
        """One cycle of the thread; returns whether it was the last."""
        batch = self._current = self._gather()
        if batch.heal:
            self.shard.try_heal()
        if batch.submissions:
            self._commit(batch)
            self.wrote += batch.unwritten
        else:
            self.shard.tick()
        self._return(batch)
        self.shard.prepare_spare()
        return batch.stop

    def _gather(self) -> _Batch:
        """Wait until there is work, or until a sync or a probe is due; then take what is queued."""
        batch = _Batch()
        # Set before the look at the file: a writer that makes the file dirty afterwards sees it.
        self._is_far = True
        wait_ns = self.shard.wait_ns()
        self._is_far = self.shard.sleeps_too_long(wait_ns)
        try:
            first = self._queue.get(timeout=None if wait_ns is None else wait_ns / 1e9)
        except Empty:
            return batch
        self._add(batch, first)
        self._drain(batch)
        if len(batch.submissions) > 1 and batch.needs_sync:
            self._wait_for_more(batch)
        return batch

    def _add(self, batch: _Batch, item: _Item) -> None:
        batch.add(item)
        if item is _Signal.TICK:
            self._ticked = False  # before the clock is read: a later write ticks again
        elif isinstance(item, Submission) and not item.written:
            self.taken += 1
            self.taken_bytes += len(item.frames)

    def _drain(self, batch: _Batch) -> None:
        """Take what is queued, within the bounds of a batch; a stop comes last in any case."""
        while self._takes_more(batch):
            try:
                self._add(batch, self._queue.get_nowait())
            except Empty:
                return

    def _takes_more(self, batch: _Batch) -> bool:
        settings = self._settings
        return (
            len(batch.submissions) < settings.batch_submissions
            and batch.bytes < settings.batch_bytes
            and not batch.stop
        )

    def _wait_for_more(self, batch: _Batch) -> None:
        clock = self.shard.clock
        end_ns = clock() + round(self._window_ms() * 1e6)
        slice_s = self._settings.gc_min_ms / 1000
        while clock() < end_ns and self._takes_more(batch):
            try:
                self._add(batch, self._queue.get(timeout=slice_s))
            except Empty:
                return
            self._drain(batch)

    def _window_ms(self) -> float:
        pressure = self._pressure()
        if pressure <= _CALM_PRESSURE:
            return min(_CALM_WINDOW_MS, self._settings.gc_max_ms)
        low, high = self._settings.gc_min_ms, self._settings.gc_max_ms
        return min(low + (high - low) * pressure, high)

    def _commit(self, batch: _Batch) -> None:
        """Write the submissions that are not written yet; sync if one of the batch needs it.

        Submissions that the owner wrote are in the log: if a later write fails, only the later ones
        fail. If the sync fails, all fail, and the shard takes no more writes.
        """
        if batch.unwritten:
            self._write([s for s in batch.submissions if not s.written])
        sound = [submission for submission in batch.submissions if submission.error is None]
        try:
            if any(submission.durable for submission in sound) or self.shard.sync_is_due:
                self.shard.sync()
                for submission in sound:
                    submission.synced_ns = self.shard.synced_ns
        except Internal as error:
            self.refusing = error
            for submission in sound:
                submission.error = error

    def _write(self, submissions: list[Submission]) -> None:
        try:
            if self.refusing is not None:
                raise self.refusing
            with self.shard.write_lock:
                self.shard.write_batch(submissions)
        except Internal as error:
            self.refusing = error
            for submission in submissions:
                submission.error = error

    def _return(self, batch: _Batch) -> None:
        """Answer the barriers and hand the batch back.

        A barrier is answered even if the batch failed: it is about earlier writes.
        """
        for barrier in batch.barriers:
            try:
                barrier.position = self.shard.sync()
                if barrier.rotates:
                    with self.shard.write_lock:
                        self.shard.rotate()
            except Internal as error:
                barrier.error = error
            barrier.reached.set()
        self._current = _Batch()
        if batch.submissions:
            self._deliver(batch.submissions)

    def _fail(self, batch: _Batch, error: Internal) -> None:
        for submission in batch.submissions:
            submission.error = error
        for barrier in batch.barriers:
            barrier.error = error
            barrier.reached.set()
        if batch.submissions:
            self._deliver(batch.submissions)

    def _fail_queue(self, error: Internal) -> None:
        batch = _Batch()
        while True:
            try:
                self._add(batch, self._queue.get_nowait())
            except Empty:
                break
        self._fail(batch, error)


class GroupedCommitter(ShardCommitter):
    """Shares syncs among concurrent writers; the committer of a server.

    `deliver` gets each list of settled submissions on a shard's thread and has to bring it to
    `finish` on the owner's thread, lists of one shard in the order they came. With `at_once` a
    submission may be finished by the time `submit` returns. The threads watch the clock themselves.
    """

    is_queued = True

    def __init__(
        self,
        shards: Sequence[Shard],
        settings: WalSettings,
        deliver: Deliver,
        pressure: Callable[[], float] = lambda: 0.0,
        *,
        at_once: bool = False,
    ) -> None:
        super().__init__(shards)
        self._writers = tuple(_ShardWriter(shard, settings, deliver, pressure) for shard in shards)
        self._settings = settings
        self._at_once = at_once

    def submit(self, submission: Submission) -> None:
        """Queue a submission. Ask `room` first: this does not refuse for want of it."""
        self._writers[submission.shard].submit(submission, at_once=self._at_once)

    def finish(self, settled: Sequence[Submission]) -> list[Submission]:
        """Answer what `deliver` brought and what waited behind it; on the owner's thread.

        Returns what was answered, in log order.
        """
        shards = []
        for submission in settled:
            submission.settled = True
            if submission.shard not in shards:
                shards.append(submission.shard)
        return [answered for shard in shards for answered in self._writers[shard].release()]

    def room(self, shard: int, size: int) -> bool:
        """Whether the queue takes `size` more bytes; an empty queue takes anything."""
        return self._writers[shard].has_room(size)

    def refusal(self, shard: int) -> Internal | None:
        """Refuse while full: the thread looks for room from time to time, no write has to try."""
        found = self._writers[shard].shard
        return found.refusal() if found.state is ShardState.FULL else None

    def fill(self, shard: int) -> float:
        """How full the queue is, from 0 to 1."""
        writer, settings = self._writers[shard], self._settings
        by_count = writer.queued / settings.queue_submissions
        return max(0.0, min(1.0, max(by_count, writer.queued_bytes / settings.queue_bytes)))

    def queued(self, shard: int) -> int:
        """Submissions that wait in the queue."""
        return max(0, self._writers[shard].queued)

    def taken(self, shard: int) -> int:
        """Submissions that ever left the queue."""
        return self._writers[shard].taken

    def sync(self, shard: int) -> Position:
        """Wait until everything submitted before this call is durable. From any thread."""
        return self._reached(shard, _Barrier())

    def rotate(self, shard: int) -> None:
        self._reached(shard, _Barrier(rotates=True))

    def _reached(self, shard: int, barrier: _Barrier) -> Position:
        self._writers[shard].put(barrier)
        barrier.reached.wait()
        if barrier.error is not None:
            raise barrier.error
        assert barrier.position is not None
        return barrier.position

    def in_flight(self, shard: int) -> int:
        writer = self._writers[shard]
        return writer.submitted - writer.answered

    def most_in_flight(self, shard: int) -> int:
        return self._writers[shard].most_waiting

    def try_heal(self) -> None:
        for writer in self._writers:
            writer.put(_Signal.HEAL)

    def close(self) -> None:
        """Settle what is queued, stop the threads, sync and close the files.

        Lists delivered meanwhile still have to go through `finish`. Raises the first failure.
        """
        for writer in self._writers:
            writer.put(_Signal.STOP)
        for writer in self._writers:
            writer.thread.join()
        super().close()
