import json

from msgspec import UNSET, Raw

from topics import errors
from topics.values import Ack, Tombstone
from topics.wire import ws
from topics.wire.responses import performance
from topics.wire.shapes import StreamStart

ID = Raw(b'{"n":1.0}')
ACK = Ack("orders", 1, 2, 2, 2, created=True)


def test_replies_echo_the_id_of_their_command() -> None:
    assert ws.pong(ID) == b'{"op":"pong","request_id":{"n":1.0}}'
    assert ws.pong(UNSET) == b'{"op":"pong","request_id":null}'


def test_subscriptions_are_confirmed_with_their_start() -> None:
    assert ws.subscribed(ID, {"a": StreamStart(5, 9, 1)}) == (
        b'{"op":"subscribed","request_id":{"n":1.0},'
        b'"topics":{"a":{"from_seq":5,"head_seq":9,"earliest_seq":1}}}'
    )
    assert ws.unsubscribed(UNSET, ["a", "b"]) == (
        b'{"op":"unsubscribed","request_id":null,"topics":["a","b"]}'
    )


def test_seqs_of_an_ack_are_null_when_declined() -> None:
    ack = (
        b'{"op":"ack","request_id":{"n":1.0},"topic":"orders","first_seq":1,"last_seq":2,'
        b'"seqs":%b,"head_seq":2,"count":2,"created":true,"deduped":false,'
        b'"performance":{"server_total_ms":0.5}}'
    )
    assert ws.ack(ID, ACK, performance(0.5)) == ack % b"[1,2]"
    assert ws.ack(ID, ACK, performance(0.5), return_seqs=False) == ack % b"null"


def test_records_and_notices_name_their_topic() -> None:
    assert ws.records("a", b"[]", from_seq=1, to_seq=2, head_seq=3) == (
        b'{"op":"record","topic":"a","from_seq":1,"to_seq":2,"head_seq":3,"records":[]}'
    )
    assert ws.caught_up("a", head_seq=3) == b'{"op":"caught_up","topic":"a","head_seq":3}'
    assert ws.topic_deleted("a") == (
        b'{"op":"topic_deleted","topic":"a","head_seq":0,"reason":"deleted"}'
    )
    lost = Tombstone(gap_from=1, gap_to=2, reason="cap", earliest_seq=3, head_seq=9)
    assert ws.tombstone("a", lost) == (
        b'{"op":"tombstone","topic":"a","reason":"cap","gap_from":1,"gap_to":2,'
        b'"earliest_seq":3,"head_seq":9}'
    )


def test_a_refused_command_gives_its_code_and_no_detail() -> None:
    shown = json.loads(ws.command_failed(ID, errors.TopicNotFound("a")))
    assert shown.pop("message")
    assert shown == {"op": "error", "request_id": {"n": 1.0}, "code": "topic_not_found"}


def test_a_throttled_command_says_when_to_try_again() -> None:
    shown = json.loads(
        ws.command_failed(UNSET, errors.Throttled.backlog(pressure=1.0, retry_after_ms=70))
    )
    assert (shown["code"], shown["retry_after_ms"]) == ("throttled", 70)


def test_a_lost_race_says_where_the_head_is() -> None:
    error = errors.HeadMismatch("a", expected=1, head_seq=5)
    shown = json.loads(ws.command_failed(UNSET, error))
    assert (shown["code"], shown["head_seq"]) == ("head_mismatch", 5)


def test_an_unreadable_message_has_no_id_to_echo() -> None:
    assert ws.unreadable_command(errors.InvalidRequest("no op")) == (
        b'{"op":"error","request_id":null,"code":"invalid_json","message":"no op"}'
    )


def test_notices_to_the_whole_socket_carry_no_id() -> None:
    for message, code in (
        (ws.unsupported_message(), "unsupported_message"),
        (ws.shutting_down(), "server_shutting_down"),
    ):
        shown = json.loads(message)
        assert list(shown) == ["op", "code", "message"]
        assert (shown["op"], shown["code"]) == ("error", code)
