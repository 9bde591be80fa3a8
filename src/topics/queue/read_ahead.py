"""Jobs read ahead of their claims.

A queue is processed in order, and jobs that waited for long are no longer in memory. Fetching them
for each claim would cost a hand-over to the reader threads and back every time. So a range of the
next jobs is read at once, and the following claims find their jobs in it. Where operations can run
in the background, the next range is read when half of this one was handed out, so that no claim
waits for it.

Memory is bounded: one range for each queue that reads ahead, or two while one replaces the other.
A range is dropped when its last job was handed out. It holds copies of records, which never
change; which worker gets a job is decided before it is looked up here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from topics.core.topic import Topic
from topics.engine.effects import Gate, Op
from topics.engine.engine import Engine
from topics.engine.reads.frame_records import frame_alone
from topics.errors import Internal

STRETCH_BYTES = 128 << 10
STRETCH_JOBS = 1024
MAX_RANGES = 64

Background: TypeAlias = Callable[[Op[None]], None]
Frames: TypeAlias = dict[int, tuple[bytes, int]]
"""By seq: a buffer, and where in it the job's frame begins."""


class _Prefetched:
    """Jobs that were read, and how far they were handed out."""

    __slots__ = ("frames", "last", "passed", "refill_at")

    def __init__(self, frames: Frames) -> None:
        seqs = list(frames)
        self.frames = frames
        self.last = seqs[-1]
        self.passed = 0
        self.refill_at = seqs[len(seqs) // 2]

    @property
    def rest(self) -> Frames:
        """What was not handed out."""
        return {seq: frame for seq, frame in self.frames.items() if seq > self.passed}


class ReadAhead:
    """The next jobs of queues whose backlog has left memory.

    `in_background` runs an operation without a caller.
    """

    __slots__ = ("_engine", "_in_background", "_prefetched", "_reading")

    def __init__(self, engine: Engine, in_background: Background | None) -> None:
        self._engine = engine
        self._in_background = in_background
        self._prefetched: dict[int, _Prefetched] = {}
        self._reading: dict[int, Gate] = {}

    def find(self, queue: Topic, seqs: Sequence[int]) -> tuple[list[bytes], list[int]] | None:
        """The frames of these jobs, buffers and offsets, if all of them were read ahead."""
        prefetched = self._prefetched.get(queue.id)
        if prefetched is None:
            return None
        frames = prefetched.frames
        rows = [frames[seq] for seq in seqs if seq in frames]
        if len(rows) < len(seqs):
            return None
        self._pass(queue, prefetched, seqs[-1])
        return [buf for buf, _ in rows], [offset for _, offset in rows]

    def settled(self, queue: Topic) -> Op[None]:
        """Wait until a read ahead for this queue is over; it may have read all that is needed."""
        while (under_way := self._reading.get(queue.id)) is not None:
            yield under_way

    def frames(self, queue: Topic, seqs: Sequence[int]) -> Op[Frames]:
        """The frames of live jobs that come next, as far as they can be read; `seqs` ascend.

        No other read ahead for the queue may be under way.
        """
        prefetched = self._prefetched.get(queue.id)
        known = {} if prefetched is None else prefetched.frames
        found = {seq: known[seq] for seq in seqs if seq in known}
        if len(found) < len(seqs):
            missing = [seq for seq in seqs if seq not in found]
            _, last = next(queue.extents(missing[0], missing[0] + STRETCH_JOBS - 1))
            with suppress(Internal):  # the failed record may be another job; see below
                prefetched = yield from self._read(queue, missing[0], last)
            known = {} if prefetched is None else prefetched.frames
            found |= {seq: known[seq] for seq in missing if seq in known}
        if prefetched is not None:
            self._pass(queue, prefetched, seqs[-1])
        # The range may end before them, have a hole, or be unreadable. And some jobs may be gone.
        rest = [seq for seq in seqs if seq not in found and queue.is_live(seq)]
        if rest:
            found |= yield from self._engine.frames(queue, rest)
        return found

    def _pass(self, queue: Topic, prefetched: _Prefetched, seq: int) -> None:
        """Jobs up to this one were handed out and are not asked for again."""
        if self._prefetched.get(queue.id) is not prefetched:
            return
        prefetched.passed = seq
        if seq >= prefetched.last:
            del self._prefetched[queue.id]
        elif seq >= prefetched.refill_at and self._in_background is not None:
            prefetched.refill_at = prefetched.last
            self._in_background(self._refill(queue, prefetched))

    def _refill(self, queue: Topic, prefetched: _Prefetched) -> Op[None]:
        """Read what comes behind this range, unless that is in memory or being read."""
        first = prefetched.last + 1
        extent = next(queue.extents(first, first + STRETCH_JOBS - 1), None)
        if extent is None or queue.id in self._reading:
            return
        if self._engine.frames_at_hand(queue, extent[:1]) is None:
            yield from self._read(queue, *extent)

    def _read(self, queue: Topic, first: int, last: int) -> Op[_Prefetched | None]:
        """Read from `first` on; behind what is left of the present range if there is one."""
        gate = self._reading[queue.id] = Gate()
        try:
            piece = yield from self._engine.fetch(queue, first, last, STRETCH_BYTES)
            rows = zip(piece.seqs, piece.bufs, piece.offsets, strict=True)
            before = self._prefetched.pop(queue.id, None)  # the newest comes last
            frames = before.rest if before is not None and before.last < first else {}
            # Each for itself: among frames of the log there are those of other topics.
            frames |= {seq: (frame_alone(buf, at), 0) for seq, buf, at in rows if at is not None}
            if not frames:
                return None
            prefetched = self._prefetched[queue.id] = _Prefetched(frames)
            if len(self._prefetched) > MAX_RANGES:
                del self._prefetched[next(iter(self._prefetched))]
        finally:
            del self._reading[queue.id]
            gate.open()  # the waiting claims look now
        return prefetched
