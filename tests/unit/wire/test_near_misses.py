"""A misspelt field is refused wherever a request object is decoded, and nothing else is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import InvalidRequest, MisspeltField
from topics.wire import near_misses, requests
from topics.wire.endpoints import ENDPOINTS
from topics.wire.shapes import shape_of

MISSPELT: list[tuple[str, dict[str, Any], str, str]] = [
    ("delete", {"before_seq": 9, "mtach": "user-7"}, "mtach", "match"),
    ("delete", {"befor_seq": 9}, "befor_seq", "before_seq"),
    ("config", {"durabilty": "fsync"}, "durabilty", "durability"),
    ("config", {"cap_record": 5}, "cap_record", "cap_records"),
    ("config", {"capRecords": 5}, "capRecords", "cap_records"),
    ("write", {"recrods": [{"data": 1}]}, "recrods", "records"),
    ("write", {"records": [{"data": 1, "metaa": 2}]}, "metaa", "meta"),
    ("write", {"records": [], "config": {"disacrd": "reject"}}, "disacrd", "discard"),
    ("write", {"records": [{"data": 1}], "idempotency_kye": "k"}, "idempotency_kye", ""),
    ("write", {"records": "wrong", "expect_haed": 1}, "expect_haed", "expect_head"),
    ("diff", {"Match": "a"}, "Match", "match"),
    ("router", {"souce": "a", "dest": "b"}, "souce", "source"),
    ("watch", {"topics": {"a": {"from_sqe": 1}}}, "from_sqe", "from_seq"),
    ("ack", {"node": "w", "seqs": [1], "leases_ids": []}, "leases_ids", "lease_ids"),
    ("stage", {"records": [{"data": 1, "topci": "a"}]}, "topci", "topic"),
    ("command", {"op": "publish", "topci": "a", "records": []}, "topci", "topic"),
    ("command", {"op": "subscribe", "topic": "a", "form_seq": 3}, "form_seq", "from_seq"),
    ("command", {"op": "subscribe", "topics": {"a": {"from_sqe": 1}}}, "from_sqe", "from_seq"),
]


def decode(kind: str, body: dict[str, Any]) -> object:
    return getattr(requests, f"decode_{kind}")(json.dumps(body).encode())


@pytest.mark.parametrize(("kind", "body", "sent", "meant"), MISSPELT)
def test_a_misspelt_field_is_refused_with_the_name_that_was_meant(
    kind: str, body: dict[str, Any], sent: str, meant: str
) -> None:
    with pytest.raises(MisspeltField) as refused:
        decode(kind, body)
    assert refused.value.code == "invalid_request"
    assert refused.value.detail == {"field": sent, "did_you_mean": meant or "idempotency_key"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("ack", {"node": "w", "seqs": [1], "lease_ms": 5}),
        ("write", {"records": [{"data": 1}], "return_seqs": False}),
        ("write", {"records": [{"$seq": 1, "$ts": 2, "$node": "n", "$tag": "t", "data": 1}]}),
        ("delete", {"before_seq": 9, "x_match": 1, "x-match": 2}),
        ("delete", {"before_seq": 9, "mtch": 1, "note": 2, "comment": 3}),
        ("delete", {"before_seq": 9, "mathes": 1}),
        ("delete", {"before_seq": 9, "headers": {"mtach": 1}}),
        ("write", {"records": [{"data": {"mtach": 1, "recrods": 2}, "meta": {"metaa": 1}}]}),
        ("command", {"op": "ping", "topcis": 1}),
    ],
)
def test_other_unknown_fields_are_ignored(kind: str, body: dict[str, Any]) -> None:
    decode(kind, body)


def test_a_command_that_nobody_can_read_is_no_misspelling() -> None:
    for message in (b"[1]", b'{"op":7}', b'{"op":"publsh","topci":"a"}'):
        with pytest.raises(InvalidRequest):
            requests.decode_command(message)
        assert requests.request_id_of(b"[") is not None


def test_no_field_of_an_endpoint_is_taken_for_a_misspelling() -> None:
    for endpoint in ENDPOINTS:
        for parameter in endpoint.query:
            if endpoint.body is not None:
                known = frozenset(shape_of(endpoint.body).__struct_encode_fields__)
                near_misses.NearMisses().refuse([parameter.name], known)


def test_only_so_many_unknown_names_are_compared() -> None:
    look = near_misses.NearMisses()
    many = [f"unrelated_{number}" for number in range(near_misses.MAX_LOOKED_AT)]
    look.refuse(many, frozenset({"match"}))
    look.refuse(["mtach"], frozenset({"match"}))


words = st.text("abc", max_size=6)


@given(words, words)
def test_the_distance_counts_edits_and_swaps(one: str, other: str) -> None:
    distance = near_misses._distance(one, other)
    assert distance == near_misses._distance(other, one)
    assert abs(len(one) - len(other)) <= distance <= max(len(one), len(other))
    assert (distance == 0) == (one == other)


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [("match", "mtach", 1), ("match", "mach", 1), ("ca", "abc", 2), ("", "ab", 2), ("a", "b", 1)],
)
def test_a_swap_counts_as_one_edit(one: str, other: str, distance: int) -> None:
    assert near_misses._distance(one, other) == distance
