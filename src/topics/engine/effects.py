"""What an operation may wait for, and the driver that waits on the spot.

An operation is a generator. It decides, submits to the log, and when it has to wait it yields what
it waits for: a `Submission` that is not done yet, or an `Io`, blocking file work that the driver
runs on a thread of its choice. Long work also yields `PAUSE` where other work may run first. The
operation is resumed with the result (for `Io`) or with nothing, and its return value is the answer.
So the same code serves a program that blocks and a server that must not: only the driver differs.

`run` is the blocking driver. With the inline committer a submission is done when `submit` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from topics.storage.wal.submission import Submission

T = TypeVar("T")


class Io:
    """Blocking work that touches files but no engine state."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work


class Sleep:
    """Time that has to pass; only a driver whose log has a queue ever sees one."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Gate:
    """Closed until another operation opens it; an operation that yields a gate goes on after that.

    The blocking driver never meets a closed gate: the operation that closed it has ended.
    """

    __slots__ = ("_waiting", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._waiting: list[Callable[[], None]] = []

    def when_open(self, resume: Callable[[], None]) -> None:
        """Call `resume` once it is open, at once if it is."""
        if self.is_open:
            resume()
        else:
            self._waiting.append(resume)

    def open(self) -> None:
        self.is_open = True
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()


class Pause:
    """A place where the driver may run other work before it goes on."""

    __slots__ = ()


PAUSE = Pause()

Wait: TypeAlias = Submission | Io | Pause | Sleep | Gate
Op: TypeAlias = Generator[Wait, Any, T]


def run(op: Op[T]) -> T:
    """Drive an operation to its end on this thread."""
    try:
        wait = next(op)
        while True:
            wait = fulfil(op, wait)
    except StopIteration as finished:
        answer: T = finished.value
        return answer
    except BaseException:
        op.close()  # after an interrupt in a wait: other operations may wait for its `finally`
        raise


def fulfil(op: Op[Any], wait: Wait) -> Wait:
    """Give an operation what it waits for; returns what it waits for next."""
    if isinstance(wait, Pause):
        return next(op)
    if isinstance(wait, Io):
        try:
            result = wait.work()
        except Exception as error:  # the operation knows which failures it can live with
            return op.throw(error)
        return op.send(result)
    assert not isinstance(wait, Sleep), "there is always room in a log without a queue"
    if isinstance(wait, Gate):
        assert wait.is_open, "no operation is left that could open the gate"
        return next(op)
    assert wait.done, "the blocking driver needs a committer that finishes what it is given"
    return next(op)


def resumed(op: Op[T], wait: Wait) -> Op[T]:
    """The rest of an operation that was begun elsewhere and now waits."""
    while True:
        error: Exception | None = None
        value: object = None
        try:
            value = yield wait
        except Exception as failure:  # the operation knows which failures it can live with
            error = failure
        try:
            wait = op.send(value) if error is None else op.throw(error)
        except StopIteration as finished:
            answer: T = finished.value
            return answer


def stepwise(steps: Generator[None, None, T]) -> Op[T]:
    """File work in steps: each step is an `Io` of its own, with a pause behind it."""
    while True:
        done, value = yield Io(lambda: _step(steps))
        if done:
            answer: T = value
            return answer
        yield PAUSE


def _step(steps: Generator[None, None, T]) -> tuple[bool, T | None]:
    try:
        next(steps)
    except StopIteration as finished:
        return True, finished.value
    return False, None
