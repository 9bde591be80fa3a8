"""Sessions: with the Java that is there, and without any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import CONF, QUICK_START, ServerProcess

import topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_JAVA = """
import json, sys
from topics.spark import session

directory, table, conf = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
spark = session("local[2]", conf=conf)
frame = spark.read.format("topics").option("subscribe", "orders").load(directory)
frame.write.option("compression", "zstd").parquet(table)
beans = spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
found = {
    "java": spark._jvm.java.lang.System.getProperty("java.version"),
    "collectors": [bean.getName() for bean in beans],
    "rows": spark.read.parquet(table).groupBy("kind").count().collect(),
}
spark.stop()
print(json.dumps(found))
"""


def test_a_session_counts_and_keeps_utc(spark: SparkSession) -> None:
    assert spark.range(1000).count() == 1000
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    (row,) = spark.sql("SELECT cast(timestamp '2026-01-01 00:00:00Z' AS string) AS at").collect()
    assert row["at"] == "2026-01-01 00:00:00"


OVER_CONNECT = """
import json, sys
from topics.spark import session

remote, url, topic, work = sys.argv[1:]
spark = session(remote, conf={"spark.sql.shuffle.partitions": 2})
log = {"url": url}
numbers = spark.range(100).selectExpr("struct(id) AS data")
for attempt in range(2):
    once = numbers.write.format("topics").options(**log, txnAppId=topic, txnVersion="1")
    once.option("topic", topic).mode("append").save()
rows = spark.readStream.format("topics").options(**log, subscribe=topic, cursor="etl")
rows = rows.option("startingOffsets", "earliest").option("maxRecordsPerTrigger", 40).load()
sink = rows.where("kind = 'data'").select("data").writeStream.format("topics").options(**log)
sink = sink.option("topic", topic + ".copy").option("checkpointLocation", work)
sink.trigger(availableNow=True).start().awaitTermination()
copied = spark.read.format("topics").options(**log, subscribe=topic + ".copy").load()
print(json.dumps([spark.conf.get("spark.sql.session.timeZone"), copied.count()]))
"""


def test_source_sink_and_cursor_work_over_spark_connect(
    connect_url: str, shared_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", OVER_CONNECT, connect_url, shared_server.url, topic]
    done = subprocess.run(
        [*command, str(tmp_path / "work")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == ["UTC", 100]
    with topics.open(shared_server.url) as log:
        assert log.cursor(topic, "etl").seq == 100


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine on which Java was never installed."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for found in Path(folder).iterdir():
            link = programs / found.name
            if not found.name.startswith("java") and not link.is_symlink():
                link.symlink_to(found)
    hidden = ("JAVA", "JDK", "SPARK", "PYSPARK", "TOPICS")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    return kept | {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_a_machine_without_java_runs_spark_on_the_jdk_of_the_package(
    no_java: dict[str, str], tmp_path: Path
) -> None:
    with topics.open(tmp_path / "data") as log:
        log.append("orders", [{"data": {"n": n}} for n in range(1000)])
    # Which collector is used is not for the test to say.
    conf = CONF | {"spark.driver.extraJavaOptions": QUICK_START}
    arguments = [str(tmp_path / "data"), str(tmp_path / "table"), json.dumps(conf)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA, *arguments],
        env=no_java,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == [["data", 1000]]
    assert not any("G1" in name for name in found["collectors"])
