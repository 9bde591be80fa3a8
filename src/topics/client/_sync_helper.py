"""The thread that works for a producer, and how it and the producer's callers wait for each other.

`_aio_helper` is the same with a task: all that producers of the two clients differ in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from topics.client.signalled import SignalledEvent

CALLBACK_ERRORS: tuple[type[BaseException], ...] = (BaseException,)
"""What a callback may raise to its producer."""


def failure_of(error: BaseException) -> BaseException:
    """What a flush raises for an error of a callback."""
    return error


class Helper:
    """Runs `work` in a thread. `wake`, `wait` and `wait_for` are called with the `lock` held."""

    def __init__(self, work: Callable[[Helper], None], name: str) -> None:
        # Entered itself, not through the condition: an exception that a signal handler raises in
        # `Condition.__enter__` would leave it locked, and the threads waiting for ever.
        self.lock = threading.RLock()
        self._state = threading.Condition(self.lock)
        self._hurry = SignalledEvent()
        self._thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """There is work to do; the thread runs already."""

    def now(self) -> float:
        return time.monotonic()

    def wake(self) -> None:
        """Wake all waiters: something changed."""
        self._state.notify_all()

    def wait(self, seconds: float | None) -> bool:
        """Wait until something changes, for at most `seconds`; returns whether it did."""
        return self._state.wait(seconds)

    def wait_for(self, happened: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until something has happened, for at most `seconds`; returns whether it has."""
        return self._state.wait_for(happened, seconds)

    def hurried(self, seconds: float) -> bool:
        """Wait that long; returns whether the work has to be given up."""
        return self._hurry.wait(seconds)

    def end(self, patience: float | None) -> None:
        """Wait for the work to end; after `patience` seconds it has to hurry."""
        self._thread.join(patience)
        self._hurry.set()
        self._thread.join()
