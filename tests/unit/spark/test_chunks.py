"""Rows as chunks to stage: what a record becomes, where chunks end, what is wrong with a row."""

from __future__ import annotations

from itertools import accumulate, chain, count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.spark.sink.chunks import CHUNK_BYTES, Chunk, RowEncoder, chunks
from topics.spark.sink.encode import Unencodable

PARTITION = 3
TO_ORDERS = RowEncoder(PARTITION, "orders", as_text=False)


def batch(**columns: Any) -> pa.RecordBatch:  # noqa: ANN401 - lists and arrays
    return pa.RecordBatch.from_pydict(columns)


def rows_of(chunk: Chunk) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.ipc.open_stream(chunk.body).read_all().to_pylist()
    return rows


def only(encoder: RowEncoder, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    (chunk,) = chunks(batches, encoder)
    return rows_of(chunk)


# Records


def test_a_row_becomes_a_record_of_the_topic() -> None:
    rows = batch(data=['{"a": 1}', None], tag=["x", None], meta=["[1]", None], node=[None, "n"])
    assert only(TO_ORDERS, rows) == [
        {"topic": "orders", "data": '{"a": 1}', "tag": "x", "node": None, "meta": "[1]"},
        {"topic": "orders", "data": None, "tag": None, "node": "n", "meta": None},
    ]


def test_values_become_json() -> None:
    rows = batch(data=[{"a": None}, {"a": 2}], meta=[None, {"b": True}])
    assert [(row["data"], row["meta"]) for row in only(TO_ORDERS, rows)] == [
        ('{"a":null}', None),
        ('{"a":2}', '{"b":true}'),
    ]


def test_text_is_stored_as_a_string() -> None:
    rows = batch(data=["{not json", None])
    encoder = RowEncoder(PARTITION, "orders", as_text=True)
    assert [row["data"] for row in only(encoder, rows)] == ['"{not json"', "null"]


def test_the_column_topic_wins_over_the_option_which_fills_in() -> None:
    rows = batch(data=["1", "2"], topic=["a", None])
    assert [row["topic"] for row in only(TO_ORDERS, rows)] == ["a", "orders"]


def test_a_chunk_has_no_more_rows_than_a_server_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.spark.sink.chunks.CHUNK_ROWS", 100)
    made = list(chunks([batch(data=["1"] * 250)], TO_ORDERS))
    assert max(chunk.rows for chunk in made) <= 100
    assert [row["data"] for chunk in made for row in rows_of(chunk)] == ["1"] * 250
    assert [chunk.first_row for chunk in made] == list(
        accumulate([chunk.rows for chunk in made[:-1]], initial=0)
    )


# Rows that cannot be written


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("data", ["1", "{not json", "{"], "malformed"),
        ("data", [1.0, float("nan"), 2.0], "NaN"),
        ("data", [{"a": 1.0}, {"a": float("inf")}, {"a": 1.0}], "Infinity"),
        ("meta", [None, "{", "1"], "malformed"),
        ("topic", ["a", None, "b"], "names no topic"),
    ],
)
def test_a_bad_row_is_named_with_partition_row_and_column(
    column: str, values: list[Any], words: str
) -> None:
    good = batch(data=["0"] * 5, **({} if column == "data" else {column: ["0"] * 5}))
    bad = batch(**({"data": ["0"] * 3} | {column: values}))
    topic = None if column == "topic" else "orders"
    with pytest.raises(Unencodable, match=rf"partition 3, row 6 .*column {column}: .*{words}"):
        list(chunks([good, bad], RowEncoder(PARTITION, topic, as_text=False)))


def test_what_is_no_json_comes_with_its_remedies() -> None:
    with pytest.raises(Unencodable, match=r"to_json .*struct.*dataFormat to text"):
        list(chunks([batch(data=["x"])], TO_ORDERS))


# Chunks


def test_no_rows_give_no_chunk() -> None:
    assert list(chunks([], TO_ORDERS)) == []
    assert list(chunks([batch(data=pa.array([], pa.string()))], TO_ORDERS)) == []


def test_parts_are_ordered_by_partition_and_chunk() -> None:
    chunk = Chunk(number=2, first_row=0, rows=1, body=b"")
    assert chunk.part(3) == 3 * 2**32 + 2
    assert Chunk(2**32 - 1, 0, 1, b"").part(0) < Chunk(0, 0, 1, b"").part(1)


def test_a_chunk_has_at_most_sixteen_mebibytes_and_is_rather_full() -> None:
    assert CHUNK_BYTES == 16 * 2**20
    rows = [batch(data=[f'"{number:0999998}"' for number in range(10)]) for _ in range(4)]
    made = list(chunks(rows, TO_ORDERS))
    assert len(made) == 3, "40 MB"
    assert sum(chunk.rows for chunk in made) == 40
    assert all(len(chunk.body) <= CHUNK_BYTES for chunk in made)
    assert all(len(chunk.body) >= CHUNK_BYTES * 3 // 4 for chunk in made[:-1])


def test_a_row_that_fits_no_chunk_goes_alone() -> None:
    limit = 64 << 10
    large = '"' + "x" * limit + '"'
    made = list(chunks([batch(data=["1", large, "2"])], TO_ORDERS, limit=limit))
    assert [chunk.rows for chunk in made] == [1, 1, 1]


@given(
    sizes=st.lists(st.lists(st.integers(0, 9000), max_size=12), max_size=6),
    limit=st.integers(9 << 10, 40 << 10),
)
def test_chunks_hold_every_row_once_and_in_order(sizes: list[list[int]], limit: int) -> None:
    counter = count()
    texts = [[f'"{next(counter)}:{"x" * size}"' for size in some] for some in sizes]
    batches = [batch(data=pa.array(some, pa.string())) for some in texts]
    made = list(chunks(batches, TO_ORDERS, limit=limit))
    assert [row["data"] for chunk in made for row in rows_of(chunk)] == list(chain(*texts))
    assert [chunk.number for chunk in made] == list(range(len(made)))
    assert [chunk.first_row for chunk in made] == [0, *accumulate(c.rows for c in made)][
        : len(made)
    ]
    assert all(len(chunk.body) <= limit or chunk.rows == 1 for chunk in made)
