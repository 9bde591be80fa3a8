"""Whatever arrives, a decoder either understands it or refuses it as an invalid request."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import InvalidRequest
from topics.wire import requests
from topics.wire.cursors import list_cursor, parse_list_cursor, parse_stream_id, stream_id
from topics.wire.jsonbytes import compact
from topics.wire.query import parse_query

DECODERS: dict[str, Callable[[bytes], Any]] = {
    name: getattr(requests, name)
    for name in requests.__all__
    if name.startswith("decode_") and not name.endswith("_in_steps")
}
every_decoder = pytest.mark.parametrize("name", DECODERS)

FIELDS = sorted(
    {
        field
        for name in requests.__all__
        for field in getattr(getattr(requests, name), "__struct_encode_fields__", ())
    }
    | {"op", "unknown", "a"}
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-2, max_value=3)
    | st.sampled_from([1 << 31, 1 << 32, 1 << 63, 1 << 64, 10**40, 5.0])
    | st.text(max_size=3)
    | st.sampled_from(["log", "queue", "fsync", "ping", "publish", "subscribe", "tag", "Eq", "*"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(FIELDS), values, max_size=8)


@every_decoder
@given(body=st.binary(max_size=60))
def test_random_bytes_are_refused(name: str, body: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        DECODERS[name](body)


@every_decoder
@given(body=objects, cut=st.integers(min_value=0, max_value=400), junk=st.binary(max_size=2))
def test_random_objects_whole_or_cut_are_understood_or_refused(
    name: str, body: dict[str, Any], cut: int, junk: bytes
) -> None:
    raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for text in (raw, raw[:cut] + junk, raw[:cut] + junk + raw[cut:]):
        with contextlib.suppress(InvalidRequest):
            DECODERS[name](text)


# The short path of a write

names = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
records = st.fixed_dictionaries(
    {"data": values}, optional={"tag": names, "node": names, "meta": values, "zz": values}
)
writes = st.fixed_dictionaries(
    {"records": st.lists(records, max_size=4)},
    optional={
        "node": names,
        "idempotency_key": names,
        "create": st.none() | st.booleans(),
        "disable_backpressure": st.booleans(),
        "expect_head": st.none() | st.integers(min_value=0, max_value=(1 << 64) - 1),
        "config": st.none() | st.just({"type": "queue", "ttl_ms": 5}),
        "zz": values,
    },
)


@given(write=writes, ascii_only=st.booleans(), indent=st.sampled_from([None, 0, 1]))
def test_columns_of_a_write_hold_what_was_sent(
    write: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(write, ensure_ascii=ascii_only, indent=indent)
    found = requests.decode_write(text.encode())
    drafts = found.drafts
    nothing: list[Any] = [None] * len(drafts)
    sent = write["records"]
    default = write.get("node")
    nodes = [record.get("node") for record in sent]
    assert [json.loads(data) for data in drafts.datas] == [record["data"] for record in sent]
    assert [json.loads(meta) if meta else None for meta in drafts.metas or nothing] == [
        record.get("meta") for record in sent
    ]
    assert (drafts.tags or nothing) == [record.get("tag") for record in sent]
    assert (drafts.nodes or nothing) == [default if node is None else node for node in nodes]
    assert found.expect_head == write.get("expect_head")
    assert found.create == write.get("create")
    for payload in drafts.datas:
        assert payload == compact(payload)


@given(
    write=writes,
    repeat=st.sampled_from(["records", "node", "create", "expect_head", "config"]),
    where=st.sampled_from(["body", "record"]),
)
def test_no_repeated_field_slips_through_the_short_path(
    write: dict[str, Any], repeat: str, where: str
) -> None:
    text = json.dumps(write)
    if where == "body":
        value = json.dumps(write.get(repeat))
        twice = text[:-1] + f',"{repeat}":{value},"{repeat}":{value}}}'
    else:
        name = {"records": "data", "create": "tag"}.get(repeat, "meta")
        extra = json.dumps({"data": 1, "tag": "t", "meta": {}})
        record = extra[:-1] + f',"{name}":"t"}}'
        body = dict(write)
        body["records"] = "HERE"
        twice = json.dumps(body).replace('"HERE"', f"[{record}]", 1)
    with pytest.raises(InvalidRequest):
        requests.decode_write(twice.encode())


# Cursors and queries


@given(text=st.text(max_size=20))
def test_random_cursors_are_understood_or_refused(text: str) -> None:
    parse_stream_id(text)
    with contextlib.suppress(InvalidRequest):
        parse_list_cursor(text)


@given(
    positions=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.integers(min_value=0, max_value=(1 << 64) - 1),
    )
)
def test_cursors_come_back_as_they_went_out(positions: dict[str, int]) -> None:
    assert parse_stream_id(stream_id(positions)) == positions
    for name in positions:
        assert parse_list_cursor(list_cursor(name)) == name


@given(raw=st.text(max_size=30).map(str.encode) | st.binary(max_size=30))
def test_no_query_fails(raw: bytes) -> None:
    query = parse_query(raw)
    query.flag("a", default=True)
    query.u64("a")
