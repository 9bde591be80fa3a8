"""Cutting input files for an import: every row once, in the same order and cut every time."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import pickle
import string
import struct
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


# Columns and rows that are not in the files


def with_deletion_vector(table: str, partition: str, gone: list[int]) -> None:
    """Take rows of a file away as other programs do: delta-rs itself cannot."""
    ours = (
        string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
    )
    theirs = string.digits + string.ascii_lowercase + string.ascii_uppercase
    theirs += ".-:+=^!/*?&<>()[]{}@%$#"
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(gone) - 1, 16)
    bitmap += b"".join(struct.pack("<H", row) for row in gone)
    raw = struct.pack("<iqi", 1681511377, 1, 0) + bitmap
    coded = base64.b85encode(raw).decode().translate(str.maketrans(ours, theirs))
    vector = {
        "storageType": "i",
        "pathOrInlineDv": coded,
        "sizeInBytes": len(raw),
        "cardinality": len(gone),
    }
    log = Path(table, "_delta_log")
    lines = map(json.loads, (log / f"{0:020d}.json").read_text().splitlines())
    (add,) = [
        line["add"]
        for line in lines
        if "add" in line and partition in line["add"]["partitionValues"].values()
    ]
    features = ["deletionVectors"]
    actions = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "deletionVector": vector}},
    ]
    (log / f"{1:020d}.json").write_text("".join(json.dumps(each) + "\n" for each in actions))


def test_a_partitioned_table_keeps_its_partition_columns_and_deleted_rows_stay_deleted(
    tmp_path: Path,
) -> None:
    table = str(tmp_path / "the table")
    days = [dt.date(2026, 3, 1 + n % 2) for n in range(10)]
    rows = pa.table({"n": range(10), "who": ["a b", "c/d"] * 5, "day": days})
    write_deltalake(table, rows, partition_by=["who", "day"])
    every = [{"n": n, "who": ("a b", "c/d")[n % 2], "day": str(days[n])} for n in range(10)]
    before = plan(table)
    assert sorted(payloads(before), key=lambda row: row["n"]) == every  # type: ignore[index]
    with_deletion_vector(table, "c/d", [1, 3])  # of 1, 3, 5, 7, 9
    for unit_bytes in (32 << 20, 60):
        after = plan(table, unit_bytes=unit_bytes)
        left = [row for row in every if row["n"] not in (3, 7)]
        assert sorted(payloads(after), key=lambda row: row["n"]) == left  # type: ignore[index]
        assert pickle.loads(pickle.dumps(after)) == after  # as it goes to the tasks
    assert after.fingerprint != before.fingerprint


def test_files_that_lack_a_column_of_their_table_have_it_as_null(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"n": [1]}))
    newer = pa.table({"n": [2], "more": ["x"]})
    write_deltalake(table, newer, mode="append", schema_mode="merge")
    found = sorted(payloads(plan(table)), key=lambda row: row["n"])  # type: ignore[index]
    assert found == [{"n": 1, "more": None}, {"n": 2, "more": "x"}]


@pytest.mark.parametrize("how", ["feature", "setting"])
def test_a_table_that_needs_more_of_a_reader_is_refused_by_the_name_of_the_feature(
    tmp_path: Path, how: str
) -> None:
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"n": [1]}))
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if how == "setting" and "metaData" in action:
            action["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
            mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c"}
            text = action["metaData"]["schemaString"].replace("{}", json.dumps(mapped))
            action["metaData"]["schemaString"] = text
        elif "protocol" in action:
            told = {"minReaderVersion": 3, "minWriterVersion": 7}
            features = ["columnMapping", "deletionVectors"]
            lists = {"readerFeatures": features, "writerFeatures": features}
            old = {"minReaderVersion": 2, "minWriterVersion": 5}
            action["protocol"] = {**told, **lists} if how == "feature" else old
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(InvalidRequest, match=r"does not understand: columnMapping\. Copy it"):
        plan(table)


def test_folders_named_by_key_and_value_are_columns_of_the_rows_below(tmp_path: Path) -> None:
    for number, folder in enumerate(("year=2026/at=a%20b", "year=2026/at=01", "year=-7/at=1")):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"n": [number]}), tmp_path / folder / "a.parquet")
    empty = tmp_path / "year=__HIVE_DEFAULT_PARTITION__" / "deep"
    empty.mkdir(parents=True)
    pq.write_table(pa.table({"n": [3], "year": [4]}), empty / "own.parquet")
    found = sorted(payloads(plan(str(tmp_path))), key=lambda row: row["n"])  # type: ignore[index]
    assert found == [
        {"n": 0, "year": 2026, "at": "a b"},
        {"n": 1, "year": 2026, "at": "01"},
        {"n": 2, "year": -7, "at": "1"},
        {"n": 3, "year": 4},  # what a file says of its rows counts
    ]


def test_a_table_of_records_by_tag_comes_back_as_records(tmp_path: Path) -> None:
    (tmp_path / "tag=a").mkdir()
    pq.write_table(pa.table({"data": ["[1]"]}), tmp_path / "tag=a" / "x.parquet")
    (record,) = records_of(plan(str(tmp_path)))
    assert (record["tag"], record["data"]) == ("a", "[1]")
