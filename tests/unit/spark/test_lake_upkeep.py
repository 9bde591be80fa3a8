"""Erasure: rows leave the table, then the disk, and a search of every byte says so."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.unit.spark.lake_parts import (
    CUSTOMER,
    TOPIC,
    FakeTopic,
    Query,
    gap,
    lake,
    rows,
    seqs_in,
    tag_of,
)

from topics.errors import InvalidRequest
from topics.spark.errors import NoSuchTable, TableBusy
from topics.spark.lake import erasing, parquet
from topics.spark.lake.erasing import carry_deletes, erase, matching, note, noted
from topics.spark.lake.place import ERASED, TablePath, committing, syncing
from topics.spark.lake.scan import scan
from topics.spark.lake.seqs import KeySet
from topics.spark.lake.table import FILE_SIZE, LakeTable, deletes_app
from topics.spark.lake.upkeep import (
    Maintenance,
    default_path,
    hours_of,
    maintain,
    needles_of,
    remove_leftovers,
    search,
)

NEEDLE = f"{CUSTOMER}@example.org"


@pytest.fixture
def place(tmp_path: Path) -> TablePath:
    return lake(tmp_path)


@pytest.fixture
def query(place: TablePath) -> Query:
    """Five epochs of a thousand records; every tenth is the customer's."""
    made = Query(place, FakeTopic(5000))
    for epoch in range(5):
        made.records(epoch, epoch * 1000 + 1, epoch * 1000 + 1000)
    return made


def bytes_found(place: TablePath, needle: str) -> list[str]:
    """Files under the table with the needle in any decoded column or in their bytes.

    Written without the scan it judges.
    """
    found = []
    for folder, _, names in os.walk(place.path):
        for name in names:
            path = Path(folder, name)
            raw = path.read_bytes()
            texts = [raw]
            if raw[:4] == b"PAR1":
                texts.append(str(pq.read_table(path).to_pylist()).encode())
            if any(needle.encode() in text for text in texts):
                found.append(str(path))
    return found


# Deletes reach the table


def test_deletes_in_the_topic_leave_the_table_in_one_commit_and_only_once(query: Query) -> None:
    place = query.place
    gone = query.topic.delete_customer()
    version = LakeTable.open(place).version
    assert carry_deletes(place, query.topic).rows == len(gone) == 500
    assert LakeTable.open(place).version == version + 1
    assert seqs_in(place) == [seq for seq in range(1, 5001) if tag_of(seq) != CUSTOMER]
    assert carry_deletes(place, query.topic).rows == 0
    assert carry_deletes(place, query.topic, everything=True).rows == 0
    assert LakeTable.open(place).version == version + 1


def test_an_unchanged_delete_version_asks_for_nothing(query: Query) -> None:
    query.topic.delete(5, 5)
    carry_deletes(query.place, query.topic)
    query.topic.asked.clear()
    carry_deletes(query.place, query.topic)
    assert query.topic.asked == []


def test_a_version_that_came_with_nothing_of_this_table_is_recorded_all_the_same(
    query: Query,
) -> None:
    query.topic.delete_version = 9 << 32
    carry_deletes(query.place, query.topic)
    assert LakeTable.open(query.place).transaction(deletes_app(TOPIC, 17)) == 9 << 32


def test_rows_lost_to_retention_stay_and_rows_nobody_knows_the_fate_of_go(query: Query) -> None:
    query.topic.dead += [(1, 100, "cap"), (2001, 2100, "ttl")]
    query.topic.delete(4000, 4000)
    carry_deletes(query.place, query.topic)
    assert seqs_in(query.place) == [seq for seq in range(1, 5001) if seq != 4000]
    query.topic.exact_from = 51
    carry_deletes(query.place, query.topic, everything=True)
    assert seqs_in(query.place) == [seq for seq in range(51, 5001) if seq != 4000]


def test_a_dropped_topic_leaves_its_table_as_it_is(query: Query) -> None:
    query.topic.is_there = False
    assert carry_deletes(query.place, query.topic, everything=True).rows == 0
    assert len(seqs_in(query.place)) == 5000


