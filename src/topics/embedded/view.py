"""A read-only log beside a running owner.

It shows what a recovery at this instant would show. `refresh` looks again; `follow` and a waiting
`read` do so by themselves, by polling: nobody tells a reader of files that they changed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Concatenate, ParamSpec, TypeVar

from topics.embedded.log import Log
from topics.engine.opening import READ_ONLY_TRIES, Opening, open_view
from topics.errors import Internal
from topics.storage.fs import Fs

POLL_SECONDS = 0.05
P = ParamSpec("P")
T = TypeVar("T")


def _looking_again(
    read: Callable[Concatenate[Log, P], T],
) -> Callable[Concatenate[View, P], T]:
    """A call that looks at the files again when the owner let one go under it."""

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
        with self._lock:
            self._check()
            fresh = open_view(self._fs, self._where, self._opening)
            old, self._engine = self._engine, fresh
            self._queues = None  # they know the old engine
            old.release()

    def _await_append(self, heads: Mapping[str, int], wait: float | None) -> bool:
        end = None if wait is None else time.monotonic() + wait
        while True:
            self.refresh()
            if self._closed or self._has_moved(heads):
                return True
            left = POLL_SECONDS if end is None else min(POLL_SECONDS, end - time.monotonic())
            if left <= 0:
                return False
            self._changed.wait(left)
