import json
from collections.abc import Callable

import pytest

from topics.values import Job, Tombstone
from topics.wire import sse
from topics.wire.cursors import stream_id
from topics.wire.rendering import render_records

HERE = stream_id({"orders": 14})
LOST = Tombstone(gap_from=1, gap_to=2, reason="ttl", earliest_seq=3, head_seq=9)


def test_a_stream_begins_by_saying_when_to_come_back() -> None:
    assert sse.RETRY == b"retry: 2000\n\n"


def test_a_heartbeat_is_a_comment() -> None:
    assert sse.heartbeat(1790000009000) == b": hb 1790000009000\n\n"


def test_records_come_with_the_place_to_resume_from() -> None:
    rendered = render_records(
        [
            (13, 1790000009000, None, None, b'{"sku":"MUG-2"}', None),
            (14, 1790000009001, "pos-1", None, b'{"sku":"TEA-9"}', None),
        ]
    )
    frame = sse.records("orders", rendered, stream=HERE, from_seq=12, to_seq=14, head_seq=14)
    assert frame == (
        b"id: eyJvcmRlcnMiOjE0fQ\nevent: record\n"
        b'data: {"topic":"orders","from_seq":12,"head_seq":14,"records":['
        b'{"$seq":13,"$ts":1790000009000,"data":{"sku":"MUG-2"}},'
        b'{"$seq":14,"$ts":1790000009001,"$node":"pos-1","data":{"sku":"TEA-9"}}],"to_seq":14}\n\n'
    )


def test_caught_up_names_the_head() -> None:
    assert sse.caught_up("orders", stream=HERE, head_seq=14) == (
        b'id: eyJvcmRlcnMiOjE0fQ\nevent: caught-up\ndata: {"topic":"orders","head_seq":14}\n\n'
    )


def test_a_tombstone_gives_its_reason_except_on_the_first_read() -> None:
    frame = (
        b"id: eyJvcmRlcnMiOjE0fQ\nevent: tombstone\n"
        b'data: {"topic":"orders","reason":"%b","gap_from":1,"gap_to":2,"earliest_seq":3,'
        b'"head_seq":9}\n\n'
    )
    assert sse.tombstone("orders", LOST, stream=HERE) == frame % b"ttl"
    assert sse.tombstone("orders", LOST, stream=HERE, first_read=True) == (
        frame % b"from_seq_too_old"
    )


def test_a_deleted_topic_is_announced() -> None:
    assert sse.topic_deleted("orders", stream=HERE) == (
        b"id: eyJvcmRlcnMiOjE0fQ\nevent: topic-deleted\n"
        b'data: {"topic":"orders","head_seq":0,"reason":"deleted"}\n\n'
    )


def data_of(frame: bytes) -> dict[str, object]:
    """The data of an error frame; every error names a message."""
    place, event, data, *rest = frame.split(b"\n")
    assert (place, event, rest) == (b"id: " + HERE.encode(), b"event: error", [b"", b""])
    shown = json.loads(data.removeprefix(b"data: "))
    assert shown.pop("message")
    assert isinstance(shown, dict)
    return shown


def test_errors_say_what_the_reader_has_to_do() -> None:
    assert data_of(sse.throttled("slow_consumer", stream=HERE)) == {
        "code": 429,
        "reason": "slow_consumer",
        "retry_after_ms": 1000,
    }
    assert data_of(sse.throttled("pressure", stream=HERE, topic="orders")) == {
        "code": 429,
        "reason": "pressure",
        "topic": "orders",
        "retry_after_ms": 1000,
    }
    assert data_of(sse.gone("superseded", stream=HERE)) == {"code": 410, "reason": "superseded"}
    assert data_of(sse.gone("no_topics", stream=HERE)) == {"code": 410, "reason": "no_topics"}
    assert data_of(sse.shutting_down(stream=HERE)) == {"code": "server_shutting_down"}


def test_a_job_carries_its_seq_as_id() -> None:
    job = Job(1, 10, 1790000030500, 1790000000500, 1, b'{"order":771}')
    assert sse.job("shop", job) == (
        b"id: 1\nevent: job\n"
        b'data: {"topic":"shop","$seq":1,"lease_id":"lease_a","deadline":1790000030500,'
        b'"$ts":1790000000500,"deliveries":1,"data":{"order":771}}\n\n'
    )


@pytest.mark.parametrize(
    ("make", "code"),
    [(sse.work_topic_gone, 409), (sse.work_shutting_down, "server_shutting_down")],
)
def test_errors_of_a_work_stream_have_no_id(make: Callable[[str], bytes], code: int | str) -> None:
    event, data, *rest = make("shop").split(b"\n")
    shown = json.loads(data.removeprefix(b"data: "))
    assert (event, rest) == (b"event: error", [b"", b""])
    assert list(shown) == ["code", "error", "topic"]
    assert (shown["code"], shown["topic"]) == (code, "shop")
    assert shown["error"]


def test_line_breaks_in_names_cannot_break_a_frame() -> None:
    assert sse.caught_up("a\nb\r", stream=HERE, head_seq=1).count(b"\n") == 4
