"""Which exceptions come from outside, and may have left anything half done."""

from __future__ import annotations

import errno
import gc
import struct

import pytest

from topics.errors import Internal, InvalidRequest
from topics.storage.frames.payloads import PayloadReader
from topics.storage.fs import parent_of
from topics.storage.interrupts import is_interrupt, leaves_a_mess
from topics.storage.segments.codec import ENTRY_SIZE, Idx
from topics.storage.snapshots.file import BadSnapshot

_U64 = struct.Struct("<Q")


class Alarm(Exception):
    """A program's own."""


class SlowDisk(OSError):
    """Another one."""


def raised(error: BaseException) -> BaseException:
    """An error as a handler raises it: this module's frame is on its way."""
    try:
        raise error
    except BaseException as caught:
        return caught


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


OUTSIDE = [
    KeyboardInterrupt(),
    SystemExit(),
    Alarm(),
    SlowDisk(errno.EIO, "slow"),
    TimeoutError(),
    InterruptedError("by a handler"),
    raised(TimeoutError(errno.ETIMEDOUT, "too late")),
    raised(ValueError("by a handler")),
    raised(InvalidRequest("by a handler, of all errors")),
    caused(Internal("a sync failed"), TimeoutError()),
    caused(Internal("a sync failed"), caused(Internal("it"), KeyboardInterrupt())),
]
INSIDE = [
    InvalidRequest("no"),
    ValueError("no"),
    TimeoutError(errno.ETIMEDOUT, "the disk's"),
    OSError(errno.EIO, "the disk's"),
    caused(OSError(errno.EIO, "an earlier snapshot is damaged"), BadSnapshot("a checksum")),
    raised(OSError(errno.EIO, "a disk of a test's")),
    raised(EOFError()),
    caused(Internal("a sync failed"), OSError(errno.EIO, "the disk's")),
    MemoryError(),
]


@pytest.mark.parametrize("error", OUTSIDE, ids=repr)
def test_what_comes_from_outside_is_an_interrupt(error: BaseException) -> None:
    assert is_interrupt(error)
    assert leaves_a_mess(error)


@pytest.mark.parametrize("error", INSIDE, ids=repr)
def test_what_the_engine_and_its_files_raise_is_none(error: BaseException) -> None:
    assert not is_interrupt(error)


def test_a_bug_of_our_own_is_no_interrupt() -> None:
    with pytest.raises(AttributeError) as caught:
        parent_of(None)  # type: ignore[arg-type]
    error = caught.value
    assert error.__traceback__ is not None
    assert not is_interrupt(error.with_traceback(error.__traceback__.tb_next))


def test_the_end_of_memory_or_stack_comes_anywhere_too() -> None:
    assert leaves_a_mess(MemoryError())
    assert leaves_a_mess(RecursionError())
    assert not leaves_a_mess(InvalidRequest("no"))


def test_no_loop_that_can_be_interrupted_reads_from_a_memoryview() -> None:
    """Python 3.11 and 3.12 crash when they collect both together, as after a loop that was left."""
    rows = Idx(bytes(2 * ENTRY_SIZE)).entries(0, 2)
    payload = PayloadReader(memoryview(bytes(64)))  # type: ignore[arg-type] # as some callers have it
    for iterator in rows, payload.rows(_U64, 8):
        assert not any(isinstance(held, memoryview) for held in gc.get_referents(iterator))
        assert len(list(iterator)) in (2, 8)
