"""`topics bench spark`: topics in Spark beside Spark's own formats, on one machine in one run.

Method. Two cores, records of 200 bytes of JSON with a tag, all of them sealed in segments. A scan
looks at every column of every row and throws it away (`noop`); each is planned anew, one warms up,
and rates are medians with the best beside them. The Parquet table holds the same rows with the same
columns, as Spark itself wrote it. The tuple reader is what one writes first: it reads the same
pieces record by record and hands Spark a tuple for each. A trigger is timed by Spark, from its
progress reports; the floor is what Spark needs for a micro-batch of its own `rate-micro-batch`
source. Goals are ratios of numbers of the same run. Nothing here passes or fails: a number that
misses its goal is printed as it is.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from topics.bench.bench import Bench, payload, run
from topics.bench.measure import Rates, Result, at_least, at_most, durations, percentile
from topics.bench.server_process import BenchServer, connect, exchange
from topics.bench.spark_lake import lake
from topics.bench.spark_stage import TOPIC, SparkStage, Stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SparkRow = Callable[[Stages, Bench], Iterator[Result]]
TRIGGER_RECORDS = 20_000
BATCHES = 12
WRITES = 1000
ROUNDS = 4
"""Writes alone and beside a reader are timed alternately: the machine is slower at times."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen rows and print them."""
    with ExitStack() as until:
        stages = Stages(until)
        rows = {name: partial(row, stages) for name, row in ROWS.items()}
        return run("spark", "Topics in Spark beside Spark's own formats.", rows, argv)


# Batches


def batch(stages: Stages, bench: Bench) -> Iterator[Result]:
    """Sealed history as a table: from files, over HTTP, as Parquet, as tuples."""
    stage = stages.get(bench)
    table = str(stage.directory / "table")
    bench.say("writing the same rows as Parquet")
    _read(stage, stage.direct()).write.mode("overwrite").parquet(table)
    bench.say("reading Parquet")
    parquet = stage.scan_rate(lambda: stage.spark.read.parquet(table))
    bench.say("reading the directory")
    direct = stage.scan_rate(lambda: _read(stage, stage.direct()))
    bench.say("reading over HTTP")
    over_http = stage.scan_rate(lambda: _read(stage, stage.over_http()))
    bench.say("reading two columns of the directory")
    pruned = stage.scan_rate(
        lambda: _read(stage, stage.direct(onLoss="skip"), schema="seq bigint, ts timestamp")
    )
    bench.say("reading tuples")
    stage.spark.dataSource.register(_tuple_source())
    tuples = stage.scan_rate(lambda: _read(stage, stage.direct(), source="topics_tuples"))
    yield _rate("Parquet, every column", parquet)
    yield _rate("a directory, every column", direct)
    yield _rate("a directory, seq and ts", pruned)
    yield _rate("a server over HTTP, every column", over_http)
    yield _rate("a directory, as tuples", tuples)
    yield _ratio("a directory / Parquet", direct, parquet, 0.5)
    yield _ratio("a directory / as tuples", direct, tuples, 3.0)
    yield _ratio("a server / a directory", over_http, direct, 0.5)


def _read(
    stage: SparkStage,
    options: Mapping[str, str],
    *,
    source: str = "topics",
    schema: str | None = None,
) -> DataFrame:
    reader = stage.spark.read.format(source)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**options).load()


def _rate(what: str, sample: Rates) -> Result:
    return sample.result("batch", what)


def _ratio(what: str, one: Rates, other: Rates, goal: float) -> Result:
    ratio, best = one.median / other.median, one.best / other.best
    return Result("batch", what, ratio, "x", best, goal=at_least(goal))


def _tuple_source() -> type[Any]:
    """The source as it would be if it handed over one row after the other."""
    from pyspark.sql.datasource import DataSource, DataSourceReader  # noqa: PLC0415

    class TupleReader(DataSourceReader):
        def __init__(self, inner: Any, path: str) -> None:  # noqa: ANN401 - the real reader
            self._inner = inner
            self._path = path

        def partitions(self) -> Any:  # noqa: ANN401
            return self._inner.partitions()

        def read(self, partition: Any) -> Any:  # noqa: ANN401
            from topics.bench.spark_stage import tuples  # noqa: PLC0415

            yield from tuples(self._path, partition.first, partition.last)

    class TupleSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "topics_tuples"

        def schema(self) -> str:
            from topics.spark.source.schema import DDL  # noqa: PLC0415

            return DDL

        def reader(self, schema: Any) -> Any:  # noqa: ANN401
            from topics.spark.source.reader import batch_reader  # noqa: PLC0415

            options = dict(self.options)
            return TupleReader(batch_reader(options, schema), options["path"])

    return TupleSource


