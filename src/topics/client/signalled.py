"""An event that an interrupt cannot leave locked."""

from __future__ import annotations

import threading
import time

LOOK_S = 0.5
"""A waiter looks so often even if it is not woken."""


class SignalledEvent(threading.Event):
    """An event that signal handlers may set, and whose calls they may interrupt anywhere.

    `threading.Event` locks inside its calls. A handler that sets the event while its own thread
    holds that lock waits for ever, and an exception of a handler inside `set` or `wait` can leave
    the lock taken, so that the next `set` waits for ever. This event has no such lock: `set` stores
    a flag and releases a latch, neither of which waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._latch = threading.Lock()  # taken until the event is set
        self._latch.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        # It is free already if the event was set before.
        if self._latch.locked():
            try:
                self._latch.release()
            except RuntimeError:
                return  # another thread did so just now

    def clear(self) -> None:
        raise TypeError("this event stays set")

    def wait(self, timeout: float | None = None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not self._is_set:
            left = LOOK_S if end is None else min(LOOK_S, end - time.monotonic())
            if left <= 0:
                break
            # An interrupt between these two keeps the latch; others then look after `LOOK_S`.
            if self._latch.acquire(timeout=left):
                self._latch.release()
        return self._is_set
