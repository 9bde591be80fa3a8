import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import InvalidRequest
from topics.wire.jsonbytes import (
    compact,
    drop_members,
    encode,
    member_count,
    splice_members,
)

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

texts = st.text(st.characters(codec="utf-8"), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values: st.SearchStrategy[Json] = st.recursive(
    scalars.filter(lambda v: not isinstance(v, float) or math.isfinite(v)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)
objects = st.dictionaries(texts, values, max_size=6)
indents = st.sampled_from([None, 1, "\t"])
# Fragments of JSON in any order: mostly malformed, often only just.
PIECES = rb"""{ } [ ] , : " \ \u d800 dc00 0 - 1 . e + null true NaN Infinity "a" "a": [1] {} \" """
NOISE = [b" ", b"\n", b"\x00", b"\x0c", b"\xc3", b"\xa9", b"\xff", b"\xef\xbb\xbf"]
fragments = st.lists(st.sampled_from([*PIECES.split(), *NOISE]), max_size=12).map(b"".join)


def reject_constant(name: str) -> float:
    raise ValueError(name)


def strictly_loads(raw: bytes) -> object:
    """The standard parser, made as strict as ours: a second opinion on validity."""
    # Pairs instead of dicts, so that a repeated key hides nothing.
    value = json.loads(raw.decode(), parse_constant=reject_constant, object_pairs_hook=list)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def is_strict_json(raw: bytes) -> bool:
    try:
        strictly_loads(raw)
    except ValueError:
        return False
    return True


@given(values)
def test_compact_json_is_left_alone(value: Json) -> None:
    for raw in (
        json.dumps(value, separators=(",", ":")).encode(),
        json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(),
    ):
        assert compact(raw) is raw


@given(values, indents)
def test_removing_whitespace_keeps_value_and_spelling(
    value: Json, indent: int | str | None
) -> None:
    tight = json.dumps(value, separators=(",", ":")).encode()
    assert compact(json.dumps(value, indent=indent).encode()) == tight


@given(values)
def test_an_encoded_value_is_compact_and_means_the_same(value: Json) -> None:
    raw = encode(value)
    assert compact(raw) is raw
    assert json.loads(raw) == value


@given(st.binary(max_size=40) | fragments)
def test_arbitrary_bytes_are_judged_as_the_standard_parser_judges_them(raw: bytes) -> None:
    if not is_strict_json(raw):
        with pytest.raises(InvalidRequest):
            compact(raw)
        return
    stored = compact(raw)
    assert strictly_loads(stored) == strictly_loads(raw)
    assert compact(stored) is stored


@given(values, st.data())
def test_a_damaged_text_is_either_refused_or_still_strict_json(
    value: Json, data: st.DataObject
) -> None:
    raw = bytearray(json.dumps(value, ensure_ascii=False).encode())
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidRequest):
        strictly_loads(compact(raw))


@given(objects, st.dictionaries(texts, texts, max_size=3))
def test_splicing_adds_members_and_dropping_them_restores_the_bytes(
    meta: dict[str, Json], extra: dict[str, str]
) -> None:
    own = {key: item for key, item in meta.items() if key not in extra}
    raw = encode(own)
    spliced = splice_members(raw, extra)
    assert json.loads(spliced) == {**own, **extra}
    assert member_count(spliced) == len(own) + len(extra)
    assert compact(spliced) is spliced
    assert drop_members(spliced, extra) == raw
