import json
from typing import Any

import msgspec
import pytest

from topics.batch import RecordBatch
from topics.errors import InvalidRequest
from topics.wire import requests
from topics.wire.jsonbytes import MAX_DEPTH
from topics.wire.predicates import Predicate
from topics.wire.requests import Start, WriteRequest, writing
from topics.wire.requests.writing import _decode_plain


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


# Writing


def test_a_write_becomes_columns() -> None:
    write = requests.decode_write(
        as_json(
            {
                "records": [
                    {"data": {"c": 21.5}, "tag": "room:4", "meta": {"fw": "2.3"}},
                    {"data": None, "node": "own"},
                ],
                "node": "gw",
                "idempotency_key": "k",
                "create": False,
                "config": {"type": "queue"},
                "disable_backpressure": True,
                "expect_head": 7,
            }
        )
    )
    assert write.drafts == RecordBatch(
        [b'{"c":21.5}', b"null"], [b'{"fw":"2.3"}', b""], ["room:4", None], ["gw", "own"]
    )
    assert write.idempotency_key == "k"
    assert write.create is False
    assert write.config is not None
    assert write.config.type == "queue"
    assert write.disable_backpressure
    assert write.expect_head == 7


@pytest.mark.parametrize(
    "datas",
    [
        [b"1"],
        [b"1", b"2", b"3"],
        [b'[{"a":1},{"data":2}]', b"3"],
        [b'"},{\\"data\\":"', b'[{"x":{}},{"data":{}},{"data":{}}]'],
        ['"\u00e4"'.encode(), b"{}"],
        [b'" "', b"1"],
    ],
)
def test_records_of_data_alone_come_out_as_they_went_in(datas: list[bytes]) -> None:
    body = b'{"records":[%b]}' % b",".join([b'{"data":%b}' % data for data in datas])
    assert writing._decode_bare(body) is not None
    assert requests.decode_write(body) == WriteRequest(RecordBatch(datas))


@pytest.mark.parametrize(
    "record",
    [
        b'{"data":1,"data":2}',
        b'{"data":1,"tag":"t"}',
        b'{"data":1,"more":2}',
        b'{"\\u0064ata":1}',
        b'{"data":%b1%b}' % (b"[" * 200, b"]" * 200),
        b'{"data":01}',
        b'{"tag":"t"}',
        b"{}",
    ],
)
def test_a_record_with_more_than_data_is_not_bare(record: bytes) -> None:
    for body in (b'{"records":[%b]}', b'{"records":[{"data":0},%b]}'):
        assert writing._decode_bare(body % record) is None
    assert writing._decode_bare(b'{"records":[{"data":%b}],"create":true}' % record) is None


def test_a_bare_record_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        requests.decode_write(b'{"records":[{"data":"\xff"}]}')


@pytest.mark.parametrize("key", ["k", "", "\u00e4", "},{'data':", "a" * 256])
def test_a_key_behind_bare_records_is_taken_with_them(key: str) -> None:
    for datas in ([b"1"], [b'[{"a":1},{"data":2}]', b"3"]):
        records = b",".join([b'{"data":%b}' % data for data in datas])
        body = b'{"records":[%b],"idempotency_key":"%b"}' % (records, key.encode())
        assert writing._decode_bare(body) == WriteRequest(RecordBatch(datas), key)


@pytest.mark.parametrize(
    ("rest", "key"),
    [
        (b'"idempotency_key":null', None),
        (rb'"idempotency_key":"\u0061"', "a"),
        (rb'"idempotency_key":"a\"b"', 'a"b'),
        (b'"idempotency_key":"a","create":null', "a"),
    ],
)
def test_a_key_with_anything_beside_it_goes_the_long_way(rest: bytes, key: str | None) -> None:
    body = b'{"records":[{"data":1}],%b}' % rest
    assert writing._decode_bare(body) is None
    assert requests.decode_write(body) == WriteRequest(RecordBatch([b"1"]), key)


