"""Where the query of a sync begins, how long its commits wait for the topic, and its options."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.unit.spark.lake_parts import TOPIC, FakeTopic, Query, lake, rows

from topics import cli
from topics.errors import Unreachable
from topics.spark.errors import InvalidOption, SyncFailed
from topics.spark.lake.sink import COLUMNS, LakeSink, LakeWriter, Message
from topics.spark.lake.syncing import Sync, SyncTask, epoch_of, start_options
from topics.spark.lake.table import LakeTable
from topics.values import TopicState


@pytest.fixture
def task(tmp_path: Path) -> SyncTask:
    """Of a table with ten records."""
    topic, place = FakeTopic(10), lake(tmp_path)
    Query(place, topic).records(0, 1, 10)
    return SyncTask(TOPIC, place, topic.target, checkpoint=str(tmp_path / "checkpoint"))


def test_a_new_query_begins_behind_the_table(task: SyncTask) -> None:
    assert json.loads(start_options(task, 17)["startingOffsets"]) == {TOPIC: 11}
    assert json.loads(start_options(task, 18)["startingOffsets"]) == {TOPIC: 1}


@pytest.mark.parametrize("left", ["metadata", "offsets/.0.tmp"])
def test_a_query_that_ended_before_its_first_batch_is_begun_anew(task: SyncTask, left: str) -> None:
    file = Path(task.checkpoint_dir, left)
    file.parent.mkdir(parents=True)
    file.touch()
    assert "startingOffsets" in start_options(task, 17)


def test_a_query_that_has_read_goes_on_where_it_was(task: SyncTask) -> None:
    file = Path(task.checkpoint_dir, "offsets", "0")
    file.parent.mkdir(parents=True)
    file.touch()
    assert start_options(task, 17) == {}


# What an epoch tells


def a_report(latest: object) -> dict[str, Any]:
    source = {"endOffset": {TOPIC: [17, 11]}, "latestOffset": latest}
    return {"batchId": 3, "numInputRows": 10, "batchDuration": 2000, "sources": [source]}


class OutOfReach(FakeTopic):
    def state(self) -> TopicState:
        raise Unreachable("http://127.0.0.1:1", reason="nobody there")


OUT_OF_REACH = OutOfReach(30)


@pytest.mark.parametrize("latest", [{TOPIC: [17, 16]}, json.dumps({TOPIC: [17, 16]})])
def test_an_epoch_tells_its_rate_and_its_lag_as_spark_saw_it(latest: object) -> None:
    line = epoch_of(a_report(latest), OUT_OF_REACH).line()
    assert line == "epoch 3  10 rows  5/s  2.0 s  lag 5"


def test_an_epoch_counts_only_seqs_that_hold_a_record_as_lag() -> None:
    report = a_report({TOPIC: [17, 16]})
    assert epoch_of(report, OUT_OF_REACH, lambda topic, first, last: 1).lag == 1


@pytest.mark.parametrize("latest", ["null", None])
def test_of_a_repeated_epoch_the_log_tells_the_lag_which_spark_does_not(latest: object) -> None:
    assert epoch_of(a_report(latest), FakeTopic(30)).lag == 20
    assert epoch_of(a_report(latest), OUT_OF_REACH).line().endswith("lag unknown")


def test_a_sync_tells_the_table_how_large_files_become(
    task: SyncTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SyncTask, "origin", lambda task: FakeTopic(10))
    monkeypatch.setattr(Sync, "run_query", lambda *asked: None)
    for asked, kept in ((None, 256 << 20), (5 << 20, 5 << 20), (None, 5 << 20)):
        Sync(replace(task, file_bytes=asked)).run(None)  # type: ignore[arg-type]  # is not used
        assert LakeTable.open(task.place).file_bytes == kept


# How it ends


def test_a_server_that_goes_away_under_a_sync_fails_it_as_its_query_would(
    task: SyncTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = FakeTopic(10)

    def away(run: Sync, *asked: object) -> None:
        topic.state = OUT_OF_REACH.state  # type: ignore[method-assign]  # from now on

    monkeypatch.setattr(SyncTask, "origin", lambda task: topic)
    monkeypatch.setattr(Sync, "run_query", away)
    with pytest.raises(SyncFailed, match="nobody there"):
        Sync(task).run(None)  # type: ignore[arg-type]  # the query is not started


# How long a commit waits for its topic


def sink(task: SyncTask, **options: str) -> LakeWriter:
    given = {"topic": TOPIC, "url": str(task.target), "path": task.place.path, **options}
    schema = StructType([StructField(name, StringType()) for name in COLUMNS])
    return LakeSink(given).streamWriter(schema, overwrite=False)


def test_a_commit_tries_to_reach_its_topic_for_as_long_as_asked(task: SyncTask) -> None:
    writer = sink(task, retrySeconds="0.1")  # nobody listens there
    query = Query(task.place, FakeTopic(20))
    (arrived,) = query.stage(0, [rows(range(11, 21))])
    with pytest.raises(Unreachable, match=r"tried for 0\.1 s"):
        writer.commit([Message(query.id, arrived)], 0)


def test_a_patience_that_is_no_number_is_refused(task: SyncTask) -> None:
    with pytest.raises(InvalidOption, match="retrySeconds takes a number of seconds"):
        sink(task, retrySeconds="long")


# Options


def test_an_unknown_option_names_the_one_that_was_meant(task: SyncTask) -> None:
    with pytest.raises(
        InvalidOption, match=r"no option 'retrysecond'; did you mean retrySeconds\?"
    ):
        sink(task, retrySecond="5")
    sink(task, checkpointLocation="/somewhere", queryName="q")


def test_a_file_size_that_is_none_is_told_before_spark_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for text in ("large", "10kB"):
        assert cli.run(["lake", "sync", TOPIC, "lake", "--file-size", text]) == 2
        assert f"from 1MiB on such as 128MiB; got '{text}'" in capsys.readouterr().err


def test_a_time_between_epochs_that_is_none_is_told_before_spark_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["lake", "sync", TOPIC, "lake", "--trigger", "soon"]) == 2
    assert "--trigger takes a time such as '10 minutes' or '30s'; got 'soon'" in (
        capsys.readouterr().err
    )
