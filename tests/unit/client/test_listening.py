import pytest

from topics.client._following import StreamEnded
from topics.client._listening import LOOK_S, Listening
from topics.errors import TopicNotFound, Unreachable

GONE = Unreachable("http://h", reason="gone")


def listening(wait: float | None = None) -> Listening:
    return Listening(now=0.0, wait=wait, heartbeat=2.0, url="http://h")


def test_it_waits_for_news_only_once_it_has_everything() -> None:
    read = listening(wait=1.0)
    read.opened(0.0, {})
    assert not read.has_waited(5.0, settled=False)
    assert read.has_waited(1.0, settled=True)
    read.heard(0.8, news=True)
    assert not read.has_waited(1.7, settled=True)
    read.heard(1.7, news=False)  # a heartbeat is no news
    assert read.has_waited(1.8, settled=True)
    assert not listening(wait=None).has_waited(1e9, settled=True)


def test_it_listens_no_longer_than_until_something_is_due() -> None:
    read = listening(wait=0.3)
    read.opened(0.0, {})
    assert read.patience(0.0, settled=False) == LOOK_S
    assert read.patience(0.1, settled=True) == pytest.approx(0.2)
    assert read.patience(5.8, settled=False) == pytest.approx(0.2)
    assert read.patience(99.0, settled=False) == 0.0


def test_three_missing_heartbeats_mean_that_nobody_is_there() -> None:
    read = listening()
    read.opened(0.0, {})
    read.check_alive(5.9)
    with pytest.raises(Unreachable, match="silent"):
        read.check_alive(6.0)
    read.heard(6.0, news=False)
    read.check_alive(11.9)


def test_a_sign_of_life_is_asked_for_once_a_heartbeat() -> None:
    read = listening()
    read.opened(0.0, {})
    assert [read.must_ping(at) for at in (1.0, 2.0, 2.1, 4.0)] == [False, True, False, True]


def test_a_reconnect_gives_the_cause_of_the_loss_and_no_advice() -> None:
    read = listening()
    read.opened(0.0, {})
    read.lost(GONE, 1.0)
    event = read.opened(2.0, {})
    assert event is not None
    assert event.reason == "no answer from http://h: gone"


def test_a_reconnect_is_said_with_what_it_took() -> None:
    read = listening()
    assert read.opened(0.0, {"t": 0}) is None
    read.heard(0.1, news=True)
    assert read.lost(StreamEnded("bye"), 10.0) == 0.0
    assert read.lost(GONE, 10.5) >= 0.0
    event = read.opened(12.0, {"t": 7})
    assert event is not None
    assert (event.reason, event.positions, event.away_seconds, event.tries) == (
        "bye",
        {"t": 7},
        2.0,
        1,
    )
    assert read.opened(13.0, {"t": 7}) is None


def test_streams_that_end_before_they_say_anything_are_not_reopened_in_a_hurry() -> None:
    read = listening()
    waits = []
    for at in range(200):
        read.opened(float(at), {})
        waits.append(read.lost(StreamEnded("bye"), float(at)))
    assert sum(waits) > 20  # full jitter: about half of what the bounds add up to


def test_what_no_reconnecting_can_cure_is_raised() -> None:
    with pytest.raises(TopicNotFound):
        listening().lost(TopicNotFound("t"), 1.0)


def test_a_wait_that_is_over_while_nobody_answers_is_an_error() -> None:
    read = listening(wait=1.0)
    read.lost(GONE, 1.0)
    read.lost(GONE, 2.9)
    with pytest.raises(Unreachable):
        read.lost(GONE, 3.1)