@pytest.mark.parametrize(
    "rest",
    [
        b'"idempotency_key":"a","idempotency_key":"b"',
        b'"idempotency_key":"a","records":[{"data":1}]',
        b'"records":[{"data":1}],"idempotency_key":"a"',
    ],
)
def test_bare_records_and_their_key_are_given_once(rest: bytes) -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        requests.decode_write(b'{"records":[{"data":1}],%b}' % rest)


@pytest.mark.parametrize("key", [b"1", b"true", rb'"\ud800"', b'"\xff"', b'["a"]'])
def test_a_key_that_is_no_text_is_refused(key: bytes) -> None:
    with pytest.raises(InvalidRequest):
        requests.decode_write(b'{"records":[{"data":1}],"idempotency_key":%b}' % key)


def test_columns_nobody_uses_are_none() -> None:
    write = requests.decode_write(b'{"records":[{"data":1},{"data":2}]}')
    assert write.drafts == RecordBatch([b"1", b"2"])
    assert len(write.drafts) == 2


def test_an_empty_list_of_records_is_left_to_the_endpoint_to_refuse() -> None:
    assert requests.decode_write(b'{"records":[]}').drafts == RecordBatch([])


def test_empty_names_and_keys_are_names_and_keys() -> None:
    write = requests.decode_write(
        b'{"records":[{"data":1,"tag":"","node":""}],"idempotency_key":""}'
    )
    assert write.drafts == RecordBatch([b"1"], None, [""], [""])
    assert write.idempotency_key == ""


@pytest.mark.parametrize(
    "spelled",
    [
        b"1e2",
        b"-0.0",
        b"1e400",
        b"123456789012345678901234567890123456789012",
        b'{"b":1,"a":2,"b":3}',
        rb'"\u00e9\/"',
        '"é"'.encode(),
        b'"a : b , c"',
        b"[]",
        b'{"records":[{"data":1}],"tag":"x"}',
    ],
)
def test_payloads_keep_their_spelling(spelled: bytes) -> None:
    for extra in (b"", b',"unknown":1'):  # the short path and the general one
        body = b'{"records":[{"data":%b,"meta":%b%b}]}' % (spelled, spelled, extra)
        drafts = requests.decode_write(body).drafts
        assert drafts.datas == [spelled]
        assert drafts.metas == [spelled]


def test_whitespace_outside_strings_is_removed_from_payloads() -> None:
    for extra in (b"", b',"unknown":1'):
        body = b'{"records": [ {"data": {"a" : [1 ,\n2], "b": " "} %b} ]}' % extra
        assert requests.decode_write(body).drafts.datas == [b'{"a":[1,2],"b":" "}']


@pytest.mark.parametrize("where", ["data", "meta"])
def test_payloads_may_nest_as_deep_as_the_whole_body_may(where: str) -> None:
    other = b"" if where == "data" else b'"data":1,'

    def nested(levels: int) -> bytes:
        payload = b"[" * levels + b"]" * levels
        return b'{"records":[{%b"%b":%b}]}' % (other, where.encode(), payload)

    requests.decode_write(nested(MAX_DEPTH - 3))
    with pytest.raises(InvalidRequest, match="deeper"):
        requests.decode_write(nested(MAX_DEPTH - 2))


def test_long_payloads_are_fine() -> None:
    data = as_json(["x" * 100] * 100).replace(b" ", b"")
    drafts = requests.decode_write(b'{"records":[{"data":%b,"meta":%b}]}' % (data, data)).drafts
    assert drafts == RecordBatch([data], [data])


PLAIN = [
    b'{"records":[]}',
    b'{"records":[{"data":1}]}',
    b'{"records":[{"data":1},{"data":{"a":[]},"tag":"t","node":"n","meta":{}}]}',
    '{"records":[{"data":"ü","tag":"ü"}],"node":"ü","idempotency_key":"ü"}'.encode(),
    b'{"records":[{"data":1}],"create":true,"disable_backpressure":true,"expect_head":10}',
    b'{"create":false,"records":[{"data":" "}],"expect_head":0,"node":""}',
    b'{ "records" : [ {"data": [1, 2]} ] }',
]


