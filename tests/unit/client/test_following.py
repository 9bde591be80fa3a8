from typing import Any

import msgspec
import pytest

from topics.client._following import (
    Following,
    SseFrames,
    StreamEnded,
    decode_message,
    is_vague,
    with_reason,
)
from topics.errors import InvalidRequest, TopicNotFound, TopicsError
from topics.events import Arrived, CaughtUp, Event, Lost, TopicDropped
from topics.values import Tombstone
from topics.wire import shapes, sse
from topics.wire.cursors import stream_id


def following(**starts: int | None) -> Following:
    return Following(starts, node=(), match=None, limit=256, heartbeat_ms=1000)


def records(*seqs: int) -> bytes:
    return b"[%b]" % b",".join(b'{"$seq":%d,"$ts":1,"data":%d}' % (seq, seq) for seq in seqs)


def batch(topic: str, *seqs: int, to: int) -> bytes:
    place = stream_id({topic: to})
    return sse.records(topic, records(*seqs), stream=place, from_seq=0, to_seq=to, head_seq=to)


def taken(read: Following, data: bytes) -> list[Event]:
    return [event for frame in SseFrames().feed(data) for event in read.take(frame)]


def seqs(events: list[Event]) -> list[int]:
    return [event.seq for event in events if isinstance(event, Arrived)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
def test_frames_are_found_however_the_bytes_are_cut(size: int) -> None:
    stream = (
        sse.RETRY
        + batch("t", 1, 2, to=2)
        + sse.heartbeat(5)
        + sse.caught_up("t", stream=stream_id({"t": 2}), head_seq=2)
    )
    reader = SseFrames()
    frames = [
        frame
        for start in range(0, len(stream), size)
        for frame in reader.feed(stream[start : start + size])
    ]
    assert [frame.op for frame in frames] == ["record", "caught_up"]
    assert [record.seq for record in frames[0].records] == [1, 2]


def test_a_record_that_comes_again_is_not_handed_on_again() -> None:
    read = following(t=0)
    assert seqs(taken(read, batch("t", 1, 2, to=3))) == [1, 2]
    assert read.places() == {"t": 3}
    assert seqs(taken(read, batch("t", 2, 3, 4, to=4))) == [4]


def test_whoever_stops_within_a_frame_goes_on_there() -> None:
    read = following(t=0)
    (frame,) = SseFrames().feed(batch("t", 1, 2, 3, to=3))
    events = read.take(frame)
    next(events)
    next(events)
    assert read.places() == {"t": 1}  # the second is in somebody's hands, not done with


def test_a_loss_moves_on_to_where_the_stream_says() -> None:
    read = following(t=9)
    gap = Tombstone(1, 4, "recreated", 3, 4)
    data = sse.tombstone("t", gap, stream=stream_id({"t": 2}), first_read=True)
    (event,) = taken(read, data)
    assert isinstance(event, Lost)
    assert is_vague(event)
    assert with_reason(event, gap).tombstone == gap
    assert with_reason(event, None) == event
    assert read.places() == {"t": 2}


def test_a_loss_on_a_socket_moves_on_by_its_own_words() -> None:
    read = following(t=0)
    text = b'{"op":"tombstone","topic":"t","reason":"%b","gap_from":1,"gap_to":4,"earliest_seq":3,"head_seq":9}'  # noqa: E501
    list(read.take(decode_message(text % b"cap")))
    assert read.places() == {"t": 4}
    list(read.take(decode_message(text % b"recreated")))
    assert read.places() == {"t": 2}


def test_a_topic_that_goes_is_said_and_not_asked_for_again() -> None:
    read = following(a=0, b=5)
    place = stream_id({"a": 0, "b": 5})
    assert taken(read, sse.topic_deleted("a", stream=place)) == [TopicDropped("a")]
    assert read.places() == {"b": 5}
    assert not read.is_over
    assert taken(read, batch("a", 1, to=1)) == []
    taken(read, sse.topic_deleted("b", stream=place))
    assert read.is_over


def test_it_is_settled_once_every_topic_has_caught_up() -> None:
    read = following(a=0, b=0)
    place = stream_id({"a": 0, "b": 0})
    assert taken(read, sse.caught_up("a", stream=place, head_seq=0)) == [CaughtUp("a", 0)]
    assert not read.is_settled
    taken(read, sse.caught_up("b", stream=place, head_seq=0))
    assert read.is_settled


def test_advice_is_not_an_end_but_a_shutdown_is() -> None:
    read = following(t=0)
    place = stream_id({"t": 0})
    assert taken(read, sse.throttled("slow_consumer", stream=place)) == []
    for data in (sse.shutting_down(stream=place), sse.gone("superseded", stream=place)):
        with pytest.raises(StreamEnded):
            taken(read, data)
    with pytest.raises(TopicsError, match="no"):
        list(read.take(decode_message(b'{"op":"error","code":"forbidden","message":"no"}')))


def session_answer(**starts: int) -> bytes:
    topics = {name: shapes.StreamStart(seq, 9, 1) for name, seq in starts.items()}
    return msgspec.json.encode(shapes.WatchOpened("w", "/s", 60_000, topics))


def test_the_first_session_insists_on_its_topics_and_later_ones_learn_of_losses() -> None:
    read = following(a=3, b=None)
    first = read.session_call()
    assert first.query is None
    assert b'"a":{"from_seq":3}' in (first.body or b"")
    assert b'"b":{"tail":true}' in (first.body or b"")
    assert first.parse(session_answer(a=3, b=8)) == "/s"
    assert read.places() == {"a": 3, "b": 8}
    again = read.session_call()
    assert again.query == {"lenient": "true"}
    assert b'"b":{"from_seq":8}' in (again.body or b"")
    again.parse(session_answer(b=8))
    assert list(read.departed()) == [TopicDropped("a")]
    assert list(read.departed()) == []
    assert read.places() == {"b": 8}


@pytest.mark.parametrize(
    ("starts", "kind"),
    [({}, InvalidRequest), ({"": 0}, TopicNotFound), ({"t": -1}, InvalidRequest)],
)
def test_a_read_that_makes_no_sense_is_refused(
    starts: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        following(**starts)
