"""Exceptions that come from outside, between any two steps of the engine.

Theory of operation. A signal handler runs in the main thread, between two instructions of whatever
is executed there, and what it raises comes out of that place: Ctrl-C, a time-out. The engine's
rules hold before and after a call, not between any two instructions, so after such an exception
its memory cannot be trusted. The directory can: for the files it is as if the process had been
killed at that place, which recovery is made for.

So an embedded log notes that a change has begun, before it begins, and takes the note back after
its last step. That needs no code to run at the moment of the exception. A call that finds the note
with no other call under way opens the directory again before it does anything.
Where the engine itself raises, memory and files agree, so the note is taken back. The note stays
only if an exception from outside was mistaken for a failure of the log.
"""

from __future__ import annotations

import builtins

from topics.errors import TopicsError

_OURS = ("topics", "contextlib")
_RAISING = ("topics.core.", "topics.storage.", "topics.engine.")


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception may have come between any two steps, not from the engine or its files.

    Handlers of alarms raise `TimeoutError` without an errno; a time-out of the disk has an errno
    and comes from our own code. An alarm's exception may already have been mistaken for a disk
    error and be the `__cause__` of another error. Other errors with an errno are errors of files,
    and a test may raise them from anywhere.
    """
    if not isinstance(error, Exception):
        return True
    if error.__cause__ is not None and is_interrupt(error.__cause__):
        return True
    if not _is_ours(type(error)) and type(error).__module__ != builtins.__name__:
        return True
    if isinstance(error, OSError) and error.errno is None:
        return True
    if isinstance(error, OSError | EOFError | MemoryError) and not isinstance(error, TimeoutError):
        return False
    return _came_through_others(error)


def leaves_a_mess(error: BaseException) -> bool:
    """Whether memory cannot be trusted after it: an interrupt, or no memory or stack left."""
    return isinstance(error, MemoryError | RecursionError) or is_interrupt(error)


def _is_ours(kind: type[BaseException]) -> bool:
    """Whether the engine raises this class; `topics.torture` has exceptions from outside."""
    return issubclass(kind, TopicsError) or kind.__module__.startswith(_RAISING)


def _came_through_others(error: BaseException) -> bool:
    """Whether code outside `topics` was running, such as a library that a change calls."""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _OURS:
            return True
        trace = trace.tb_next
    return False
