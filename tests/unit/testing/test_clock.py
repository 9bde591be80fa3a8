"""ManualClock moves only when told, and runs timers on the way."""

from functools import partial

import pytest

from topics.testing import ManualClock


def test_time_stands_still_until_advanced() -> None:
    clock = ManualClock(1000)
    assert clock.now_ms() == clock.now_ms() == 1000
    assert clock.monotonic() == 0.0
    clock.advance(250)
    assert clock.now_ms() == 1250
    assert clock.monotonic() == 0.25


def test_the_wall_clock_can_step_back_while_elapsed_time_does_not() -> None:
    clock = ManualClock(1000)
    clock.advance(500)
    clock.set(10)
    assert clock.now_ms() == 10
    assert clock.monotonic() == 0.5
    clock.advance(5)
    assert clock.now_ms() == 15


def test_time_cannot_be_advanced_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)


def test_timers_run_in_order_each_at_its_own_moment() -> None:
    clock = ManualClock(0)
    ran: list[tuple[str, int]] = []

    def note(name: str) -> None:
        ran.append((name, clock.now_ms()))

    for name, delay_ms in (("late", 30), ("soon", 10), ("also late", 30), ("never", 31)):
        clock.call_later(delay_ms, partial(note, name))
    clock.advance(9)
    assert ran == []
    clock.advance(21)
    assert ran == [("soon", 10), ("late", 30), ("also late", 30)]
    assert clock.pending() == 1


def test_a_timer_set_by_a_timer_runs_in_the_same_advance_when_due() -> None:
    clock = ManualClock(0)
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(clock.now_ms())
        clock.call_later(10, tick)

    clock.call_later(10, tick)
    clock.advance(35)
    assert ticks == [10, 20, 30]
    assert clock.now_ms() == 35


def test_a_cancelled_timer_never_runs() -> None:
    clock = ManualClock(0)
    ran: list[int] = []
    timer = clock.call_later(10, lambda: ran.append(1))
    timer.cancel()
    assert clock.pending() == 0
    clock.advance(10)
    assert ran == []


def test_stepping_the_wall_clock_runs_no_timer() -> None:
    clock = ManualClock(0)
    ran: list[int] = []
    clock.call_later(10, lambda: ran.append(1))
    clock.set(1_000_000)
    assert ran == []
    clock.advance(10)
    assert ran == [1]


def test_a_timer_without_delay_waits_for_the_next_advance() -> None:
    clock = ManualClock(0)
    ran: list[int] = []
    clock.call_later(-5, lambda: ran.append(clock.now_ms()))
    assert ran == []
    clock.advance(0)
    assert ran == [0]


def test_a_timer_may_advance_the_clock_itself() -> None:
    clock = ManualClock(0)
    clock.call_later(10, lambda: clock.advance(100))
    clock.advance(20)
    assert clock.now_ms() == 110
