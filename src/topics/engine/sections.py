"""When a topic takes writes, and when a checkpoint may look: the turns that stage commits need.

A stage commit closes the append sections of its topics. Until they open again no other operation
may give out a seq there, delete, configure or drop. Whoever does one of these calls `enter` first
and then waits for nothing else before it submits.

While a commit is *landing*, from the submission of its commit point to its last durable append,
the log promises records that no topic shows yet. A checkpoint that captured this would tell replay
to skip the promise, so it waits for `landed`. A landing that is stranded, because the log could not
take its records or because nobody knows whether the point was reached, bars its topics and every
checkpoint until it is brought home or the process restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topics.engine.effects import Gate, Op
from topics.errors import Internal


class Sections:
    """`barred` holds every topic that takes no writes now, and why: a gate, or a lasting reason."""

    def __init__(self) -> None:
        self.barred: dict[int, Gate | str] = {}
        self.bring_home: Callable[[], Op[None]] = _nothing_stranded
        self._landing: list[Gate] = []
        self._stranded = 0

    def enter(self, topic_id: int) -> Op[None]:
        """Wait until the topic takes writes; raises `Internal` while a commit is stranded there."""
        while (bar := self.barred.get(topic_id)) is not None:
            if isinstance(bar, Gate):
                yield bar
                continue
            yield from self.bring_home()
            still = self.barred.get(topic_id)
            if isinstance(still, str):
                raise Internal(still)

    def close(self, topic_ids: Sequence[int]) -> Op[Gate]:
        """Close the sections of these topics for everybody else, in the order of their ids.

        All commits take them in this order, so no two can wait for each other.
        """
        gate = Gate()
        try:
            for topic_id in sorted(topic_ids):
                yield from self.enter(topic_id)
                self.barred[topic_id] = gate
        except BaseException:
            self.open(gate)
            raise
        return gate

    def open(self, gate: Gate) -> None:
        """Open every section that this gate closes."""
        for topic_id in [t for t, bar in self.barred.items() if bar is gate]:
            del self.barred[topic_id]
        gate.open()

    # Landings

    def begin_landing(self, gate: Gate) -> None:
        self._landing.append(gate)

    def end_landing(self, gate: Gate) -> None:
        self._landing.remove(gate)

    def strand(self, gate: Gate, reason: str) -> None:
        """This landing cannot end now: its topics refuse writes, checkpoints are given up."""
        self.end_landing(gate)
        self._stranded += 1
        for topic_id, bar in self.barred.items():
            if bar is gate:
                self.barred[topic_id] = reason
        gate.open()

    def unstrand(self, topic_ids: Sequence[int], gate: Gate) -> None:
        """The landing is under way again, behind a new gate."""
        self._stranded -= 1
        self._landing.append(gate)
        for topic_id in topic_ids:
            self.barred[topic_id] = gate

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
