"""What an Arrow stream stands for is known before it is decoded."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from topics.errors import InvalidRequest, PayloadTooLarge
from topics.http.api.arrow import STEP_ROWS, decode_stage
from topics.http.api.arrow_sizes import ROW_BYTES, decoded_bytes, expanded_bytes

LONG = '"' + "a" * 50_000 + '"'
LIMIT = 1 << 20


def stream(columns: dict[str, Any], **options: Any) -> bytes:  # noqa: ANN401 - of pyarrow
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_buffers_count_as_what_they_stand_for(compression: str) -> None:
    columns = {"topic": ["t"] * 40, "data": [LONG] * 40}
    plain = sum(decoded_bytes(stream(columns)))
    body = stream(columns, compression=compression)
    assert len(body) < LIMIT / 10
    assert 40 * len(LONG) <= sum(decoded_bytes(body)) <= plain
    with pytest.raises(PayloadTooLarge):
        decode_stage(body, max_bytes=LIMIT)
    assert len(decode_stage(body, max_bytes=plain).topics) == 40


def test_texts_named_by_many_rows_count_for_each_of_them() -> None:
    data = pa.DictionaryArray.from_arrays(pa.array([0] * 40, pa.int8()), pa.array([LONG]))
    assert expanded_bytes(data) == 40 * len(LONG)
    body = stream({"topic": ["t"] * 40, "data": data})
    with pytest.raises(PayloadTooLarge):
        decode_stage(body, max_bytes=LIMIT)
    assert len(decode_stage(body, max_bytes=3 * LIMIT).topics) == 40


def test_views_count_as_the_texts_they_show() -> None:
    views = pa.array([LONG, "x" * 20, None]).cast(pa.string_view())
    assert expanded_bytes(views) + expanded_bytes(views[1:]) == len(LONG) + 40
    assert decode_stage(
        stream({"topic": ["t"], "data": pa.array(["1"]).cast(pa.string_view())}), max_bytes=LIMIT
    ).topics == ["t"]


def test_rows_without_bytes_count_too() -> None:
    rows = LIMIT // ROW_BYTES + 1
    topics = pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int8()).fill_null(0), pa.array(["t"]))
    body = stream({"topic": topics, "data": pa.nulls(rows)}, compression="zstd")
    assert len(body) < 10_000
    with pytest.raises(PayloadTooLarge):
        decode_stage(body, max_bytes=LIMIT)


def test_a_row_counts_for_as_much_as_a_record_takes() -> None:
    """The whole of the default limit is a million records, however few bytes stand for them."""
    assert (64 << 20) // ROW_BYTES == 1 << 20


def test_rows_become_records_a_few_at_a_time_and_in_order() -> None:
    count = 2 * STEP_ROWS + 3
    columns: dict[str, Any] = {
        "topic": [f"t{n}" for n in range(count)],
        "data": [None if n == 1 else f" {n} " for n in range(count)],
        "tag": [None if n < STEP_ROWS else f"g{n}" for n in range(count)],
        "node": pa.nulls(count),
        "meta": ["null" if n % 2 else f'{{"n": {n}}}' for n in range(count)],
    }
    sent = decode_stage(stream(columns), max_bytes=LIMIT)
    assert sent.topics == columns["topic"]
    assert sent.drafts.datas == [b"null" if n == 1 else b"%d" % n for n in range(count)]
    assert sent.drafts.tags == columns["tag"]
    assert sent.drafts.nodes is None
    assert sent.drafts.metas == [b"" if n % 2 else b'{"n":%d}' % n for n in range(count)]


def test_a_plain_stream_of_exactly_the_limit_is_taken() -> None:
    body = stream({"topic": ["t"] * 40, "data": [LONG] * 40})
    (size,) = decoded_bytes(body)
    assert decode_stage(body, max_bytes=size).topics == ["t"] * 40
    with pytest.raises(PayloadTooLarge):
        decode_stage(body, max_bytes=size - 1)


@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param(pa.array([{"a": 1}]), id="of objects"),
        pytest.param(pa.array([[1]]), id="of lists"),
        pytest.param(pa.array([b"\xff"], pa.binary()), id="of bytes that are no text"),
    ],
)
@pytest.mark.parametrize("column", ["topic", "data", "tag", "node", "meta"])
def test_a_column_that_is_no_text_is_refused(column: str, spoiled: pa.Array) -> None:
    columns = {"topic": ["t"], "data": ["1"], column: spoiled}
    with pytest.raises(InvalidRequest, match="not a usable Arrow stream"):
        decode_stage(stream(columns), max_bytes=LIMIT)


@pytest.mark.parametrize("column", ["topic", "data", "tag"])
def test_a_column_given_twice_is_refused(column: str) -> None:
    values = [pa.array(["1"])] * 4
    table = pa.Table.from_arrays(values, names=["topic", "data", "tag", column])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    with pytest.raises(InvalidRequest):
        decode_stage(sink.getvalue(), max_bytes=LIMIT)


def test_a_spoiled_stream_is_taken_or_refused_and_nothing_else() -> None:
    body = stream({"topic": ["t"] * 20, "data": [LONG] * 20}, compression="zstd")
    refused = 0
    for place in range(0, len(body), 3):
        for value in (0, 255):
            spoiled = body[:place] + bytes([value]) + body[place + 1 :]
            try:
                decode_stage(spoiled, max_bytes=4 * LIMIT)
            except (InvalidRequest, PayloadTooLarge):
                refused += 1
    assert refused
