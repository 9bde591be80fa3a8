"""Epochs into a table: once each, in order, with nothing missing and nothing resurrected."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.unit.spark.lake_parts import (
    TOPIC,
    FakeTopic,
    Query,
    gap,
    lake,
    losses_in,
    rows,
    seqs_in,
)

from topics.spark.errors import FilesVanished, ForeignTable, RangesDoNotJoin
from topics.spark.lake import epochs
from topics.spark.lake.erasing import carry_deletes
from topics.spark.lake.place import TablePath
from topics.spark.lake.table import LakeTable, deletes_app, position_app


@pytest.fixture
def place(tmp_path: Path) -> TablePath:
    return lake(tmp_path)


def test_epochs_land_in_one_commit_each_with_their_transaction_and_the_position(
    place: TablePath,
) -> None:
    query = Query(place, FakeTopic(200))
    query.records(0, 1, 100)
    version = LakeTable.open(place).version
    query.records(1, 101, 200)
    table = LakeTable.open(place)
    assert table.version == version + 1
    assert table.transaction(query.id) == 1
    assert table.transaction(position_app(TOPIC, 17)) == 200
    assert seqs_in(place) == list(range(1, 201))
    assert query.topic.positions == {"lake.orders": 200}


def test_the_table_has_the_promised_columns_and_statistics_of_nothing_but_seq_and_time(
    place: TablePath,
) -> None:
    query = Query(place, FakeTopic(100))
    query.records(0, 1, 100)
    table = LakeTable.open(place)
    fields = [
        (f["name"], f["type"], f["nullable"])
        for f in json.loads(table.delta.schema().to_json())["fields"]
    ]
    assert fields == [
        ("epoch", "long", False),
        ("seq", "long", False),
        ("ts", "timestamp", True),
        ("node", "string", True),
        ("tag", "string", True),
        ("data", "string", True),
        ("meta", "string", True),
    ]
    log = "".join(Path(place.log, name).read_text() for name in sorted(os.listdir(place.log)))
    assert "cust-" not in log
    adds = [json.loads(line)["add"] for line in log.splitlines() if '"add"' in line]
    stats = [json.loads(add["stats"]) for add in adds]
    assert [set(s["minValues"]) for s in stats] == [{"seq", "ts"}] * 2
    assert [(s["minValues"]["seq"], s["maxValues"]["seq"]) for s in stats] == [(1, 50), (51, 100)]
    assert table.settings["delta.enableDeletionVectors"] == "false"


def test_an_epoch_that_comes_again_lands_once_and_leaves_no_file_behind(place: TablePath) -> None:
    query = Query(place, FakeTopic(100))
    query.records(0, 1, 100)
    before = sorted(os.listdir(place.path))
    again = query.epoch(0, [rows(range(1, 34))], [rows(range(34, 101))], [])
    assert again.deduped
    assert seqs_in(place) == list(range(1, 101))
    assert sorted(os.listdir(place.path)) == before


def test_a_replayed_epoch_still_carries_over_a_delete_that_the_crash_kept_out(
    place: TablePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(place, FakeTopic(100))
    staged = query.stage(0, [rows(range(1, 101))])
    query.topic.delete(40, 49)  # after the rows were read

    def crash(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(epochs, "carry_deletes", crash)
        with pytest.raises(KeyboardInterrupt):
            query.land(0, staged)
    assert seqs_in(place) == list(range(1, 101))
    again = query.epoch(
        0, [rows(range(1, 40)), gap(40, 49, "deleted", "deleted"), rows(range(50, 101))]
    )
    assert again.deduped
    assert again.carried.rows == 10
    assert seqs_in(place) == [*range(1, 40), *range(50, 101)]


def test_rows_that_leave_a_hole_are_refused_and_nothing_is_committed(place: TablePath) -> None:
    query = Query(place, FakeTopic(200))
    query.records(0, 1, 100)
    with pytest.raises(RangesDoNotJoin, match=r"seqs 101\.\.109 .* neither rows nor gaps"):
        query.epoch(1, [rows(range(110, 201))])
    assert LakeTable.open(place).position(TOPIC, 17) == 100
    with pytest.raises(RangesDoNotJoin, match=r"seqs 150\.\.150 "):
        query.epoch(1, [rows(range(101, 150)), rows(range(151, 201))])
    query.epoch(1, [rows(range(101, 201))])
    assert seqs_in(place) == list(range(1, 201))


def test_an_evicted_run_that_arrives_as_nothing_is_a_hole_even_if_the_topic_lost_it(
    place: TablePath,
) -> None:
    query = Query(place, FakeTopic(200))
    query.topic.dead.append((1, 10, "cap"))
    with pytest.raises(RangesDoNotJoin):
        query.epoch(0, [rows(range(11, 201))])


def test_seqs_that_never_were_records_may_be_absent(place: TablePath) -> None:
    query = Query(place, FakeTopic(200))
    query.topic.dead += [(91, 95, "skipped"), (96, 99, "skipped")]
    query.epoch(0, [rows(range(1, 91)), rows(range(100, 201))])
    assert LakeTable.open(place).position(TOPIC, 17) == 200


def test_rows_that_the_table_has_already_are_refused(place: TablePath) -> None:
    query = Query(place, FakeTopic(200))
    query.records(0, 1, 100)
    other = Query(place, query.topic)  # another checkpoint: another id, from the start
    with pytest.raises(RangesDoNotJoin, match="does not belong to the table"):
        other.records(0, 1, 100)
    assert seqs_in(place) == list(range(1, 101))


def test_a_checkpoint_older_than_the_table_is_refused_where_it_would_lose_rows(
    place: TablePath,
) -> None:
    query = Query(place, FakeTopic(300))
    query.records(0, 1, 100)
    query.records(1, 101, 200)
    with pytest.raises(RangesDoNotJoin, match="older than the table"):
        query.records(1, 101, 300)


def test_lost_runs_land_in_the_loss_table_with_the_epochs_transaction(place: TablePath) -> None:
    query = Query(place, FakeTopic(100))
    landed = query.epoch(0, [gap(1, 40), rows(range(41, 90))], [gap(90, 100, reason="crash")])
    assert landed.lost == 2
    assert losses_in(place) == [(17, 1, 40, "cap"), (17, 90, 100, "crash")]
    assert LakeTable.open(place.loss).transaction(query.id) == 0
    assert LakeTable.open(place).position(TOPIC, 17) == 100
    assert seqs_in(place) == list(range(41, 90))


def test_losses_of_a_first_try_are_completed_and_not_repeated(
    place: TablePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(place, FakeTopic(100))

    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(epochs.EpochCommit, "_land_rows", crash)
        with pytest.raises(KeyboardInterrupt):
            query.epoch(0, [gap(1, 40), gap(200, None, reason="recreated"), rows(range(41, 101))])
    assert losses_in(place) == [(17, 1, 40, "cap"), (17, 200, None, "recreated")]
    # Retention went on while the job was down.
    query.epoch(0, [gap(1, 60), gap(200, None, reason="recreated"), rows(range(61, 101))])
    assert losses_in(place) == [
        (17, 1, 40, "cap"),
        (17, 41, 60, "cap"),
        (17, 200, None, "recreated"),
    ]
    assert seqs_in(place) == list(range(61, 101))


def test_a_topic_made_anew_goes_on_in_the_same_table_under_its_new_epoch(place: TablePath) -> None:
    query = Query(place, FakeTopic(100))
    query.records(0, 1, 100)
    query.topic.epoch, query.topic.head = 18, 50
    query.epoch(1, [gap(101, None, reason="recreated"), rows(range(1, 51), epoch=18)])
    assert seqs_in(place, 17) == list(range(1, 101))
    assert seqs_in(place, 18) == list(range(1, 51))
    assert losses_in(place) == [(17, 101, None, "recreated")]


def test_a_gap_that_a_recreated_topic_can_no_longer_explain_is_a_loss(place: TablePath) -> None:
    query = Query(place, FakeTopic(100))
    staged = query.stage(0, [rows(range(1, 51)), rows(range(61, 101))])
    query.topic.epoch = 18
    query.land(0, staged)
    assert losses_in(place) == [(17, 51, 60, "unexplained")]


def test_a_delete_between_reading_and_committing_does_not_come_back(place: TablePath) -> None:
    query = Query(place, FakeTopic(100))
    staged = query.stage(0, [rows(range(1, 101))])
    query.topic.delete(7, 7)
    assert query.land(0, staged).carried.rows == 1
    assert 7 not in seqs_in(place)


def test_a_delete_that_another_process_has_recorded_does_not_come_back_either(
    place: TablePath,
) -> None:
    query = Query(place, FakeTopic(200))
    query.records(0, 1, 100)
    staged = query.stage(1, [rows(range(101, 201))])
    query.topic.delete(150, 159)
    carry_deletes(place, query.topic)  # a reconcile that cannot see these rows yet
    recorded = LakeTable.open(place).transaction(deletes_app(TOPIC, 17))
    assert recorded == query.topic.delete_version
    assert query.land(1, staged).carried.rows == 10
    assert seqs_in(place) == [*range(1, 150), *range(160, 201)]


def test_a_file_that_vanished_is_never_committed(place: TablePath) -> None:
    query = Query(place, FakeTopic(100))
    staged = query.stage(0, [rows(range(1, 101))])
    for name in os.listdir(place.path):
        if name.endswith(".parquet"):
            os.unlink(place.inside(name))
    with pytest.raises(FilesVanished):
        query.land(0, staged)
    query.epoch(0, [rows(range(1, 101))])
    assert seqs_in(place) == list(range(1, 101))


def test_the_table_of_another_topic_is_refused(place: TablePath) -> None:
    Query(place, FakeTopic(10)).records(0, 1, 10)
    other = FakeTopic(10)
    other.topic = "invoices"
    with pytest.raises(ForeignTable, match="is the table of topic orders, not of invoices"):
        Query(place, other).records(0, 1, 10)


def test_an_epoch_without_rows_changes_nothing(place: TablePath) -> None:
    query = Query(place, FakeTopic(10))
    query.records(0, 1, 10)
    version = LakeTable.open(place).version
    query.epoch(1, [], [])
    assert LakeTable.open(place).version == version
