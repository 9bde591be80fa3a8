"""The queues of a log in this process.

    jobs = log.queue("jobs", node="worker-1")
    for job in jobs.claim(10):
        work(job.data)
        jobs.ack([job])

Delivery is at least once: a job whose lease runs out before its ack is handed out again, and a
late ack of the first worker is then skipped, because its lease id no longer fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, get_args

from topics.client.keywords import Jobs
from topics.client.queue_interface import AnyQueue
from topics.engine.effects import Op
from topics.errors import InvalidRequest
from topics.queue import Jobs as ClaimedJobs
from topics.queue import Queues
from topics.values import Acked, Extended, Job, JobState, Nacked, PeekedJobs, QueueCounts, Redriven
from topics.wire.letters import error_of

if TYPE_CHECKING:
    from topics.embedded.log import Log

T = TypeVar("T")


class Queue(AnyQueue):
    """One queue and one worker of it. Cheap: make as many as there are workers."""

    def __init__(self, log: Log, name: str, node: str) -> None:
        self.name = name
        self.node = node
        self._log = log

    def _words(self) -> str:
        return f"{self.name!r} for worker {self.node!r}"

    def _change(self, make: Callable[[Queues], Op[T]]) -> T:
        return self._log._change(lambda engine: make(self._log._all_queues()))

    def claim(self, most: int = 1, *, lease_ms: int | None = None) -> Sequence[Job]:
        _check(most=most, lease_ms=lease_ms)
        return self._change(
            lambda queues: queues.claim(self.name, node=self.node, most=most, lease_ms=lease_ms)
        ).jobs

    def ack(self, jobs: Jobs) -> Acked:
        seqs, lease_ids = _named(jobs)
        return self._change(
            lambda queues: queues.ack(self.name, node=self.node, seqs=seqs, lease_ids=lease_ids)
        )

    def nack(
        self, jobs: Jobs, *, delay_ms: int = 0, error: BaseException | str | None = None
    ) -> Nacked:
        _check(delay_ms=delay_ms)
        seqs, lease_ids = _named(jobs)
        told = None if error is None else error_of(error)
        reason = None if told is None else (told["type"], told["message"])
        return self._change(
            lambda queues: queues.nack(
                self.name,
                node=self.node,
                seqs=seqs,
                lease_ids=lease_ids,
                delay_ms=delay_ms,
                error=reason,
            )
        )

    def extend(self, jobs: Jobs, *, lease_ms: int) -> Extended:
        _check(lease_ms=lease_ms)
        seqs, lease_ids = _named(jobs)
        return self._change(
            lambda queues: queues.extend(
                self.name, node=self.node, seqs=seqs, lease_ids=lease_ids, lease_ms=lease_ms
            )
        )

    def redrive(
        self, *, source: str | None = None, most: int = 100, seqs: Sequence[int] | None = None
    ) -> Redriven:
        _check(most=most)
        return self._change(
            lambda queues: queues.redrive(self.name, source=source, most=most, seqs=seqs)
        )

    def peek(self, most: int = 100, *, state: JobState | None = None) -> PeekedJobs:
        _check(most=most)
        if state not in (None, *get_args(JobState)):
            raise InvalidRequest(f"state is leased, delayed or ready, not {state!r}")
        return self._log._run(
            lambda engine: self._log._all_queues().peek(self.name, state=state, most=most)
        )

    def stats(self) -> QueueCounts:
        return self._log._run(lambda engine: self._log._all_queues().stats(self.name))


def _named(jobs: Jobs) -> tuple[Sequence[int], Sequence[int | None]]:
    """Seqs and, where known, the leases that go with them."""
    if isinstance(jobs, ClaimedJobs):
        return jobs.seqs, jobs.lease_ids
    seqs: list[int] = []
    lease_ids: list[int | None] = []
    for job in jobs:
        if isinstance(job, Job):
            seqs.append(job.seq)
            lease_ids.append(job.lease_id)
        else:
            seqs.append(job)
            lease_ids.append(None)
    return seqs, lease_ids


def _check(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and value < 0:
            raise InvalidRequest(f"{name} must be 0 or more, not {value}")
