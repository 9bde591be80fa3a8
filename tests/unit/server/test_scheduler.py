"""Who is served next, and that everybody is at some point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.priority import aged, base_priority
from topics.core.topic import Topic
from topics.server.scheduler import PUSH, ROUTE, WEIGHTS, Scheduler, ServedTopic, band_of
from topics.topic_settings import TopicConfig

NOW = 1_700_000_000_000


def topic(number: int, priority: int | None = 0) -> Topic:
    return Topic(number, f"t{number}", 1, TopicConfig(priority=priority), max_keys=1)


def topics(count: int, priority: int, *, first: int) -> list[Topic]:
    return [topic(first + n, priority) for n in range(count)]


def fill(scheduler: Scheduler, ready: Iterable[Topic], now_ms: int = NOW) -> None:
    for each in ready:
        scheduler.add(each, PUSH, now_ms)


def serve(scheduler: Scheduler, now_ms: int = NOW) -> list[ServedTopic]:
    return list(scheduler.serve_round(now_ms))


def ids(served: Iterable[ServedTopic]) -> list[int]:
    return [each.topic.id for each in served]


# Priorities


@pytest.mark.parametrize(
    ("idle_s", "shown"), [(0, 500), (15, 354), (30, 250), (60, 125), (120, 31), (300, 0)]
)
def test_recent_consumption_makes_a_topic_urgent_for_a_while(idle_s: int, shown: int) -> None:
    watched = topic(1, None)
    watched.last_consumed = NOW
    assert aged(base_priority(watched, NOW + idle_s * 1000), 0) == shown


@given(
    priority=st.integers(-3000, 3000),
    waited_ms=st.integers(-1000, 30_000),
)
def test_an_effective_priority_is_the_base_and_a_tenth_of_the_wait(
    priority: int, waited_ms: int
) -> None:
    base = max(-1000, min(1000, priority))
    age = min(max(waited_ms, 0), 10_000)
    tenths = base * 10 + age
    rounded = (abs(tenths) + 5) // 10 * (1 if tenths >= 0 else -1)
    assert aged(base_priority(topic(1, priority), NOW), waited_ms) == rounded


@pytest.mark.parametrize(
    ("priority", "band"),
    [(1000, 0), (750, 0), (749, 1), (500, 1), (499, 2), (250, 2), (249, 3), (0, 3), (-1, 4)],
)
def test_bands_have_their_borders(priority: int, band: int) -> None:
    assert band_of(priority) == band


# Rounds


def test_a_round_shares_out_turns_by_weight() -> None:
    scheduler = Scheduler()
    for band, priority in enumerate((1000, 600, 300, 100, -500)):
        fill(scheduler, topics(50, priority, first=band * 100))
    for _ in range(3):
        shares = Counter(number // 100 for number in ids(serve(scheduler)))
        assert [shares[band] for band in range(5)] == list(WEIGHTS)


def test_urgent_topics_come_first_and_equals_in_the_order_they_came() -> None:
    scheduler = Scheduler()
    fill(scheduler, [topic(1, 100), topic(2, -5), topic(3, 800), topic(4, 900), topic(5, 600)])
    assert ids(serve(scheduler)) == [3, 4, 5, 1, 2]


def test_credit_is_not_saved_up_by_a_band_that_ran_empty() -> None:
    scheduler = Scheduler()
    for _ in range(5):
        fill(scheduler, [topic(1, 1000)])
        serve(scheduler)
    fill(scheduler, topics(50, 1000, first=1))
    assert len(serve(scheduler)) == WEIGHTS[0]


def test_a_topic_is_ready_once_however_often_it_changes() -> None:
    scheduler = Scheduler()
    busy = topic(1)
    for _ in range(3):
        scheduler.add(busy, PUSH, NOW)
    assert scheduler.ready == 1
    assert ids(serve(scheduler)) == [1]
    assert ids(serve(scheduler)) == []


def test_a_change_while_a_topic_is_being_served_makes_it_ready_again() -> None:
    scheduler = Scheduler()
    busy = topic(1, 0)
    scheduler.add(busy, PUSH, NOW)
    for served in scheduler.serve_round(NOW):
        assert served.topic is busy
        scheduler.add(busy, PUSH, NOW)
    assert scheduler.ready == 1
    assert ids(serve(scheduler)) == [1]


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(-1000, 1000), st.integers(0, 400)), max_size=60
    )
)
def test_every_round_keeps_to_the_weights_and_serves_every_band(
    steps: list[tuple[int, int, int]],
) -> None:
    scheduler = Scheduler()
    known: dict[int, Topic] = {}
    ready_since: dict[int, int] = {}
    now_ms = banded_ms = NOW
    for number, priority, pause_ms in steps:
        now_ms += pause_ms
        each = known.setdefault(number, topic(number, priority))
        scheduler.add(each, PUSH, now_ms)
        ready_since.setdefault(number, now_ms)
        if pause_ms % 2:
            continue
        served = ids(serve(scheduler, now_ms))
        assert len(set(served)) == len(served)
        bands = _bands(known, ready_since, now_ms)
        if now_ms - banded_ms >= 50:
            shares = Counter(bands[number] for number in served)
            assert all(shares[band] <= WEIGHTS[band] for band in shares)
            assert set(shares) == set(bands.values())
        banded_ms = now_ms
        for each_id in served:
            del ready_since[each_id]
        assert scheduler.ready == len(ready_since)


def _bands(known: dict[int, Topic], ready_since: dict[int, int], now_ms: int) -> dict[int, int]:
    return {
        number: band_of(aged(base_priority(known[number], now_ms), now_ms - since))
        for number, since in ready_since.items()
    }


# Age


@pytest.mark.parametrize(("waited_ms", "place"), [(0, 10), (9_900, 8), (10_000, 0)])
def test_waiting_lifts_a_topic_into_higher_bands(waited_ms: int, place: int) -> None:
    scheduler = Scheduler()
    low = topic(1, -250)
    scheduler.add(low, PUSH, NOW - waited_ms)
    fill(scheduler, [*topics(50, 1000, first=100), topic(2, 300), topic(3, 100)])
    scheduler.add(low, PUSH, NOW)  # changes again, but was ready all the time
    assert ids(serve(scheduler)).index(1) == place


def test_only_service_ends_the_wait() -> None:
    scheduler = Scheduler()
    low = topic(1, -250)
    scheduler.add(low, PUSH, NOW)
    serve(scheduler, NOW + 10_000)
    scheduler.add(low, PUSH, NOW + 10_000)
    fill(scheduler, topics(3, 0, first=2), NOW + 10_000)
    assert ids(serve(scheduler, NOW + 10_000)) == [2, 1]


def test_a_step_of_the_clock_back_keeps_everybody_in_line() -> None:
    scheduler = Scheduler()
    fill(scheduler, topics(3, 100, first=1))
    assert [served.waited_ms for served in serve(scheduler, NOW - 3_600_000)] == [0]
    assert scheduler.ready == 2


# Deferred mode


def test_low_priority_topics_get_nothing_while_deferred_and_everything_after() -> None:
    scheduler = Scheduler()
    fill(scheduler, [topic(1, -1), topic(2, 0), topic(3, -900)])
    scheduler.defer(True, NOW)
    assert ids(serve(scheduler)) == [2]
    scheduler.add(topic(4, -1), PUSH, NOW + 5)
    assert scheduler.ready == 0
    assert [each.id for each in scheduler.withheld()] == [1, 3, 4]
    scheduler.defer(False, NOW + 200)
    served = [each for _ in range(3) for each in serve(scheduler, NOW + 200)]
    assert set(ids(served)) == {1, 3, 4}
    assert {each.waited_ms for each in served} == {0}


def test_a_withheld_topic_is_served_once_its_priority_is_raised() -> None:
    scheduler = Scheduler()
    scheduler.defer(True, NOW)
    raised = topic(1, -1)
    scheduler.add(raised, PUSH, NOW)
    raised.config = TopicConfig(priority=5)
    assert ids(serve(scheduler, NOW + 50)) == [1]


def test_deferred_router_passes_fall_one_band_behind_pushes() -> None:
    scheduler = Scheduler()
    scheduler.defer(True, NOW)
    scheduler.add(topic(1, 1000), PUSH | ROUTE, NOW)
    fill(scheduler, topics(12, 1000, first=10))
    served = serve(scheduler)
    assert (served[0].topic.id, served[0].work) == (1, PUSH)
    assert (served[8].topic.id, served[8].work) == (1, ROUTE)


def test_a_push_does_not_wait_where_a_deferred_pass_does() -> None:
    scheduler = Scheduler()
    scheduler.defer(True, NOW)
    source = topic(1, 1000)
    scheduler.add(source, ROUTE, NOW)
    fill(scheduler, topics(20, 600, first=10))
    scheduler.add(source, PUSH, NOW)
    assert serve(scheduler)[0][:2] == (source, PUSH)


def test_without_deferral_pushes_and_passes_share_a_turn() -> None:
    scheduler = Scheduler()
    scheduler.add(topic(1), PUSH, NOW)
    scheduler.add(topic(1), ROUTE, NOW)
    assert [served.work for served in serve(scheduler)] == [PUSH | ROUTE]
