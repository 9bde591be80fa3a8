"""A table says up to where it is complete, and a table that is not is told apart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import pytest
from tests.unit.cli.runner import topics
from tests.unit.spark.lake_parts import FakeTopic, Query, gap, lake, records, rows

from topics.spark.lake.certifying import certify
from topics.spark.lake.epochs import EpochCommit
from topics.spark.lake.erasing import carry_deletes
from topics.spark.lake.parquet import ROWS
from topics.spark.lake.place import TablePath
from topics.spark.lake.table import ORIGIN, TOPIC, LakeTable, TableCommit, position_app
from topics.spark.lake.typed import TypedAs
from topics.spark.lake.upkeep import Maintenance, maintain


@pytest.fixture
def place(tmp_path: Path) -> TablePath:
    return lake(tmp_path)


def problems(place: TablePath) -> list[str]:
    return [problem for epoch in certify(place).epochs for problem in epoch.problems]


def test_a_table_tells_its_position_its_time_and_where_every_seq_went(place: TablePath) -> None:
    query = Query(place, FakeTopic(200), TypedAs())
    query.epoch(0, [gap(1, 10), rows(range(11, 51)), gap(51, 60, "deleted", "deleted")])
    query.epoch(1, [records(61, {"n": 1}, {"n": "x"}, [2])])
    query.topic.delete(12, 13)
    query.topic.delete(62, 62)
    carry_deletes(place, query.topic)
    for _ in range(2):
        (epoch,) = certify(place).epochs
        assert epoch.problems == []
        assert (epoch.epoch, epoch.seq, epoch.time) == (17, 63, "1970-01-01T00:01:03.000Z")
        assert (epoch.rows, epoch.unfit, epoch.deleted) == (39, 1, 3)
        assert (epoch.landed, epoch.lost, epoch.without_record) == (43, 10, 10)
        assert epoch.deleted_seqs == [(12, 13), (62, 62)]
        maintain(place, Maintenance(0))  # and after it
    answer = topics("lake", "certify", place.path)
    assert answer.code == 0
    assert answer.out.splitlines() == [
        "orders (epoch 17): complete up to seq 63, 1970-01-01T00:01:03.000Z",
        "  39 rows, 1 unfit, 3 deleted, 10 lost",
        f"version {LakeTable.open(place).version}: complete",
    ]


def test_an_epoch_that_comes_again_counts_once_and_a_new_life_of_the_topic_for_itself(
    place: TablePath,
) -> None:
    query = Query(place, FakeTopic(200))
    query.records(0, 1, 50)
    assert query.records(0, 1, 50).deduped
    query.topic.epoch = 18
    query.records(1, 1, 20)
    assert [(epoch.epoch, epoch.rows) for epoch in certify(place).epochs] == [(17, 50), (18, 20)]
    assert problems(place) == []


def test_rows_that_are_missing_doubled_or_back_make_a_table_incomplete(place: TablePath) -> None:
    query = Query(place, FakeTopic(200))
    query.records(0, 1, 50)
    query.records(1, 51, 100)
    table = LakeTable.open(place)
    first = table.files()[0]
    table.commit(TableCommit(remove=[first]))
    assert problems(place) == ["100 rows landed, and 75 are there or were taken out"]
    answer = topics("lake", "certify", place.path, "--json")
    assert (answer.code, json.loads(answer.out)["complete"]) == (1, False)
    table = LakeTable.open(place)
    low, high = table.files()[0].seqs or (0, 0)
    (again,) = query.stage(9, [rows(range(low, high + 1))])
    table.commit(TableCommit(add=again.files))
    assert problems(place) == ["25 rows of the table are there twice"]


def test_records_that_do_not_fit_of_an_epoch_that_died_half_way_are_no_gap(
    place: TablePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*asked: object) -> None:
        raise SystemExit

    query = Query(place, FakeTopic(100), TypedAs())
    query.epoch(0, [records(1, {"n": 1}, {"n": 3}, [1])])
    with monkeypatch.context() as patched:
        patched.setattr(EpochCommit, "_land_rows", die)
        with pytest.raises(SystemExit):
            query.epoch(1, [records(4, {"n": 2}, [2])])
    assert problems(place) == []
    query.epoch(1, [records(4, {"n": 2}, [2])])
    (epoch,) = certify(place).epochs
    assert (epoch.problems, epoch.seq, epoch.rows, epoch.unfit) == ([], 5, 3, 2)


def test_deleted_rows_that_another_program_brings_back_are_told(place: TablePath) -> None:
    query = Query(place, FakeTopic(100))
    query.records(0, 1, 50)
    query.topic.delete(5, 6)
    carry_deletes(place, query.topic)
    (again,) = query.stage(9, [rows([5])])
    LakeTable.open(place).commit(TableCommit(add=again.files))
    assert "the table has rows that were taken out" in problems(place)
    (beyond,) = query.stage(9, [rows([51])])
    LakeTable.open(place).commit(TableCommit(add=beyond.files))
    assert "the table has rows behind seq 50" in problems(place)


def test_a_table_begun_before_tables_counted_goes_on_without(place: TablePath) -> None:
    query = Query(place, FakeTopic(100))
    table = LakeTable.create(place, ROWS, {TOPIC: "orders", ORIGIN: str(query.topic.target)})
    (before,) = query.stage(0, [rows(range(1, 11))])
    table.commit(TableCommit(add=before.files, transactions={position_app("orders", 17): 10}))
    query.records(1, 11, 20)
    (epoch,) = certify(place).epochs
    assert (epoch.seq, epoch.rows, epoch.landed, epoch.lost, epoch.problems) == (
        *(20, 20, None, None),
        [],
    )


def test_what_is_no_lake_table_is_told_and_nothing_is_made_there(tmp_path: Path) -> None:
    answer = topics("lake", "certify", tmp_path / "absent")
    assert (answer.code, "there is no lake table at" in answer.err) == (3, True)
    assert not (tmp_path / "absent").exists()


def test_duckdb_reads_up_to_where_a_table_is_complete_before_and_after_maintenance(
    place: TablePath,
) -> None:
    query = Query(place, FakeTopic(100))
    query.records(0, 1, 50)
    query.records(1, 51, 100)
    wanted = {"topics:orders:17": 100, "topics:orders:17:rows": 100, "topics:orders:17:lost": 0}
    assert wanted.items() <= told(place).items()
    maintain(place, Maintenance(0))
    assert any(name.endswith(".parquet") for name in os.listdir(place.log))
    assert wanted.items() <= told(place).items()


def told(place: TablePath) -> dict[str, int]:
    """As the documentation shows it."""
    txn = "{txn: 'STRUCT(appId VARCHAR, version BIGINT)'}"
    log = f"SELECT txn FROM read_json('{place.log}/*.json', columns = {txn})"
    if any(name.endswith(".parquet") for name in os.listdir(place.log)):
        checkpoints = f"read_parquet('{place.log}/*.parquet', union_by_name = true)"
        log += (
            " UNION ALL BY NAME SELECT {appId: txn.appId, version: txn.version} AS txn "
            f"FROM {checkpoints}"
        )
    with duckdb.connect() as sql:
        found = sql.sql(
            f"SELECT txn.appId, max(txn.version) FROM ({log}) WHERE txn.appId LIKE 'topics:%' "
            "GROUP BY 1"
        )
        return dict(found.fetchall())
