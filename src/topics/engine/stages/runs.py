"""Runs of sinks: which one an app belongs to now, and whether it is still heard of.

A sink whose tasks stage `by_run` gives attempts that name its run: all attempts of one run have the
same upper 40 bits. So the stages that a dead run left behind can be told from those of its
successor:

    a new run begins       what earlier runs of the app have staged and not committed goes
    a server restarts      the first run to call is taken for the app's; stages of other runs go if
                           they are older than the lease, else with the next run or with age
    an earlier run calls   it is refused: its driver is dead, or another driver has taken over
    no call for long       the run's stages go, as those of a driver that is not started again

A stage that is not staged by a run stays until it is too old.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Final

import msgspec

from topics.errors import InvalidRequest

RUN_SHIFT: Final = 24
REMEMBERED: Final = 8
"""So many earlier runs of an app are refused."""


def run_of(attempt: int) -> int:
    return attempt >> RUN_SHIFT


class _App(msgspec.Struct):
    run: int
    heard_ms: int
    earlier: list[int] = []


class SinkRuns:
    """The run of every app that has been heard of since the start, longest silent first."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._apps: dict[str, _App] = {}

    def enter(self, app: str, attempt: int, now_ms: int) -> int | None:
        """A task of a run stages. Raises for an earlier run.

        Returns how old stages of other runs have to be to go, None if they stay: a new run follows
        the known one and all of them go. Of an app without a known run, as after a restart, the
        caller may as well be the earlier run: what may belong to a living one stays.
        """
        run = run_of(attempt)
        known = self._apps.get(app)
        if known is None:
            self._apps[app] = _App(run, now_ms)
            return self._lease_ms
        if run in known.earlier:
            raise InvalidRequest(
                f"a later run of {app!r} has begun; this one is over. If both are meant to run, "
                "give them different checkpoints or txnAppIds"
            )
        is_new = run != known.run
        if is_new:
            known.earlier = [*known.earlier[1 - REMEMBERED :], known.run]
            known.run = run
        self.hear(app, now_ms)
        return 0 if is_new else None

    def hear(self, app: str, now_ms: int) -> None:
        """A call of the app: its run is alive."""
        known = self._apps.pop(app, None)
        if known is not None:
            known.heard_ms = max(known.heard_ms, now_ms)
            self._apps[app] = known

    def silent(self, now_ms: int) -> Iterator[tuple[str, int]]:
        """Apps, with their run, of which nothing was heard for longer than the lease."""
        items = takewhile(
            lambda item: now_ms - item[1].heard_ms > self._lease_ms, self._apps.items()
        )
        return iter([(app, known.run) for app, known in items])

    def forget_silent(self, app: str, now_ms: int) -> bool:
        """Forget the run of an app, unless it was heard of meanwhile; whether that was done."""
        known = self._apps.get(app)
        if known is None or now_ms - known.heard_ms <= self._lease_ms:
            return False
        del self._apps[app]
        return True

    def knows(self, app: str) -> bool:
        return app in self._apps
