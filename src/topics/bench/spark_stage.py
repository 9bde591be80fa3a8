"""What every row of the Spark benchmark works on: a session, a topic's history, its server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import topics
from topics.bench.bench import Bench
from topics.bench.measure import Rates, rate
from topics.bench.server_process import KEY, BenchServer, served
from topics.spark.jobs.session import job_session
from topics.values import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "history"
RECORDS = 1_000_000
RECORD_BYTES = 200
REPEATS = 5
_BATCH = 5000


@dataclass(frozen=True)
class SparkStage:
    """A session and `records` sealed records, in a directory and behind a server."""

    spark: SparkSession
    directory: Path
    server: BenchServer
    records: int
    repeats: int

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    def direct(self, **options: object) -> dict[str, str]:
        """Options that read the topic from its files."""
        return self._options({"path": self.data_dir, "subscribe": TOPIC} | options)

    def over_http(self, **options: object) -> dict[str, str]:
        """Options that read the topic from its server."""
        asked = {"url": self.server.url, "token": KEY, "subscribe": TOPIC}
        return self._options(asked | options)

    def _options(self, options: dict[str, object]) -> dict[str, str]:
        return {name: str(value) for name, value in options.items()}

    def scan_rate(self, load: Callable[[], DataFrame], records: int | None = None) -> Rates:
        """Records a second of a query planned anew each time, which looks at every column."""

        def scan() -> None:
            load().write.format("noop").mode("overwrite").save()

        return rate(scan, calls=1, repeats=self.repeats, units=records or self.records)


class Stages:
    """Makes the stage when the first row asks for it."""

    def __init__(self, until: ExitStack) -> None:
        self._until = until
        self._stage: SparkStage | None = None

    def get(self, bench: Bench) -> SparkStage:
        if self._stage is None:
            self._stage = self._until.enter_context(stage(bench))
        return self._stage


@contextmanager
def stage(bench: Bench) -> Iterator[SparkStage]:
    """History is written and sealed first; then the server has it, and Spark starts."""
    records = bench.count(RECORDS, least=1000)
    with bench.scratch() as directory:
        bench.say(f"writing {records} records")
        write_history(directory / "data", records)
        with (
            job_session("bench", "local[2]", bench.say) as spark,
            served(directory, TOPICS_HOT_RETAIN_SEGMENTS="10000") as server,
        ):
            repeats = 1 if bench.is_trial else min(bench.repeats, REPEATS)
            yield SparkStage(spark, directory, server, records, repeats)


def write_history(directory: Path, records: int) -> None:
    """One topic of records with a tag and `RECORD_BYTES` of JSON each, all in segments."""
    with topics.open(directory, segment_max_events=250_000) as log:
        for start in range(0, records, _BATCH):
            some = range(start, min(start + _BATCH, records))
            log.append(TOPIC, [{"data": payload(n), "tag": f"user:{n % 1000}"} for n in some])
        log.checkpoint()


def tuples(path: str, first: int, last: int) -> Iterator[tuple[object, ...]]:
    """Records as rows of the source's schema, one by one."""
    with topics.open(path, read_only=True) as log:
        epoch, after = log.state(TOPIC).epoch, first - 1
        while after < last:
            page = log.read(TOPIC, after=after, limit=1000)
            for record in page.records:
                if record.seq > last:
                    return
                yield _row(record, epoch)
            after = page.next_from_seq


def _row(record: Record, epoch: int) -> tuple[object, ...]:
    at = datetime.fromtimestamp(record.ts / 1000, UTC)
    meta = None if record.raw_meta is None else record.raw_meta.decode()
    seq, data = record.seq, record.raw.decode()
    return TOPIC, epoch, seq, seq, "data", None, at, record.node, record.tag, data, meta


def payload(number: int) -> bytes:
    """An event as JSON of `RECORD_BYTES` bytes."""
    event = {"id": number, "amount": number % 977 / 100, "note": ""}
    bare = len(json.dumps(event, separators=(",", ":")))
    event["note"] = "x" * max(0, RECORD_BYTES - bare)
    return json.dumps(event, separators=(",", ":")).encode()
