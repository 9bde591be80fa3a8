"""Cutting input files for an import: every row once, in the same order and cut every time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import InvalidRequest, NotFound
from topics.spark.bulk.inputs import ImportPlan, Unit, batches_of, plan
from topics.spark.sink.chunks import RowEncoder


def records_of(cut: ImportPlan) -> list[dict[str, object]]:
    """What an import of the plan would write, in its order."""
    encoder = RowEncoder(0, "t", as_text=False)
    found: list[dict[str, object]] = []
    for epoch in cut.epochs:
        for unit in epoch:
            for batch in batches_of(unit):
                found += encoder.encode(batch, 0).to_pylist()
    return found


def payloads(cut: ImportPlan) -> list[object]:
    return [json.loads(str(record["data"])) for record in records_of(cut)]


def test_rows_of_parquet_become_payloads_in_the_order_of_names_groups_and_rows(
    tmp_path: Path,
) -> None:
    (tmp_path / "deep").mkdir()
    for name, first in (("b.parquet", 2000), ("deep/a.parquet", 3000), ("a.parquet", 1000)):
        rows = pa.table({"n": range(first, first + 1000), "who": ["x"] * 1000})
        pq.write_table(rows, tmp_path / name, row_group_size=300)
    (tmp_path / "_hidden.parquet").write_text("not looked at")
    cut = plan(str(tmp_path), epoch_bytes=4000, unit_bytes=1000)
    assert len(cut.epochs) > 3
    assert [row["n"] for row in payloads(cut)] == list(range(1000, 4000))  # type: ignore[index]
    assert all(sum(u.nbytes for u in epoch) <= 4000 for epoch in cut.epochs)


def test_the_same_files_are_cut_alike_and_other_files_have_another_fingerprint(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(100)}), path)
    first = plan(str(path))
    assert plan(str(path)) == first
    stamp = os.stat(path).st_mtime_ns
    pq.write_table(pa.table({"n": range(1, 101)}), path)
    os.utime(path, ns=(stamp + 1, stamp + 1))
    assert plan(str(path)).fingerprint != first.fingerprint


def test_exported_columns_come_back_as_records_and_gaps_among_them_do_not(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "epoch": pa.array([1, 1, 1], pa.int64()),
            "seq": pa.array([1, 2, 3], pa.int64()),
            "kind": ["data", "lost", "data"],
            "tag": ["a", None, None],
            "node": pa.array([None, None, "n"]),
            "data": ['{"x":1}', None, "[2]"],
            "meta": pa.array([None, None, '{"m":1}']),
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet")
    found = records_of(plan(str(tmp_path)))
    assert found == [
        {"topic": "t", "data": '{"x":1}', "tag": "a", "node": None, "meta": None},
        {"topic": "t", "data": "[2]", "tag": None, "node": "n", "meta": '{"m":1}'},
    ]


def test_a_column_named_data_beside_others_is_just_a_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"data": ["x"], "price": [2.5]}), tmp_path / "a.parquet")
    assert payloads(plan(str(tmp_path))) == [{"data": "x", "price": 2.5}]


def test_a_table_is_its_newest_version_and_nothing_it_has_let_go(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"n": [1, 2, 3]}))
    write_deltalake(table, pa.table({"n": [4, 5]}), mode="overwrite")
    assert payloads(plan(table)) == [{"n": 4}, {"n": 5}]


@given(
    lines=st.lists(st.integers(0, 10**9), max_size=40),
    unit_bytes=st.integers(1, 60),
    blank=st.booleans(),
    ends=st.booleans(),
)
def test_every_line_belongs_to_exactly_one_unit_wherever_the_cuts_fall(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[int],
    unit_bytes: int,
    blank: bool,
    ends: bool,
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    gap = "\n\n" if blank else "\n"
    path.write_text(gap.join(map(str, lines)) + ("\n" if ends else ""))
    cut = plan(str(path), epoch_bytes=200, unit_bytes=unit_bytes)
    assert payloads(cut) == lines


def test_lines_as_a_dump_writes_them_are_records(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"$seq":1,"$ts":2,"$node":"n","$tag":"a","data":{"x": 1},"meta":{"m":1}}\n'
        '{"data":2,"tag":"b"}\n'
    )
    assert records_of(plan(str(path))) == [
        {"topic": "t", "data": '{"x": 1}', "tag": "a", "node": "n", "meta": '{"m":1}'},
        {"topic": "t", "data": "2", "tag": "b", "node": None, "meta": None},
    ]


def test_a_bad_line_is_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"data":1}\n{"data":\n')
    with pytest.raises(InvalidRequest, match=r"a\.jsonl, a line between the bytes 0 and"):
        records_of(plan(str(path)))


def test_input_that_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        plan(str(tmp_path / "absent"))
    with pytest.raises(InvalidRequest, match="neither Parquet files nor JSON lines"):
        plan(str(tmp_path))
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(InvalidRequest, match=r"neither \.parquet nor"):
        plan(str(tmp_path / "a.csv"))
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(InvalidRequest, match="no Parquet file"):
        plan(str(tmp_path / "a.parquet"))
    (tmp_path / "b.jsonl").write_text("1\n")
    with pytest.raises(InvalidRequest, match="one by one"):
        plan(str(tmp_path))


def test_a_row_group_larger_than_an_epoch_is_cut_by_rows(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"n": range(5000)}), tmp_path / "a.parquet", compression=None, use_dictionary=False
    )
    cut = plan(str(tmp_path), epoch_bytes=10_000)
    assert len(cut.epochs) >= 4
    assert [row["n"] for row in payloads(cut)] == list(range(5000))  # type: ignore[index]
    first = cut.epochs[0][0]
    assert isinstance(first, Unit)
    assert (first.group, first.first) == (0, 0)
