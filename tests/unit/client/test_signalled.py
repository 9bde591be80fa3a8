"""A signal handler can set an event that its own thread waits for."""

from __future__ import annotations

import threading

from topics.client.signalled import set_from_handler


def test_a_handler_that_interrupts_the_wait_does_not_wait_for_itself() -> None:
    event = threading.Event()
    with event._cond:  # type: ignore[attr-defined]  # what `event.wait()` holds when interrupted
        set_from_handler(event)
    assert event.wait(60)
