"""A driver in a process of its own, for tests that kill it: copies a topic, twice.

One query writes every record to one of two topics, by whether its seq is odd; the other keeps a
Delta table of the source. Both share this driver, so that one kill tests both. Run it through
`tests.spark.drivers`; what it is asked for comes as JSON, what it says goes to files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from topics.spark import session
from topics.spark.lake.sink import LakeSink

STARTS = 5


class Asked(TypedDict):
    """What one run is to do."""

    master: str
    conf: Mapping[str, str]
    url: str
    source: str
    to: str  # the two topics are this and ".0" or ".1"
    partitions: int
    rows_per_trigger: int
    table: str | None
    table_url: str
    data_dir: str
    is_endless: bool
    work: str


def main(asked: Asked) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    spark = session(asked["master"], conf=asked["conf"])
    spark.sparkContext.setLogLevel("ERROR")
    jvm: Any = spark._jvm
    tell(asked, "jvm", int(jvm.java.lang.ProcessHandle.current().pid()))
    queries = [copy_to_topics(spark, asked)]
    if asked["table"] is not None:
        spark.dataSource.register(LakeSink)
        queries.append(copy_to_table(spark, asked, asked["table"]))
    for query in queries:
        query.awaitTermination()
    tell(asked, "by_url", counted(spark, asked, url=asked["url"]))
    tell(asked, "by_path", counted(spark, asked, path=asked["data_dir"]))
    spark.stop()


def copy_to_topics(spark: SparkSession, asked: Asked) -> StreamingQuery:
    rows = (
        read(spark, asked)
        .where("kind = 'data'")
        .selectExpr("data", "tag", f"concat('{asked['to']}.', seq % 2) AS topic")
        .repartition(asked["partitions"])
    )
    writer = rows.writeStream.format("topics").option("url", asked["url"])
    return start(writer, asked, "topics")


def copy_to_table(spark: SparkSession, asked: Asked, table: str) -> StreamingQuery:
    rows = read(spark, asked, minPartitions=str(asked["partitions"]), includeDeleted="true")
    writer = (
        rows.writeStream.format("topics_lake")
        .option("topic", asked["source"])
        .option("url", asked["table_url"])
        .option("path", table)
    )
    return start(writer, asked, "table")


def read(spark: SparkSession, asked: Asked, **options: str) -> DataFrame:
    return (
        spark.readStream.format("topics")
        .option("url", asked["url"])
        .option("subscribe", asked["source"])
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", asked["rows_per_trigger"])
        .options(**options)
        .load()
    )


def counted(spark: SparkSession, asked: Asked, **where: str) -> list[int]:
    """Rows and distinct rows of both copies, by a batch read."""
    copies = spark.read.format("topics").options(**where)
    copies = copies.option("subscribe", f"{asked['to']}.0,{asked['to']}.1")
    found = copies.load().selectExpr("count(*) AS rows", "count(DISTINCT data) AS several").first()
    assert found is not None
    return [found["rows"], found["several"]]


def start(writer: DataStreamWriter, asked: Asked, name: str) -> StreamingQuery:
    """Start a query and wait until it reads. Spark gives the Python half of a source ten seconds
    to come up, and that cannot be set: on a busy machine it may take a second start."""
    writer = writer.option("checkpointLocation", os.path.join(asked["work"], f"checkpoint-{name}"))
    if asked["is_endless"]:
        writer = writer.trigger(processingTime="0 seconds")
    else:
        writer = writer.trigger(availableNow=True)
    for _ in range(STARTS):
        query = writer.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.05)
        if "worker to connect back" not in str(query.exception()):
            break
    return query


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