def test_a_topic_made_anew_deletes_nothing_of_the_old_one(query: Query) -> None:
    query.topic.epoch = 18
    query.topic.delete(1, 50)
    carry_deletes(query.place, query.topic, everything=True)
    assert len(seqs_in(query.place)) == 5000


def test_a_file_without_rows_left_leaves_without_a_successor(query: Query) -> None:
    files = len(LakeTable.open(query.place).files())
    query.topic.delete(1, 1000)
    carry_deletes(query.place, query.topic)
    assert len(LakeTable.open(query.place).files()) == files - 2
    assert seqs_in(query.place) == list(range(1001, 5001))


def test_an_erasure_starts_over_when_another_program_was_quicker(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = query.place
    looked: list[int] = []
    original = erasing.note

    def meanwhile(*args: object) -> None:
        if not looked:
            DeltaTable(place.path).optimize.compact()  # by somebody who knows no lock
        looked.append(1)
        original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(erasing, "note", meanwhile)
    erase(place, KeySet({17: [(1, 10)]}), cause="deleted")
    assert len(looked) == 2
    assert seqs_in(place) == list(range(11, 5001))


def test_the_log_of_an_erasure_names_no_value_and_no_predicate(query: Query) -> None:
    query.topic.delete_customer()
    carry_deletes(query.place, query.topic)
    log = "".join(Path(query.place.log, name).read_text() for name in os.listdir(query.place.log))
    assert CUSTOMER not in log
    assert "predicate" not in log


def test_rows_are_found_by_tag_or_by_the_beginning_of_it(query: Query) -> None:
    assert len(matching(query.place, CUSTOMER)) == 500
    assert len(matching(query.place, "cust-*")) == 5000
    assert len(matching(query.place, "cust-000*")) == sum(
        tag_of(seq).startswith("cust-000") for seq in range(1, 5001)
    )
    assert not matching(query.place, "cust")


def test_the_list_of_the_erased_survives_a_line_that_a_crash_cut_short(place: TablePath) -> None:
    os.makedirs(place.path)
    assert not noted(place)
    note(place, KeySet({17: [(1, 3)]}), "deleted")
    with open(place.inside(ERASED), "ab") as file:
        file.write(b'{"epoch":17,"cau')
    note(place, KeySet({17: [(3, 9)], 18: [(5, 5)]}), "match")
    assert list(noted(place)) == [(17, [(1, 9)]), (18, [(5, 5)])]


# The search


def test_the_search_finds_the_customer_before_maintenance_and_nothing_after(query: Query) -> None:
    place = query.place
    gone = query.topic.delete_customer()
    carry_deletes(place, query.topic)
    staged = query.stage(5, [rows(range(4991, 5001))])  # a task that was killed
    assert staged
    before = search(place, [NEEDLE])
    assert before.found > 0
    assert bytes_found(place, NEEDLE)

    receipt = maintain(place, Maintenance(0, needles=[NEEDLE, CUSTOMER]), origin=query.topic)

    assert receipt.found == 0, [str(hit) for hit in receipt.scanned.hits]
    assert bytes_found(place, NEEDLE) == []
    assert bytes_found(place, CUSTOMER) == []
    assert seqs_in(place) == [seq for seq in range(1, 5001) if tag_of(seq) != CUSTOMER]
    assert [run for _, runs in receipt.erased for run in runs] == [(seq, seq) for seq in gone]


def test_erased_rows_are_found_by_their_key_without_any_needle(query: Query) -> None:
    query.topic.delete(11, 20)
    carry_deletes(query.place, query.topic)
    assert search(query.place).found == 10
    assert maintain(query.place, Maintenance(0)).found == 0


def test_a_receipt_has_exactly_the_promised_members(query: Query, tmp_path: Path) -> None:
    query.topic.delete(11, 20)
    carry_deletes(query.place, query.topic)
    receipt = maintain(query.place, Maintenance(0), origin=query.topic)
    path = default_path(query.place, receipt.started)
    receipt.write(path)
    told = json.loads(Path(path).read_text())
    assert list(told) == [
        "version",
        "table",
        "table_version",
        "topic",
        "epoch",
        "seqs",
        "files_removed",
        "scanned",
        "found",
        "retained",
        "kept_elsewhere",
        "started",
        "finished",
    ]
    assert (told["version"], told["topic"], told["epoch"]) == (1, TOPIC, 17)
    assert (told["table"], told["table_version"]) == (
        query.place.path,
        LakeTable.open(query.place).version,
    )
    assert told["seqs"] == [[11, 20]]
    assert told["found"] == 0
    assert told["scanned"]["decoded_rows"] >= 4990
    assert told["scanned"]["files"] > 0
    removed = {file["path"]: file["bytes"] for file in told["files_removed"]}
    assert all(size > 0 for size in removed.values())
    assert not any(os.path.exists(query.place.inside(name)) for name in removed)
    assert [kept["what"] for kept in told["kept_elsewhere"]] == [
        "log segments",
        "Spark checkpoint",
        "flow state",
    ]
    assert "whole segment is dropped" in told["kept_elsewhere"][0]["why"]
    assert told["kept_elsewhere"][2]["where"] == "flow.totals"
    assert told["started"] <= told["finished"]
    assert Path(path).parent.name == "orders__receipts"


def test_earlier_epochs_are_in_the_receipt_too(place: TablePath) -> None:
    query = Query(place, FakeTopic(100))
    query.records(0, 1, 100)
    query.topic.delete(1, 5)
    carry_deletes(place, query.topic)
    query.topic.epoch, query.topic.delete_version = 18, 0
    query.epoch(1, [rows(range(1, 101), epoch=18)])
    query.topic.delete(50, 50)
    carry_deletes(place, query.topic)
    told = maintain(place, Maintenance(0)).to_dict()
    assert (told["epoch"], told["seqs"][-1]) == (18, [50, 50])
    assert told["earlier"] == [{"epoch": 17, "seqs": [[1, 5]]}]


def test_rows_noted_as_erased_but_kept_by_a_crash_go_with_the_next_maintenance(
    query: Query,
) -> None:
    note(query.place, KeySet({17: [(100, 199)]}), "match")
    receipt = maintain(query.place, Maintenance(0))
    assert receipt.found == 0
    assert seqs_in(query.place) == [*range(1, 100), *range(200, 5001)]


def _framed(codec: str, text: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(text)
    return bytes(sink.getvalue())


def _lz4_block(text: bytes) -> bytes:
    packed: bytes = pa.Codec("lz4_raw").compress(text, asbytes=True)
    sizes = len(packed).to_bytes(4, "little") + len(text).to_bytes(4, "little")
    return b"LZ4Block" + bytes([0x26]) + sizes + b"\0\0\0\0" + packed


def _zip(text: bytes) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.delta", text)
    return whole.getvalue()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda text: text,
    "gzip": gzip.compress,
    "zstd": lambda text: _framed("zstd", text),
    "lz4": lambda text: _framed("lz4", text),
    "lz4 blocks": _lz4_block,
    "gzip in gzip": lambda text: gzip.compress(gzip.compress(text)),
    "zip": _zip,
}


@pytest.mark.parametrize("packed", sorted(PACKERS))
@pytest.mark.parametrize("spelling", ["müller", "m\\u00fcller", "x müller\\"])
def test_a_needle_is_found_in_any_file_however_it_is_packed_and_spelled(
    tmp_path: Path, packed: str, spelling: str
) -> None:
    text = b"-" * 3000 + spelling.encode() + b"-" * 3000
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "state").write_bytes(PACKERS[packed](text))
    assert scan([str(tmp_path)], KeySet(), ["müller"]).found >= 1
    assert scan([str(tmp_path)], KeySet(), ["meier"]).found == 0


