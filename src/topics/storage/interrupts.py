"""Exceptions that come from outside, between any two steps of the engine.

Theory of operation. A signal handler runs in the main thread, between two instructions of whatever
is executed there, and what it raises comes out of that place: Ctrl-C, a time-out. The engine's
rules hold before and after a call, not between any two instructions, so after such an exception
nobody knows what its memory is worth. The directory does: for the files it is as if the process
had been killed at that place, which recovery is made for.

So an embedded log notes that a change has begun, before it begins, and takes the note back after
its last step. That needs no code to run at the moment of the exception. A call that finds the note
with no other call under way opens the directory again before it does anything.
What the engine raises itself it raises at a place it has thought of: then the note is taken back.
Only if an exception from outside was taken for a failure of the log does the note stay.
"""

from __future__ import annotations

import builtins

from topics.errors import TopicsError

_OURS = ("topics", "contextlib")
_RAISING = ("topics.core.", "topics.storage.", "topics.engine.")


def is_interrupt(error: BaseException) -> bool:
    """Whether it may have come between any two steps, rather than from the engine or its files.

    `TimeoutError` is what handlers of alarms raise; a disk's has a number and comes from our own
    code. It may have been taken for the disk's already, and be the cause of another error. Other
    errors with a number are those of files, which may be a test's own, from anywhere.
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
    """The same, or what the interpreter itself raises wherever memory or its stack runs out."""
    return isinstance(error, MemoryError | RecursionError) or is_interrupt(error)


def _is_ours(kind: type[BaseException]) -> bool:
    """Whether the engine raises it; `topics.torture` has exceptions that come from outside."""
    return issubclass(kind, TopicsError) or kind.__module__.startswith(_RAISING)


def _came_through_others(error: BaseException) -> bool:
    """Whether code that is not ours was running: all that we call in a change is."""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _OURS:
            return True
        trace = trace.tb_next
    return False
