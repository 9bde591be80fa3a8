"""Jobs read ahead of their claims.

A queue is worked off in order, and jobs that waited for long are no longer in memory. To fetch them
for each claim would cost a way to the readers' threads and back every time. So a stretch of what
comes next is read at once, and the claims that follow find their jobs in it.

Memory is bounded: one stretch per queue, and as many queues as have one. A stretch goes when its
last job was handed out. It holds copies of records, which never change; who may have one is
decided before anybody looks here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from topics.core.topic import Topic
from topics.engine.effects import Gate, Op
from topics.engine.engine import Engine

STRETCH_BYTES = 128 << 10
STRETCH_JOBS = 1024
MAX_STRETCHES = 64

Frames: TypeAlias = dict[int, tuple[bytes, int]]
"""By seq: a buffer, and where in it the job's frame begins."""


class ReadAhead:
    """The next jobs of queues whose backlog has left memory."""

    __slots__ = ("_engine", "_reading", "_stretches")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stretches: dict[int, Frames] = {}
        self._reading: dict[int, Gate] = {}

    def find(self, queue: Topic, seqs: Sequence[int]) -> tuple[list[bytes], list[int]] | None:
        """The frames of these jobs, buffers and offsets, if all of them were read ahead."""
        stretch = self._stretches.get(queue.id)
        if stretch is None:
            return None
        rows = [stretch[seq] for seq in seqs if seq in stretch]
        if len(rows) < len(seqs):
            return None
        self._pass(queue, stretch, seqs[-1])
        return [buf for buf, _ in rows], [offset for _, offset in rows]

    def settled(self, queue: Topic) -> Op[None]:
        """Wait until nobody reads ahead for this queue; what was read may be all one needs."""
        while (under_way := self._reading.get(queue.id)) is not None:
            yield under_way

    def frames(self, queue: Topic, seqs: Sequence[int]) -> Op[Frames]:
        """The frames of live jobs that come next, as far as they can be read; `seqs` ascend.

        Nobody else may be reading ahead for the queue.
        """
        stretch = self._stretches.get(queue.id, {})
        found = {seq: stretch[seq] for seq in seqs if seq in stretch}
        if len(found) < len(seqs):
            missing = [seq for seq in seqs if seq not in found]
            stretch = yield from self._read(queue, missing[0])
            found |= {seq: stretch[seq] for seq in missing if seq in stretch}
        self._pass(queue, stretch, seqs[-1])
        # There may be more than a stretch holds, or a hole in between. And some may have died.
        rest = [seq for seq in seqs if seq not in found and queue.is_live(seq)]
        if rest:
            found |= yield from self._engine.frames(queue, rest)
        return found

    def _read(self, queue: Topic, first: int) -> Op[Frames]:
        _, last = next(queue.extents(first, first + STRETCH_JOBS - 1))
        gate = self._reading[queue.id] = Gate()
        try:
            piece = yield from self._engine.piece(queue, first, last, STRETCH_BYTES)
            rows = zip(piece.seqs, piece.bufs, piece.offsets, strict=True)
            stretch = {seq: (buf, offset) for seq, buf, offset in rows if offset is not None}
            self._keep(queue, stretch)
        finally:
            del self._reading[queue.id]
            gate.open()  # whoever waited looks now
        return stretch

    def _keep(self, queue: Topic, stretch: Frames) -> None:
        self._stretches.pop(queue.id, None)  # the newest comes last
        self._stretches[queue.id] = stretch
        if len(self._stretches) > MAX_STRETCHES:
            del self._stretches[next(iter(self._stretches))]

    def _pass(self, queue: Topic, stretch: Frames, seq: int) -> None:
        """Jobs up to this one were handed out: nobody asks for them here again."""
        if seq >= next(reversed(stretch), 0) and self._stretches.get(queue.id) is stretch:
            del self._stretches[queue.id]
