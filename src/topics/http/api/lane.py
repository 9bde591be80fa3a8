"""Long bodies, one at a time and a little of each at a time.

Decoding a body of 64 MiB takes hundreds of milliseconds of the loop. It is done in slices of two,
with a turn for everybody else between them. Others that are as long wait in line meanwhile: with a
slice of each in every turn it would be them who keep everybody waiting. And only one of them then
needs the memory that decoding takes beside the body.

The line may be longer than a server that stops has time for. Who is still in it then is refused:
what it would write comes too late for the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, TypeVar

from topics.batch import RecordBatch
from topics.engine.clock import Clock
from topics.engine.effects import PAUSE, Gate, Io, Op
from topics.engine.settings import EngineSettings
from topics.engine.writes.drafts import check_batch_in_steps
from topics.errors import ShuttingDown
from topics.storage.frames.prepared import PreparedAppend, prepare_append

T = TypeVar("T")
SLICE_S: Final = 0.002


class Lane:
    """Who works on a long body, and who waits for that."""

    __slots__ = ("_clock", "_is_closed", "_line")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_closed = False
        self._line: deque[Gate] = deque()  # the first is that of whoever is at work

    def __len__(self) -> int:
        """How many are here, the one at work included."""
        return len(self._line)

    def close(self) -> None:
        """Refuse whoever is here, and who comes."""
        self._is_closed = True
        for place in tuple(self._line):
            place.open()

    def alone(self, work: Op[T]) -> Op[T]:
        """Do this when all that came before are done with theirs."""
        place = Gate()
        self._line.append(place)
        try:
            if self._line[0] is not place:
                yield place
            self._insist_on_open()
            return (yield from work)
        finally:  # also when it is given up while it waits
            was_first = self._line[0] is place
            self._line.remove(place)
            if was_first and self._line:
                self._line[0].open()

    def decoded(
        self,
        body: bytes,
        in_steps: Callable[[bytes], Generator[None, None, T | None]],
        whole: Callable[[bytes], T],
    ) -> Op[T]:
        """What a long body says: read in slices, or on a thread if it has to be read as a whole.

        A thread that reads gives the interpreter up now and then, the loop never would.
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
        """Do some steps, let everybody else have a turn, do some more."""
        now_s = self._clock.monotonic
        end_s = now_s() + SLICE_S
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                answer: T = finished.value
                return answer
            if now_s() >= end_s:
                yield PAUSE
                self._insist_on_open()
                end_s = now_s() + SLICE_S

    def _insist_on_open(self) -> None:
        if self._is_closed:
            raise ShuttingDown
