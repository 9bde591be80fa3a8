"""A read-only log beside a running owner.

It shows what a recovery at this instant would show. `refresh` looks again; `follow` and a waiting
`read` do so by themselves, by polling: nobody tells a reader of files that they changed.
"""

from __future__ import annotations

import time

from topics.embedded.log import Log
from topics.engine.opening import Opening, open_view
from topics.storage.fs import Fs

POLL_SECONDS = 0.05


class View(Log):
    """The reading half of `Log`; everything else raises `ReadOnly`."""

    def __init__(self, fs: Fs, path: str, opening: Opening) -> None:
        self._fs = fs
        self._path = path
        self._opening = opening
        super().__init__(open_view(fs, path, opening))

    def refresh(self) -> None:
        """Look at the files again."""
        with self._lock:
            self._check()
            fresh = open_view(self._fs, self._path, self._opening)
            old, self._engine = self._engine, fresh
            self._queues = None  # they know the old engine
            old.release()

    def _await_append(self, topic: str, head: int, wait: float | None) -> bool:
        end = None if wait is None else time.monotonic() + wait
        while True:
            self.refresh()
            found = self._engine.kernel.catalog.by_name.get(topic)
            if self._closed or found is None or found.head != head:
                return True
            left = POLL_SECONDS if end is None else min(POLL_SECONDS, end - time.monotonic())
            if left <= 0:
                return False
            self._changed.wait(left)
