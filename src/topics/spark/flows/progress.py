"""How far a flow is: one line a batch for people, the same as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from topics.spark.flows.views import watched
from topics.spark.source.log import Offset

FindHead = Callable[[str], Offset | None]
"""Tells where a topic ends; None when that cannot be found out."""
Count = Callable[[str, int, int], int]
"""Counts the live records of a topic from one seq to another, both included."""


class BatchProgress(msgspec.Struct, frozen=True):
    """What one batch did, and how much there was still to read when it ended."""

    batch: int
    rows: int
    rows_per_second: float
    seconds: float
    lag: dict[str, int]
    """By topic, in records; topics whose lag is unknown are left out."""
    lost: dict[str, int]
    """By topic, how many records were gone before the flow could read them."""
    bad: int
    """Records that did not fit the schema."""

    def line(self) -> str:
        """For people."""
        parts = [
            f"batch {self.batch}",
            f"{self.rows:,} records",
            f"{self.rows_per_second:,.0f}/s",
            f"{self.seconds:.1f} s",
            f"lag {sum(self.lag.values()):,}" if self.lag else "lag unknown",
        ]
        parts += [f"LOST {count:,} of {topic}" for topic, count in self.lost.items()]
        if self.bad:
            parts.append(f"{self.bad:,} did not fit the schema")
        return "  ".join(parts)


def nobody_knows(topic: str) -> Offset | None:
    """For a flow without a log that could be asked."""
    return None


def every_seq(topic: str, first: int, last: int) -> int:
    """The most records there can be: one for each seq. For when there is no log to ask."""
    return last - first + 1


def of_batch(
    report: Mapping[str, Any],
    topics: Sequence[str],
    find_head: FindHead = nobody_knows,
    count: Count = every_seq,
) -> BatchProgress:
    """Read Spark's report of a batch; `find_head` is asked for what the report does not say."""
    seen = {topic: _observed(report, topic) for topic in topics}
    duration_ms = report.get("batchDuration") or 0
    rows = sum(counted.get("records") or 0 for counted in seen.values())
    return BatchProgress(
        batch=int(report["batchId"]),
        rows=rows,
        rows_per_second=1000 * rows / duration_ms if duration_ms else 0.0,
        seconds=duration_ms / 1000,
        lag=lag_of(report, find_head, count),
        lost={topic: counted["lost"] for topic, counted in seen.items() if counted.get("lost")},
        bad=sum(counted.get("bad") or 0 for counted in seen.values()),
    )


def _observed(report: Mapping[str, Any], topic: str) -> Mapping[str, Any]:
    """What was counted while a batch was read; nothing for a batch without data."""
    found = (report.get("observedMetrics") or {}).get(watched(topic))
    if found is None:
        return {}
    values: Mapping[str, Any] = found if isinstance(found, Mapping) else found.asDict()
    return values


def lag_of(
    report: Mapping[str, Any], find_head: FindHead, count: Count = every_seq
) -> dict[str, int]:
    """By topic, the records between where the batch ended and where its topic ended.

    `find_head` is asked for what the report does not say; topics whose head is unknown are left
    out. Seqs without a record, because it was deleted or never written, do not count as lag.
    """
    lag: dict[str, int] = {}
    for source in report.get("sources") or []:
        reached = _positions(source.get("endOffset"))
        for topic, (epoch, next_seq) in _ends(source, reached, find_head).items():
            at_epoch, at = reached.get(topic, (epoch, next_seq))
            first = at if at_epoch == epoch else 1
            lag[topic] = count(topic, first, next_seq - 1) if first < next_seq else 0
    return lag


def _ends(
    source: Mapping[str, Any], topics: Iterable[str], find_head: FindHead
) -> Mapping[str, tuple[int, int]]:
    """Where the topics of a source end.

    Of a batch that an earlier run had begun Spark knows from its checkpoint how far it goes, and
    so it does not ask.
    """
    told = _positions(source.get("latestOffset"))
    if told:
        return told
    found = {topic: find_head(topic) for topic in topics}
    return {topic: head for topic, head in found.items() if head is not None}


def _positions(offset: object) -> dict[str, tuple[int, int]]:
    """`{topic: [epoch, next_seq]}`, which Spark gives as text or already decoded."""
    decoded = json.loads(offset) if isinstance(offset, str) and offset else offset
    if not isinstance(decoded, Mapping):
        return {}
    return {topic: (int(at[0]), int(at[1])) for topic, at in decoded.items()}