@pytest.mark.parametrize("body", PLAIN)
def test_a_plain_write_takes_the_short_path(body: bytes) -> None:
    assert _decode_plain(body) == requests.decode_write(body)
    assert _decode_plain(body) is not None


@pytest.mark.parametrize("unknown", [b'"x":1', b'"x":null', b'"config":{}'])
def test_any_other_write_takes_the_general_one_to_the_same_result(unknown: bytes) -> None:
    for body in PLAIN:
        other = body.rstrip()[:-1] + b",%b}" % unknown
        assert _decode_plain(other) is None
        assert requests.decode_write(other).drafts == requests.decode_write(body).drafts


def test_an_error_in_a_record_says_which_one() -> None:
    with pytest.raises(InvalidRequest, match=r"records\[1\]\.tag: expected str"):
        requests.decode_write(b'{"records":[{"data":1},{"data":1,"tag":5}]}')


def test_a_body_is_encoded_without_what_has_its_default() -> None:
    body = requests.WriteBody(records=[requests.RecordBody(data=msgspec.Raw(b"1"))], node="gw")
    assert msgspec.json.encode(body) == b'{"records":[{"data":1}],"node":"gw"}'
    assert requests.decode_write(msgspec.json.encode(body)).drafts.nodes == ["gw"]
    assert msgspec.json.encode(requests.DiffBody(from_seq=5)) == b'{"from_seq":5}'
    assert msgspec.json.encode(requests.PingCommand()) == b'{"op":"ping"}'


# Reading and deleting


def test_a_read_begins_before_everything_unless_told_otherwise() -> None:
    sent = requests.decode_diff(b"")
    assert sent.cursor == 0
    assert (sent.limit, sent.wait_ms, sent.max_batch_bytes) == (256, 0, 0)
    assert (sent.include_tags, sent.include_meta) == (False, True)
    assert sent.nodes == ()
    assert sent.predicate is None


def test_nodes_to_leave_out_come_alone_or_as_a_list() -> None:
    assert requests.decode_diff(b'{"node":"a"}').nodes == ("a",)
    assert requests.decode_diff(b'{"node":["a","b"]}').nodes == ("a", "b")
    assert requests.decode_diff(b'{"node":[]}').nodes == ()


@pytest.mark.parametrize("other", [{"from_seq": 0}, {"from_seq": 5}])
def test_a_read_by_time_and_by_place_at_once_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="from_ts and from_seq"):
        requests.decode_diff(as_json({"from_ts": 1, **other}))


def test_a_read_by_time_alone_is_fine() -> None:
    assert requests.decode_diff(b'{"from_ts":5}').from_ts == 5
    assert requests.decode_diff(b'{"from_ts":null,"from_seq":5}').cursor == 5


BAD_SELECTORS = [
    ["tag", "Eq"],
    ["tag", "Eq", "a", "b"],
    ["node", "Eq", "a"],
    ["tag", "eq", "a"],
    ["tag", "Glob", "a"],
    ["tag", "Glob", ""],
    ["tag", "Eq", 5],
    [],
    5,
    {"tag": "a"},
    True,
]


@pytest.mark.parametrize("selector", BAD_SELECTORS)
def test_a_bad_selector_is_refused_wherever_one_is_taken(selector: object) -> None:
    with pytest.raises(InvalidRequest):
        requests.decode_delete(as_json({"match": selector}))
    with pytest.raises(InvalidRequest):
        requests.decode_diff(as_json({"match": selector}))
    with pytest.raises(InvalidRequest):
        requests.decode_watch(as_json({"topics": {"a": {}}, "match": selector}))
    with pytest.raises(InvalidRequest):
        requests.decode_router(as_json({"source": "a", "dest": "b", "filter": selector}))


