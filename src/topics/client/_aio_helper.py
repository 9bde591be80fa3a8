"""The task that works for a producer, and how it and the producer's callers wait for each other.

`_sync_helper` is the same with a thread: all that producers of the two clients differ in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any

CALLBACK_ERRORS: tuple[type[BaseException], ...] = (Exception, asyncio.CancelledError)
"""What a callback may raise to its producer."""


def failure_of(error: BaseException) -> BaseException:
    """What a flush raises for an error of a callback."""
    if not isinstance(error, asyncio.CancelledError):
        return error
    # The task of a producer is never cancelled, and the task that flushes must not seem cancelled.
    failure = RuntimeError("a callback wants the result of what was cancelled")
    failure.__cause__ = error
    return failure


class AsyncHelper:
    """Runs `work` in a task from the first `begin` on. Belongs to one event loop."""

    def __init__(self, work: Callable[[AsyncHelper], Coroutine[Any, Any, None]], name: str) -> None:
        self.lock = nullcontext()  # tasks of one loop do not run at the same time
        self._work = work
        self._name = name
        self._changed = asyncio.Event()  # set and replaced at every change that a task waits for
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """There is work to do; a task needs a running loop, which `__init__` may not have."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(self), name=self._name)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wake(self) -> None:
        """Wake all waiters: something changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, seconds: float | None) -> bool:
        """Wait until something changes, for at most `seconds`; returns whether it did."""
        return await _within(seconds, self._changed)

    async def wait_for(self, happened: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until something has happened, for at most `seconds`; returns whether it has."""
        end = None if seconds is None else self.now() + seconds
        while not happened():
            left = None if end is None else end - self.now()
            if not await self.wait(left):
                return happened()
        return True

    async def hurried(self, seconds: float) -> bool:
        """Wait that long; returns whether the work has to be given up."""
        return await _within(seconds, self._hurry)

    async def end(self, patience: float | None) -> None:
        """Wait for the work to end; after `patience` seconds it has to hurry."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=patience)
            self._hurry.set()
            await self._task


async def _within(seconds: float | None, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
