"""Claimed jobs as they lie in their frames: columns, from which a job is made when looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from topics.core.leases import Lease
from topics.engine.pages import job_fields
from topics.values import Job, JobRow


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

    def rows(self) -> list[JobRow]:
        """The jobs as tuples, for whoever renders them."""
        rows: list[JobRow] = []
        for seq, lease, deliveries, buf, offset in zip(
            self.seqs, self._leases, self._deliveries, self._bufs, self._offsets, strict=True
        ):
            ts, raw, tag, meta = job_fields(buf, offset)
            rows.append((seq, lease.lease_id, lease.deadline_ms, ts, deliveries, raw, tag, meta))
        return rows

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[Job]:
        return iter([Job(*row) for row in self.rows()])

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        if isinstance(index, slice):
            return list(self)[index]
        lease = self._leases[index]
        ts, raw, tag, meta = job_fields(self._bufs[index], self._offsets[index])
        return Job(
            self.seqs[index],
            lease.lease_id,
            lease.deadline_ms,
            ts,
            self._deliveries[index],
            raw,
            tag,
            meta,
        )

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of any other list

    def __repr__(self) -> str:
        return repr(list(self))


NO_JOBS = Jobs((), (), (), (), ())


class Claimed(NamedTuple):
    """Jobs handed to a worker, perhaps none; `ready` jobs are left."""

    topic: str
    jobs: Jobs
    ready: int
