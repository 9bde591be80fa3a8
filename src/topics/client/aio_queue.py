"""`AsyncRemoteQueue`: what `queue` of a log behind a URL returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topics.client import _queue_calls
from topics.client._showing import Shown
from topics.client.keywords import Jobs
from topics.values import Acked, Extended, Job, JobState, Nacked, PeekedJobs, QueueCounts, Redriven

if TYPE_CHECKING:
    from topics.client.aio import AsyncRemoteLog


class AsyncRemoteQueue(Shown):
    """One queue and one worker of it. Cheap: make as many as there are workers."""

    def __init__(self, log: AsyncRemoteLog, name: str, node: str) -> None:
        self.name = name
        self.node = node
        self._log = log

    def _words(self) -> str:
        return f"{self.name!r} for worker {self.node!r}"

    async def claim(self, most: int = 1, *, lease_ms: int | None = None) -> Sequence[Job]:
        """Lease up to `most` jobs for this worker; fewer or none is a normal answer.

        Jobs given back or expired come first. `lease_ms` replaces the queue's own lease time.
        A server may wait for the queue's `claim_jitter_ms`; a log in this process never waits.
        """
        call = _queue_calls.claim(self.name, self.node, most=most, lease_ms=lease_ms)
        return await self._log._run(call)

    async def ack(self, jobs: Jobs) -> Acked:
        """Remove finished jobs for good; those no longer held by this worker are `skipped`."""
        return await self._log._run(_queue_calls.ack(self.name, self.node, jobs))

    async def nack(
        self,
        jobs: Jobs,
        *,
        delay_ms: int = 0,
        error: BaseException | str | None = None,
    ) -> Nacked:
        """Give jobs back, to be claimed again at once or after a delay.

        `error` is what went wrong; a job that dies of it keeps it in its dead letter.
        """
        return await self._log._run(
            _queue_calls.nack(self.name, self.node, jobs, delay_ms=delay_ms, error=error)
        )

    async def extend(self, jobs: Jobs, *, lease_ms: int) -> Extended:
        """Hold jobs for `lease_ms` from now on."""
        return await self._log._run(
            _queue_calls.extend(self.name, self.node, jobs, lease_ms=lease_ms)
        )

    async def redrive(
        self, *, source: str | None = None, most: int = 100, seqs: Sequence[int] | None = None
    ) -> Redriven:
        """Put dead letters back into the queue, oldest first; `source` is its `dead_letter`.

        With `seqs` exactly those of its letters, at most 1000, and `most` is not looked at.
        """
        return await self._log._run(
            _queue_calls.redrive(self.name, source=source, most=most, seqs=seqs)
        )

    async def peek(self, most: int = 100, *, state: JobState | None = None) -> PeekedJobs:
        """Look at up to 1000 jobs without taking any: which worker holds a job, until when.

        Leased jobs come first, then delayed ones, then ready ones; `state` names one kind.
        """
        return await self._log._run(_queue_calls.peek(self.name, most=most, state=state))

    async def stats(self) -> QueueCounts:
        """How many jobs are ready, on lease, and moved away as dead letters."""
        return await self._log._run(_queue_calls.stats(self.name))
