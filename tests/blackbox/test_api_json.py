"""JSON: what is parsed, what is refused, and that payloads come back byte for byte."""

from __future__ import annotations

import re

import pytest
from tests.blackbox.api_client import Api, Refusal, good, refused
from tests.blackbox.conftest import Connect, ServerProcess
from tests.blackbox.event_client import EventStream, watch

BAD = Refusal(400, "invalid_request")


# Malformed text


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"data":1}]',
        b'{"records":[{"data":1}]}x',
        b'{"records":[{"data":1}]}{}',
        b'{"records":[{"data":1}],}',
        b'{"records":[{"data":1,}]}',
        b'{"records":[{"data":}]}',
        b"{'records':[{'data':1}]}",
        b'{records:[{"data":1}]}',
        b'{"records":[{"data":01}]}',
        b'{"records":[{"data":+1}]}',
        b'{"records":[{"data":.5}]}',
        b'{"records":[{"data":1.}]}',
        b'{"records":[{"data":1e}]}',
        b'{"records":[{"data":0x10}]}',
        b'{"records":[{"data":True}]}',
        b'{"records":[{"data":nul}]}',
        b'{"records":[{"data":"\n"}]}',
        b'{"records":[{"data":"a\x00b"}]}',
        b'{"records":[{"data":"\x1f"}]}',
        b'{"records":[{"data":"\\x"}]}',
        b'{"records":[{"data":"\\u12"}]}',
        b'{"records":[{"data":"open}]}',
        b'\xef\xbb\xbf{"records":[{"data":1}]}',
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[{"data":"\xc3"}]}',
        b'{"records":[{"data":"\xed\xa0\x80"}]}',
        b'{"records":[{"data":"\xc0\xaf"}]}',
        b'{"records":[{"data":1}]}\x00',
        b'/* no */{"records":[{"data":1}]}',
        '{"records":[{"data":1}]}'.encode("utf-16"),
        b'{"records":[{"data":NaN}]}',
        b'{"records":[{"data":Infinity}]}',
        b'{"records":[{"data":-Infinity}]}',
        b'{"records":[{"data":{"deep":[NaN]}}]}',
        b'{"records":[{"data":"\\ud800"}]}',
        b'{"records":[{"data":"\\udc00x"}]}',
        b'{"records":[{"data":"\\ud800\\ud800"}]}',
        b'{"records":[{"data":{"\\ud800":1}}]}',
        b'{"records":[{"data":1,"tag":"\\ud800"}]}',
        b'{"records":[{"data":1}],"unknown":"\\ud800"}',
        b'{"records":[{"data":1}],"unknown":NaN}',
    ],
)
def test_malformed_text_is_refused_and_nothing_is_written(
    api: Api, topic: str, body: bytes
) -> None:
    assert refused(api.post(f"/v0/topics/{topic}", body)) == BAD
    assert refused(api.get(f"/v0/topics/{topic}")).code == "topic_not_found"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_ends_at_127_levels_of_the_whole_body(
    api: Api, topic: str, opening: str, closing: str
) -> None:
    def body(levels: int) -> str:
        inside = levels - 3  # the body, its list and the record
        data = opening * inside + "1" + closing * inside
        return '{"records":[{"data":' + data + "}]}"

    good(api.post(f"/v0/topics/{topic}", body(127)))
    assert refused(api.post(f"/v0/topics/{topic}", body(128))) == BAD
    assert refused(api.post(f"/v0/topics/{topic}", body(100_000))) == BAD
    assert refused(api.post(f"/v0/topics/{topic}/diff", "[" * 1_000_000)) == BAD
    unknown = '{"from_seq":0,"unknown":' + "[" * 127 + "]" * 127 + "}"
    assert refused(api.post(f"/v0/topics/{topic}/diff", unknown)) == BAD
    assert api.state(topic)["head_seq"] == 1


# Types


U64 = ('"5"', "5.0", "-1", "true", "null", "[]", "{}", "1e2", "18446744073709551616", "1e400")
U32 = (*U64, "4294967296")
BOOL = ("1", "0", '"true"', "null", "[]")
STRING = ("1", "true", "[]", "{}")

