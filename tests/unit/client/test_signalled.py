"""A signal handler can set an event that its own thread waits for."""

from __future__ import annotations

from topics.client.signalled import SignalledEvent


def test_a_handler_that_interrupts_the_wait_does_not_wait_for_itself() -> None:
    event = SignalledEvent()
    assert not event.is_set()
    with event._cond:  # type: ignore[attr-defined]  # what `event.wait()` holds when interrupted
        event.set_from_handler()
        assert event.is_set()
    assert event.wait(60)
