"""An event that signal handlers may set and interrupt."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

import pytest

from topics.client import signalled
from topics.client.signalled import SignalledEvent


class Interrupted(Exception):
    """What a signal handler raises."""


def interrupted(call: Callable[[], object], after: int) -> bool:
    """Whether an exception came out of a call after so many of its bytecodes."""
    left = after

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - returns itself
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("name", ["set", "wait"])
def test_an_event_can_be_set_and_waited_for_wherever_a_call_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(signalled, "LOOK_S", 0.001)
    for after in count(1):
        event = SignalledEvent()
        call = event.set if name == "set" else lambda: event.wait(0.002)  # noqa: B023 - called here
        if not interrupted(call, after):
            break
        waiter = threading.Thread(target=event.wait, daemon=True)
        waiter.start()
        event.set()
        waiter.join(60)
        assert not waiter.is_alive()
        assert event.wait()
    assert after > 10


def test_a_handler_that_interrupts_the_wait_does_not_wait_for_itself() -> None:
    event = SignalledEvent()
    before = signal.signal(signal.SIGUSR1, lambda *_: event.set())
    try:
        threading.Timer(0.01, lambda: signal.raise_signal(signal.SIGUSR1)).start()
        assert event.wait(60)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_wait_ends_with_its_time_and_the_event_stays_set() -> None:
    event = SignalledEvent()
    began = time.monotonic()
    assert not event.wait(0.01)
    assert time.monotonic() - began >= 0.01
    event.set()
    event.set()
    assert event.wait(0)
    with pytest.raises(TypeError):
        event.clear()
