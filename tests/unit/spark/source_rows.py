"""Reading a source without Spark, and the account every read has to give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from topics.spark.source.reader import TopicsReader, TopicsStreamReader, batch_reader, stream_reader
from topics.spark.source.schema import DDL

Row = dict[str, Any]


class Reads(Protocol):
    def read(self, partition: InputPartition) -> Iterable[Any]: ...


def schema(ddl: str = DDL) -> StructType:
    """The schema that Spark would pass for this text."""
    fields = [part.strip().partition(" ") for part in ddl.split(",")]
    built = StructType()
    for name, _, kind in fields:
        spelled, _, rest = kind.partition(" ")
        built.add(
            name,
            {"bigint": "long", "int": "integer"}.get(spelled, spelled),
            nullable=rest.upper() != "NOT NULL",
        )
    return built


def batch(options: Mapping[str, object], ddl: str = DDL) -> TopicsReader:
    return batch_reader({name: str(value) for name, value in options.items()}, schema(ddl))


def stream(options: Mapping[str, object], ddl: str = DDL) -> TopicsStreamReader:
    return stream_reader({name: str(value) for name, value in options.items()}, schema(ddl))


def rows(reader: Reads, partitions: Iterable[InputPartition]) -> list[Row]:
    """Everything the partitions hold, as Spark would get it."""
    return [
        row
        for partition in partitions
        for found in reader.read(partition)
        for row in found.to_pylist()
    ]


def batch_rows(options: Mapping[str, object]) -> list[Row]:
    reader = batch(options)
    return rows(reader, reader.partitions())


def account(found: Iterable[Row], *, first: int, last: int) -> Counter[str]:
    """How many seqs each kind of row covers, after seeing that all of them are covered once."""
    covered: list[int] = []
    kinds: Counter[str] = Counter()
    for row in found:
        seqs = range(row["seq"], row["last_seq"] + 1)
        covered += seqs
        kinds[row["kind"]] += len(seqs)
    assert sorted(covered) == list(range(first, last + 1))
    return kinds
