"""One tick of the event loop: requests that arrive together are served and answered together.

With many clients a tick brings many requests, and two things cost less for all of them at once than
for each. Requests to the same topic share a group commit. And an answer handed to the kernel wakes
its client, after which the other answers have to wait for a core; so the answers of a tick are
handed over in a row at its end.

No request waits for long: a tick of more than two milliseconds is cut into several. A lone client
does not wait at all: if the same connection sent the last two requests, its request is served and
answered immediately. Batching would cost a lone client one extra loop iteration per request.

What follows a published record (deliveries, router passes) is done when the answers of the tick
have left. For a lone client that is in the same iteration of the loop: between two iterations
other threads get the interpreter, which would cost the delivery more than its own work.

Reads may take long; they are done within a loop budget (`delivery.loop_budget`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from topics.delivery.loop_budget import LoopBudget

log = logging.getLogger("topics.http")

HELD_NS = 2_000_000
"""How long a request may wait to be served with others, and its answer to leave with others."""


class Corked(Protocol):
    """A connection with finished answers that have not left."""

    def uncork(self) -> None:
        """Let them go; harmless when they have gone."""

    def abort(self) -> None:
        """Close now, unsent bytes included."""


class Tick:
    """Shared by every connection of one listener; owned by the loop thread."""

    __slots__ = (
        "_after",
        "_before",
        "_came",
        "_corked",
        "_corked_ns",
        "_heard",
        "_is_due",
        "_is_handling",
        "_is_lone",
        "_schedule",
        "_work",
        "reads",
    )

    def __init__(self, schedule: Callable[[Callable[[], None]], object]) -> None:
        self._schedule = schedule
        self.reads = LoopBudget(schedule)
        self._work: list[Callable[[], None]] = []
        self._after: list[Callable[[], None]] = []
        self._corked: list[Corked] = []
        self._corked_ns = 0  # since when the first of them waits
        self._is_due = False  # the end of the tick is scheduled, or under way
        self._is_handling = False  # input is being handled, and `pause` follows
        self._came = 0  # requests of this tick that could share a batch
        self._before = 0  # and of the one before
        self._heard: object = None  # the connection whose input came last
        self._is_lone = False  # the input before it came from the same connection

    def hear(self, connection: object) -> None:
        """Note which connection's input is handled from now until `pause`."""
        self._is_handling = True
        if connection is not self._heard:
            self._heard = connection
            self._is_lone = False
        elif not self._is_due:
            self._is_lone = self._before <= 1
            self._came = 0

    def forget(self, connection: object) -> None:
        """Let go of a connection that is over."""
        if connection is self._heard:
            self._heard = None

    def is_crowded(self) -> bool:
        """Count a request that could share a batch; whether other such requests are expected.

        They are if some came in this tick or in the one before. So a lone client is served without
        a detour, and of many clients only the first one is served alone.
        """
        self._came += 1
        if self._is_lone and self._came == 1:
            return False
        self._want_end()
        return self._came > 1 or self._before > 1

    def finish_later(self, work: Callable[[], None]) -> None:
        """Do this at the end of the tick, before its answers leave."""
        self._work.append(work)
        self._want_end()

    def uncork_later(self, connection: Corked) -> None:
        """Send answers at the end of the tick, or when the first of them has waited `HELD_NS`."""
        if self._is_lone and not self._is_due and connection is self._heard:
            _uncork(connection)
            return
        corked = self._corked
        corked.append(connection)
        if len(corked) == 1:
            self._corked_ns = time.perf_counter_ns()
            self._want_end()
        elif time.perf_counter_ns() - self._corked_ns > HELD_NS:
            self._uncork_all()

    def after_answers(self, work: Callable[[], None]) -> None:
        """Do this when the answers of this tick have left."""
        self._after.append(work)
        if not (self._is_handling or self._is_due) and len(self._after) == 1:
            self._schedule(self._do_after)

    def begin(self) -> None:
        """What the log confirmed is handled from now until `pause`."""
        self._is_handling = True

    def pause(self) -> None:
        """Input was handled; follows `hear` and `begin` whatever happened in between."""
        self._is_handling = False
        if self._after and not self._is_due:
            self._do_after()

    def cut(self) -> None:
        """End the tick for the requests that came so far: one of them has waited enough."""
        self._finish_all()
        self._uncork_all()

    def _want_end(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._schedule(self._end)

    def _end(self) -> None:
        self._finish_all()
        self._is_due = False  # not before: answers given until here leave now
        self._before, self._came = self._came, 0
        self._uncork_all()
        self._do_after()

    def _finish_all(self) -> None:
        """Do the work of the tick, and the work that it adds."""
        while self._work:
            due, self._work = self._work, []
            _do_all(due)

    def _do_after(self) -> None:
        due, self._after = self._after, []
        _do_all(due)

    def _uncork_all(self) -> None:
        corked, self._corked = self._corked, []
        for connection in corked:
            _uncork(connection)


def _do_all(due: list[Callable[[], None]]) -> None:
    for work in due:
        try:
            work()
        except Exception:  # a bug in one piece of work must not stop the others
            log.exception("work at the end of a tick failed")


def _uncork(connection: Corked) -> None:
    try:
        connection.uncork()
    except Exception:  # a bug in one connection must not stop the others
        log.exception("sending an answer failed")
        connection.abort()


class TickBatch:
    """Requests that wait for the end of their tick to be served together, within bounds."""

    __slots__ = ("_most", "_serve", "_since_ns", "_weight")

    def __init__(self, serve: Callable[[], None], most: int) -> None:
        self._serve = serve
        self._most = most
        self._weight = 0
        self._since_ns = 0

    def join(self, tick: Tick, started_ns: int, *, weight: int) -> bool:
        """Join the batch, whose earlier requests are served first if it is full or too old.

        False when no other request is expected, so that this one is better served at once. A
        weight is at least 1.
        """
        if not tick.is_crowded():
            return False
        if self._weight and (
            self._weight + weight > self._most or started_ns - self._since_ns > HELD_NS
        ):
            tick.cut()
        if not self._weight:
            self._since_ns = started_ns
            tick.finish_later(self._end)
        self._weight += weight
        return True

    def _end(self) -> None:
        self._weight = 0
        self._serve()