WRONG: list[tuple[str, str, tuple[str, ...]]] = [
    ("PUT", '{"type":%s}', ('"LOG"', '"stack"', "null", "1", '""')),
    ("PUT", '{"discard":%s}', ('"new"', '"Old"', "null")),
    ("PUT", '{"durability":%s}', ('"Disk"', '"none"', "1")),
    *[
        ("PUT", f'{{"{name}":%s}}', U64)
        for name in (
            "ttl_ms",
            "cap_records",
            "cap_bytes",
            "idempotency_window_ms",
            "lease_ms",
            "claim_jitter_ms",
            "max_deliveries",
        )
    ],
    *[
        ("PUT", f'{{"{name}":%s}}', BOOL)
        for name in ("durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable")
    ],
    ("PUT", '{"priority":%s}', ("2147483648", "-2147483649", "1.0", '"1"', "true")),
    ("PUT", '{"dead_letter":%s}', STRING),
    ("diff", '{"from_seq":%s}', U64),
    ("diff", '{"limit":%s}', U32),
    ("diff", '{"wait_ms":%s}', U32),
    ("diff", '{"max_batch_bytes":%s}', U64),
    ("diff", '{"include_tags":%s}', BOOL),
    ("diff", '{"include_meta":%s}', BOOL),
    ("diff", '{"node":%s}', ("1", "{}", "[1]", "[null]", "true")),
    ("diff", '{"from_ts":%s}', tuple(set(U64) - {"null"})),
    ("diff", '{"match":%s}', ("1", "[]", "{}", '["tag","Eq"]', '["tag","Eq",1]', "true")),
    ("delete", '{"before_seq":%s}', tuple(set(U64) - {"null"})),
    ("delete", '{"match":%s}', ("1", "[]", "{}", '["tag","Eq"]', '["node","Eq","x"]')),
    ("POST", '{"records":%s}', ("null", "1", "{}", '"x"', "[1]", "[null]", "[[]]", "[{}]", "[]")),
    ("POST", '{"records":[{"data":1,"tag":%s}]}', STRING),
    ("POST", '{"records":[{"data":1,"node":%s}]}', STRING),
    ("POST", '{"records":[{"data":1}],"node":%s}', STRING),
    ("POST", '{"records":[{"data":1}],"idempotency_key":%s}', STRING),
    ("POST", '{"records":[{"data":1}],"create":%s}', ("1", '"true"', "[]")),
    ("POST", '{"records":[{"data":1}],"config":%s}', ("1", "[]", '{"ttl_ms":-1}', '{"type":"x"}')),
    ("POST", '{"records":[{"data":1}],"disable_backpressure":%s}', BOOL),
    ("POST", '{"records":[{"data":1}],"expect_head":%s}', tuple(set(U64) - {"null"})),
    ("holes", '{"from_seq":%s,"to_seq":1}', U64),
    ("holes", '{"from_seq":1,"to_seq":%s}', U64),
    ("cursors/c", '{"seq":%s}', U64),
]


@pytest.mark.parametrize(
    ("where", "body", "values"), WRONG, ids=[f"{where} {body}" for where, body, _ in WRONG]
)
def test_a_value_of_another_type_or_range_is_refused(
    api: Api, where: str, body: str, values: tuple[str, ...]
) -> None:
    api.make("typed")
    path = "/v0/topics/typed" + ("" if where.isupper() else f"/{where}")
    method = "PUT" if where in ("PUT", "cursors/c") else "POST" if not where.isupper() else where
    for value in values:
        assert refused(api.call(method, path, body % value)) == BAD, value
    assert api.state("typed")["head_seq"] == 0


@pytest.mark.parametrize(
    ("where", "body"),
    [("", "{}"), ("/delete", "{}"), ("/holes", '{"from_seq":1}'), ("/holes", '{"to_seq":1}')],
)
def test_a_missing_required_field_is_refused(api: Api, where: str, body: str) -> None:
    api.make("typed")
    assert refused(api.post(f"/v0/topics/typed{where}", body)) == BAD


