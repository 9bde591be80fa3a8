"""Claimed jobs as they lie in their frames: columns, from which a job is made when looked at.

An answer over HTTP needs no jobs at all: it is spliced from the frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from topics.core.leases import Lease
from topics.engine.reads.frame_records import PLAIN_JOB, PLAIN_JOB_START, job_fields
from topics.storage.frames.header import FLAG_TAG
from topics.values import Job, JobRow
from topics.wire.responses import JOB_TEXT, job_members, job_middle


class Jobs(Sequence[Job]):
    """The jobs of one claim, ascending by seq."""

    __slots__ = ("_bufs", "_deliveries", "_leases", "_offsets", "seqs")

    def __init__(
        self,
        seqs: Sequence[int],
        leases: Sequence[Lease],
        deliveries: Sequence[int],
        bufs: Sequence[bytes],
        offsets: Sequence[int],
    ) -> None:
        self.seqs = seqs
        self._leases = leases
        self._deliveries = deliveries
        self._bufs = bufs
        self._offsets = offsets

    @property
    def lease_ids(self) -> list[int]:
        return [lease.lease_id for lease in self._leases]

    def rendered(self) -> list[bytes]:
        """Each job as `wire.responses.job_members` has it."""
        # A claim has many jobs and a server many claims: this loop calls nothing but C.
        texts: list[bytes] = []
        middle, shared_ts, shared_deadline, shared_deliveries = b"", -1, -1, -1
        unpack = PLAIN_JOB.unpack_from
        for seq, lease, deliveries, buf, offset in zip(
            self.seqs, self._leases, self._deliveries, self._bufs, self._offsets, strict=True
        ):
            flags, ts, names, blob_len, data_len = unpack(buf, offset)
            if names or flags & FLAG_TAG or blob_len != data_len + 4:
                texts.append(job_members(self._row(len(texts))))
                continue
            deadline = lease.deadline_ms
            if ts != shared_ts or deliveries != shared_deliveries or deadline != shared_deadline:
                middle = job_middle(deadline, ts, deliveries)
                shared_ts, shared_deadline, shared_deliveries = ts, deadline, deliveries
            at = offset + PLAIN_JOB_START
            texts.append(JOB_TEXT % (seq, lease.lease_id, middle, buf[at : at + data_len]))
        return texts

    def _row(self, at: int) -> JobRow:
        lease = self._leases[at]
        ts, raw, tag, meta = job_fields(self._bufs[at], self._offsets[at])
        held = self.seqs[at], lease.lease_id, lease.deadline_ms
        return (*held, ts, self._deliveries[at], raw, tag, meta)

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[Job]:
        return (Job(*self._row(at)) for at in range(len(self.seqs)))

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        if isinstance(index, slice):
            return list(self)[index]
        return Job(*self._row(index))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of any other list

    def __repr__(self) -> str:
        return repr(list(self))


NO_JOBS = Jobs((), (), (), (), ())


class ClaimedJobs(NamedTuple):
    """Jobs handed to a worker, perhaps none; `ready` jobs are left."""

    topic: str
    jobs: Jobs
    ready: int