def test_a_delete_names_its_records() -> None:
    assert requests.decode_delete(b'{"before_seq":0}').before_seq == 0
    both = requests.decode_delete(b'{"before_seq":5,"match":["tag","Glob","a*"]}')
    assert both.before_seq == 5
    assert both.predicate == Predicate("Glob", "a*")
    for body in (b"{}", b'{"before_seq":null,"match":null}'):
        with pytest.raises(InvalidRequest, match="before_seq, match"):
            requests.decode_delete(body)


# Topics and routers


def test_a_config_holds_the_defaults_for_what_is_omitted() -> None:
    assert requests.decode_config(b"{}").fields() == {
        "type": "log",
        "ttl_ms": 0,
        "cap_records": 0,
        "cap_bytes": 0,
        "discard": "old",
        "durable": False,
        "durability": None,
        "priority": None,
        "auto_priority": True,
        "auto_create": True,
        "idempotency_window_ms": 120_000,
        "dedupe_node": True,
        "lease_ms": 30_000,
        "claim_jitter_ms": 0,
        "max_deliveries": 0,
        "dead_letter": None,
        "leases_durable": False,
    }


def test_a_router_holds_the_defaults_for_what_is_omitted() -> None:
    sent = requests.decode_router(b'{"source":"a","dest":"b"}')
    assert sent == requests.RouterBody(
        source="a",
        dest="b",
        preserve_node=True,
        preserve_tag=True,
        create_dest=True,
        filter=None,
        allow_cycle=False,
        guarantee="at_least_once",
    )
    assert sent.predicate is None


def test_a_filter_is_understood_in_either_form() -> None:
    for selector in ("eu:*", ["tag", "Glob", "eu:*"]):
        sent = requests.decode_router(as_json({"source": "a", "dest": "b", "filter": selector}))
        assert sent.predicate is not None
        assert sent.predicate.triple == ("tag", "Glob", "eu:*")


# Watching


def test_a_watch_holds_the_defaults_for_what_is_omitted() -> None:
    sent = requests.decode_watch(b'{"topics":{"a":{},"b":{"tail":true},"c":{"from_ts":9}}}')
    assert sent.starts == {"a": Start(), "b": Start(tail=True), "c": Start(from_ts=9)}
    assert (sent.limit, sent.max_batch_bytes, sent.heartbeat_ms) == (256, 262_144, 15_000)
    assert (sent.include_meta, sent.include_tags, sent.include_data) == (True, False, True)
    assert sent.consistency == "eventual"
    assert sent.nodes == ()
    assert sent.predicate is None


@pytest.mark.parametrize("entry", [{"from_seq": 0}, {"tail": True}, {"tail": False}])
def test_a_topic_watched_from_a_time_and_a_place_at_once_is_refused(entry: Any) -> None:  # noqa: ANN401
    body = {"topics": {"a": {}, "b": {"from_ts": 1, **entry}}}
    with pytest.raises(InvalidRequest, match='exclude each other for topic "b"'):
        requests.decode_watch(as_json(body))


def test_the_number_of_watched_topics_is_left_to_the_endpoint_to_judge() -> None:
    assert requests.decode_watch(b'{"topics":{}}').starts == {}


# Commands


def subscribe(**fields: object) -> requests.SubscribeCommand:
    command = requests.decode_command(as_json({"op": "subscribe", **fields}))
    assert isinstance(command, requests.SubscribeCommand)
    return command


def test_a_subscription_takes_one_topic_several_or_both() -> None:
    assert subscribe(topic="a", from_seq=5).starts == {"a": Start(5)}
    assert subscribe(topics={"b": {"tail": True}}).starts == {"b": Start(tail=True)}
    both = subscribe(topic="a", from_seq=5, topics={"a": {"from_seq": 9}, "b": {}})
    assert both.starts == {"a": Start(9), "b": Start()}
    assert (both.limit, both.max_batch_bytes, both.lenient) == (1000, 1_048_576, False)
    assert subscribe(topic="a", node="n").nodes == ("n",)


