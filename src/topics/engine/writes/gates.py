"""When a topic takes writes, and when a checkpoint may look: the turns that stage commits need.

A stage commit closes the append sections of its topics, and so does whoever configures, drops or
routes one. Until they open again no other operation may give out a seq there, delete, configure or
drop. Whoever does one of these calls `enter` first and then waits for nothing else before it
submits.

Those who have to wait stand in line and go in the order in which they came. When the section opens
all of them are called, but they run one after the other, and meanwhile others come: the topic stays
barred until the last of the line is through, so that nobody passes. One who was let in therefore
may find the topic barred and go on all the same, once; after any other wait it has to ask again,
unless it held up the others meanwhile.

While a commit is *landing*, from the submission of its commit point to its last durable append,
the log promises records that no topic shows yet. A checkpoint that captured this would tell replay
to skip the promise, so it waits for `landed`. A landing that is stranded, because the log could not
take its records or because nobody knows whether the point was reached, bars its topics and every
checkpoint until it is brought home or the process restarts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from topics.engine.effects import PAUSE, Gate, Op
from topics.errors import Internal

T = TypeVar("T")

STEP_TOPICS = 500
"""How many sections are opened between two pauses."""


class _Place:
    """One place in a line; its gate opens when it is worth looking whether the turn has come."""

    __slots__ = ("gate",)

    def __init__(self) -> None:
        self.gate = Gate()


class _Line:
    """Before a topic that takes no writes now: what closes it, and who waits, the first in front.

    `bar` is the gate of who closed it, or a lasting reason; None while those in line go in.
    """

    __slots__ = ("bar", "places")

    def __init__(self) -> None:
        self.bar: Gate | str | None = None
        self.places: deque[_Place] = deque()

    def call_all(self) -> None:
        """Let everybody look, in order: in one turn of the loop, however long the line is."""
        for place in tuple(self.places):
            place.gate.open()


class Sections:
    """`barred` holds every topic that takes no writes from who comes now, with the line there."""

    def __init__(self) -> None:
        self.barred: dict[int, _Line] = {}
        self.bring_home: Callable[[], Op[None]] = _nothing_stranded
        self._landing: list[Gate] = []
        self._stranded = 0

    def enter(self, topic_id: int) -> Op[None]:
        """Wait until the topic takes writes, and for all who waited before.

        Raises `Internal` while a commit is stranded there.
        """
        line = self.barred.get(topic_id)
        if line is None:
            return
        place = _Place()
        line.places.append(place)
        if line.bar is None:  # those before were called already: be called behind them
            place.gate.open()
        try:
            yield from self._wait(line, place)
        finally:
            line.places.remove(place)
            if line.bar is None:
                self._go_on(topic_id, line)

    def _wait(self, line: _Line, place: _Place) -> Op[None]:
        while True:
            if isinstance(line.bar, str):
                yield from self.bring_home()
                if isinstance(line.bar, str):
                    raise Internal(line.bar)
            else:
                yield place.gate
                place.gate = Gate()  # to be called once more, should it be too early
            if line.bar is None and line.places[0] is place:
                return

    def _go_on(self, topic_id: int, line: _Line) -> None:
        """One is through: call the next, who may have looked too early, or take the bar away."""
        if line.places:
            line.places[0].gate.open()
        else:
            del self.barred[topic_id]

    def close(self, topic_ids: Sequence[int]) -> Op[Gate]:
        """Close the sections of these topics for everybody else, in the order of their ids.

        All commits take them in this order, so no two can wait for each other.
        """
        gate = Gate()
        try:
            for count, topic_id in enumerate(sorted(topic_ids), 1):
                if count % STEP_TOPICS == 0:
                    yield PAUSE
                yield from self.enter(topic_id)
                self._bar(topic_id, gate)
        except BaseException:
            self.open(gate)
            raise
        return gate

    def holding_up(self, topic_id: int, wait: Op[T]) -> Op[T]:
        """Wait for something else while all who come wait behind.

        For one who has just entered, or found that nothing bars the topic. After the wait it is as
        if it had just entered.
        """
        gate = Gate()
        self._bar(topic_id, gate)
        try:
            return (yield from wait)
        finally:
            self.open(gate)

    def _bar(self, topic_id: int, gate: Gate) -> None:
        line = self.barred.setdefault(topic_id, _Line())
        assert line.bar is None, "a section is closed by one at a time"
        line.bar = gate

    def open(self, gate: Gate) -> None:
        """Open every section that this gate closes."""
        for topic_id, line in self._closed_by(gate):
            self._open(topic_id, line)
        gate.open()

    def open_in_steps(self, gate: Gate) -> Op[None]:
        """The same with pauses, where the sections are many."""
        try:
            for count, (topic_id, line) in enumerate(self._closed_by(gate), 1):
                self._open(topic_id, line)
                if count % STEP_TOPICS == 0:
                    yield PAUSE
        finally:  # also when it is given up in a pause
            self.open(gate)

    def _open(self, topic_id: int, line: _Line) -> None:
        line.bar = None
        if line.places:
            line.call_all()
        else:
            del self.barred[topic_id]

    def _closed_by(self, gate: Gate) -> list[tuple[int, _Line]]:
        return [(topic_id, line) for topic_id, line in self.barred.items() if line.bar is gate]

    # Landings

    def begin_landing(self, gate: Gate) -> None:
        self._landing.append(gate)

    def end_landing(self, gate: Gate) -> None:
        self._landing.remove(gate)

    def strand(self, gate: Gate, reason: str) -> None:
        """This landing cannot end now: its topics refuse writes, checkpoints are given up."""
        self.end_landing(gate)
        self._stranded += 1
        for _, line in self._closed_by(gate):
            line.bar = reason
            line.call_all()
        gate.open()

    def unstrand(self, topic_ids: Sequence[int], gate: Gate) -> None:
        """The landing is under way again, behind a new gate."""
        self._stranded -= 1
        self._landing.append(gate)
        for topic_id in topic_ids:
            self.barred[topic_id].bar = gate

    def landed(self) -> Op[None]:
        """Wait until no commit is landing; raises `Internal` while one is stranded."""
        while self._landing:
            yield self._landing[0]
        if self._stranded:
            raise Internal(
                "a stage commit waits until the log takes its records; no checkpoint before that"
            )


def _nothing_stranded() -> Op[None]:
    yield from ()
