"""Columns of Spark types as JSON: by example for every type, and against Python's own encoder."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.spark.sink.encode import Unencodable, checked_json, first_refused, json_of, text_of

A_MOMENT = datetime(2026, 2, 3, 4, 5, 6, 7, UTC)
TOO_DEEP = "[" * 125 + "]" * 125


def shown(values: list[Any], kind: pa.DataType) -> list[str]:
    texts: list[str] = json_of(pa.array(values, kind)).to_pylist()
    return texts


# By type


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.bool_(), True, "true"),
        (pa.int8(), -7, "-7"),
        (pa.int64(), 2**63 - 1, "9223372036854775807"),
        (pa.float64(), 1.0, "1.0"),
        (pa.float64(), -0.0, "-0.0"),
        (pa.float64(), 0.1, "0.1"),
        (pa.float64(), 1e300, "1e+300"),
        (pa.float32(), 0.1, "0.1"),
        (pa.decimal128(38, 2), Decimal("12345678901234567890.10"), "12345678901234567890.10"),
        (pa.decimal128(10, 0), Decimal(5), "5"),
        (pa.string(), "plain", '"plain"'),
        (pa.large_string(), "large", '"large"'),
        (pa.string(), 'a "b" \\ \n\t\x00 ä €', '"a \\"b\\" \\\\ \\n\\t\\u0000 ä €"'),
        (pa.binary(), b"\x00\xff", '"AP8="'),
        (pa.date32(), date(2026, 2, 3), '"2026-02-03"'),
        (pa.time64("us"), time(1, 2, 3, 4), '"01:02:03.000004"'),
        (pa.timestamp("us", "UTC"), A_MOMENT, '"2026-02-03T04:05:06.000007Z"'),
        (pa.timestamp("us"), datetime(2026, 2, 3), '"2026-02-03T00:00:00.000000"'),
        (pa.null(), None, "null"),
        (pa.list_(pa.int32()), [], "[]"),
        (pa.list_(pa.string()), ["a,", ",", None], '["a,",",",null]'),
        (pa.map_(pa.string(), pa.int32()), [('"k"', 1), ("l", None)], '{"\\"k\\"":1,"l":null}'),
        (pa.map_(pa.int32(), pa.int32()), [(1, 2)], '{"1":2}'),
        (pa.map_(pa.date32(), pa.int32()), [(date(2026, 1, 1), 2)], '{"2026-01-01":2}'),
        (pa.struct([("a", pa.int32())]), {"a": None}, '{"a":null}'),
        (pa.struct([("a", pa.int32()), ('b"', pa.int8())]), {"a": 1, 'b"': 2}, '{"a":1,"b\\"":2}'),
        (pa.struct([]), {}, "{}"),
    ],
)
def test_each_type_has_its_form(kind: pa.DataType, value: object, text: str) -> None:
    assert shown([value], kind) == [text]
    assert shown([None, value, None], kind)[::2] == ["null", "null"]


def test_a_time_of_another_zone_is_shown_in_utc() -> None:
    zone = timezone(timedelta(hours=2))
    kind = pa.timestamp("us", "Europe/Berlin")
    assert shown([datetime(2026, 7, 1, 2, tzinfo=zone)], kind) == ['"2026-07-01T00:00:00.000000Z"']


def test_texts_of_times_sort_as_the_times_do() -> None:
    moments = [A_MOMENT + timedelta(microseconds=99_999 * n) for n in range(50)]
    texts = shown(moments, pa.timestamp("us", "UTC"))
    assert sorted(texts) == texts


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_what_is_no_number_is_refused_wherever_it_hides(kind: pa.DataType, value: float) -> None:
    with pytest.raises(Unencodable, match="NaN or Infinity"):
        shown([value], kind)
    with pytest.raises(Unencodable, match="NaN or Infinity"):
        shown([{"a": [value]}], pa.struct([("a", pa.list_(kind))]))


def test_what_lies_under_a_null_does_not_count() -> None:
    inner = pa.array([float("nan"), 1.0])
    column = pa.StructArray.from_arrays([inner], ["x"], mask=pa.array([True, False]))
    assert json_of(column).to_pylist() == ["null", '{"x":1.0}']
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), inner, mask=pa.array([True, False]))
    assert json_of(lists).to_pylist() == ["null", "[1.0]"]


def test_a_type_without_a_form_is_refused_with_a_remedy() -> None:
    with pytest.raises(Unencodable, match=r"duration\[us\] .*cast it to a string"):
        shown([timedelta(1)], pa.duration("us"))
    with pytest.raises(Unencodable, match="keys of a JSON object are strings"):
        shown([[({"a": 1}, 1)]], pa.map_(pa.struct([("a", pa.int32())]), pa.int32()))


def test_bytes_that_are_no_text_are_refused() -> None:
    broken = pa.array([b"1", b"\xff"]).cast(pa.binary())
    column = pa.StringArray.from_buffers(2, *broken.buffers()[1:])
    for encode in (json_of, text_of, checked_json):
        with pytest.raises(Unencodable, match="UTF-8"):
            encode(column)
        assert first_refused(column, encode)[0] == 1


# Strings that are JSON, and strings that are not meant to be


def test_json_passes_as_it_is_spelled() -> None:
    column = pa.array(['{"b": 1e2}', None, "[1]", '"x"'])
    assert checked_json(column).equals(column)


@pytest.mark.parametrize("text", ["{not json", "", "NaN", "1 2", '"\\ud800"', TOO_DEEP])
def test_what_is_no_json_is_refused_and_found(text: str) -> None:
    column = pa.array(["1", None, "{}", text, "2", text])
    with pytest.raises(Unencodable):
        checked_json(column)
    assert first_refused(column, checked_json)[0] == 3


def test_as_text_anything_passes() -> None:
    column = pa.array(["{not json", None, "", 'a"b'])
    assert [json.loads(text) for text in text_of(column).to_pylist()] == column.to_pylist()


# Against a naive encoder


LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.string(), st.text()),
    (pa.bool_(), st.booleans()),
]


def columns_of(depth: int) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """A type, and what makes values of it."""
    leaf = st.sampled_from(LEAVES)
    if not depth:
        return leaf
    inner = columns_of(depth - 1)
    return st.one_of(
        leaf,
        inner.map(lambda made: (pa.list_(made[0]), st.lists(_or_none(made[1]), max_size=3))),
        inner.map(
            lambda made: (
                pa.map_(pa.string(), made[0]),
                st.lists(st.tuples(st.text(), _or_none(made[1])), max_size=3),
            )
        ),
        st.lists(st.tuples(st.text(), inner), max_size=3, unique_by=lambda field: field[0]).map(
            lambda fields: (
                pa.struct([(name, made[0]) for name, made in fields]),
                st.fixed_dictionaries({name: _or_none(made[1]) for name, made in fields}),
            )
        ),
    )


def _or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def plain(value: Any, kind: pa.DataType) -> object:  # noqa: ANN401 - any Arrow value
    """What a parser should give back, keys in order."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, plain(item, kind.item_type)) for key, item in value]
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return [(field.name, plain(value[field.name], field.type)) for field in kind]
    return value


@given(made=columns_of(3), data=st.data())
def test_nested_columns_read_back_as_they_were(
    made: tuple[pa.DataType, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    kind, values = made
    rows = data.draw(st.lists(_or_none(values), max_size=6))
    skipped = data.draw(st.integers(0, len(rows)))
    column = pa.array(rows, kind).slice(skipped)
    read = [json.loads(text, object_pairs_hook=list) for text in json_of(column).to_pylist()]
    wanted = [plain(row, kind) for row in rows[skipped:]]
    assert json.dumps(read) == json.dumps(wanted)


def test_rows_cut_out_of_a_larger_batch_are_encoded_as_they_are_alone() -> None:
    names = ["plain", 'a "quote"', "new\nline", None, "ä", "tail"]
    rows = pa.array([{"name": name, "price": 2.0, "far": 1e300} for name in names])
    whole = json_of(rows).to_pylist()
    for first in range(len(names)):
        for count in range(len(names) - first + 1):
            assert json_of(rows.slice(first, count)).to_pylist() == whole[first : first + count]
    assert whole[1] == '{"name":"a \\"quote\\"","price":2.0,"far":1e+300}'