@pytest.mark.parametrize(
    ("where", "body"),
    [
        ("PUT", '{"priority":null,"dead_letter":null,"durability":null}'),
        ("PUT", '{"priority":-2147483648}'),
        ("PUT", '{"cap_bytes":18446744073709551615}'),
        ("POST", '{"records":[{"data":null,"tag":null,"node":null,"meta":null}],"node":null}'),
        (
            "POST",
            '{"records":[{"data":1}],"idempotency_key":null,"create":null,"config":null,'
            '"expect_head":null}',
        ),
        ("POST", '{"records":[{"data":1}],"config":{"priority":null,"dead_letter":null}}'),
        ("diff", '{"node":null,"match":null,"from_ts":null}'),
        ("diff", '{"limit":4294967295,"from_seq":18446744073709551615}'),
        ("delete", '{"before_seq":null,"match":"x"}'),
        ("delete", '{"before_seq":1,"match":null}'),
    ],
)
def test_null_is_the_same_as_absent_where_it_is_allowed(
    api: Api, topic: str, where: str, body: str
) -> None:
    api.make(topic)
    method = where if where.isupper() else "POST"
    path = f"/v0/topics/{topic}" + ("" if where.isupper() else f"/{where}")
    good(api.call(method, path, body))


def test_null_meta_is_no_meta(api: Api, topic: str) -> None:
    good(api.post(f"/v0/topics/{topic}", '{"records":[{"data":1,"meta":null,"tag":null}]}'))
    (record,) = api.diff(topic, include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "data"}
    assert api.state(topic)["bytes"] == 1


def test_a_delete_with_nothing_but_nulls_selects_nothing(api: Api) -> None:
    api.make("typed")
    assert refused(api.post("/v0/topics/typed/delete", {"before_seq": None, "match": None})) == BAD


def test_unknown_fields_are_ignored_at_every_level(api: Api, topic: str) -> None:
    sent = {
        "records": [{"data": 1, "lease_ms": "x", "records": 5, "$seq": 9}],
        "return_seqs": "yes",
        "lease_ids": None,
        "config": {"color": [1, {}], "ttl_ms": 5000},
        "seqs": {"deep": [None]},
    }
    assert good(api.post(f"/v0/topics/{topic}", sent))["seqs"] == [1]
    assert api.state(topic)["config"]["ttl_ms"] == 5000
    good(api.put(f"/v0/topics/{topic}", {"nope": None, "ttl_ms": 0}))
    api.diff(topic, lease_ms="x", records=None)
    good(api.post(f"/v0/topics/{topic}/delete", {"before_seq": 0, "limit": "x"}))
    made = good(
        api.post("/v0/watch", {"topics": {topic: {"color": 1}}, "seqs": [], "from_seq": "x"})
    )
    assert set(made["topics"]) == {topic}


@pytest.mark.parametrize(
    ("where", "body"),
    [
        ("PUT", '{"ttl_ms":1,"ttl_ms":1}'),
        ("POST", '{"records":[{"data":1}],"records":[{"data":1}]}'),
        ("POST", '{"records":[{"data":1,"data":2}]}'),
        ("POST", '{"records":[{"data":1,"tag":"a","tag":"a"}]}'),
        ("POST", '{"records":[{"data":1,"\\u0074ag":"a","tag":"a"}]}'),
        ("POST", '{"records":[{"data":1}],"config":{"ttl_ms":1,"ttl_ms":1}}'),
        ("diff", '{"limit":1,"limit":1}'),
        ("delete", '{"before_seq":1,"before_seq":1}'),
    ],
)
def test_a_known_field_twice_is_refused(api: Api, where: str, body: str) -> None:
    api.make("typed")
    method = where if where.isupper() else "POST"
    path = "/v0/topics/typed" + ("" if where.isupper() else f"/{where}")
    assert refused(api.call(method, path, body)) == BAD


def test_an_unknown_field_twice_is_ignored(api: Api, topic: str) -> None:
    good(api.post(f"/v0/topics/{topic}", '{"records":[{"data":1,"x":1,"x":2}],"y":1,"y":2}'))


