"""Copies a router makes: what they keep, what they lose, how they are signed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.batch import RecordBatch
from topics.core import derive as derive_module
from topics.core.derive import (
    CopyRule,
    accepts,
    derive,
    forwards,
    key_for,
    key_in,
    next_hops,
    router_key,
    rule_of,
    rule_of_pass,
    sign,
)
from topics.core.facts import Forwarded, Match
from topics.core.routers import Router
from topics.wire import jsonbytes

RULE = CopyRule("orders->packing", "orders", source_id=10, source_epoch=17)
SIGNING = CopyRule("orders->packing", "orders", source_id=10, source_epoch=17, exactly_once=True)
KEY = "router:orders->packing:10:17:4"
SIGNATURE = (
    b'"_topics_router":{"idempotency_key":"router:orders->packing:10:17:4",'
    b'"router":"orders->packing","source_topic":"orders","source_topic_id":10,'
    b'"source_epoch":17,"source_seq":4}'
)
BATCH = RecordBatch(
    [b'{"a":1e2}', b"null"], metas=[b'{"m":1}', b""], tags=["eu", None], nodes=[None, "n1"]
)


def signed(meta: bytes) -> bytes:
    return sign(SIGNING, 4, meta, jsonbytes)


# Which records are copied


def test_a_router_without_filter_takes_every_record() -> None:
    assert accepts(None, None)
    assert accepts(None, "eu:1")


@pytest.mark.parametrize(
    ("match", "tag", "expected"),
    [
        (Match("eu"), "eu", True),
        (Match("eu"), "eu:1", False),
        (Match("eu:", is_prefix=True), "eu:1", True),
        (Match("eu:", is_prefix=True), "us:1", False),
        (Match("", is_prefix=True), "", True),
        (Match("", is_prefix=True), None, False),
        (Match("eu"), None, False),
    ],
)
def test_a_filter_judges_the_tag_and_no_untagged_record_passes(
    match: Match, tag: str | None, *, expected: bool
) -> None:
    assert accepts(match, tag) is expected


def test_only_a_router_that_allows_cycles_stops_at_eight_hops() -> None:
    straight = Router("r", "a", "b", 1, 2)
    looping = Router("r", "a", "b", 1, 2, allow_cycle=True)
    assert forwards(straight, tag=None, hops=15)
    assert forwards(looping, tag=None, hops=7)
    assert not forwards(looping, tag=None, hops=8)
    assert not forwards(looping, tag=None, hops=15)


def test_a_filter_counts_whatever_the_hops() -> None:
    router = Router("r", "a", "b", 1, 2, allow_cycle=True, match=Match("eu"))
    assert forwards(router, tag="eu", hops=0)
    assert not forwards(router, tag="us", hops=0)
    assert not forwards(router, tag=None, hops=0)


def test_each_copy_counts_one_hop_more_up_to_fifteen() -> None:
    assert [next_hops(hops) for hops in (0, 1, 13, 14, 15)] == [1, 2, 14, 15, 15]


# What a copy keeps


def test_a_copy_keeps_every_byte_and_name() -> None:
    assert derive(RULE, [4, 5], BATCH, jsonbytes) == BATCH


@pytest.mark.parametrize("keep_node", [True, False])
@pytest.mark.parametrize("keep_tag", [True, False])
def test_node_and_tag_stay_behind_when_told(*, keep_node: bool, keep_tag: bool) -> None:
    rule = CopyRule("r", "s", 1, 1, preserve_node=keep_node, preserve_tag=keep_tag)
    assert derive(rule, [4, 5], BATCH, jsonbytes) == RecordBatch(
        BATCH.datas,
        metas=BATCH.metas,
        tags=BATCH.tags if keep_tag else None,
        nodes=BATCH.nodes if keep_node else None,
    )


def test_payloads_need_not_even_be_json() -> None:
    batch = RecordBatch([b"\xff"], metas=[b"{broken"])
    assert derive(RULE, [4], batch, jsonbytes) == batch


def test_a_signing_router_signs_each_record_with_its_own_seq() -> None:
    copies = derive(SIGNING, [4, 9], BATCH, jsonbytes)
    assert copies.datas == BATCH.datas
    assert copies.metas is not None
    assert [key_in(meta) for meta in copies.metas] == [KEY, KEY[:-1] + "9"]
    assert copies.metas[0] == b'{"m":1,' + SIGNATURE + b"}"


def test_a_batch_without_metas_is_signed_too() -> None:
    copies = derive(SIGNING, [4], RecordBatch([b"1"]), jsonbytes)
    assert copies.metas == [b"{" + SIGNATURE + b"}"]


def test_seqs_and_records_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="zip"):
        derive(SIGNING, [4], BATCH, jsonbytes)


# Signatures


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (b"", b"{" + SIGNATURE + b"}"),
        (b"{}", b"{" + SIGNATURE + b"}"),
        (b'{"b":1e2,"a":{"_topics_router":1}}',) * 2,
        (b"[1,2]", b'{"_topics_original_meta":[1,2],' + SIGNATURE + b"}"),
        (b'"{"', b'{"_topics_original_meta":"{",' + SIGNATURE + b"}"),
        (b"false", b'{"_topics_original_meta":false,' + SIGNATURE + b"}"),
    ],
)
def test_a_signature_extends_an_object_and_wraps_anything_else(
    meta: bytes, expected: bytes
) -> None:
    if meta == expected:
        expected = meta[:-1] + b"," + SIGNATURE + b"}"
    assert signed(meta) == expected


@pytest.mark.parametrize(
    "earlier", [b'"_topics_router":{"x":[1,"}"]}', b'"\\u005ftopics_router":null', SIGNATURE]
)
def test_an_earlier_signature_is_replaced_wherever_it_stands(earlier: bytes) -> None:
    expected = b'{"a":1,"b":2,' + SIGNATURE + b"}"
    assert signed(b"{" + earlier + b',"a":1,"b":2}') == expected
    assert signed(b'{"a":1,' + earlier + b',"b":2}') == expected
    assert signed(b'{"a":1,"b":2,' + earlier + b"}") == expected
    assert signed(b"{" + earlier + b"}") == b"{" + SIGNATURE + b"}"


def object_of(members: int) -> bytes:
    return b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(members)) + b"}"


def test_a_full_object_moves_aside_as_a_whole() -> None:
    full = object_of(64)
    assert signed(full) == b'{"_topics_original_meta":' + full + b"," + SIGNATURE + b"}"
    assert signed(object_of(63)) == object_of(63)[:-1] + b"," + SIGNATURE + b"}"


def test_replacing_a_signature_needs_no_room() -> None:
    once = signed(object_of(63))
    assert jsonbytes.member_count(once) == 64
    assert signed(once) == once


def test_a_wrapped_meta_is_not_wrapped_again_by_the_next_router() -> None:
    assert signed(signed(b"[1]")) == signed(b"[1]")


def test_a_key_names_router_source_instance_and_seq() -> None:
    assert router_key("r", source_id=1, source_epoch=2, source_seq=3) == "router:r:1:2:3"
    assert key_for(SIGNING, 4) == KEY


@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b"{}",
        b"[]",
        b'"_topics_router"',
        b'{"a":{"_topics_router":{"idempotency_key":"x"}}}',
        b'{"_topics_router":1}',
        b'{"_topics_router":{}}',
        b'{"_topics_router":{"idempotency_key":5}}',
    ],
)
def test_meta_without_a_usable_signature_has_no_key(meta: bytes) -> None:
    assert key_in(meta) is None


def test_a_moved_signature_is_not_taken_for_the_copys_own() -> None:
    inner = b'{"_topics_router":{"idempotency_key":"old"},' + object_of(64)[1:]
    assert key_in(signed(inner)) == KEY


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(json_values)
def test_any_meta_can_be_signed_and_found_again(value: object) -> None:
    meta = signed(jsonbytes.encode(value))
    found = json.loads(meta)
    assert found.pop(derive_module.SIGNATURE)["idempotency_key"] == KEY == key_in(meta)
    assert found == (value if isinstance(value, dict) else {"_topics_original_meta": value})


# Rules


@pytest.mark.parametrize("knobs", [(True, False, True), (False, True, False)])
def test_a_router_and_its_logged_passes_have_the_same_rule(knobs: tuple[bool, bool, bool]) -> None:
    node, tag, once = knobs
    router = Router("r", "s", "d", 1, 2, preserve_node=node, preserve_tag=tag, exactly_once=once)
    fact = Forwarded(
        topic_id=2,
        ts=0,
        router="r",
        source_id=1,
        preserve_node=node,
        preserve_tag=tag,
        create_dest=True,
        allow_cycle=False,
        exactly_once=once,
        dest_first=1,
        cursor=1,
        forwarded_total=1,
        runs=(),
    )
    rule = rule_of(router, source_epoch=7)
    assert rule == rule_of_pass(fact, source="s", source_epoch=7)
    assert rule == CopyRule("r", "s", 1, 7, preserve_node=node, preserve_tag=tag, exactly_once=once)
