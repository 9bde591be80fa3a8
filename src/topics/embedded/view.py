"""A read-only log beside a running owner.

It shows what a recovery at this instant would show. `refresh` looks again; `follow` and a waiting
`read` look again by themselves, by polling, because a reader of files is not told of changes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Concatenate, ParamSpec, TypeVar

from topics.embedded.log import Log
from topics.engine.engine import Engine
from topics.engine.recovery.opening import READ_ONLY_TRIES, Opening, open_view
from topics.errors import Internal
from topics.storage.fs import Fs

POLL_SECONDS = 0.05
P = ParamSpec("P")
T = TypeVar("T")


def _looking_again(
    read: Callable[Concatenate[Log, P], T],
) -> Callable[Concatenate[View, P], T]:
    """A call that looks at the files again if the owner removed one during the call."""

    @functools.wraps(read)
    def call(view: View, /, *args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(READ_ONLY_TRIES - 1):
            try:
                return read(view, *args, **kwargs)
            except (FileNotFoundError, Internal) as error:
                if not isinstance(error.__cause__ or error, FileNotFoundError):
                    raise
                view.refresh()
        return read(view, *args, **kwargs)

    return call


class View(Log):
    """The reading half of `Log`; everything else raises `ReadOnly`."""

    def __init__(self, fs: Fs, path: str, opening: Opening) -> None:
        self._fs = fs
        self._opening = opening
        self._where = path
        super().__init__(open_view(fs, path, opening), path=path)

    def __repr__(self) -> str:
        return f"<Log {self._words()}>"

    def _words(self) -> str:
        return f"{super()._words()}, read only"

    read = _looking_again(Log.read)
    plan = _looking_again(Log.plan)
    holes = _looking_again(Log.holes)
    state = _looking_again(Log.state)
    topics = _looking_again(Log.topics)
    audit = _looking_again(Log.audit)
    cursors = _looking_again(Log.cursors)

    def refresh(self) -> None:
        """Look at the files again."""
        self._refuse_nested()
        with self._lock:
            self._check()
            old = self._engine
            self._reopened()
            old.release()

    def _reopened(self) -> Engine:
        return self._go_on_with(open_view(self._fs, self._where, self._opening))

    def _await_append(self, heads: Mapping[str, int], wait: float | None) -> bool:
        end = None if wait is None else time.monotonic() + wait
        while True:
            self.refresh()
            if self._has_moved(heads):
                return True
            look_at = time.monotonic() + POLL_SECONDS
            if end is not None and look_at > end:
                look_at = end
                if look_at <= time.monotonic():
                    return False
            self._sleep(look_at)
            if self._closed:
                return True