def test_a_needle_is_found_in_nested_and_compressed_columns(tmp_path: Path) -> None:
    size = 70_000
    values = ["x"] * size
    values[-1] = "anna"
    for name, column in {
        "text": pa.array(values),
        "bytes": pa.array([value.encode() for value in values]),
        "dictionary": pa.array(values).dictionary_encode(),
        "struct": pa.array([{"a": {"b": value}} for value in values]),
        "list": pa.array([[value] for value in values]),
        "map": pa.array([[(value, 1)] for value in values], pa.map_(pa.string(), pa.int64())),
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        numbers = pa.array(np.arange(size))
        pq.write_table(
            pa.table({"n": numbers, "column": column}),
            folder / "a.parquet",
            compression="zstd",
            write_statistics=False,
            use_dictionary=False,
        )
        scanned = scan([str(folder)], KeySet(), ["anna"])
        assert any("decoded" in hit.what for hit in scanned.hits), name
        assert scanned.decoded_rows == size


def test_a_parquet_file_that_cannot_be_read_counts_as_found(tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1" + b"\0" * 100)
    assert scan([str(tmp_path)], KeySet()).found == 1


# Files


def test_maintenance_leaves_checkpoint_and_position_alone_and_keeps_no_history(
    query: Query,
) -> None:
    place = query.place
    os.makedirs(os.path.join(place.checkpoint, "offsets"))
    Path(place.checkpoint, "offsets", "0").write_text("v1")
    query.topic.delete(1, 10)
    carry_deletes(place, query.topic)
    maintain(place, Maintenance(0))
    assert Path(place.checkpoint, "offsets", "0").read_text() == "v1"
    table = LakeTable.open(place)
    assert table.position(TOPIC, 17) == 5000
    assert table.transaction(query.id) == 4
    assert table.transaction(deletes_app(TOPIC, 17)) == query.topic.delete_version
    assert len([name for name in os.listdir(place.log) if name.endswith(".json")]) == 1
    assert len(table.files()) == 1
    query.topic.head = 6000
    query.records(5, 5001, 6000)
    assert seqs_in(place) == list(range(11, 6001))


def test_statistics_name_nobody_after_compaction_and_erasure(query: Query) -> None:
    place = query.place
    query.topic.delete(1, 10)
    carry_deletes(place, query.topic)
    maintain(place, Maintenance(0))
    listed = pa.table(LakeTable.open(place).delta.get_add_actions(flatten=True))
    told = {name for name in listed.schema.names if name.startswith(("min.", "max."))}
    assert told <= {"min.seq", "max.seq", "min.ts", "max.ts"}
    for name in os.listdir(place.log):
        assert b"cust-" not in Path(place.log, name).read_bytes()


def test_files_within_the_retained_time_stay_readable_as_of_then(query: Query) -> None:
    place = query.place
    version = LakeTable.open(place).version
    query.topic.delete(1, 10)
    carry_deletes(place, query.topic)
    receipt = maintain(place, Maintenance(retain_hours=1))
    assert receipt.files_removed == []
    assert receipt.found > 0  # and that is what the receipt says
    then = DeltaTable(place.path, version=version)
    assert pc.min(then.to_pyarrow_table().column("seq")).as_py() == 1
    assert maintain(place, Maintenance(0)).found == 0


def test_maintenance_as_it_comes_takes_nothing_from_a_reader_that_has_opened_the_table(
    query: Query,
) -> None:
    place = query.place
    reader = DeltaTable(place.path)
    query.topic.delete(1, 10)
    carry_deletes(place, query.topic)
    receipt = maintain(place, Maintenance())
    assert reader.to_pyarrow_table().num_rows == 5000
    assert DeltaTable(place.path, version=reader.version()).to_pyarrow_table().num_rows == 5000
    assert receipt.files_removed == []
    retained = {file.path for file in receipt.retained}
    assert {os.path.basename(hit.path) for hit in receipt.scanned.hits} <= retained
    told = receipt.to_dict()
    assert told["retained"]["files"] == len(retained)
    assert told["retained"]["hours"] == 168
    now = maintain(place, Maintenance(0))
    assert (now.found, now.to_dict()["retained"]) == (0, {"hours": 0, "files": 0, "bytes": 0})
    assert {file.path for file in now.files_removed} >= retained


def test_files_become_as_large_as_the_table_says_and_maintenance_keeps_to_it(
    place: TablePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 500)
    query = Query(place, FakeTopic(5000))
    whole = [rows(range(first, first + 500)) for first in range(1, 5001, 500)]
    query.stage(0)
    LakeTable.open(place).remember(FILE_SIZE, "20000")
    query.epoch(0, whole)
    sizes = [file.size for file in LakeTable.open(place).files()]
    assert 1 < len(sizes) < 10
    assert all(20_000 <= size < 40_000 for size in sizes[:-1])
    maintain(place, Maintenance(0))
    assert len(LakeTable.open(place).files()) > 1
    LakeTable.open(place).remember(FILE_SIZE, "10000000")
    maintain(place, Maintenance(0))
    assert len(LakeTable.open(place).files()) == 1
    assert seqs_in(place) == list(range(1, 5001))


def test_another_program_that_cleans_up_keeps_a_week_of_a_new_table(query: Query) -> None:
    DeltaTable(query.place.path).optimize.compact()
    assert DeltaTable(query.place.path).vacuum(dry_run=True) == []
    settings = LakeTable.open(query.place).settings
    assert settings["delta.deletedFileRetentionDuration"] == "interval 168 hours"
    assert settings["delta.logRetentionDuration"] == "interval 168 hours"


def test_files_of_a_running_sync_are_no_leftovers_until_their_epoch_is_over(query: Query) -> None:
    place = query.place
    query.topic.head = 5100
    staged = query.stage(5, [rows(range(5001, 5101))])
    query.stage(4, [rows(range(4001, 5001))])  # an attempt that lost
    with syncing(place), committing(place):
        removed = remove_leftovers(place)
    assert [file.path.split("-")[6] for file in removed] == ["4"]
    query.land(5, staged)
    assert seqs_in(place) == list(range(1, 5101))
    query.stage(6, [rows(range(5101, 5200))])
    with committing(place):
        assert len(remove_leftovers(place)) == 1


def test_the_loss_table_is_maintained_with_the_table(place: TablePath) -> None:
    query = Query(place, FakeTopic(30))
    for epoch in range(3):
        first = epoch * 10 + 1
        query.epoch(epoch, [gap(first, first + 4), rows(range(first + 5, first + 10))])
    maintain(place, Maintenance(0))
    assert len(LakeTable.open(place.loss).files()) == 1
    assert LakeTable.open(place.loss).delta.count() == 3


def test_two_syncs_of_one_table_are_refused(place: TablePath) -> None:
    with syncing(place), pytest.raises(TableBusy, match="another"), syncing(place):
        pass
    with syncing(place):
        pass


def test_a_change_does_not_wait_for_ever_for_its_turn(place: TablePath) -> None:
    with (
        committing(place),
        pytest.raises(TableBusy, match="try again"),
        committing(place, patience=0.01),
    ):
        pass


def test_there_must_be_a_table_to_maintain(place: TablePath) -> None:
    with pytest.raises(NoSuchTable, match="lake sync"):
        maintain(place, Maintenance(0))
    assert not os.path.exists(place.path)


# Small things


@pytest.mark.parametrize(("text", "hours"), [("0h", 0), ("12 hours", 12), ("7d", 168), ("1H", 1)])
def test_times_to_retain_are_hours_or_days(text: str, hours: int) -> None:
    assert hours_of(text) == hours


@pytest.mark.parametrize("text", ["", "5", "1 week", "-1h", "1.5h"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="0h, 12h or 7d"):
        hours_of(text)


def test_needles_come_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "needles"
    path.write_text("anna@example.org\n\n Bob B \n")
    assert needles_of(str(path)) == ["anna@example.org", " Bob B "]
    path.write_text("\n")
    with pytest.raises(InvalidRequest, match="no needle"):
        needles_of(str(path))


@pytest.mark.parametrize(
    ("table", "path"),
    [("file:///lake/my%20orders", "/lake/my orders"), ("/lake/orders/", "/lake/orders")],
)
def test_a_table_is_a_path_or_a_file_address(table: str, path: str) -> None:
    assert TablePath.of(table).path == path


@pytest.mark.parametrize("table", ["s3://bucket/orders", "file://elsewhere/orders", "/"])
def test_other_places_are_refused(table: str) -> None:
    with pytest.raises(InvalidRequest):
        TablePath.of(table)


def test_the_cursor_of_a_table_is_a_name_that_a_server_takes() -> None:
    assert TablePath.of("/lake/my orders").cursor == "lake.my-orders"
