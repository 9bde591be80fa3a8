"""Long bodies: decoded one at a time, within the loop budget.

Decoding a body of 64 MiB takes hundreds of milliseconds of the loop. It is done in slices of one
budget, and other requests are served between them. Other long bodies are queued meanwhile: a slice
of each in every tick would delay all other requests. And only one of them then needs the memory
that decoding takes beside the body.

A server that stops may not have the time to decode the whole queue. Bodies that are still in it are
refused, because their records could no longer be logged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from topics.batch import RecordBatch
from topics.delivery.loop_budget import in_slices
from topics.engine.clock import Clock
from topics.engine.effects import Gate, Io, Op
from topics.engine.settings import EngineSettings
from topics.engine.writes.drafts import check_batch_in_steps
from topics.errors import ShuttingDown
from topics.storage.frames.prepared import PreparedAppend, prepare_append

T = TypeVar("T")


class LongBodies:
    """The long body that is being decoded, and those that wait for it."""

    __slots__ = ("_clock", "_is_closed", "_queue")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_closed = False
        self._queue: deque[Gate] = deque()  # the first belongs to the body being decoded

    def __len__(self) -> int:
        """How many there are, the one being decoded included."""
        return len(self._queue)

    def close(self) -> None:
        """Refuse all bodies, queued and to come."""
        self._is_closed = True
        for gate in tuple(self._queue):
            gate.open()

    def alone(self, work: Op[T]) -> Op[T]:
        """Do this work when the bodies that came before are done."""
        gate = Gate()
        self._queue.append(gate)
        try:
            if self._queue[0] is not gate:
                yield gate  # the server may have begun to stop meanwhile
            self._insist_on_open()
            return (yield from work)
        finally:  # also when it is given up while it waits
            was_first = self._queue[0] is gate
            self._queue.remove(gate)
            if was_first and self._queue:
                self._queue[0].open()

    def decoded(
        self,
        body: bytes,
        in_steps: Callable[[bytes], Generator[None, None, T | None]],
        whole: Callable[[bytes], T],
    ) -> Op[T]:
        """The request in a long body: decoded in slices, or on a thread if it cannot be cut.

        A thread gives the interpreter to the loop now and then, so the loop goes on meanwhile.
        """
        found = yield from self.slices(in_steps(body))
        if found is None:
            found = yield Io(partial(whole, body))
            self._insist_on_open()
        return found

    def prepared(
        self, batch: RecordBatch, limits: EngineSettings, *, key: str | None
    ) -> Op[PreparedAppend]:
        """The frames of a long batch, once its records were found to be within limits."""
        yield from self.slices(check_batch_in_steps(batch, limits, key=key))
        return (yield from self.slices(prepare_append(batch)))

    def slices(self, steps: Generator[None, None, T]) -> Op[T]:
        """Do the steps within the loop budget, unless the server stops meanwhile."""
        return in_slices(steps, self._clock, resumed=self._insist_on_open)

    def _insist_on_open(self) -> None:
        if self._is_closed:
            raise ShuttingDown
