"""A topic that exists only here, and tables filled from it: what the lake's tests share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from topics.client.targets import Target
from topics.core.runs import RunSet
from topics.errors import TopicNotFound
from topics.spark.lake.epochs import EpochCommit, Landed
from topics.spark.lake.origin import SourceTopic
from topics.spark.lake.parquet import TaskRows, staged_stem, write_rows
from topics.spark.lake.place import TablePath
from topics.spark.lake.table import LakeTable
from topics.spark.lake.typed import Fitter, TypedAs
from topics.values import Hole, HoleKind, Holes, TopicState

TOPIC = "orders"
CUSTOMER = "cust-0007"
ARRIVING = pa.schema(
    [
        ("epoch", pa.int64()),
        ("seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("node", pa.string()),
        ("tag", pa.string()),
        ("data", pa.string()),
        ("meta", pa.string()),
    ]
)


class FakeTopic(SourceTopic):
    """A topic of `head` records; every tenth belongs to the customer."""

    def __init__(self, head: int, *, epoch: int = 17) -> None:
        self.target = Target(url="http://127.0.0.1:1")
        self.topic = TOPIC
        self.head = head
        self.epoch = epoch
        self.delete_version = 0
        self.exact_from = 1
        self.dead: list[tuple[int, int, HoleKind]] = []
        self.deleted = RunSet()
        self.positions: dict[str, int] = {}
        self.is_there = True
        self.asked: list[tuple[int, int]] = []

    def __exit__(self, *why: object) -> None:
        pass

    def delete(self, first: int, last: int) -> None:
        self.deleted.add(first, last)
        self.delete_version += 1

    def delete_customer(self) -> list[int]:
        seqs = [seq for seq in range(1, self.head + 1) if tag_of(seq) == CUSTOMER]
        for seq in seqs:
            self.deleted.add(seq, seq)
        self.delete_version += 1
        return seqs

    def state(self) -> TopicState:
        if not self.is_there:
            raise TopicNotFound(self.topic)
        return TopicState(
            topic=self.topic,
            type="log",
            head_seq=self.head,
            earliest_seq=1,
            count=self.head,
            bytes=0,
            config={},
            effective_priority=0,
            last_write_ts=None,
            last_read_ts=None,
            epoch=self.epoch,
            delete_version=self.delete_version,
        )

    def holes(self, first: int, last: int) -> Iterator[Holes]:
        if not self.is_there:
            return
        self.asked.append((first, last))
        runs: list[tuple[int, int, HoleKind]] = [
            (lo, hi, "deleted") for lo, hi in self.deleted.between(first, last)
        ]
        runs += [
            (max(lo, first), min(hi, last), kind)
            for lo, hi, kind in self.dead
            if lo <= last and hi >= first
        ]
        dead = [Hole(*run) for run in sorted(runs)]
        version, exact_from = self.delete_version, self.exact_from
        yield Holes(self.topic, self.epoch, version, dead, last + 1, exact_from)

    def set_cursor(self, name: str, seq: int) -> None:
        self.positions[name] = seq

    def cursors(self) -> list[str]:
        return ["lake.orders", "flow.totals"]


def tag_of(seq: int) -> str:
    return CUSTOMER if seq % 10 == 7 else f"cust-{seq % 1000:04d}"


def data_of(seq: int) -> str:
    return json.dumps({"n": seq, "who": f"{tag_of(seq)}@example.org"})


def records(first: int, *data: object, epoch: int = 17) -> pa.RecordBatch:
    """Records with this data, from a seq on; text is taken for JSON."""
    batch = rows(range(first, first + len(data)), epoch=epoch)
    texts = [each if isinstance(each, str) else json.dumps(each) for each in data]
    at = batch.schema.get_field_index("data")
    return batch.set_column(at, "data", pa.array(texts, pa.string())).cast(ARRIVING)


def rows(seqs: Sequence[int], *, epoch: int = 17) -> pa.RecordBatch:
    """Records as the source reads them."""
    size = len(seqs)
    return pa.record_batch(
        [
            pa.array([epoch] * size, pa.int64()),
            pa.array(seqs, pa.int64()),
            pa.array(seqs, pa.int64()),
            pa.array(["data"] * size),
            pa.nulls(size, pa.string()),
            pa.array([seq * 1_000_000 for seq in seqs], pa.timestamp("us", "UTC")),
            pa.array(["n1"] * size),
            pa.array([tag_of(seq) for seq in seqs]),
            pa.array([data_of(seq) for seq in seqs]),
            pa.nulls(size, pa.string()),
        ],
        schema=ARRIVING,
    )


def gap(
    first: int, last: int | None, kind: str = "lost", reason: str = "cap", *, epoch: int = 17
) -> pa.RecordBatch:
    """A run without records, as the source reads it."""
    row = {"epoch": epoch, "seq": first, "last_seq": last, "kind": kind, "reason": reason}
    return pa.RecordBatch.from_pylist([row], schema=ARRIVING)


class Query:
    """A streaming query without Spark: the same tasks and commits, one after the other."""

    def __init__(self, place: TablePath, topic: FakeTopic, typed: TypedAs | None = None) -> None:
        self.place = place
        self.topic = topic
        self.typed = typed
        self.id = str(uuid.uuid4())

    def stage(self, version: int, *parts: Sequence[pa.RecordBatch]) -> list[TaskRows]:
        origin = str(self.topic.target)
        LakeTable.of_topic(self.place, self.topic.topic, origin=origin, typed=self.typed)
        return [
            write_rows(
                self.place,
                f"{staged_stem(self.id, version)}{number}-0-{uuid.uuid4().hex[:8]}",
                iter(batches),
                None if self.typed is None else Fitter.of_table(self.place, self.typed),
                file_bytes=LakeTable.open(self.place).file_bytes,
            )
            for number, batches in enumerate(parts)
        ]

    def land(self, version: int, staged: list[TaskRows]) -> Landed:
        commit = EpochCommit(self.place, self.topic, app=self.id, version=version)
        return commit.run(staged)

    def epoch(self, version: int, *parts: Sequence[pa.RecordBatch]) -> Landed:
        return self.land(version, self.stage(version, *parts))

    def records(self, version: int, first: int, last: int) -> Landed:
        """An epoch of the topic as it is, in two partitions."""
        middle = (first + last) // 2
        return self.epoch(version, self._read(first, middle), self._read(middle + 1, last))

    def _read(self, first: int, last: int) -> list[pa.RecordBatch]:
        live = self.topic.deleted.gaps_between(first, last)
        batches = [rows(range(lo, hi + 1), epoch=self.topic.epoch) for lo, hi in live]
        gone = self.topic.deleted.between(first, last)
        return batches + [
            gap(lo, hi, "deleted", "deleted", epoch=self.topic.epoch) for lo, hi in gone
        ]


def lake(tmp_path: Path, name: str = "orders") -> TablePath:
    return TablePath.of(str(tmp_path / "lake" / name))


def seqs_in(place: TablePath, epoch: int = 17) -> list[int]:
    """The seqs of an epoch that the table shows, sorted but not made distinct."""
    data = LakeTable.open(place).delta.to_pyarrow_dataset()
    table = data.to_table(columns=["seq"], filter=ds.field("epoch") == epoch)
    return sorted(table.column("seq").to_pylist())


def losses_in(place: TablePath) -> list[tuple[int, int, int | None, str]]:
    table = LakeTable.open(place.loss).delta.to_pyarrow_table()
    found = [(r["epoch"], r["seq"], r["last_seq"], r["reason"]) for r in table.to_pylist()]
    return sorted(found, key=lambda row: row[:2])
