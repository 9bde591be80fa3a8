"""Queries in a real Spark: nothing lost in silence, whatever happens to the topic meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from tests.blackbox.conftest import ServerFactory, ServerProcess, wait_until
from tests.spark.servers import Server, start
from tests.unit.spark.source_rows import account

from topics.errors import NotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 300
Begin = Callable[..., "StreamingQuery"]


@pytest.fixture
def shared(shared_server: ServerProcess) -> Iterator[Server]:
    server = Server(shared_server)
    yield server
    server.close()


@pytest.fixture
def begin(spark: SparkSession, tmp_path: Path) -> Iterator[Begin]:
    """`begin("table", url=..., subscribe=...)`: a stream into Parquet files, ended in any case."""
    running: list[StreamingQuery] = []

    def start(name: str, *, now: bool = False, **options: object) -> StreamingQuery:
        source = spark.readStream.format("topics").options(**options)  # type: ignore[arg-type]
        writer = (
            source.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
            .option("path", str(tmp_path / name))
        )
        chosen = writer.trigger(availableNow=True) if now else writer
        running.append(chosen.start())
        return running[-1]

    yield start
    for query in running:
        query.stop()


@contextmanager
def writing_on(server: Server, topic: str) -> Iterator[None]:
    """Records come all the time while the block runs."""
    stopping = threading.Event()

    def write() -> None:
        while not stopping.wait(0.001):
            server.append(topic, 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join()
        server.close()


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(DEADLINE_S), "the query takes too long"


def written(spark: SparkSession, where: Path) -> list[dict[str, object]]:
    return [row.asDict() for row in spark.read.parquet(str(where)).collect()]


def read(spark: SparkSession, **options: object) -> DataFrame:
    return spark.read.format("topics").options(**options).load()  # type: ignore[arg-type]


def test_a_topic_is_a_table(spark: SparkSession, shared: Server, topic: str) -> None:
    shared.append(topic, 1000)
    shared.delete(topic, match="c:1")
    shared.create(topic, cap_records=500)
    frame = read(spark, url=shared.url, subscribe=topic, includeDeleted="true")
    assert account((row.asDict() for row in frame.collect()), first=1, last=1000)
    frame.createOrReplaceTempView("orders")
    (row,) = spark.sql(
        "SELECT count_if(kind = 'data') AS live, sum(if(kind = 'lost', last_seq - seq + 1, 0)) AS "
        "lost, max(from_json(data, 'n INT').n) AS biggest FROM orders"
    ).collect()
    audit = shared.audit(topic)
    assert (row["live"], row["lost"], row["biggest"]) == (audit["live"], audit["lost_cap"], 999)
    pruned = (
        spark.read.format("topics")
        .schema("seq bigint, ts timestamp")
        .options(url=shared.url, subscribe=topic, onLoss="skip")
        .load()
    )
    assert pruned.columns == ["seq", "ts"]
    assert pruned.count() == audit["live"]
    # Two looks at one DataFrame are looks at one range, and a filter on it stays its own.
    assert frame.where("seq > 900").count() < frame.count()
    assert frame.count() == frame.union(frame).count() // 2


def test_a_directory_is_read_by_executors_beside_its_server(
    spark: SparkSession, shared: Server, topic: str
) -> None:
    for _ in range(4):
        shared.append(topic, 1000)
    where = str(shared.process.data_dir)
    options = {"subscribe": topic, "maxRecordsPerPartition": "500"}
    frame = spark.read.format("topics").options(**options).load(where)
    assert frame.rdd.getNumPartitions() >= 8
    assert account((row.asDict() for row in frame.collect()), first=1, last=4000)["data"] == 4000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxRecordPerTrigger": "5"}, "did you mean maxRecordsPerTrigger?"),
        ({"subscribe": "nowhere"}, 'topic "nowhere" does not exist'),
        ({"url": "http://127.0.0.1:1", "retrySeconds": "0.2"}, "no answer from http://127.0.0.1:1"),
    ],
)
def test_a_mistake_is_told_in_the_error_of_the_query(
    spark: SparkSession, shared: Server, options: dict[str, str], said: str
) -> None:
    asked = {"url": shared.url, "subscribe": "orders"} | options
    with pytest.raises(PySparkException) as raised:
        read(spark, **asked).collect()
    assert said in str(raised.value)


def test_a_wrong_schema_and_a_path_that_is_a_topic_are_told_apart(
    spark: SparkSession, shared: Server
) -> None:
    source = spark.read.format("topics").options(url=shared.url, subscribe="orders")
    with pytest.raises(PySparkException, match="seq is of type bigint, not int"):
        source.schema("seq int, kind string").load().collect()
    with pytest.raises(PySparkException, match="use subscribe"):
        spark.read.format("topics").load("orders").collect()


def test_a_wrong_key_is_told_in_the_error_of_the_query(
    spark: SparkSession, server_factory: ServerFactory
) -> None:
    keyed = Server(server_factory(env={"TOPICS_API_KEYS": "secret"}), "secret")
    keyed.append("orders", 3)
    with pytest.raises(PySparkException, match="Unauthorized"):
        read(spark, url=keyed.url, subscribe="orders", token="wrong").collect()
    assert read(spark, url=keyed.url, subscribe="orders", token="secret").count() == 3
    keyed.close()


def test_a_stream_accounts_for_every_seq_while_caps_ttl_and_deletes_take_records(
    spark: SparkSession, shared: Server, topic: str, begin: Begin, tmp_path: Path
) -> None:
    capped, timed = f"{topic}-capped", f"{topic}-timed"
    shared.create(capped, cap_records=2000)
    shared.create(timed, ttl_ms=700)
    for name in (capped, timed):
        shared.append(name, 3000)
    wait_until(lambda: shared.audit(timed)["lost_ttl"] > 0, shared.process)
    query = begin(
        "rows",
        url=shared.url,
        subscribe=f"{capped},{timed}",
        startingOffsets="earliest",
        includeDeleted="true",
        maxRecordsPerTrigger="2500",
        minPartitions="3",
    )
    for number in range(12):
        for name in (capped, timed):
            shared.append(name, 1000)
            shared.delete(name, match=f"c:{number % 5}")
    query.processAllAvailable()
    query.stop()
    found = written(spark, tmp_path / "rows")
    for name in (capped, timed):
        kinds = account((row for row in found if row["topic"] == name), first=1, last=15_000)
        assert kinds["lost"] > 0
        assert kinds["data"] > 0 or name == timed  # a slow machine may find nothing in time


def test_a_stream_goes_on_through_a_new_life_of_its_topic_and_a_killed_server(
    spark: SparkSession, server_factory: ServerFactory, begin: Begin, tmp_path: Path
) -> None:
    server = start(server_factory)
    server.append("orders", 500)
    old = server.audit("orders")["epoch"]
    options = {
        "url": server.url,
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "maxRecordsPerTrigger": "400",
        "cursor": "etl",
        "retrySeconds": "300",
    }
    query = begin("rows", **options)
    query.processAllAvailable()
    server.drop("orders")
    server.append("orders", 2000)  # longer than the old life when the query looks again
    new = server.audit("orders")["epoch"]
    query.processAllAvailable()
    server.restart()  # the query waits for it: what it may have to wait is longer
    last = server.append("orders", 1000)
    query.processAllAvailable()
    query.stop()
    found = written(spark, tmp_path / "rows")
    gone = [row for row in found if row["reason"] == "recreated"]
    assert [(row["epoch"], row["seq"], row["last_seq"]) for row in gone] == [(old, 501, None)]
    assert account((r for r in found if r["epoch"] == old and r not in gone), first=1, last=500)
    skipped = [{"seq": s, "last_seq": s, "kind": "skipped"} for s in server.skipped("orders")]
    living = [row for row in found if row["epoch"] == new]
    assert account(living + skipped, first=1, last=last)["data"] == 3000
    server.close()


def test_a_query_outlives_a_server_that_dies_while_tasks_read(
    spark: SparkSession, server_factory: ServerFactory
) -> None:
    server = start(server_factory)
    for _ in range(20):
        server.append("orders", 1000, size=200)
    frame = read(
        spark,
        url=server.url,
        subscribe="orders",
        batchRows="250",
        maxRecordsPerPartition="5000",
        retrySeconds="300",
    )
    partitions = frame.rdd.getNumPartitions()  # planned: what follows is reading alone
    assert partitions == 4
    found: list[Row] = []
    rows = frame.toLocalIterator()  # one partition at a time, so three are read from the next life
    found.append(next(rows))
    server.restart()
    found += rows
    assert account((row.asDict() for row in found), first=1, last=20_000)["data"] == 20_000
    server.close()


def test_a_stream_of_a_busy_topic_begins_at_its_end_and_leaves_nothing_out(
    spark: SparkSession, shared: Server, topic: str, begin: Begin, tmp_path: Path
) -> None:
    head = shared.append(topic, 200)
    options = {"url": shared.url, "subscribe": topic}
    with writing_on(Server(shared.process), topic):
        finish(begin("rows", now=True, **options))
    last = shared.append(topic, 10)
    finish(begin("rows", now=True, **options))
    rows = written(spark, tmp_path / "rows")
    first = min(int(str(row["seq"])) for row in rows)
    assert head < first <= last
    assert account(rows, first=first, last=last)["data"] == len(rows)


def test_positions_of_finished_queries_are_with_the_log(
    spark: SparkSession, shared: Server, topic: str, begin: Begin
) -> None:
    shared.append(topic, 900)
    options = {"url": shared.url, "subscribe": topic, "startingOffsets": "earliest"}
    finish(begin("rows", now=True, cursor="etl", maxRecordsPerTrigger="400", **options))
    path = f"/v0/topics/{topic}/cursors/etl"

    def reported() -> bool:
        with suppress(NotFound):  # no batch was reported yet
            return bool(shared.call("GET", path)["seq"] == 900)
        return False

    wait_until(reported, shared.process)  # the listener hears of the last batch a little later
    cursor = shared.call("GET", path)
    assert (cursor["lag_records"], cursor["lag_seconds"]) == (0, 0)


def test_a_checkpoint_belongs_to_its_topics(
    spark: SparkSession, shared: Server, topic: str, begin: Begin, tmp_path: Path
) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        shared.append(name, 10)
    options = {"url": shared.url, "startingOffsets": "earliest"}
    finish(begin("rows", now=True, subscribe=topic, **options))
    with pytest.raises(StreamingQueryException) as raised:
        finish(begin("rows", now=True, subscribe=other, **options))
    assert f"query over {topic}, and this one reads {other}" in str(raised.value)
    shared.append(topic, 5)
    finish(begin("rows", now=True, subscribe=topic, **options))
    assert account(written(spark, tmp_path / "rows"), first=1, last=15)["data"] == 15


def test_loss_ends_a_query_that_may_not_lose(shared: Server, topic: str, begin: Begin) -> None:
    shared.append(topic, 10)
    options = {"url": shared.url, "subscribe": topic, "onLoss": "fail"}
    finish(begin("rows", now=True, startingOffsets="earliest", **options))
    shared.append(topic, 100)
    shared.create(topic, cap_records=20)
    with pytest.raises(StreamingQueryException) as raised:
        finish(begin("rows", now=True, **options))
    assert "the records from seq 11 to 90 are lost (cap)" in str(raised.value)


def test_a_server_that_stays_away_ends_a_query_with_a_clear_error(
    server_factory: ServerFactory, begin: Begin
) -> None:
    server = start(server_factory)
    server.append("orders", 10)
    options = {"url": server.url, "subscribe": "orders", "retrySeconds": "0.5"}
    query = begin("rows", startingOffsets="earliest", **options)
    query.processAllAvailable()
    server.process.kill()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(DEADLINE_S)
    assert f"no answer from {server.url}" in str(raised.value)
    assert "tried for 0.5 s" in str(raised.value)
    server.close()
