"""Runs engine operations on an event loop: an operation that has to wait is resumed later.

An operation that waits for the log is resumed when the log's thread has delivered its submission,
in log order; one that waits for file work is resumed when a pool has done it. All of it happens on
the loop's thread, which owns the engine's state. An operation that was started always runs to its
end, also if its client has disconnected: its effects are already in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Protocol, TypeVar

from topics.engine.effects import Gate, Io, Op, Pause, Sleep, Wait
from topics.errors import Internal, TopicsError
from topics.storage.wal.submission import Submission

T = TypeVar("T")
_log = logging.getLogger(__name__)

Done = Callable[[Any, TopicsError | None], None]
"""Gets the answer, or the error."""


class Finisher(Protocol):
    """The part of a grouped committer that answers on the owner's thread."""

    def finish(self, settled: Sequence[Submission]) -> Sequence[Submission]: ...


class Handling(Protocol):
    """Is told when answers begin to be given, and when what follows them may be done."""

    def begin(self) -> None: ...
    def pause(self) -> None: ...


class _Unheeded:
    """Nothing follows."""

    def begin(self) -> None:
        pass

    def pause(self) -> None:
        pass


class _Task:
    """An operation under way, the callback for its answer, and the pool for its file work."""

    __slots__ = ("done", "op", "pool")

    def __init__(self, op: Op[Any], done: Done, pool: Executor) -> None:
        self.op = op
        self.done = done
        self.pool = pool


class Driver:
    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        self._loop = loop
        self._pool = pool
        self._waiting: dict[Submission, list[_Task]] = {}
        self._settled: deque[list[Submission]] = deque()
        self._wake_sent = False
        self.committer: Finisher | None = None
        self.in_flight = 0
        self.on_pool = 0
        """File work that was given to the pool and is not done."""
        self.on_wait: Callable[[], None] = _nobody
        """Called when an operation begins to wait."""
        self.tick: Handling = _Unheeded()
        self._idle: asyncio.Event | None = None

    # From the log's threads

    def deliver(self, settled: list[Submission]) -> None:
        """Take over submissions whose outcome is known; called on a shard's thread."""
        self._settled.append(settled)
        if not self._wake_sent:
            self._wake_sent = True
            try:
                self._loop.call_soon_threadsafe(self.drain)
            except RuntimeError:
                _log.debug("the loop is gone, and with it the operations that waited here")

    def drain(self) -> None:
        """Answer what was delivered; on the loop's thread."""
        self._wake_sent = False
        assert self.committer is not None
        self.tick.begin()
        try:
            while self._settled:
                answered = self.committer.finish(self._settled.popleft())
                if self._waiting:
                    for submission in answered:
                        for task in self._waiting.pop(submission, ()):
                            self._resume(task, None)
        finally:
            self.tick.pause()

    # Operations

    def start(
        self,
        op: Op[T],
        done: Callable[[T | None, TopicsError | None], None],
        *,
        pool: Executor | None = None,
    ) -> None:
        """Run an operation; `done` is called once, perhaps before this returns."""
        self.in_flight += 1
        self._resume(_Task(op, done, pool or self._pool), None)

    def _resume(self, task: _Task, value: object) -> None:
        try:
            wait = task.op.send(value)
            while isinstance(wait, Submission) and wait.done:
                wait = task.op.send(None)
        except StopIteration as finished:
            self._end(task, finished.value, None)
        except Exception as error:
            self._fail(task, error)
        else:
            self._park(task, wait)

    def _throw(self, task: _Task, error: BaseException) -> None:
        try:
            wait = task.op.throw(error)
        except StopIteration as finished:
            self._end(task, finished.value, None)
        except Exception as failure:
            self._fail(task, failure)
        else:
            self._park(task, wait)
        finally:
            del error  # its traceback refers to this frame: the cycle would keep both in memory

    def _park(self, task: _Task, wait: Wait) -> None:
        self.on_wait()
        match wait:
            case Submission():
                self._waiting.setdefault(wait, []).append(task)
            case Io():
                self.on_pool += task.pool is self._pool
                future = task.pool.submit(wait.work)
                future.add_done_callback(lambda done: self._io_done(task, done))
            case Gate():
                wait.when_open(lambda: self._later(task))
            case Sleep():
                self._loop.call_later(wait.seconds, self._resume, task, None)
            case Pause():
                self._later(task)

    def _later(self, task: _Task) -> None:
        self._loop.call_soon(self._resume, task, None)

    def _io_done(self, task: _Task, future: Future[Any]) -> None:
        self._loop.call_soon_threadsafe(self._go_on, task, future)

    def _go_on(self, task: _Task, future: Future[Any]) -> None:
        self.on_pool -= task.pool is self._pool
        error = future.exception()
        try:
            if error is not None:
                self._throw(task, error)
            else:
                self._resume(task, future.result())
        finally:
            del error, future  # as in `_throw`

    def _fail(self, task: _Task, error: Exception) -> None:
        if isinstance(error, TopicsError):
            self._end(task, None, error)
            return
        _log.error("an operation failed unexpectedly", exc_info=error)
        failure = Internal()
        failure.__cause__ = error
        self._end(task, None, failure)

    def _end(self, task: _Task, answer: object, error: TopicsError | None) -> None:
        self.in_flight -= 1
        try:
            task.done(answer, error)
        except Exception:  # a bug in one callback must not keep the others from their answers
            _log.exception("the answer of an operation could not be given")
        if self._idle is not None and not self.in_flight:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no operation is under way."""
        self._idle = asyncio.Event()
        if self.in_flight:
            await self._idle.wait()


def _nobody() -> None:
    """No caller waits for this operation."""
