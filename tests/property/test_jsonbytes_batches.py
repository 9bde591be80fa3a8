"""Many values at once become exactly what they become one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import InvalidRequest
from topics.wire.jsonbytes import compact, compact_all, encode, encode_all

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.just(msgspec.Raw(b"1\n")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
texts = st.sampled_from(
    [
        b"1",
        b" 1",
        b'"a b"',
        b'{"a": 1}',
        b"[1",
        b"2]",
        b"1,2",
        b"",
        b'"\xc3',
        b'\xa9"',
        b'"\xc3\xa9"',
        b"nul",
        b"null",
        b"[" * 200,
        b"[" * 200 + b"]" * 200,
        b'"' + b"[" * 300 + b'"',
    ]
)


def outcome(work: Callable[[], list[bytes]]) -> list[bytes] | str:
    try:
        return work()
    except InvalidRequest as error:
        return str(error)


@given(st.lists(values, max_size=6))
def test_encoding_a_batch_is_encoding_each_value(batch: list[Any]) -> None:
    assert outcome(lambda: encode_all(batch)) == outcome(lambda: [encode(v) for v in batch])


@given(st.lists(texts, max_size=6))
def test_compacting_a_batch_accepts_what_each_text_would(batch: list[bytes]) -> None:
    at_once = outcome(lambda: compact_all(batch))
    one_by_one = outcome(lambda: [compact(raw) for raw in batch])
    assert isinstance(at_once, str) == isinstance(one_by_one, str)
    if isinstance(one_by_one, list):
        assert at_once == one_by_one


def test_a_raw_value_with_line_breaks_stays_one_value() -> None:
    assert encode_all([msgspec.Raw(b"[1,\n2]"), {"a": 1}]) == [b"[1,2]", b'{"a":1}']


def test_a_value_that_is_not_json_is_refused_wherever_it_stands() -> None:
    with pytest.raises(InvalidRequest, match="NaN"):
        encode_all([{"a": 1}, {"a": float("nan")}])
    with pytest.raises(InvalidRequest):
        compact_all([b"1", b"{"])
