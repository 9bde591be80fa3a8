"""`topics spark audit`: every byte of a data directory, checked by as many cores as Spark has.

The driver reads what is small: snapshots, the log, stages, and what a recovery would make of them.
Segments are nearly all of a large store and do not depend on each other, so tasks check them: every
checksum, that seqs follow each other, and that index, tags and data agree. Executors need access to
the same directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from topics.engine.recovery.read_only import steadily
from topics.engine.recovery.verification import verify
from topics.storage.findings import Account, Finding, Report
from topics.storage.fs import RealFs
from topics.storage.segments.checking import SegmentJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES: Final = 128 << 20
_TASKS_PER_CORE: Final = 4


@dataclass(frozen=True)
class TopicVerdict:
    """One topic: where its seqs went, how many records were read whole, what is damaged."""

    account: Account
    segment_records: int
    damaged: int

    @property
    def ok(self) -> bool:
        return not self.damaged and self.account.adds_up

    def to_dict(self) -> dict[str, Any]:
        facts: dict[str, Any] = msgspec.structs.asdict(self.account)
        return {
            **facts,
            "written": self.account.written,
            "segment_records": self.segment_records,
            "damaged": self.damaged,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class Audited:
    """What an audit found."""

    files: int
    bytes: int
    log_frames: int
    segment_records: int
    tasks: int
    topics: Sequence[TopicVerdict]
    damage: Sequence[Finding]
    notes: Sequence[str]

    @property
    def ok(self) -> bool:
        return not self.damage and all(topic.ok for topic in self.topics)

    def to_dict(self) -> dict[str, Any]:
        topics = [topic.to_dict() for topic in self.topics]
        return {"ok": self.ok, **msgspec.to_builtins(self), "topics": topics}


def audit(
    spark: SparkSession,
    directory: str,
    *,
    cold_dir: str | None = None,
    notice: Callable[[str], None] = lambda line: None,
) -> Audited:
    """Check a directory, also one that is in use; looks again when its owner moves files."""
    tasks = 0

    def run_jobs(report: Report, jobs: Sequence[SegmentJob]) -> None:
        nonlocal tasks
        bins = packed(jobs, spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)
        tasks = len(bins)
        notice(f"checking {len(jobs):,} segments in {tasks} tasks")
        for part in _on_executors(spark, bins):
            report.add(part)

    def attempt() -> Report:
        report = Report(RealFs())
        notice("reading snapshots and log")
        verify(report, directory, cold_dir, run_jobs=run_jobs)
        return report

    return _verdict(steadily(directory, attempt), tasks)


def packed(jobs: Sequence[SegmentJob], most: int) -> list[list[SegmentJob]]:
    """Jobs in bins of about the same size, few enough to be worth a task each."""
    if not jobs:
        return []
    sizes = [job.segment.data_len + job.segment.idx_len for job in jobs]
    count = min(len(jobs), max(most, sum(sizes) // TASK_BYTES))
    bins: list[list[SegmentJob]] = [[] for _ in range(count)]
    filled = [0] * count
    for job, size in sorted(zip(jobs, sizes, strict=True), key=lambda pair: -pair[1]):
        smallest = filled.index(min(filled))
        bins[smallest].append(job)
        filled[smallest] += size
    return bins


def check_bin(jobs: Sequence[SegmentJob]) -> tuple[dict[str, Any], str | None]:
    """On an executor: what was found, and the file that was gone if one was."""
    report = Report(RealFs())
    gone = None
    try:
        for job in jobs:
            job.run(report)
    except FileNotFoundError as error:
        gone = str(error)
    found = {
        name: getattr(report, name)
        for name in ("damage", "notes", "files", "bytes", "records", "records_of")
    }
    return found, gone


def _on_executors(spark: SparkSession, bins: Sequence[Sequence[SegmentJob]]) -> list[Report]:
    if not bins:
        return []
    results = spark.sparkContext.parallelize(bins, len(bins)).map(check_bin).collect()
    for _, gone in results:
        if gone is not None:
            raise FileNotFoundError(gone)
    return [Report(RealFs(), **found) for found, _ in results]


def _verdict(report: Report, tasks: int) -> Audited:
    damaged = [finding.topic for finding in report.damage]
    topics = [
        TopicVerdict(account, report.records_of[account.topic], damaged.count(account.topic))
        for account in sorted(report.accounts, key=lambda account: account.topic)
    ]
    damage = sorted(report.damage, key=lambda found: (found.file, found.offset or 0))
    return Audited(
        files=report.files,
        bytes=report.bytes,
        log_frames=report.frames,
        segment_records=report.records,
        tasks=tasks,
        topics=topics,
        damage=damage,
        notes=sorted(report.notes),
    )
