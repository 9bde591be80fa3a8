"""Setting an event from a signal handler."""

from __future__ import annotations

import _thread
import threading


def set_from_handler(event: threading.Event) -> None:
    """Set `event` soon, on a thread of its own.

    The handler may have interrupted `event.wait()` on this very thread. Then this thread holds the
    lock of the event, and `event.set()` here would wait for it for ever. `threading.Thread` has a
    lock of the same kind, so the thread is started without it.
    """
    _thread.start_new_thread(event.set, ())