# Payloads


PAYLOADS = [
    "null",
    "true",
    "0",
    "-0",
    "-0.0",
    "1e2",
    "1E+2",
    "1.10",
    "1e400",
    "-1e-400",
    "123456789012345678901234567890",
    "9" * 500,
    "0.1000000000000000055511151231257827021181583404541015625",
    '""',
    '"\\u0041\\/\\b\\f\\n\\r\\t\\"\\\\"',
    '"\\u00e9é\\ud83d\\ude00😀"',
    '"\\u0000\\u001f\\u2028"',
    '"  spaces  stay  "',
    '"line\\nfeed"',
    "{}",
    "[]",
    '{"b":1,"a":2,"b":3}',
    '{"":{"":[]}}',
    '{"z":1,"\\u007a":2}',
    '["\u2028","\u2029","\x7f"]',
    '{"$seq":9,"data":"x","error":{}}',
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payloads_come_back_byte_for_byte(
    api: Api, shared_server: ServerProcess, topic: str, payload: str
) -> None:
    body = f'{{"records":[{{"data":{payload},"meta":{payload}}}]}}'
    good(api.post(f"/v0/topics/{topic}", body))
    wanted = f'"data":{payload}' + (f',"meta":{payload}' if payload != "null" else "") + "}"
    size = len(payload.encode()) * (2 if payload != "null" else 1)
    assert wanted in api.post(f"/v0/topics/{topic}/diff").text
    assert wanted in api.get(f"/v0/topics/{topic}/records").text
    assert api.state(topic)["bytes"] == size
    if api.version == "HTTP/1.1":
        made = watch(shared_server, topic)
        with EventStream(shared_server, made["stream_url"]) as stream:
            stream.next()
            assert wanted in stream.next().raw


def test_whitespace_outside_strings_is_removed_and_not_counted(api: Api, topic: str) -> None:
    sent = '{ "records" : [ { "data" :\r\n\t{ "a b" : [ 1 , " x  y " ] } , "meta" : [ 1 , 2 ] } ] }'
    good(api.post(f"/v0/topics/{topic}", sent))
    shown = api.post(f"/v0/topics/{topic}/diff").text
    assert '"data":{"a b":[1," x  y "]},"meta":[1,2]}' in shown
    assert api.state(topic)["bytes"] == len('{"a b":[1," x  y "]}') + len("[1,2]")


def test_a_batch_of_every_payload_keeps_each(api: Api, topic: str) -> None:
    body = '{"records":[' + ",".join(f'{{"data":{text}}}' for text in PAYLOADS) + "]}"
    good(api.post(f"/v0/topics/{topic}", body))
    shown = api.post(f"/v0/topics/{topic}/diff").text
    found = re.findall(r'"\$ts":\d+,"data":(.*?)}(?=,\{"\$seq":\d+,"\$ts"|\],"next_from)', shown)
    assert found == PAYLOADS


def floats(node: object) -> list[object]:
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return (
        [node] if isinstance(node, float) else [found for item in inside for found in floats(item)]
    )


def test_numbers_of_the_server_are_integers(api: Api, topic: str) -> None:
    api.write(topic, 1, 2)
    for answer in (
        api.get(f"/v0/topics/{topic}"),
        api.post(f"/v0/topics/{topic}/diff"),
        api.get("/v0/topics"),
        api.post(f"/v0/topics/{topic}", {"records": [{"data": 1}]}),
        api.get("/v0/health"),
    ):
        body = answer.json()
        body.pop("performance", None)
        assert floats(body) == []


def test_frames_can_be_matched_as_text(
    shared_server: ServerProcess, topic: str, connect: Connect
) -> None:
    api = connect(shared_server)
    api.write(topic, 1, 2, 3)
    made = watch(shared_server, topic)
    with EventStream(shared_server, made["stream_url"]) as stream:
        assert '"$seq":3,' in stream.until("record")[-1].raw
        api.delete(f"/v0/topics/{topic}")
        assert '"reason":"deleted"' in stream.until("topic-deleted")[-1].raw
