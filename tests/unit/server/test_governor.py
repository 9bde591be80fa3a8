"""How hard the server brakes, and that it lets go again."""

from __future__ import annotations

import pytest

from topics.server.governor import DrainRate, Governor


def calm() -> Governor:
    return Governor(workers=2)


def press(governor: Governor, busy: float, samples: int = 1) -> None:
    for _ in range(samples):
        governor.sample(waiting=0, busy=busy)


# Signals


@pytest.mark.parametrize(
    ("waiting", "busy", "pressure"),
    [
        (0, 0.0, 0.0),
        (4, 0.0, 0.25),
        (16, 0.0, 1.0),
        (100, 0.0, 1.0),
        (4, 0.7, 0.7),
        (12, 0.7, 0.75),
    ],
)
def test_pressure_is_the_largest_signal(waiting: int, busy: float, pressure: float) -> None:
    governor = calm()
    governor.sample(waiting=waiting, busy=busy)
    assert governor.pressure == pressure


def test_delays_are_smoothed() -> None:
    governor = calm()
    governor.note_delay(5)
    press(governor, 0.0)
    assert governor.pressure == pytest.approx(0.2)
    for _ in range(50):
        governor.note_delay(5)
    press(governor, 0.0)
    assert governor.pressure == pytest.approx(1.0, abs=1e-3)


def test_delays_are_forgotten_when_nothing_waits_any_more() -> None:
    governor = calm()
    for _ in range(100):
        governor.note_delay(50)
    press(governor, 0.0)
    assert not governor.is_calm
    press(governor, 0.0)
    assert governor.is_calm


def test_a_step_of_the_clock_is_soon_forgotten() -> None:
    governor = calm()
    governor.note_delay(3_600_000)
    for _ in range(40):
        governor.note_delay(0)
    press(governor, 0.0)
    assert governor.is_calm


# What it does


@pytest.mark.parametrize(("pressure", "gather_ms"), [(0.1, 0), (0.2, 0), (0.6, 10), (1.0, 20)])
def test_pushes_gather_longer_the_higher_the_pressure(pressure: float, gather_ms: float) -> None:
    governor = calm()
    press(governor, pressure)
    assert governor.gather_ms == pytest.approx(gather_ms)


def test_work_is_deferred_after_three_high_samples_in_a_row() -> None:
    governor = calm()
    press(governor, 0.9, samples=2)
    press(governor, 0.8)
    press(governor, 0.9, samples=2)
    assert not governor.deferred
    press(governor, 0.9)
    assert governor.deferred


def test_deferred_work_goes_on_only_well_below_the_threshold() -> None:
    governor = calm()
    press(governor, 1.0, samples=3)
    press(governor, 0.6, samples=10)
    assert governor.deferred
    assert not governor.is_calm
    press(governor, 0.59)
    assert not governor.deferred


def test_writes_are_paced_only_while_work_is_deferred() -> None:
    governor = calm()
    press(governor, 1.0, samples=2)
    assert governor.pace_ms == 0
    press(governor, 1.0)
    assert governor.pace_ms == 20
    press(governor, 0.7)
    assert governor.pace_ms == pytest.approx(14)
    press(governor, 0.5)
    assert governor.pace_ms == 0


def test_a_rested_governor_starts_from_nothing() -> None:
    governor = calm()
    governor.note_delay(1)
    press(governor, 0.1)
    governor.rest()
    assert governor.pressure == 0
    press(governor, 0.0)
    assert governor.pressure == 0


# When to try again


def test_a_full_queue_is_worth_as_much_waiting_as_it_takes_to_empty() -> None:
    rate = DrainRate()
    rate.begin(0)
    rate.sample(taken=200, queued=4096, elapsed_ms=100)
    assert rate.retry_after_ms(4096) == 2048


@pytest.mark.parametrize(("taken", "answer"), [(100_000, 50), (1, 5000), (0, 5000)])
def test_the_advice_keeps_within_its_bounds(taken: int, answer: int) -> None:
    rate = DrainRate()
    rate.begin(0)
    rate.sample(taken=taken, queued=4096, elapsed_ms=100)
    assert rate.retry_after_ms(4096) == answer


def test_a_queue_that_ran_empty_says_nothing_about_its_speed() -> None:
    rate = DrainRate()
    rate.begin(0)
    rate.sample(taken=1, queued=0, elapsed_ms=100)
    assert rate.retry_after_ms(4096) == 1000
    rate.sample(taken=4097, queued=4096, elapsed_ms=1024)
    assert rate.retry_after_ms(4096) == 1024


def test_a_stalled_disk_makes_the_advice_longer_sample_by_sample() -> None:
    rate = DrainRate()
    rate.begin(0)
    rate.sample(taken=1000, queued=4096, elapsed_ms=100)
    advice = []
    for _ in range(12):
        advice.append(rate.retry_after_ms(4096))
        rate.sample(taken=1000, queued=4096, elapsed_ms=100)
    assert advice == sorted(advice)
    assert advice[-1] > 10 * advice[0]
