"""Where the query of a sync begins: behind the table, unless its checkpoint knows better."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.spark.lake_parts import TOPIC, FakeTopic, Query, lake

from topics.spark.lake.syncing import SyncTask, start_options


@pytest.fixture
def task(tmp_path: Path) -> SyncTask:
    """Of a table with ten records."""
    topic, place = FakeTopic(10), lake(tmp_path)
    Query(place, topic).records(0, 1, 10)
    return SyncTask(TOPIC, place, topic.url, checkpoint=str(tmp_path / "checkpoint"))


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