def test_a_subscription_to_nothing_is_read_but_refused() -> None:
    for command in (subscribe(), subscribe(topic=None), subscribe(topics={})):
        with pytest.raises(InvalidRequest, match="nothing to subscribe"):
            _ = command.starts


def test_a_subscription_from_a_time_and_a_place_at_once_is_read_but_refused() -> None:
    with pytest.raises(InvalidRequest, match="exclude each other"):
        _ = subscribe(topic="a", from_ts=1, from_seq=1).starts


def test_unsubscribing_takes_each_name_once() -> None:
    command = requests.decode_command('{"op":"unsubscribe","topic":"b","topics":["a","b"]}')
    assert isinstance(command, requests.UnsubscribeCommand)
    assert command.names == ["b", "a"]
    nothing = requests.decode_command('{"op":"unsubscribe"}')
    assert isinstance(nothing, requests.UnsubscribeCommand)
    with pytest.raises(InvalidRequest, match="nothing to unsubscribe"):
        _ = nothing.names


def test_publishing_is_a_write_with_a_topic() -> None:
    command = requests.decode_command(
        '{"op":"publish","topic":"a","records":[{"data": {"x" : 1}}],"node":"n",'
        '"return_seqs":false,"request_id": [1, 2]}'
    )
    assert isinstance(command, requests.PublishCommand)
    assert command.topic == "a"
    assert command.return_seqs is False
    assert command.write.drafts == RecordBatch([b'{"x":1}'], nodes=["n"])
    assert bytes(command.request_id) == b"[1,2]"  # type: ignore[arg-type]  # it was sent


def test_a_message_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        requests.decode_command('{"op":"ping","request_id":"\udcff"}')


# Queues and stages


def test_a_claim_asks_for_one_job_unless_told_otherwise() -> None:
    assert requests.decode_claim(b'{"node":""}') == requests.ClaimBody(
        node="", max=1, lease_ms=None
    )


def test_lease_ids_are_understood() -> None:
    sent = requests.decode_ack(b'{"node":"w","seqs":[1,2],"lease_ids":["lease_1f",""]}')
    assert sent.leases == [31, None]
    assert requests.decode_ack(b'{"node":"w","seqs":[]}').leases == []


@pytest.mark.parametrize("token", ["lease_", "lease_A", "lease_g", "1f", "lease_1f ", "LEASE_1"])
def test_a_malformed_lease_id_is_refused_in_every_call(token: str) -> None:
    body = as_json({"node": "w", "seqs": [1], "lease_ids": [token], "lease_ms": 5})
    for decode in (requests.decode_ack, requests.decode_nack, requests.decode_extend):
        with pytest.raises(InvalidRequest, match="lease_ids"):
            decode(body)


def test_fields_of_a_neighbouring_call_are_ignored() -> None:
    requests.decode_ack(b'{"node":"w","seqs":[1],"lease_ms":"soon"}')
    requests.decode_write(b'{"records":[{"data":1}],"return_seqs":"no"}')


def test_a_redrive_takes_the_queue_s_own_dead_letters_unless_told_otherwise() -> None:
    assert requests.decode_redrive(b"{}").source is msgspec.UNSET
    assert requests.decode_redrive(b'{"from":"dead","max":5}').source == "dead"


def test_a_stage_keeps_the_topic_of_each_record() -> None:
    stage = requests.decode_stage(
        b'{"records":[{"topic":"a","data":1,"tag":"t"},{"topic":"b","data":2}]}'
    )
    assert stage.topics == ["a", "b"]
    assert stage.drafts == RecordBatch([b"1", b"2"], None, ["t", None])
    assert requests.decode_stage(b'{"records":[]}').topics == []


def test_a_commit_names_an_attempt_for_each_part() -> None:
    assert requests.decode_commit(b'{"parts":[[0,1],[1,0]]}').parts == [(0, 1), (1, 0)]
    assert requests.decode_commit(b'{"parts":[]}').parts == []
