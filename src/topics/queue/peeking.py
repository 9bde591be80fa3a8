"""Looking at the jobs of a queue without taking any: which worker holds a job, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from topics.core.leases import LeaseBook
from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Op
from topics.engine.engine import Engine
from topics.engine.upkeep.lease_log import queue_counts
from topics.values import JobState, PeekedJob, PeekedJobs

PEEK_BYTES = 8 << 20
"""What an answer holds at the most, beyond its first job."""
_SLICE = 32
"""Jobs that are read between two pauses."""


def peek(
    engine: Engine, topic: Topic, leases: LeaseBook, state: JobState | None, most: int
) -> Op[PeekedJobs]:
    """Jobs as they are now: leased ones in the order of their claims, then delayed ones, then
    those that are ready, in the order they will be handed out."""
    jobs = list(islice(_jobs(topic, leases, state, most), most))
    ready, in_flight = queue_counts(topic)
    counts = {"leased": in_flight, "delayed": len(leases.delayed), "ready": ready}
    more = (sum(counts.values()) if state is None else counts[state]) > len(jobs)
    found: list[PeekedJob] = []
    nbytes = 0
    for start in range(0, len(jobs), _SLICE):
        if start:
            yield PAUSE
            engine.kernel.require(topic)
        part = jobs[start : start + _SLICE]
        live = sorted(job.seq for job in part if topic.is_live(job.seq))
        records = yield from engine.records(topic, live)
        for job in part:
            record = records.get(job.seq)
            if record is None:
                continue
            nbytes += len(record.raw)
            if nbytes > PEEK_BYTES and found:
                return PeekedJobs(topic.name, found, True)
            found.append(job.with_record(record))
    return PeekedJobs(topic.name, found, more)


def _jobs(
    topic: Topic, leases: LeaseBook, state: JobState | None, most: int
) -> Iterator[PeekedJob]:
    """Jobs without their data."""
    counts, failures = leases.deliveries, leases.failures
    if state in (None, "leased"):
        for seq, lease in leases.leased.items():
            held = lease.node, lease.claimed_ms or None, lease.deadline_ms
            yield PeekedJob(seq, "leased", counts.get(seq, 0), *held, last_error=failures.get(seq))
    if state in (None, "delayed"):
        for seq, ready_ms in leases.delayed.items():
            yield PeekedJob(
                seq,
                "delayed",
                counts.get(seq, 0),
                ready_ts=ready_ms,
                last_error=failures.get(seq),
            )
    if state in (None, "ready"):
        for seq in _ready(topic, leases, most):
            yield PeekedJob(seq, "ready", counts.get(seq, 0), last_error=failures.get(seq))


def _ready(topic: Topic, leases: LeaseBook, most: int) -> Iterator[int]:
    yield from filter(topic.is_live, islice(leases.spent, most))
    yield from leases.first_reclaimed(most, topic.is_live)
    for lo, hi in topic.extents(leases.claim_cursor, topic.head):
        yield from range(lo, hi + 1)
