"""Who holds what: the fence before every call about claimed jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from topics.core.leases import Lease, LeaseBook


class Named(NamedTuple):
    """Jobs that a call says its node holds; lease ids, if any, go with the seqs one by one."""

    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[int | None]


def hold(leases: LeaseBook, named: Named, held: dict[int, Lease]) -> list[int]:
    """Add to `held` those of the jobs that the node holds, by the lease it names.

    Returns the rest, in order. What is in `held` already is another's, or was named before.
    """
    skipped: list[int] = []
    leased, finishing = leases.leased, leases.finishing
    node = named.node
    for seq, token in zip(named.seqs, named.lease_ids or repeat(None)):  # noqa: B905 - none need be sent
        lease = leased.get(seq)
        if (
            lease is None
            or lease.node != node
            or seq in held
            or seq in finishing
            or (token is not None and token != lease.lease_id)
        ):
            skipped.append(seq)
        else:
            held[seq] = lease
    return skipped