# Streams


def trigger(stages: Stages, bench: Bench) -> Iterator[Result]:
    """What a trigger of 20 000 records takes beyond the least that Spark needs for any."""
    stage = stages.get(bench)
    records = bench.count(TRIGGER_RECORDS, least=100)
    bench.say("micro-batches of Spark's own source")
    batches = 2 if bench.is_trial else BATCHES
    floor = _floor(stage, batches)
    bench.say(f"micro-batches of {records} records")
    ours = _triggers(stage, records, batches)
    what = f"a trigger of {records} records over HTTP"
    yield Result("trigger", "the floor: a micro-batch of Spark's own", floor, "s")
    yield Result("trigger", what, ours, "s")
    yield Result("trigger", f"{what}: beyond the floor", ours - floor, "s", goal=at_most(0.5))


def _floor(stage: SparkStage, batches: int) -> float:
    source = stage.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    query = source.load().writeStream.format("noop").start()
    try:
        while len(query.recentProgress) < batches:
            query.awaitTermination(1)  # raises what made it fail
        return _median_trigger(query.recentProgress)
    finally:
        query.stop()


def _triggers(stage: SparkStage, records: int, batches: int) -> float:
    source = stage.spark.readStream.format("topics").options(**stage.over_http())
    first = max(stage.records - records * batches, 0) + 1
    source = source.option("startingOffsets", json.dumps({TOPIC: first}))
    source = source.option("maxRecordsPerTrigger", records)
    query = source.load().writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    return _median_trigger(query.recentProgress)


def _median_trigger(reports: Sequence[Any]) -> float:
    """Seconds of a trigger; the first ones pay for what is done once."""
    took: list[float] = [report["durationMs"]["triggerExecution"] / 1000 for report in reports]
    return statistics.median(took[2:] or took)


# The server meanwhile


def writes(stages: Stages, bench: Bench) -> Iterator[Result]:
    """How long writes take without readers, and while Spark scans the history over HTTP.

    Spark keeps the cores busy besides: a scan of the files, of which the server knows nothing,
    shows how much of the difference is that.
    """
    stage = stages.get(bench)
    count = bench.count(WRITES, least=50)
    alone: list[float] = []
    beside: list[float] = []
    asked: list[float] = []
    for _ in range(ROUNDS):
        bench.say("writing to a server that has nothing else to do")
        alone += _write_times(stage.server, count)
        bench.say("writing while one task reads the history from its files")
        with _scanning(stage, stage.direct()):
            beside += _write_times(stage.server, count)
        bench.say("writing while one task reads the history from the server")
        with _scanning(stage, stage.over_http()):
            asked += _write_times(stage.server, count)
    before, machine, during = (
        percentile(sorted(times), 0.99) * 1000 for times in (alone, beside, asked)
    )
    yield Result("writes", "p99 of a write, nobody reads", before, "ms")
    yield Result("writes", "p99 of a write, one task reads files, not the server", machine, "ms")
    yield Result("writes", "p99 of a write, one task reads from the server", during, "ms")
    yield Result("writes", "p99 while reading / before", during / before, "x", goal=at_most(2))
    yield Result("writes", "p99 while reading / while files are read", during / machine, "x")


def _write_times(server: BenchServer, count: int) -> list[float]:
    body = json.dumps({"records": [{"data": payload()}]}).encode()
    with closing(connect(server.address)) as connection:
        write = partial(exchange, connection, "POST", "/v0/topics/live", body)
        durations(write, calls=max(count // 10, 1))  # it warms up
        return durations(write, calls=count)


@contextmanager
def _scanning(stage: SparkStage, options: Mapping[str, str]) -> Iterator[None]:
    """One task reads the history over and over, in the background, until the block ends."""
    ended, begun = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def scan() -> None:
        try:
            while not ended.is_set():
                frame = _read(stage, options).coalesce(1)
                begun.set()
                frame.write.format("noop").mode("overwrite").save()
        except BaseException as error:
            failed.append(error)
            begun.set()

    reading = threading.Thread(target=scan)
    reading.start()
    begun.wait()
    try:
        yield
    finally:
        ended.set()
        reading.join()
    if failed:
        raise failed[0]


ROWS: dict[str, SparkRow] = {
    "batch": batch,
    "lake": lake,
    "trigger": trigger,
    "writes": writes,
}

if __name__ == "__main__":
    sys.exit(main())
