"""Append gates: when a topic takes writes, and when a checkpoint may capture it.

Every topic has an append gate. A stage commit closes the gates of its topics; configuring, dropping
or routing a topic closes its gate, too. While a gate is closed, no other operation may give out a
seq there, delete, configure or drop. An operation that does one of these enters the gate first, and
after that it waits for nothing else before it submits.

At a closed gate writers wait in a queue and go in the order in which they came. When the gate
opens, all waiters are called, but they run one after the other, and new writers come meanwhile. The
gate therefore stays closed for newcomers until the queue is empty: no newcomer overtakes a waiter.
A write that was admitted from the queue may proceed although the gate is closed for newcomers. The
admission is valid for one attempt: after any other wait the write must queue again, unless it kept
the gate closed itself.

While a stage commit is *landing*, from the submission of its commit point to its last durable
append, the log promises records that no topic shows yet. A checkpoint that captured this would tell
replay to skip the promise, so it waits for `landed`. A landing is *stranded* if the log could not
take its records, or if it is unknown whether the point was reached. A stranded landing keeps its
gates closed and refuses every checkpoint, until it is completed or the process restarts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple, TypeVar

from topics.engine.effects import PAUSE, Gate, Op
from topics.errors import Internal

T = TypeVar("T")

STEP_TOPICS = 500
"""How many gates are opened or closed between two pauses."""


class _Waiter:
    """A writer in the queue of a gate; `called` opens when the writer may be the next."""

    __slots__ = ("called",)

    def __init__(self) -> None:
        self.called = Gate()


class _ClosedGate:
    """The gate of a topic that takes no writes from newcomers, and the queue in front of it.

    `closed_by` is the gate of the operation that closed it, or the reason why it is closed for
    good; None while the queue is admitted.
    """

    __slots__ = ("closed_by", "queue")

    def __init__(self) -> None:
        self.closed_by: Gate | str | None = None
        self.queue: deque[_Waiter] = deque()

    def call_all(self) -> None:
        """Call all waiters, in order and in one tick of the loop, however many they are."""
        for waiter in tuple(self.queue):
            waiter.called.open()


class AppendGates:
    """The gates of all topics; `closed` holds those that take no writes from newcomers."""

    def __init__(self) -> None:
        self.closed: dict[int, _ClosedGate] = {}
        self.complete_stranded: Callable[[], Op[None]] = _nothing_stranded
        self._landing: list[Gate] = []
        self._stranded = 0

    def enter(self, topic_id: int) -> Op[None]:
        """Wait until the topic takes writes and all earlier waiters have gone.

        Raises `Internal` while a commit is stranded there.
        """
        gate = self.closed.get(topic_id)
        if gate is None:
            return
        waiter = _Waiter()
        gate.queue.append(waiter)
        if gate.closed_by is None:  # the waiters in front were called already
            waiter.called.open()
        try:
            yield from self._wait(gate, waiter)
        finally:
            gate.queue.remove(waiter)
            if gate.closed_by is None:
                self._admit_next(topic_id, gate)

    def _wait(self, gate: _ClosedGate, waiter: _Waiter) -> Op[None]:
        while True:
            if isinstance(gate.closed_by, str):
                yield from self.complete_stranded()
                if isinstance(gate.closed_by, str):
                    raise Internal(gate.closed_by)
            else:
                yield waiter.called
                waiter.called = Gate()  # to be called again if this was too early
            # The gate may have been closed again, and a driver may resume waiters in any order.
            if gate.closed_by is None and gate.queue[0] is waiter:
                return

    def _admit_next(self, topic_id: int, gate: _ClosedGate) -> None:
        """A waiter has gone: call the next, which may have looked too early, or open the gate."""
        if gate.queue:
            gate.queue[0].called.open()
        else:
            del self.closed[topic_id]

    def close(self, topic_ids: Sequence[int]) -> Op[Gate]:
        """Close the gates of these topics for other operations, in the order of their ids.

        All commits close gates in this order, so no two can wait for each other.
        """
        key = Gate()
        try:
            for count, topic_id in enumerate(sorted(topic_ids), 1):
                if count % STEP_TOPICS == 0:
                    yield PAUSE
                yield from self.enter(topic_id)
                self._close(topic_id, key)
        except BaseException:
            self.open(key)
            raise
        return key

    def closed_during(self, topic_id: int, wait: Op[T]) -> Op[T]:
        """Wait for something while all newcomers queue.

        For a write that was just admitted, or that found the gate open. After the wait it counts
        as just admitted.
        """
        key = Gate()
        self._close(topic_id, key)
        try:
            return (yield from wait)
        finally:
            self.open(key)

    def _close(self, topic_id: int, key: Gate) -> None:
        gate = self.closed.setdefault(topic_id, _ClosedGate())
        assert gate.closed_by is None, "a gate is closed by one operation at a time"
        gate.closed_by = key

    def open(self, key: Gate) -> None:
        """Open every gate that was closed with this key."""
        for topic_id, gate in self._closed_by(key):
            self._open(topic_id, gate)
        key.open()

    def open_in_steps(self, key: Gate) -> Op[None]:
        """The same with pauses, for a commit over many topics."""
        try:
            for count, (topic_id, gate) in enumerate(self._closed_by(key), 1):
                self._open(topic_id, gate)
                if count % STEP_TOPICS == 0:
                    yield PAUSE
        finally:  # also when the operation is given up in a pause
            self.open(key)

    def _open(self, topic_id: int, gate: _ClosedGate) -> None:
        gate.closed_by = None
        if gate.queue:
            gate.call_all()
        else:
            del self.closed[topic_id]

    def _closed_by(self, key: Gate) -> list[tuple[int, _ClosedGate]]:
        return [(topic_id, gate) for topic_id, gate in self.closed.items() if gate.closed_by is key]

    # Landings

    def begin_landing(self, key: Gate) -> None:
        self._landing.append(key)

    def end_landing(self, key: Gate) -> None:
        self._landing.remove(key)

    def strand(self, key: Gate, reason: str) -> None:
        """This landing cannot end now: its topics refuse writes, checkpoints are given up."""
        self.end_landing(key)
        self._stranded += 1
        for _, gate in self._closed_by(key):
            gate.closed_by = reason
            gate.call_all()
        key.open()

    def unstrand(self, topic_ids: Sequence[int], key: Gate) -> None:
        """The landing is under way again, with a new key."""
        self._stranded -= 1
        self._landing.append(key)
        for topic_id in topic_ids:
            self.closed[topic_id].closed_by = key

    def landed(self) -> Op[None]:
        """Wait until no commit is landing; raises `Internal` while one is stranded."""
        while self._landing:
            yield self._landing[0]
        if self._stranded:
            raise Internal(
                "a stage commit waits until the log takes its records; no checkpoint before that"
            )


class Publishing(NamedTuple):
    """A commit over many topics whose records are shown in several steps.

    Some of the topics show their records already. A request waits until all of them do.
    """

    names: Set[str]
    over: Gate

    def concerns(self, names: Sequence[str]) -> bool:
        """Whether a request for these names might see a part of the commit; for none: for all."""
        return not names or not self.names.isdisjoint(names)


def _nothing_stranded() -> Op[None]:
    yield from ()
