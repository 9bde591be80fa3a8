"""The claim pass: which jobs go to whom.

Jobs handed back come first, lowest seq first, then fresh ones. A cohort of claimers is served one
job each in turn, so that shares differ by at most one among those who still want more. A job that
was delivered as often as it may be is not handed out but set aside as a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from topics.core.config import TopicConfig
from topics.core.leases import Lease
from topics.core.topic import Topic
from topics.engine.leasing import Presence


class Grant(NamedTuple):
    """A job that was handed out."""

    seq: int
    lease: Lease
    deliveries: int


class Claimer:
    """One call that wants jobs, and what it got, by seq."""

    __slots__ = ("grants", "lease_ms", "most", "node", "presence")

    def __init__(self, node: str, most: int, lease_ms: int, presence: Presence) -> None:
        self.node = node
        self.most = most
        self.lease_ms = lease_ms
        self.presence = presence
        self.grants: list[Grant] = []

    @property
    def is_gone(self) -> bool:
        return self.presence.is_gone


def claim_pass(
    topic: Topic,
    cohort: Sequence[Claimer],
    *,
    now_ms: int,
    next_lease_id: Callable[[], int],
) -> None:
    """Serve a cohort, in order of arrival. Who has gone meanwhile gets nothing."""
    leases = topic.leases
    assert leases is not None
    limit = delivery_limit(topic.config)
    leases.judge_by(limit)
    waiting = [claimer for claimer in cohort if not claimer.is_gone]
    turn = 0
    leased, counts = leases.leased, leases.deliveries
    for seq in _claimable(topic) if waiting else ():
        deliveries = counts.get(seq, 0) + 1
        if limit and deliveries > limit:
            leases.spent.append(seq)
            continue
        claimer = waiting[turn]
        lease = Lease(next_lease_id(), claimer.node, now_ms + claimer.lease_ms)
        leased[seq] = lease
        counts[seq] = deliveries
        grants = claimer.grants
        grants.append(Grant(seq, lease, deliveries))
        if len(grants) == claimer.most:
            del waiting[turn]
            if not waiting:
                break
        else:
            turn += 1
        if turn >= len(waiting):
            turn = 0
    for claimer in cohort:
        if claimer.grants:
            claimer.grants.sort()
            seqs = tuple([grant.seq for grant in claimer.grants])
            leases.watch(seqs, now_ms + claimer.lease_ms)


def delivery_limit(config: TopicConfig) -> int:
    """How often a job may be delivered; 0 when there is no limit."""
    return config.max_deliveries if config.dead_letter else 0


def _claimable(topic: Topic) -> Iterator[int]:
    """Jobs that may be handed out, each taken from its place as it comes."""
    leases = topic.leases
    assert leases is not None
    while (seq := leases.pop_reclaimed(topic.is_live)) is not None:
        yield seq
    for lo, hi in topic.extents(leases.claim_cursor, topic.head):
        # Below `exact_from` a stretch may hold seqs that only their segment knows to be deleted.
        exact = lo >= topic.exact_from
        for fresh in range(lo, hi + 1) if exact else (job for job, _ in topic.sizes(lo, hi)):
            leases.claim_cursor = fresh + 1
            yield fresh
    leases.claim_cursor = max(leases.claim_cursor, topic.head + 1)
