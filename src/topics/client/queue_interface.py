"""What a queue of a blocking log can do, in this process or behind an address."""

# Made from `aio_queue.py` by tools/make_sync.py: change that, then `make fmt`.

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from topics.client._showing import Shown
from topics.client.keywords import Jobs
from topics.values import Acked, Extended, Job, JobState, Nacked, PeekedJobs, QueueCounts, Redriven


class AnyQueue(Shown):
    """What a queue of a blocking log can do, in this process or behind an address."""

    @abstractmethod
    def claim(self, most: int = 1, *, lease_ms: int | None = None) -> Sequence[Job]:
        """Lease up to `most` jobs for this worker; fewer or none is a normal answer.

        Jobs given back or expired come first. `lease_ms` replaces the queue's own lease time.
        A server may wait for the queue's `claim_jitter_ms`; a log in this process never waits.
        """

    @abstractmethod
    def ack(self, jobs: Jobs) -> Acked:
        """Remove finished jobs for good; those no longer held by this worker are `skipped`."""

    @abstractmethod
    def nack(
        self,
        jobs: Jobs,
        *,
        delay_ms: int = 0,
        error: BaseException | str | None = None,
    ) -> Nacked:
        """Give jobs back, to be claimed again at once or after a delay.

        `error` is what went wrong; a job that dies of it keeps it in its dead letter.
        """

    @abstractmethod
    def extend(self, jobs: Jobs, *, lease_ms: int) -> Extended:
        """Hold jobs for `lease_ms` from now on."""

    @abstractmethod
    def redrive(
        self, *, source: str | None = None, most: int = 100, seqs: Sequence[int] | None = None
    ) -> Redriven:
        """Put dead letters back into the queue, oldest first; `source` is its `dead_letter`.

        With `seqs` exactly those of its letters, at most 1000, and `most` is not looked at.
        """

    @abstractmethod
    def peek(self, most: int = 100, *, state: JobState | None = None) -> PeekedJobs:
        """Look at up to 1000 jobs without taking any: which worker holds a job, until when.

        Leased jobs come first, then delayed ones, then ready ones; `state` names one kind.
        """

    @abstractmethod
    def stats(self) -> QueueCounts:
        """How many jobs are ready, on lease, and moved away as dead letters."""
