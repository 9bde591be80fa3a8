"""Urgency by hand, or by how recently somebody consumed."""

import pytest

from topics.core.config import parse
from topics.core.priority import aged, base_priority, shown_priority
from topics.core.topic import Topic


def topic(last_consumed: int | None = 0, **config: object) -> Topic:
    made = Topic(1, "t", 1, parse(config), max_keys=10)
    made.last_consumed = last_consumed
    return made


@pytest.mark.parametrize(
    ("idle_s", "shown"), [(0, 500), (15, 354), (30, 250), (60, 125), (120, 31), (300, 0)]
)
def test_consumption_fades_with_a_half_life(idle_s: int, shown: int) -> None:
    assert shown_priority(topic(), idle_s * 1000) == shown


@pytest.mark.parametrize(("manual", "shown"), [(5, 5), (9999, 1000), (-9999, -1000), (0, 0)])
def test_a_priority_set_by_hand_is_clamped_and_wins(manual: int, shown: int) -> None:
    assert shown_priority(topic(priority=manual), 0) == shown


def test_without_consumption_or_without_auto_priority_a_topic_is_neutral() -> None:
    assert base_priority(topic(None), 10) == 0
    assert base_priority(topic(auto_priority=False), 0) == 0


def test_a_clock_that_steps_back_makes_nothing_more_urgent() -> None:
    assert shown_priority(topic(5000), 0) == 500


def test_waiting_adds_up_to_a_limit_and_halves_round_away_from_zero() -> None:
    assert aged(0, 5) == 1
    assert aged(-1, 5) == -1
    assert aged(0, -50) == 0
    assert aged(10, 10_000) == aged(10, 10**9) == 1010
