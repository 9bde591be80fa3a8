"""The claim pass: which claimer gets which jobs.

Jobs that were given back come first, lowest seq first, then fresh jobs. Every job that was given
back lies below every fresh job, so jobs are handed out in ascending order. The claimers of a cohort
get one job each, again and again, so that the shares of claimers that want more differ by at most
one. Claims that form no cohort are served one after the other. A job that was delivered as often as
it may be is not handed out but set aside as a dead letter.

A pass first takes the seqs for all claimers and then makes all leases. Work that is done once per
pass or per claim, and not per job, keeps a claim cheap.

The bytes of one claim are bounded, too: a thousand jobs of a megabyte in one answer would take
gigabytes of memory in the server and in the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise

from topics.core.leases import Lease, LeaseBook
from topics.core.loading import NotLoaded
from topics.core.topic import Topic
from topics.engine.upkeep.lease_log import Presence
from topics.topic_settings import TopicConfig

CLAIM_BYTES = 8 << 20
"""What a claim gets at the most, as a page of a read, unless its first job is larger."""
_FEW = 8
"""So many jobs are not worth weighing."""
_DENSE = 4
"""Up to so many seqs for each job, a range is weighed as a whole."""


class Claimer:
    """One call that wants jobs, and what it got: columns over ascending seqs."""

    __slots__ = ("deliveries", "lease_ms", "leases", "most", "node", "presence", "seqs")

    def __init__(self, node: str, most: int, lease_ms: int, presence: Presence) -> None:
        self.node = node
        self.most = most
        self.lease_ms = lease_ms
        self.presence = presence
        self.seqs: Sequence[int] = ()
        self.leases: Sequence[Lease] = ()
        self.deliveries: Sequence[int] = ()

    @property
    def is_gone(self) -> bool:
        return self.presence.is_gone

    @property
    def held(self) -> dict[int, int]:
        """The leases it got, by seq and lease id."""
        return {seq: x.lease_id for seq, x in zip(self.seqs, self.leases, strict=True)}


def claim_pass(
    topic: Topic,
    leases: LeaseBook,
    claimers: Sequence[Claimer],
    *,
    is_cohort: bool,
    now_ms: int,
    lease_ids: Callable[[int], range],
) -> None:
    """Serve claimers in order of arrival. A claimer that has disconnected gets nothing.

    `lease_ids` gives as many ids as it is asked for, none of them ever before. Raises `NotLoaded`,
    with nothing done, when jobs have to be weighed and their index is not in memory.
    """
    limit = delivery_limit(topic.config)
    leases.judge_by(limit)
    waiting = [claimer for claimer in claimers if not claimer.presence.is_gone]
    most = [claimer.most for claimer in waiting]
    seqs = take_claimable(topic, leases, sum(most), limit)
    if not seqs:
        return
    if is_cohort:
        shares = _dealt(seqs, most)
        seqs = [*chain.from_iterable(shares)]
    else:
        shares = _cut(seqs, most)
    if max(map(len, shares)) > _FEW:
        seqs, shares = _bounded(topic, leases, shares)
    holders = [
        (x.node, len(share), now_ms + x.lease_ms) for x, share in zip(waiting, shares, strict=True)
    ]
    granted, deliveries = leases.grant(seqs, lease_ids(len(seqs)), holders, now_ms)
    end = 0
    for claimer, share in zip(waiting, shares, strict=True):
        start, end = end, end + len(share)
        claimer.seqs, claimer.leases = share, granted[start:end]
        claimer.deliveries = deliveries[start:end]


def delivery_limit(config: TopicConfig) -> int:
    """How often a job may be delivered; 0 when there is no limit."""
    return config.max_deliveries if config.dead_letter else 0


def take_claimable(topic: Topic, leases: LeaseBook, most: int, limit: int) -> list[int]:
    """Take jobs from their places, in the order they are to be handed out.

    Only a job that was handed out before can be spent: what is fresh has no deliveries.
    """
    seqs: list[int] = []
    counts, spent = leases.deliveries, leases.spent
    while leases.reclaim and len(seqs) < most:
        seq = leases.pop_reclaimed(topic.is_live)
        if seq is None:
            break
        if limit and counts.get(seq, 0) >= limit:
            spent.append(seq)
        else:
            seqs.append(seq)
    if len(seqs) < most:
        _take_fresh(topic, leases, most, seqs)
    return seqs


def _take_fresh(topic: Topic, leases: LeaseBook, most: int, seqs: list[int]) -> None:
    """Fill up with jobs that were never handed out, a range at a time."""
    first, wanted = leases.claim_cursor, most - len(seqs)
    if topic.is_all_live(first, first + wanted - 1):
        leases.claim_cursor = end = first + wanted
        seqs.extend(range(first, end))
        return
    for lo, hi in topic.extents(first, topic.head):
        wanted = most - len(seqs)
        seqs.extend(range(lo, min(hi, lo + wanted - 1) + 1))
        if len(seqs) == most:
            leases.claim_cursor = seqs[-1] + 1
            return
    leases.claim_cursor = max(leases.claim_cursor, topic.head + 1)


def _cut(seqs: list[int], most: Sequence[int]) -> list[list[int]]:
    """Seqs for the claimers one after the other, as many as each wants while there are any."""
    ends = list(accumulate(most, initial=0))
    return [seqs[start:end] for start, end in pairwise(ends)]


def _bounded(
    topic: Topic, leases: LeaseBook, shares: list[list[int]]
) -> tuple[list[int], list[list[int]]]:
    """Shares that are not too much for one answer, and all of their seqs; the rest goes back."""
    try:
        fitting = [_fitting(topic, share) for share in shares]
    except NotLoaded:
        leases.put_back(chain.from_iterable(shares))
        raise
    kept = [share[:most] for share, most in zip(shares, fitting, strict=True)]
    for share, most in zip(shares, fitting, strict=True):
        leases.put_back(share[most:])
    return [*chain.from_iterable(kept)], kept


def _fitting(topic: Topic, seqs: list[int]) -> int:
    """How many of these jobs are within the bytes of one claim; at least one, if there is one."""
    if len(seqs) <= _FEW:
        return len(seqs)
    first, last = seqs[0], seqs[-1]
    if last - first < _DENSE * len(seqs) and topic.weigh(first, last)[1] <= CLAIM_BYTES:
        return len(seqs)
    total = 0
    for before, seq in enumerate(seqs):
        total += topic.weigh(seq, seq)[1]
        if total > CLAIM_BYTES and before:
            return before
    return len(seqs)


def _dealt(seqs: list[int], most: Sequence[int]) -> list[list[int]]:
    """Seqs dealt to the claimers one by one in rounds, to none more than it wants."""
    shares: list[list[int]] = [[] for _ in most]
    unserved = list(zip(shares, most, strict=True))
    at = 0
    for seq in seqs:
        share, wanted = unserved[at]
        share.append(seq)
        if len(share) == wanted:
            del unserved[at]
        else:
            at += 1
        if at >= len(unserved):
            at = 0
    return shares
