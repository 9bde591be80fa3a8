"""How long watch sessions live, and how many there may be."""

import pytest
from tests.unit.delivery.builders import World

from topics.errors import Throttled, TopicNotFound
from topics.wire.requests import Start


def test_a_session_id_is_26_unguessable_characters(world: World) -> None:
    first, second = (world.session({"orders": Start()}).wid for _ in range(2))
    assert first.startswith("wid_")
    assert len(first) == 26
    assert first != second


def test_a_session_nobody_comes_back_to_is_gone_after_its_time(world: World) -> None:
    session = world.session({"orders": Start()})
    world.advance(300_000)
    assert world.delivery.sessions.find(session.wid) is session
    world.advance(1)
    assert world.delivery.sessions.find(session.wid) is None
    assert len(world.delivery.sessions) == 0


def test_an_open_stream_keeps_its_session_and_its_end_starts_the_clock_anew(world: World) -> None:
    sessions = world.delivery.sessions
    session = world.session({"orders": Start()})
    peer = world.open(session)
    world.advance(1_000_000)
    sessions.sweep()
    assert sessions.find(session.wid) is session
    peer.leave()
    world.advance(300_000)
    assert sessions.find(session.wid) is session
    world.advance(1)
    sessions.sweep()
    assert len(sessions) == 0


def test_a_session_with_one_of_two_streams_left_is_not_idle(world: World) -> None:
    session = world.session({"orders": Start()})
    first, second = world.open(session), world.open(session)
    first.leave()
    world.advance(400_000)
    assert world.delivery.sessions.find(session.wid) is session
    second.leave()
    assert world.delivery.sessions.find(session.wid) is session


def test_the_cap_counts_sessions_after_sweeping_idle_ones(world: World) -> None:
    for _ in range(3):
        world.session({"orders": Start()})
    with pytest.raises(Throttled) as refused:
        world.session({"orders": Start()})
    assert refused.value.detail == {
        "limit": "max_watch_sessions",
        "max": 3,
        "retry_after_ms": 1000,
    }
    world.advance(300_001)
    world.session({"orders": Start()})
    assert len(world.delivery.sessions) == 1


# Where streams begin


def test_a_wish_for_the_head_is_settled_when_the_session_is_made(world: World) -> None:
    world.append("orders", 1, 2)
    session = world.session({"orders": Start(tail=True)})
    world.append("orders", 3)
    record = world.open(session).events()[1]
    assert [r["$seq"] for r in record.data["records"]] == [3]


def test_a_start_by_time_begins_at_the_first_record_of_that_time(world: World) -> None:
    world.append("orders", 1)
    world.advance(1000)
    moment = world.clock.now_ms()
    world.append("orders", 2)
    session = world.session({"orders": Start(from_ts=moment)})
    record = world.open(session).events()[1]
    assert [r["$seq"] for r in record.data["records"]] == [2]


def test_unknown_topics_are_refused_or_left_out(world: World) -> None:
    with pytest.raises(TopicNotFound):
        world.session({"orders": Start(), "nope": Start()})
    session = world.session({"orders": Start(), "nope": Start()}, lenient=True)
    assert list(session.places) == ["orders"]


def test_following_a_topic_counts_as_consuming_it(world: World) -> None:
    world.append("orders", 1)
    assert world.topic("orders").last_consumed is None
    world.session({"orders": Start()})
    assert world.topic("orders").last_consumed == world.clock.now_ms()
