"""A driver in a process of its own, for tests that kill it: copies a topic, each time twice.

One query writes every record to one of two topics, by whether its seq is odd; the other keeps a
Delta table of the source. All copies share this driver, so that one kill tests them all. Run it
through `tests.spark.drivers`; what it is asked for comes as JSON, what it says goes to files. Tests
whose driver need not die use `start_copies` and `counted` in the session that they have.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.spark.pages import run_python
from tests.spark.patient import patient_starts

from topics.spark import session
from topics.spark.lake.sink import LakeSink

PATIENT = {"retrySeconds": "600"}
"""How long requests may be held, and a server be away."""


class Copy(TypedDict):
    """Where the records go."""

    name: str  # the two topics are this and ".0" or ".1"
    url: str
    table: str
    table_url: str


class Asked(TypedDict):
    """What one run is to do."""

    source: str
    copies: Sequence[Copy]
    partitions: int
    rows_per_trigger: int
    is_endless: bool
    work: str


class Run(TypedDict):
    """And where; `code` is of a page, and runs at the end in the same session."""

    master: str
    conf: Mapping[str, str]
    asked: Asked
    data_dir: str
    code: str


def main(run: Run) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    asked = run["asked"]
    spark = session(run["master"], conf=run["conf"])
    spark.sparkContext.setLogLevel("ERROR")
    jvm: Any = spark._jvm
    tell(asked, "jvm", int(jvm.java.lang.ProcessHandle.current().pid()))
    with patient_starts():
        queries = start_copies(spark, asked)
    for query in queries:
        query.awaitTermination()
    for copy in asked["copies"]:
        tell(asked, "by_url", counted(spark, copy, url=copy["url"]))
        tell(asked, "by_path", counted(spark, copy, path=run["data_dir"]))
    tell(asked, "printed", run_python(run["code"], "page", {"__name__": "__main__"}))
    spark.stop()


def start_copies(spark: SparkSession, asked: Asked) -> list[StreamingQuery]:
    """Start both queries of every copy; they go on from their checkpoints, if they have some."""
    spark.dataSource.register(LakeSink)
    return [
        query
        for copy in asked["copies"]
        for query in (_copy_to_topics(spark, asked, copy), _copy_to_table(spark, asked, copy))
    ]


def counted(spark: SparkSession, copy: Copy, **where: str) -> list[int]:
    """Rows and distinct rows of the topics of a copy, by a batch read."""
    topics = spark.read.format("topics").options(**where)
    topics = topics.option("subscribe", f"{copy['name']}.0,{copy['name']}.1")
    found = topics.load().selectExpr("count(*) AS rows", "count(DISTINCT data) AS several").first()
    assert found is not None
    return [found["rows"], found["several"]]


def _copy_to_topics(spark: SparkSession, asked: Asked, copy: Copy) -> StreamingQuery:
    rows = (
        _read(spark, asked, copy)
        .where("kind = 'data'")
        .selectExpr("data", "tag", f"concat('{copy['name']}.', seq % 2) AS topic")
        .repartition(asked["partitions"])
    )
    writer = rows.writeStream.format("topics").option("url", copy["url"]).options(**PATIENT)
    return _start(writer, asked, f"{copy['name']}-topics")


def _copy_to_table(spark: SparkSession, asked: Asked, copy: Copy) -> StreamingQuery:
    cut = {"minPartitions": str(asked["partitions"]), "includeDeleted": "true"}
    writer = (
        _read(spark, asked, copy, **cut)
        .writeStream.format("topics_lake")
        .option("topic", asked["source"])
        .option("url", copy["table_url"])
        .option("path", copy["table"])
        .options(**PATIENT)
    )
    return _start(writer, asked, f"{copy['name']}-table")


def _read(spark: SparkSession, asked: Asked, copy: Copy, **options: str) -> DataFrame:
    return (
        spark.readStream.format("topics")
        .option("url", copy["url"])
        .option("subscribe", asked["source"])
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", asked["rows_per_trigger"])
        .options(**PATIENT)
        .options(**options)
        .load()
    )


def _start(writer: DataStreamWriter, asked: Asked, name: str) -> StreamingQuery:
    writer = writer.option("checkpointLocation", os.path.join(asked["work"], f"checkpoint-{name}"))
    if asked["is_endless"]:
        return writer.trigger(processingTime="0 seconds").start()
    return writer.trigger(availableNow=True).start()


def end_with_parent() -> None:
    """The test holds the other end of stdin: when it is gone, nobody will end this process."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def tell(asked: Asked, what: str, value: object) -> None:
    """Put a fact where the test finds it, whole or not at all."""
    scratch = Path(asked["work"], f"{what}.tmp")
    scratch.write_text(json.dumps(value))
    scratch.rename(Path(asked["work"], what))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
