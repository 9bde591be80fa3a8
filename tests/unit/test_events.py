import pytest

from topics.errors import TopicNotFound
from topics.events import Arrived, CaughtUp, Event, Lost, Resumed, TopicDropped, item_of
from topics.values import Record, Tombstone

RECORD = Record(4, 0, None, None, b"1")
LOSS = Tombstone(1, 3, "cap", 4, 4)


def test_a_follower_gets_records_and_losses_and_nothing_else() -> None:
    events: list[Event] = [
        Lost("t", LOSS),
        Arrived("t", RECORD),
        CaughtUp("t", 4),
        Resumed("the server went away", {"t": 4}, 0.5, 1),
    ]
    assert [item_of(event) for event in events] == [LOSS, RECORD, None, None]


def test_a_follower_of_a_topic_that_was_dropped_is_told_by_an_error() -> None:
    with pytest.raises(TopicNotFound):
        item_of(TopicDropped("t"))
