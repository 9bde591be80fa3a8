"""`RemoteQueue`: what `queue` of a log behind a URL returns."""

# Made from `aio_queue.py` by tools/make_sync.py: change that, then `make fmt`.

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topics.client import _queue_calls
from topics.client.keywords import Jobs
from topics.client.queue_interface import AnyQueue
from topics.values import Acked, Extended, Job, JobState, Nacked, PeekedJobs, QueueCounts, Redriven

if TYPE_CHECKING:
    from topics.client.sync import RemoteLog


class RemoteQueue(AnyQueue):
    """One queue and one worker of it. Cheap: make as many as there are workers."""

    def __init__(self, log: RemoteLog, name: str, node: str) -> None:
        self.name = name
        self.node = node
        self._log = log

    def _words(self) -> str:
        return f"{self.name!r} for worker {self.node!r}"

    def claim(self, most: int = 1, *, lease_ms: int | None = None) -> Sequence[Job]:
        call = _queue_calls.claim(self.name, self.node, most=most, lease_ms=lease_ms)
        return self._log._run(call)

    def ack(self, jobs: Jobs) -> Acked:
        return self._log._run(_queue_calls.ack(self.name, self.node, jobs))

    def nack(
        self,
        jobs: Jobs,
        *,
        delay_ms: int = 0,
        error: BaseException | str | None = None,
    ) -> Nacked:
        return self._log._run(
            _queue_calls.nack(self.name, self.node, jobs, delay_ms=delay_ms, error=error)
        )

    def extend(self, jobs: Jobs, *, lease_ms: int) -> Extended:
        return self._log._run(_queue_calls.extend(self.name, self.node, jobs, lease_ms=lease_ms))

    def redrive(
        self, *, source: str | None = None, most: int = 100, seqs: Sequence[int] | None = None
    ) -> Redriven:
        return self._log._run(_queue_calls.redrive(self.name, source=source, most=most, seqs=seqs))

    def peek(self, most: int = 100, *, state: JobState | None = None) -> PeekedJobs:
        return self._log._run(_queue_calls.peek(self.name, most=most, state=state))

    def stats(self) -> QueueCounts:
        return self._log._run(_queue_calls.stats(self.name))
