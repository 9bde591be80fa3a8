"""An event that a signal handler can set."""

from __future__ import annotations

import _thread
import threading


class SignalledEvent(threading.Event):
    """An event that a signal handler can set, also when the handler interrupted `wait`."""

    def __init__(self) -> None:
        super().__init__()
        self._is_asked = False

    def is_set(self) -> bool:
        return self._is_asked or super().is_set()

    def set_from_handler(self) -> None:
        """Set the event: `is_set` says so at once, a `wait` ends soon.

        The handler may have interrupted `wait` on this very thread. Then this thread holds the
        lock of the event, and `set` here would wait for that lock for ever, so another thread
        calls it. `threading.Thread` has a lock of the same kind, so it does not start that thread.
        """
        self._is_asked = True
        _thread.start_new_thread(self.set, ())
