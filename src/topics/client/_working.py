"""What a worker does about a job, without I/O: delays, dead letters, leases to renew.

Leases are timed by this machine's steady clock and the length that was asked for. The deadline
that a server names is in its own time of day, which need not be ours.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from topics.client._showing import Shown
from topics.errors import InvalidRequest
from topics.values import Config, Failure, Job
from topics.wire import letters

RENEW_AT = 1 / 3
"""The part of a lease after which it is renewed: two renewals may fail before it ends."""
FIRST_DELAY_MS = 1000
MOST_DELAY_MS = 60_000


class Reject(Exception):
    """Raised by a handler: this job can never succeed, do not try it again.

    It is moved to the queue's `dead_letter` topic; without one it waits as long as a failed job
    can, because a worker must not drop jobs.
    """


class WorkSettings(NamedTuple):
    """How a worker works."""

    concurrency: int = 4
    node: str | None = None
    lease_ms: int | None = None
    retry_delay_ms: int = FIRST_DELAY_MS
    idle_s: float = 1.0
    grace_s: float = 30.0

    def checked(self) -> WorkSettings:
        if self.concurrency < 1 or self.retry_delay_ms < 0 or self.idle_s <= 0:
            raise InvalidRequest(
                "a worker needs a concurrency of 1 or more, a retry_delay_ms of 0 or more "
                "and an idle_s above 0"
            )
        return self


Handler = Callable[[Job], object] | Callable[[Job], Awaitable[object]]
"""What does the work: a function, or a coroutine function, of the job."""
OnError = Callable[[Job, BaseException], None]
"""Told of every job that failed, with what its handler raised."""

_log = logging.getLogger("topics.worker")


def report(topic: str, node: str, job: Job, error: BaseException, on_error: OnError | None) -> None:
    """Tell of a job that failed: to `on_error` if there is one, else to the log of the program.

    Python prints warnings of loggers that were not set up, so a traceback is seen by default.
    """
    if on_error is None:
        # A handler that rejects a job says why in its own words; a traceback would add nothing.
        trace = None if isinstance(error, Reject) else error
        _log.warning(
            "worker %s: delivery %d of job %d of %s failed: %r",
            *(node, job.deliveries, job.seq, topic, error),
            exc_info=trace,
        )
        return
    try:
        on_error(job, error)
    except Exception:
        _log.exception("worker %s: on_error failed for job %d of %s", node, job.seq, topic)


def worker_name() -> str:
    """A node that no other worker has."""
    return f"{socket.gethostname()[:64]}-{os.getpid()}-{os.urandom(4).hex()}"


def retry_delay_ms(job: Job, first_ms: int) -> int:
    """How long a failed job waits: doubles with each delivery, up to a minute."""
    return int(min(MOST_DELAY_MS, first_ms * 2 ** min(max(job.deliveries - 1, 0), 20)))


def dead_letter(queue: str, config: Config) -> str | None:
    """Where jobs that can never succeed go; None when the queue names no such topic."""
    name = config.get("dead_letter")
    return name if isinstance(name, str) and name != queue else None


def burial(queue: str, job: Job, error: BaseException, node: str) -> tuple[Mapping[str, Any], str]:
    """A rejected job as a dead letter that `redrive` understands, and the key of its write."""
    meta = job.meta
    why = Failure(node, time.time_ns() // 1_000_000, **letters.error_of(error))
    signed = {
        **(meta if isinstance(meta, dict) else {}),
        **letters.members(queue, job.deliveries, job.seq, why),
    }
    record: dict[str, Any] = {"data": job.raw, "meta": signed}
    if job.tag is not None:
        record["tag"] = job.tag
    return record, f"dead-letter:{queue}:{job.seq}:{job.lease_id:x}"


class Leases:
    """Jobs in hand and when each lease was last known to run.

    A job whose lease is lost stays in hand until its handler is done with it. By then it may have
    come a second time, under another lease.
    """

    def __init__(self, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self._held: dict[int, tuple[Job, float]] = {}  # by seq
        self._in_hand = 0
        self.lost = 0
        """How many jobs were taken away while they were worked on."""

    def __len__(self) -> int:
        return self._in_hand

    def hold(self, job: Job, asked: float) -> None:
        """A job in hand; its lease began no sooner than it was asked for."""
        self._in_hand += 1
        self._held[job.seq] = (job, asked)

    def release(self, job: Job) -> None:
        self._in_hand -= 1
        if self._holds(job):
            del self._held[job.seq]

    def due(self, now: float) -> list[Job]:
        """Jobs whose lease has to be renewed."""
        old = now - self.lease_ms / 1000 * RENEW_AT
        return [job for job, since in self._held.values() if since <= old]

    def renewed(self, jobs: list[Job], skipped: set[int], now: float) -> None:
        """Note leases that were renewed, and drop those that were lost to another worker."""
        for job in filter(self._holds, jobs):
            if job.seq in skipped:
                del self._held[job.seq]
                self.lost += 1
            else:
                self._held[job.seq] = (job, now)

    def _holds(self, job: Job) -> bool:
        held = self._held.get(job.seq)
        return held is not None and held[0].lease_id == job.lease_id

    @property
    def look_every(self) -> float:
        """Seconds between two looks at what is due."""
        return self.lease_ms / 1000 * RENEW_AT / 4


class WorkerBase(Shown):
    """What workers with threads and workers with tasks have in common."""

    def __init__(
        self, topic: str, handler: Handler, on_error: OnError | None, options: WorkSettings
    ) -> None:
        self._options = options.checked()
        self.topic = topic
        self.node = self._options.node or worker_name()
        self.done = 0
        """How many jobs were finished."""
        self.failed = 0
        """How many deliveries failed."""
        self._handler = handler
        self._on_error = on_error
        self._leases = Leases(self._options.lease_ms or 30_000)
        self._dead_letter: str | None = None

    def _words(self) -> str:
        return f"{self.node!r} on {self.topic!r}: {self.done} done, {self.failed} failed"

    def _adopt(self, config: Config) -> None:
        """Work as the queue is configured, where the worker was not told otherwise."""
        self._leases.lease_ms = self._options.lease_ms or config["lease_ms"]
        self._dead_letter = dead_letter(self.topic, config)

    def _report(self, job: Job, error: BaseException) -> None:
        report(self.topic, self.node, job, error, self._on_error)
