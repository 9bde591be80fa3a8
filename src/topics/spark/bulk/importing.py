"""`topics spark import`: files into a topic, exactly once, however often it is interrupted.

An epoch of the import is staged by tasks and committed as one: all of its records or none. The
server knows the last epoch it committed, so a second run begins at the next one, and an epoch whose
commit was cut off is either there or written again.

Two runs are the same import if their input is the same, by name, size and time of every file. This
machine also remembers what was imported from where: input that has changed since is refused,
because which of its rows are in the topic is unknown.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from topics.client.targets import Target
from topics.errors import Forbidden, TopicsError
from topics.spark.bulk.inputs import EPOCH_BYTES, UNIT_BYTES, ImportPlan, Unit, batches_of, plan
from topics.spark.flows.state import state_home
from topics.spark.jobs.queries import explain
from topics.spark.lake.parquet import write_json
from topics.spark.sink.options import parse
from topics.spark.sink.stages import StageClient
from topics.spark.sink.writer import BatchWriter, TaskCommit
from topics.spark.source.options import DEFAULT_RETRY_S, options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ID_LENGTH: Final = 32
_TOPIC_LENGTH: Final = 88
"""The longest topic name that fits into the name of an app, beside a dot, `import.` and the id."""


class InputChanged(TopicsError):
    """The files are not those that an earlier import from the same place began with."""

    code = "input_changed"


class ImportFailed(TopicsError):
    """An epoch could not be written; those before it are in the topic."""

    code = "import_failed"


@dataclass(frozen=True)
class ImportTask:
    """What goes where. `name` begins another import of files that were imported before."""

    source: str
    topic: str
    target: Target
    name: str = ""
    epoch_bytes: int = EPOCH_BYTES
    unit_bytes: int = UNIT_BYTES

    def plan(self) -> ImportPlan:
        """Find and cut the input, which needs no Spark: what cannot be imported is told here."""
        return plan(self.source, epoch_bytes=self.epoch_bytes, unit_bytes=self.unit_bytes)


@dataclass(frozen=True)
class Imported:
    """What a run did; `skipped` epochs were there before."""

    epochs: int
    skipped: int
    records: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Step:
    """One epoch is in the topic."""

    epoch: int
    of: int
    records: int
    seconds: float

    def line(self) -> str:
        """For people."""
        rate = self.records / self.seconds if self.seconds else 0.0
        return (
            f"epoch {self.epoch + 1} of {self.of}  {self.records:,} records  {rate:,.0f}/s  "
            f"{self.seconds:.1f} s"
        )


def import_files(
    spark: SparkSession,
    task: ImportTask,
    cut: ImportPlan,
    *,
    report: Callable[[Step], None] = lambda step: None,
    notice: Callable[[str], None] = lambda line: None,
    env: Mapping[str, str] = os.environ,
) -> Imported:
    """Import what is not yet in the topic; `cut` is the task's plan."""
    began = time.monotonic()
    _remember(task, cut, env)
    app, last = find(task, cut)
    start = 0 if last is None else last + 1
    if start:
        notice(f"{start} of {len(cut.epochs)} epochs are in {task.topic} already")
    records = 0
    for number in range(start, len(cut.epochs)):
        step = _write(spark, task, cut, number, app)
        records += step.records
        report(step)
    return Imported(
        epochs=len(cut.epochs),
        skipped=start,
        records=records,
        bytes=cut.nbytes,
        seconds=time.monotonic() - began,
    )


def app_id(task: ImportTask, cut: ImportPlan) -> str:
    """Under which name the server counts the epochs: the same for the same input and topic."""
    seen = hashlib.sha256(json.dumps([task.topic, cut.fingerprint, task.name]).encode())
    return f"import.{seen.hexdigest()[:_ID_LENGTH]}"


def find(task: ImportTask, cut: ImportPlan) -> tuple[str, int | None]:
    """The name of the import on the server, and the last epoch it has committed."""
    app = app_id(task, cut)
    try:
        return app, _last_epoch(task, app)
    except Forbidden as refused:
        if "app" not in (refused.detail or {}):
            raise
    # The key is limited to prefixes. One of them begins the topic, so it has to begin the app.
    app = f"{task.topic[:_TOPIC_LENGTH]}.{app}"
    return app, _last_epoch(task, app)


def _last_epoch(task: ImportTask, app: str) -> int | None:
    with StageClient(task.target, app, retry_s=DEFAULT_RETRY_S) as stages:
        return stages.last_epoch()


def _write(spark: SparkSession, task: ImportTask, cut: ImportPlan, number: int, app: str) -> Step:
    began = time.monotonic()
    options = options_of(task.target) | {"topic": task.topic}
    writer = BatchWriter(parse(options, streaming=False), app, number, is_open=True)
    units = cut.epochs[number]
    try:
        work = spark.sparkContext.parallelize(units, len(units))
        staged: list[TaskCommit] = work.map(partial(stage_unit, writer)).collect()
        writer.commit(list(staged))
    except TopicsError:
        raise
    except Exception as error:
        raise ImportFailed(f"epoch {number + 1} of {task.source}: {explain(error)}") from error
    records = sum(one.rows for one in staged)
    return Step(number, len(cut.epochs), records, time.monotonic() - began)


def stage_unit(writer: BatchWriter, unit: Unit) -> TaskCommit:
    """On an executor: the records of one unit, staged."""
    return writer.write(batches_of(unit))


# What was imported from where


def _remember(task: ImportTask, cut: ImportPlan, env: Mapping[str, str]) -> None:
    path = _memory(task, cut, env)
    with suppress(FileNotFoundError, ValueError):
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
        if known["fingerprint"] != cut.fingerprint:
            raise InputChanged(
                f"{cut.source} has changed since it was imported into {task.topic}: which of its "
                "rows are there already cannot be told. Import the new files alone, or all of it "
                "again as another import with --name"
            )
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    facts = {"source": cut.source, "topic": task.topic, "name": task.name}
    write_json(path, {**facts, "url": task.target.url, "fingerprint": cut.fingerprint})


def _memory(task: ImportTask, cut: ImportPlan, env: Mapping[str, str]) -> str:
    what = json.dumps([cut.source, task.topic, task.target.url, task.name])
    name = hashlib.sha256(what.encode()).hexdigest()[:_ID_LENGTH]
    return str(state_home(env) / "imports" / f"{name}.json")
