"""The check before every call about claimed jobs: what it names, and which its node holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import repeat
from typing import NamedTuple, TypeAlias

from topics.core.leases import Lease, LeaseBook
from topics.core.topic import Topic
from topics.engine.upkeep.lease_log import queue_counts
from topics.errors import BatchTooLarge, InvalidRequest, TopicsError
from topics.values import Acked

MAX_NODE_BYTES = 128


class Named(NamedTuple):
    """Jobs that a call says its node holds; lease ids, if any, go with the seqs one by one."""

    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[int | None]


def hold(leases: LeaseBook, named: Named, held: dict[int, Lease]) -> list[int]:
    """Add to `held` those of the jobs that the node holds, by the lease it names.

    Returns the rest, in order. A job that is in `held` already belongs to another call of the
    group, or was named twice.
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


def checked(named: Named, *, maximum: int) -> Named:
    """Refuse a call that names too many jobs, or not a lease id for each."""
    check_node(named.node)
    seqs, lease_ids = named.seqs, named.lease_ids
    if len(seqs) > maximum:
        raise BatchTooLarge(seqs=len(seqs), maximum=maximum)
    if lease_ids and len(lease_ids) != len(seqs):
        raise InvalidRequest(
            f"{len(lease_ids)} lease_ids for {len(seqs)} seqs: send one for each, or none"
        )
    return named


def check_node(node: str) -> None:
    """A worker needs a name, and not a long one."""
    if 0 < len(node) <= MAX_NODE_BYTES // 4:
        return  # no character has more than four bytes
    if not node or len(node.encode(errors="surrogatepass")) > MAX_NODE_BYTES:
        raise InvalidRequest(f"node must have 1 to {MAX_NODE_BYTES} bytes")


Part: TypeAlias = tuple[int, int, list[int]]
"""One call among several: begin and end of its part in the held jobs, and the seqs that it named
and does not hold."""


def acked_parts(
    topic: Topic,
    asked: Sequence[Named],
    parts: Sequence[Part],
    held: Sequence[int],
    gone: Collection[int],
) -> list[Acked | TopicsError]:
    """The answers of calls some of whose jobs were gone before the delete.

    Those are skipped like any job that is not there, in the order they were sent.
    """
    counts = queue_counts(topic)
    outcomes: list[Acked | TopicsError] = []
    for named, (start, end, _) in zip(asked, parts, strict=True):
        acked = set(held[start:end]).difference(gone)
        left = acked.copy()
        skipped = []
        for seq in named.seqs:
            if seq in left:
                left.discard(seq)
            else:
                skipped.append(seq)
        outcomes.append(Acked(topic.name, len(acked), skipped, *counts))
    return outcomes
