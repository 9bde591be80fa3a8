"""What a benchmark says to a server, as bytes: one class per protocol.

No client library takes part. Every peer is driven by the same loop over raw sockets (`load`) with
requests that are put together in advance, so the servers are compared and not their clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from topics.bench.bench import payload, stored

LOG, LIVE, HISTORY, JOBS = "log", "live", "history", "jobs"
"""The four topics of the benchmark: plain writes, watched writes, reads, and a queue."""

PAGE, CLAIM = 1000, 8
RECORD = stored(payload())


@dataclass(frozen=True, slots=True)
class Asked:
    """Bytes to send, and how many answers they get. Nothing is sent if there are no bytes."""

    sent: bytes
    answers: int = 1
    size: int = 0
    """All answers together have exactly so many bytes; 0: not known, cut them one by one."""


NOTHING = Asked(b"")
"""Waits for the next answer to what was sent before."""

Script: TypeAlias = Generator[Asked, Sequence[bytes], None]
"""What one connection does: each exchange it yields is sent, and its answers come back."""


class Dialect(ABC):
    """One protocol. A connection has a dialect of its own, so a dialect may remember things."""

    has_queue = True

    @abstractmethod
    def greeting(self) -> Sequence[Asked]:
        """What a new connection says first."""

    @abstractmethod
    def preparation(self, *, synced: bool) -> Sequence[Asked]:
        """Creates the topics, on one connection of a new server."""

    @abstractmethod
    def write(self, topic: str, records: int) -> Asked:
        """Append that many records in one round trip, each acknowledged."""

    @abstractmethod
    def read(self, page: int) -> Asked:
        """The records of a page of `HISTORY`, counted from 0."""

    @abstractmethod
    def end_of_answer(self, data: bytes, start: int) -> int:
        """Where the answer that begins at `start` ends, or 0 if the rest is still to come."""

    @abstractmethod
    def watching(self) -> Script:
        """Watch `LIVE` from its end, for ever. Each answer may be a delivery."""

    @abstractmethod
    def is_delivery(self, answer: bytes) -> bool:
        """Whether this answer to a watcher has a record in it."""

    def fill(self, first: int, records: int) -> Asked:
        """Append that many records to `HISTORY`; `first` counts them from 0."""
        del first
        return self.write(HISTORY, records)

    def claim(self, worker: int) -> Asked:
        """Up to `CLAIM` jobs for this worker."""
        raise AssertionError(worker)

    def jobs(self, answers: Sequence[bytes]) -> Sequence[bytes]:
        """What names each job of a claim in an ack; empty: no job is left."""
        raise AssertionError(answers)

    def ack(self, worker: int, jobs: Sequence[bytes]) -> Asked:
        """Say that the jobs are done."""
        raise AssertionError(worker, jobs)

    def is_last(self, answer: bytes) -> bool:
        """Whether this answer ends an exchange that gets fewer answers than it may get."""
        del answer
        return False

    def aside(self, answer: bytes) -> bytes | None:
        """What to reply to a message that is no answer; None if it is an answer."""
        del answer
        return None

    @abstractmethod
    def check(self, answer: bytes) -> None:
        """Raise `RuntimeError` if the answer reports an error."""
