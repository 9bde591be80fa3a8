"""The end of a turn of the loop: what is cheaper done together is done there, then answers leave.

With many clients a turn brings many requests, and two things cost less for all of them at once than
for each. Requests to the same queue share what they do to it. And an answer handed to the kernel
wakes whoever waits for it, after which the answers of others have to wait for a core; so answers
are handed over in a row.

Nobody waits for long: a turn of more than two milliseconds is cut into several. And who is alone
waits for nobody: a connection that is heard twice in a row, with nobody in between, is served and
answered on the spot. The end of a turn costs the loop a round of its own, which a lone client would
pay for with every request.

What takes long is rationed: the loop hears everybody whose input has come before it does anything
else, and a hundred long pages, each made as it is asked for, would be one long stall for whoever
comes next. Beyond its ration of a turn such work stands in line for the next ones.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("topics.http")

HELD_NS = 2_000_000
"""How long a request may wait for others to be served with it, and an answer to leave with it."""

RATION_NS = 2_000_000
"""How much of a turn long work may take, and one piece of it more."""


class Corked(Protocol):
    """A connection with finished answers that have not left."""

    def uncork(self) -> None:
        """Let them go; harmless when they have gone."""

    def abort(self) -> None:
        """Close now, unsent bytes included."""


class Turns:
    """Shared by every connection of one listener; owned by the loop thread."""

    __slots__ = (
        "_before",
        "_came",
        "_corked",
        "_corked_ns",
        "_heard",
        "_is_due",
        "_is_lone",
        "_schedule",
        "_work",
        "rations",
    )

    def __init__(self, schedule: Callable[[Callable[[], None]], object]) -> None:
        self._schedule = schedule
        self.rations = Rations(schedule)
        self._work: list[Callable[[], None]] = []
        self._corked: list[Corked] = []
        self._corked_ns = 0  # since when the first of them waits
        self._is_due = False  # the end of the turn is scheduled, or being held
        self._came = 0  # who could do something together, in this turn
        self._before = 0  # and in the one before
        self._heard: object = None  # whose input came last
        self._is_lone = False  # it was the same the time before

    def hear(self, connection: object) -> None:
        """Note whose input is looked at now."""
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
        """Count one more who could do something with others; whether others are to be expected.

        They are when there were some in this turn or in the one before. A lone client is thus
        served without a detour, and of many only the first has to do without the others.
        """
        self._came += 1
        if self._is_lone and self._came == 1:
            return False
        self._want_end()
        return self._came > 1 or self._before > 1

    def finish_later(self, work: Callable[[], None]) -> None:
        """Do this at the end of the turn, before its answers leave."""
        self._work.append(work)
        self._want_end()

    def uncork_later(self, connection: Corked) -> None:
        """Let answers go at the end of the turn, or when the first of them waited enough."""
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

    def cut(self) -> None:
        """End the turn for those who have come so far: one of them has waited enough."""
        self._finish_all()
        self._uncork_all()

    def _want_end(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._schedule(self._end)

    def _end(self) -> None:
        self._finish_all()
        self._is_due = False  # not before: what was just answered leaves now
        self._before, self._came = self._came, 0
        self._uncork_all()

    def _finish_all(self) -> None:
        """Do what is to be done, and what comes of it."""
        while self._work:
            due, self._work = self._work, []
            for work in due:
                try:
                    work()
                except Exception:  # one's bug must not hold up the others
                    log.exception("work at the end of a turn failed")

    def _uncork_all(self) -> None:
        corked, self._corked = self._corked, []
        for connection in corked:
            _uncork(connection)


def _uncork(connection: Corked) -> None:
    try:
        connection.uncork()
    except Exception:  # one connection's bug must not hold up the others
        log.exception("sending an answer failed")
        connection.abort()


class Rations:
    """Long work, a little of it in each turn; in the order in which it came."""

    __slots__ = ("_line", "_schedule", "_spent_ns", "is_used_up")

    def __init__(self, schedule: Callable[[Callable[[], None]], object]) -> None:
        self._schedule = schedule
        self._line: deque[Callable[[], None]] = deque()
        self._spent_ns = 0
        self.is_used_up = False
        """Whether what comes now has to stand in line; the next ration is scheduled."""

    def take(self, work: Callable[[], None]) -> None:
        """Do this now, or in one of the next turns if long work has had enough of this one."""
        if self.is_used_up:
            self._line.append(work)
        else:
            self._do(work)

    def _do(self, work: Callable[[], None]) -> None:
        began_ns = time.perf_counter_ns()
        try:
            work()
        finally:
            self._spent_ns += time.perf_counter_ns() - began_ns
            if self._spent_ns >= RATION_NS and not self.is_used_up:
                self.is_used_up = True
                self._schedule(self._renew)

    def _renew(self) -> None:
        self.is_used_up = False
        self._spent_ns = 0
        while self._line and not self.is_used_up:
            try:
                self._do(self._line.popleft())
            except Exception:  # one's bug must not hold up the others
                log.exception("work that stood in line failed")


class Gathering:
    """Requests that wait for the end of their turn to be served together, within bounds."""

    __slots__ = ("_most", "_serve", "_since_ns", "_weight")

    def __init__(self, serve: Callable[[], None], most: int) -> None:
        self._serve = serve
        self._most = most
        self._weight = 0
        self._since_ns = 0

    def join(self, turns: Turns, started_ns: int, *, weight: int) -> bool:
        """Wait with those before, who are served first if it gets too much, or took too long.

        False when nobody else seems to be there, and it is better served at once. A weight is at
        least 1.
        """
        if not turns.is_crowded():
            return False
        if self._weight and (
            self._weight + weight > self._most or started_ns - self._since_ns > HELD_NS
        ):
            turns.cut()
        if not self._weight:
            self._since_ns = started_ns
            turns.finish_later(self._end)
        self._weight += weight
        return True

    def _end(self) -> None:
        self._weight = 0
        self._serve()
