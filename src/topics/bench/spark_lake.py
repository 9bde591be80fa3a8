"""The row `lake` of the Spark benchmark: a topic's history into its Delta table.

A sync is timed from the start of its query to its last commit, rows and deletes included, over HTTP
with two cores; the session is warm, as in any sync that runs for longer than its start.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from topics.bench.bench import Bench
from topics.bench.measure import Result, at_least, rate
from topics.bench.server_process import KEY

if TYPE_CHECKING:
    from topics.bench.spark_stage import SparkStage, Stages

GOAL = 150_000
REPEATS = 3


def lake(stages: Stages, bench: Bench) -> Iterator[Result]:
    """How fast a topic becomes a table."""
    stage = stages.get(bench)
    bench.say("syncing the history into a Delta table")
    repeats = 1 if bench.is_trial else REPEATS
    sample = rate(lambda: _sync(stage), calls=1, repeats=repeats, units=stage.records)
    yield sample.result("lake", "topics lake sync", goal=at_least(GOAL))


def _sync(stage: SparkStage) -> None:
    from topics.bench.spark_stage import TOPIC  # noqa: PLC0415 - brings in Spark
    from topics.client.targets import Target  # noqa: PLC0415
    from topics.spark.lake.place import TablePath  # noqa: PLC0415
    from topics.spark.lake.syncing import Sync, SyncTask  # noqa: PLC0415

    place = TablePath.of(str(stage.directory / "lake" / TOPIC))
    shutil.rmtree(place.path, ignore_errors=True)
    target = Target(url=stage.server.url, token=KEY)
    done = Sync(SyncTask(TOPIC, place, target, once=True)).run(stage.spark)
    if done.position != stage.records:
        raise RuntimeError(f"{done.position} of {stage.records} records reached the table")
