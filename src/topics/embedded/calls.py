"""How the calls of an embedded log run: one at a time, and whole even when they are interrupted.

One lock guards the engine, so calls from several threads run one after the other. Nothing runs in
the background unless asked for: work that falls due (retention, checkpoint, tiering) is done in
small slices inside the calls, or in `maintain`.

An exception from outside, such as `KeyboardInterrupt`, may leave a call at any instruction.
`topics.storage.interrupts` tells how the next call notices. It opens the directory again, in place
and still locked: everything acknowledged is there, what was not may be. A log in memory has nothing
to open again, and says so from then on.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from weakref import ref

from topics.batch import RecordBatch
from topics.core.topic import Topic
from topics.engine.effects import Op, run
from topics.engine.engine import Engine
from topics.engine.kernel import Host
from topics.engine.writes.append import acked
from topics.errors import Closed, ForkedChild, Interrupted, ReadOnly
from topics.storage.interrupts import leaves_a_mess
from topics.values import Ack

if TYPE_CHECKING:
    from topics.queue import Queues

T = TypeVar("T")
MakeOp: TypeAlias = Callable[[Engine], Op[T]]
"""Makes an operation. Called under the lock: before that the engine may still be replaced."""

SLICE_MS = 5
"""How long work that fell due may hold up the call in which it runs."""
UPKEEP_SECONDS = 0.01
"""How often the background thread looks whether work fell due, if there is one."""
LOOK_SECONDS = 0.001
"""How long calls go on without looking whether work fell due: looking costs a tenth of a call."""

_AT_ONCE, _READING, _CHANGING = 0.0, -1.0, -2.0
"""Values of `_look_at` that are no time. The last two are set during a call. If the next call finds
one of them, the call before was interrupted; `_CHANGING` says that it may have changed state."""

_forks = [0]  # how many forks lie between this process and the one that imported us
os.register_at_fork(after_in_child=lambda: _forks.append(_forks.pop() + 1))


class Calls:
    """The engine of a log, and the one way to it."""

    def __init__(self, engine: Engine, *, background: bool = False) -> None:
        self._engine = engine
        self._lock = threading.RLock()
        self._bells: list[threading.Lock] = []  # one for each thread that waits for an append
        self._forks = _forks[0]
        self._closed = False
        self._monotonic = engine.kernel.clock.monotonic
        self._look_at = _AT_ONCE
        """When to look whether work fell due; below zero what the call under way does."""
        self._adopt(engine)
        self._queues: Queues | None = None
        self._helper: threading.Thread | None = None
        self._stop_bell = _silent_bell()
        if background:
            self._start_helper()

    # One call

    def _run(self, make: MakeOp[T], *, changes: bool = False) -> T:
        """Run an operation under the lock, and a slice of the work that is due.

        An operation that only reads calls `before_change` when it has to change something first.
        """
        self._refuse_nested()
        with self._lock:
            self._check()
            engine = self._sound()
            note = _CHANGING if changes else _READING
            look_at, self._look_at = self._look_at, note
            try:
                now = self._monotonic()
                if now < look_at:
                    answer = run(make(engine))
                else:
                    self._look_at = _CHANGING
                    engine.tick()
                    self._look_at = note
                    answer = run(make(engine))
                    self._look_at = _CHANGING
                    look_at = _catch_up(engine, now)
            except Exception as error:
                self._settle(engine, error, look_at)
                raise
            self._look_at = _CHANGING if engine.is_spoiled else look_at
            return answer

    def _change(self, make: MakeOp[T]) -> T:
        if self._engine.read_only:
            raise ReadOnly
        return self._run(make, changes=True)

    def _do(self, work: Callable[[Engine], None]) -> None:
        """Run work that is no operation: upkeep that the program asked for."""
        self._refuse_nested()
        with self._lock:
            self._check()
            self._work(self._sound(), work)

    def _work(self, engine: Engine, work: Callable[[Engine], None]) -> None:
        look_at, self._look_at = self._look_at, _CHANGING
        try:
            work(engine)
        except Exception as error:
            self._settle(engine, error, look_at)
            raise
        self._look_at = _CHANGING if engine.is_spoiled else look_at

    def _append_at_once(self, topic: str, batch: RecordBatch) -> Ack | None:
        """Append if the write may go at once; None if it has to wait, or to be refused."""
        if self._forks != _forks[0] or self._engine.read_only:
            return None
        with self._lock:
            look_at = self._look_at
            if self._monotonic() >= look_at:
                return None
            self._look_at = _CHANGING
            try:
                submission = self._engine.submit(topic, batch)
                ack = None if submission is None else acked(submission)
            except Exception as error:
                self._settle(self._engine, error, look_at)
                raise
            self._look_at = look_at
            return ack

    def _check(self) -> None:
        if self._forks != _forks[0]:
            raise ForkedChild
        if self._closed:
            raise Closed

    # Interrupted calls

    def _refuse_nested(self) -> None:
        """Refuse a call of a signal handler that runs inside another call of the same thread: the
        lock, which that thread holds, does not stop it."""
        if self._look_at < _AT_ONCE and self._is_inside_a_call(3):
            raise Interrupted.nested()

    def _is_inside_a_call(self, behind: int) -> bool:
        """Whether this thread is inside another call of this log, more than `behind` frames up.

        Only the stack tells: a note that a call makes is still there after an interrupt.
        """
        if not self._owns_lock():
            return False
        frame: FrameType | None = sys._getframe(behind)
        while frame is not None:
            if id(frame.f_code) in _CALLS and frame.f_locals["self"] is self:
                return True
            frame = frame.f_back
        return False

    def _owns_lock(self) -> bool:
        owns: bool = self._lock._is_owned()  # type: ignore[attr-defined] # as `Condition` asks it
        return owns

    def _note_change(self) -> None:
        if self._look_at == _READING:
            self._look_at = _CHANGING

    def _settle(self, engine: Engine, error: Exception, look_at: float) -> None:
        """Take the note of the call back: the engine itself raised, so its memory is sound."""
        if not engine.is_spoiled and not leaves_a_mess(error):
            self._look_at = look_at

    def _sound(self) -> Engine:
        """The engine, opened again if a call was interrupted while it changed something."""
        return self._reopened() if self._look_at == _CHANGING else self._engine

    def _reopened(self) -> Engine:
        """Open the engine again. If this is interrupted, too, the next call does it again."""
        return self._go_on_with(self._engine.reopened())

    def _go_on_with(self, fresh: Engine) -> Engine:
        self._adopt(fresh)
        self._queues = None  # they know the old engine
        self._engine = fresh
        self._ring()
        self._look_at = _AT_ONCE
        return fresh

    def _adopt(self, engine: Engine) -> None:
        engine.kernel.host = Host(changed=self._wake, before_change=self._note_change)

    # Waiting

    def _wake(self, topic: Topic) -> None:
        if self._bells:
            self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            if bell.locked():
                bell.release()

    def _await_append(self, heads: Mapping[str, int], wait: float | None) -> bool:
        """Wait until a head has moved, or until the log is closed; False on time-out."""
        end = None if wait is None else time.monotonic() + wait
        while not self._closed:
            bell = _silent_bell()
            try:
                with self._lock:
                    self._check()
                    if self._has_moved(heads):
                        return True
                    if end is not None and time.monotonic() >= end:
                        return False
                    self._bells.append(bell)
                _listen(bell, end)
            finally:
                self._forget(bell)
        return True

    def _sleep(self, end: float) -> None:
        """Wait until that time, or until a bell rings."""
        bell = _silent_bell()
        try:
            with self._lock:
                self._bells.append(bell)
            _listen(bell, end)
        finally:
            self._forget(bell)

    def _forget(self, bell: threading.Lock) -> None:
        with self._lock:
            if bell in self._bells:
                self._bells.remove(bell)

    def _has_moved(self, heads: Mapping[str, int]) -> bool:
        by_name = self._engine.kernel.catalog.by_name
        return any(
            (found := by_name.get(topic)) is None or found.head != head
            for topic, head in heads.items()
        )

    # Queues

    def _all_queues(self) -> Queues:
        """One for the whole log: it gives out lease ids."""
        with self._lock:
            if self._queues is None:
                from topics.queue import Queues  # noqa: PLC0415 - few logs have queues

                self._queues = Queues(self._engine, has_windows=False)
            return self._queues

    # The background, and the end

    def _start_helper(self) -> None:
        self._helper = threading.Thread(
            target=_keep_up,
            args=(ref(self), self._stop_bell),
            name="topics-maintenance",
            daemon=True,
        )
        try:
            self._helper.start()
        except BaseException:
            self._stop()
            raise

    def _keep_up(self) -> bool:
        """A slice of what is due; False once the log is closed."""
        with self._lock:
            if not self._closed and self._look_at != _CHANGING:  # else the next call recovers first
                self._work(self._engine, _slice)
            return not self._closed

    def _stop(self) -> None:
        if self._stop_bell.locked():
            self._stop_bell.release()

    def _abandon(self) -> None:
        """Close everything and write nothing: this log was never returned to the program."""
        self._stop()
        self._look_at = _CHANGING
        self._closed = True
        self._engine.release()

    def _close(self) -> None:
        if self._is_inside_a_call(2):
            raise Interrupted.nested()
        self._stop()
        with self._lock:
            if self._closed:
                self._let_go()  # should an earlier call have been interrupted before it could
            else:
                self._end()
        # After the log is closed: if this wait is interrupted, the helper still ends by itself.
        if self._helper is not None and not self._owns_lock():
            self._helper.join()

    def _end(self) -> None:
        is_sound = self._look_at != _CHANGING
        self._look_at = _CHANGING  # `_append_at_once` takes no write any more
        self._closed = True
        try:
            self._ring()
            if self._forks == _forks[0]:
                self._stop_engine(is_sound=is_sound)
        finally:
            self._let_go()

    def _stop_engine(self, *, is_sound: bool) -> None:
        """Close the engine with its last checkpoint, unless it is interrupted or reads only."""
        if is_sound:
            self._engine.close()
        elif not (self._engine.kernel.in_memory or self._engine.read_only):
            self._engine = self._engine.reopened()
            self._engine.close()

    def _let_go(self) -> None:
        if self._forks == _forks[0]:
            self._engine.release()


_CALLS = {
    id(call.__code__) for call in (Calls._run, Calls._work, Calls._append_at_once, Calls._end)
}


def _keep_up(log: ref[Calls], bell: threading.Lock) -> None:
    """Do a slice now and then until the bell rings or the log is collected as garbage."""
    while not bell.acquire(timeout=UPKEEP_SECONDS):
        if not _has_more(log()):
            return


def _has_more(log: Calls | None) -> bool:
    return log is not None and log._keep_up()


def _silent_bell() -> threading.Lock:
    """Rung by its release. An interrupted `Condition` may forget to take its own lock back."""
    bell = threading.Lock()
    bell.acquire()
    return bell


def _listen(bell: threading.Lock, end: float | None) -> None:
    bell.acquire(timeout=-1 if end is None else max(0.0, end - time.monotonic()))


def _catch_up(engine: Engine, now: float) -> float:
    """Do a slice of what is due; the next call goes on with it if something is left.

    Returns when to look again.
    """
    engine.forward()
    if engine.work_is_due:
        engine.maintain(within_ms=SLICE_MS)
    return _AT_ONCE if engine.work_is_due else now + LOOK_SECONDS


def _slice(engine: Engine) -> None:
    engine.forward()
    engine.maintain(within_ms=SLICE_MS)
