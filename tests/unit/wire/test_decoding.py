"""What every request body must obey, held against every decoder."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from topics.batch import RecordBatch
from topics.errors import InvalidRequest
from topics.wire import requests
from topics.wire.jsonbytes import MAX_DEPTH

BODIES: dict[str, tuple[Callable[[bytes], Any], dict[str, Any]]] = {
    "write": (requests.decode_write, {"records": [{"data": 1}]}),
    "diff": (requests.decode_diff, {}),
    "delete": (requests.decode_delete, {"before_seq": 1}),
    "config": (requests.decode_config, {}),
    "router": (requests.decode_router, {"source": "a", "dest": "b"}),
    "watch": (requests.decode_watch, {"topics": {"a": {}}}),
    "claim": (requests.decode_claim, {"node": "w"}),
    "ack": (requests.decode_ack, {"node": "w", "seqs": [1]}),
    "nack": (requests.decode_nack, {"node": "w", "seqs": [1]}),
    "extend": (requests.decode_extend, {"node": "w", "seqs": [1], "lease_ms": 5}),
    "redrive": (requests.decode_redrive, {}),
    "cursor": (requests.decode_cursor, {"seq": 1}),
    "holes": (requests.decode_holes, {"from_seq": 1, "to_seq": 2}),
    "plan": (requests.decode_plan, {"from_seq": 1, "to_seq": 2, "target_bytes": 3}),
    "stage": (requests.decode_stage, {"records": [{"topic": "a", "data": 1}]}),
    "commit": (requests.decode_commit, {"parts": [[1, 2]]}),
    "subscribe": (requests.decode_command, {"op": "subscribe", "topic": "a"}),
    "unsubscribe": (requests.decode_command, {"op": "unsubscribe", "topic": "a"}),
    "publish": (
        requests.decode_command,
        {"op": "publish", "topic": "a", "records": [{"data": 1}]},
    ),
    "ping": (requests.decode_command, {"op": "ping"}),
}
every_body = pytest.mark.parametrize("kind", BODIES)


def decode(kind: str, body: bytes) -> Any:  # noqa: ANN401 - what each decoder gives
    return BODIES[kind][0](body)


def with_field(kind: str, name: str, value: bytes) -> bytes:
    """The smallest body of a kind with one more field, its value as spelled."""
    fields = {key: json.dumps(kept).encode() for key, kept in BODIES[kind][1].items()}
    fields[name] = value
    return b"{%b}" % b",".join(b'"%b":%b' % (key.encode(), kept) for key, kept in fields.items())


def smallest(kind: str) -> bytes:
    return json.dumps(BODIES[kind][1]).encode()


@every_body
def test_the_smallest_body_is_accepted(kind: str) -> None:
    assert decode(kind, smallest(kind)) is not None


@every_body
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda body: body[:-1], id="cut short"),
        pytest.param(lambda body: body + b"x", id="trailing characters"),
        pytest.param(lambda body: body + b"{}", id="a second value"),
        pytest.param(lambda body: b"\xef\xbb\xbf" + body, id="byte order mark"),
        pytest.param(lambda body: b"[%b]" % body, id="an array around it"),
        pytest.param(lambda _: b" \n", id="only whitespace"),
        pytest.param(lambda _: b"null", id="null"),
        pytest.param(lambda _: b'"text"', id="a string"),
        pytest.param(lambda _: b"5", id="a number"),
    ],
)
def test_a_malformed_body_is_refused(kind: str, spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(InvalidRequest):
        decode(kind, spoil(smallest(kind)))


@every_body
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b'"a\nb"', id="raw newline in a string"),
        pytest.param(b'"\xff"', id="invalid UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', id="a surrogate in UTF-8"),
        pytest.param(b'"\\ud800"', id="lone surrogate"),
        pytest.param(b'"\\udc00\\ud800"', id="surrogates in the wrong order"),
        pytest.param(b"NaN", id="NaN"),
        pytest.param(b"Infinity", id="Infinity"),
        pytest.param(b"-Infinity", id="-Infinity"),
        pytest.param(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, id="too deep"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="far too deep"),
    ],
)
def test_bad_text_is_refused_even_in_a_field_nobody_knows(kind: str, value: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode(kind, with_field(kind, "unknown", value))


@every_body
@pytest.mark.parametrize(
    "value",
    [
        b"1e400",
        b"9" * 5000,
        b'"\\ud83d\\ude00"',
        b"null",
        b'{"a":1,"a":2}',
        b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1),
    ],
)
def test_fields_nobody_knows_are_ignored(kind: str, value: bytes) -> None:
    decode(kind, with_field(kind, "unknown", value))


@every_body
def test_a_field_nobody_knows_may_be_repeated(kind: str) -> None:
    decode(kind, with_field(kind, "unknown", b'1,"unknown":2'))


@every_body
def test_a_known_field_given_twice_is_refused(kind: str) -> None:
    body = smallest(kind)
    name = {"diff": "limit", "config": "ttl_ms", "redrive": "max"}.get(kind)
    name = name or next(iter(BODIES[kind][1]))
    value = json.dumps(BODIES[kind][1].get(name, 1)).encode()
    for key in (name, f"\\u{ord(name[0]):04x}{name[1:]}"):
        spelled = key.encode()
        comma = b"," if len(body) > 2 else b""
        twice = b'%b%b"%b":%b,"%b":%b}' % (body[:-1], comma, spelled, value, name.encode(), value)
        with pytest.raises(InvalidRequest, match=name):
            decode(kind, twice)


REPEATED_INSIDE = {
    "data of a record": ("write", b'{"records":[{"data":1,"data":2}]}'),
    "tag of the last record": ("write", b'{"records":[{"data":1},{"data":1,"tag":"","tag":""}]}'),
    "type of an inline config": (
        "write",
        b'{"records":[{"data":1}],"config":{"type":"log","type":"log"}}',
    ),
    "topic of a staged record": ("stage", b'{"records":[{"topic":"a","topic":"a","data":1}]}'),
    "tail of a watched topic": ("watch", b'{"topics":{"a":{"tail":true,"tail":true}}}'),
    "from_seq of a subscription": (
        "subscribe",
        b'{"op":"subscribe","topics":{"a":{"from_seq":1,"from_seq":1}}}',
    ),
    "node of a published record": (
        "publish",
        b'{"op":"publish","topic":"a","records":[{"data":1,"node":"x","node":"x"}]}',
    ),
}


@pytest.mark.parametrize("case", REPEATED_INSIDE)
def test_a_known_field_given_twice_is_refused_inside_too(case: str) -> None:
    kind, body = REPEATED_INSIDE[case]
    with pytest.raises(InvalidRequest, match=f"{case.split(maxsplit=1)[0]} is given twice"):
        decode(kind, body)


def test_keys_inside_payloads_may_repeat_and_are_kept() -> None:
    data = b'{"data":1,"data":2,"tag":"","tag":""}'
    write = requests.decode_write(b'{"records":[{"data":%b,"meta":%b}]}' % (data, data))
    assert write.drafts.datas == [data]
    assert write.drafts.metas == [data]


def test_of_a_topic_watched_twice_the_last_entry_counts() -> None:
    sent = requests.decode_watch(b'{"topics":{"a":{"from_seq":1},"a":{"from_seq":2}}}')
    assert sent.starts["a"].cursor == 2


# Types, fields and ranges

U64_FIELDS = [
    ("write", "expect_head"),
    ("diff", "from_seq"),
    ("diff", "max_batch_bytes"),
    ("diff", "from_ts"),
    ("delete", "before_seq"),
    ("config", "ttl_ms"),
    ("config", "cap_records"),
    ("config", "cap_bytes"),
    ("config", "idempotency_window_ms"),
    ("config", "lease_ms"),
    ("config", "claim_jitter_ms"),
    ("config", "max_deliveries"),
    ("watch", "max_batch_bytes"),
    ("watch", "heartbeat_ms"),
    ("claim", "lease_ms"),
    ("nack", "delay_ms"),
    ("extend", "lease_ms"),
    ("cursor", "seq"),
    ("holes", "from_seq"),
    ("holes", "to_seq"),
    ("plan", "target_bytes"),
    ("subscribe", "from_seq"),
    ("subscribe", "from_ts"),
    ("subscribe", "max_batch_bytes"),
    ("publish", "expect_head"),
]
U32_FIELDS = [
    ("diff", "limit"),
    ("diff", "wait_ms"),
    ("watch", "limit"),
    ("claim", "max"),
    ("redrive", "max"),
    ("subscribe", "limit"),
]
NO_INTEGER = [b'"5"', b"5.0", b"-1", b"true", b"1e3", b"1e400", b"[]", b"{}", b"9" * 5000]


@pytest.mark.parametrize(("kind", "name"), U64_FIELDS)
def test_a_u64_takes_its_whole_range_and_nothing_else(kind: str, name: str) -> None:
    for value in (b"0", b"9223372036854775808", b"18446744073709551615"):
        decode(kind, with_field(kind, name, value))
    for value in [*NO_INTEGER, b"18446744073709551616"]:
        with pytest.raises(InvalidRequest, match=name):
            decode(kind, with_field(kind, name, value))


@pytest.mark.parametrize(("kind", "name"), U32_FIELDS)
def test_a_u32_takes_its_whole_range_and_nothing_else(kind: str, name: str) -> None:
    for value in (b"0", b"4294967295"):
        decode(kind, with_field(kind, name, value))
    for value in [*NO_INTEGER, b"4294967296"]:
        with pytest.raises(InvalidRequest, match=name):
            decode(kind, with_field(kind, name, value))


def test_priority_takes_thirty_two_signed_bits() -> None:
    for value in (b"-2147483648", b"2147483647"):
        assert decode("config", with_field("config", "priority", value)).priority == int(value)
    for value in (b"-2147483649", b"2147483648", b'"1"', b"1.0"):
        with pytest.raises(InvalidRequest, match="priority"):
            decode("config", with_field("config", "priority", value))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("ack", "seqs", b"[1,18446744073709551616]"),
        ("ack", "seqs", b"[-1]"),
        ("ack", "seqs", b"[1.0]"),
        ("ack", "seqs", b"[null]"),
        ("commit", "parts", b"[[1,18446744073709551616]]"),
        ("commit", "parts", b"[[1]]"),
        ("commit", "parts", b"[[1,2,3]]"),
        ("commit", "parts", b"[1]"),
        ("diff", "node", b'["a",null]'),
        ("diff", "node", b"5"),
        ("write", "records", b"{}"),
        ("write", "records", b"[1]"),
        ("write", "create", b'"true"'),
        ("write", "create", b"1"),
        ("watch", "topics", b'["a"]'),
        ("watch", "topics", b'{"a":null}'),
        ("watch", "topics", b'{"a":{"tail":1}}'),
        ("unsubscribe", "topics", b'{"a":{}}'),
    ],
)
def test_values_of_another_type_are_not_converted(kind: str, name: str, value: bytes) -> None:
    with pytest.raises(InvalidRequest, match=name):
        decode(kind, with_field(kind, name, value))


NULLABLE = [
    ("write", "node"),
    ("write", "idempotency_key"),
    ("write", "create"),
    ("write", "config"),
    ("write", "expect_head"),
    ("config", "priority"),
    ("config", "durability"),
    ("config", "dead_letter"),
    ("diff", "node"),
    ("diff", "match"),
    ("diff", "from_ts"),
    ("delete", "match"),
    ("router", "filter"),
    ("watch", "node"),
    ("watch", "match"),
    ("claim", "lease_ms"),
    ("subscribe", "node"),
    ("subscribe", "from_ts"),
    ("subscribe", "request_id"),
    ("ping", "request_id"),
    ("publish", "config"),
    ("publish", "expect_head"),
]
NOT_NULLABLE = [
    ("write", "records"),
    ("write", "disable_backpressure"),
    ("diff", "from_seq"),
    ("diff", "limit"),
    ("diff", "include_tags"),
    ("diff", "include_meta"),
    ("diff", "wait_ms"),
    ("diff", "max_batch_bytes"),
    ("config", "type"),
    ("config", "ttl_ms"),
    ("config", "discard"),
    ("config", "durable"),
    ("config", "lease_ms"),
    ("router", "source"),
    ("router", "guarantee"),
    ("router", "create_dest"),
    ("watch", "topics"),
    ("watch", "consistency"),
    ("watch", "heartbeat_ms"),
    ("claim", "node"),
    ("claim", "max"),
    ("ack", "seqs"),
    ("ack", "lease_ids"),
    ("nack", "delay_ms"),
    ("extend", "lease_ms"),
    ("redrive", "from"),
    ("redrive", "max"),
    ("cursor", "seq"),
    ("holes", "to_seq"),
    ("plan", "target_bytes"),
    ("stage", "records"),
    ("commit", "parts"),
    ("subscribe", "tail"),
    ("subscribe", "topics"),
    ("subscribe", "lenient"),
    ("unsubscribe", "topics"),
    ("publish", "topic"),
    ("publish", "return_seqs"),
    ("ping", "op"),
]


@pytest.mark.parametrize(("kind", "name"), NULLABLE)
def test_null_for_a_nullable_field_is_the_same_as_absent(kind: str, name: str) -> None:
    sent = decode(kind, with_field(kind, name, b"null"))
    if name != "request_id":
        assert sent == decode(kind, smallest(kind))


def test_null_as_topic_of_a_subscription_counts_as_absent() -> None:
    for op in ("subscribe", "unsubscribe"):
        command = requests.decode_command(b'{"op":"%b","topic":null}' % op.encode())
        assert isinstance(command, requests.SubscribeCommand | requests.UnsubscribeCommand)
        assert command.topic is None


def test_null_as_node_tag_or_meta_of_a_record_counts_as_absent() -> None:
    write = requests.decode_write(
        b'{"records":[{"data":null,"tag":null,"node":null,"meta":null}],"node":"gw"}'
    )
    assert write.drafts == RecordBatch([b"null"], nodes=["gw"])


@pytest.mark.parametrize(("kind", "name"), NOT_NULLABLE)
def test_null_for_any_other_field_is_refused(kind: str, name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        decode(kind, with_field(kind, name, b"null"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, (_, fields) in BODIES.items() for name in fields],
)
def test_a_missing_required_field_is_named(kind: str, name: str) -> None:
    optional = {("delete", "before_seq"), ("subscribe", "topic"), ("unsubscribe", "topic")}
    if (kind, name) in optional:
        return
    left = {key: value for key, value in BODIES[kind][1].items() if key != name}
    with pytest.raises(InvalidRequest, match=name):
        decode(kind, json.dumps(left).encode())


@pytest.mark.parametrize(
    ("kind", "name", "allowed"),
    [
        ("config", "type", ("log", "queue")),
        ("config", "discard", ("old", "reject")),
        ("config", "durability", ("ephemeral", "memory", "disk", "fsync")),
        ("router", "guarantee", ("at_least_once", "exactly_once")),
        ("watch", "consistency", ("eventual", "strong")),
    ],
)
def test_words_are_exact_and_a_wrong_one_is_told_the_right_ones(
    kind: str, name: str, allowed: tuple[str, ...]
) -> None:
    for word in allowed:
        decode(kind, with_field(kind, name, json.dumps(word).encode()))
        with pytest.raises(InvalidRequest, match=name) as refused:
            decode(kind, with_field(kind, name, json.dumps(word.upper()).encode()))
        assert all(other in str(refused.value) for other in allowed)


def test_a_wrong_command_is_told_the_right_ones() -> None:
    with pytest.raises(InvalidRequest, match="allowed: subscribe, unsubscribe, publish, ping"):
        requests.decode_command('{"op":"Ping"}')


@every_body
def test_an_empty_body_counts_as_an_empty_object_only_where_everything_is_optional(
    kind: str,
) -> None:
    if kind in ("config", "diff"):
        assert decode(kind, b"") == decode(kind, b"{}")
    else:
        with pytest.raises(InvalidRequest, match="empty"):
            decode(kind, b"")


@every_body
def test_whitespace_around_and_inside_a_body_does_not_matter(kind: str) -> None:
    spaced = json.dumps(BODIES[kind][1], indent=2).encode() + b"\r\n\t "
    if kind != "publish":  # payloads of a command are compared by identity
        assert decode(kind, spaced) == decode(kind, smallest(kind))


LONG_WAY = 5000
"""More than a plain body has: so much whitespace sends it through every step."""


@pytest.mark.parametrize(
    "body",
    [
        b'{"from_seq":7,"limit":3}',
        b'{"limit":3,"from_seq":7,"node":["a","b"],"include_tags":true}',
        b'{"match":["tag","Glob","a*"]}',
        b'{"node":"\xc3\xa4 b"}',
        b'{"node":"\\u0041\\n\\"\\/"}',
        b'{"limit":256}',
        b"{}",
        b'{"node":null,"from_seq":1}',
        b'{"from_seq":1,"unknown":{"deep":[1]}}',
    ],
)
def test_the_short_way_and_the_long_way_give_the_same(body: bytes) -> None:
    assert requests.decode_diff(body) == requests.decode_diff(body + b" " * LONG_WAY)


@pytest.mark.parametrize(
    "body",
    [
        b'{"limit":3,"limit":3}',
        b'{"limit":256,"limit":256}',
        b'{"node":"aaaaaaaaaaaa","node":"b"}',
        b'{"node":"a","n\\u006fde":"a"}',
        b'{"from_seq":18446744073709551616}',
        b'{"limit":4294967296}',
        b'{"node":"\xff"}',
        b'{"limit":3}x',
    ],
)
def test_what_the_long_way_refuses_the_short_way_does_not_let_through(body: bytes) -> None:
    for sent in (body, b" " * LONG_WAY + body):
        with pytest.raises(InvalidRequest):
            requests.decode_diff(sent)
