"""The claim pass: which jobs go to whom.

Jobs handed back come first, lowest seq first, then fresh ones. A cohort of claimers is served one
job each in turn, so that shares differ by at most one among those who still want more. A job that
was delivered as often as it may be is not handed out but set aside as a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from topics.core.facts import LeaseChanged
from topics.core.topic import Topic


@dataclass
class Claimer:
    """One call that wants jobs, and what it got."""

    node: str
    most: int
    lease_ms: int
    seqs: list[int] = field(default_factory=list)
    leases: list[LeaseChanged] = field(default_factory=list)


@dataclass
class Pass:
    """What one pass decided."""

    events: list[LeaseChanged] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)


def claim_pass(
    topic: Topic,
    cohort: Sequence[Claimer],
    *,
    now_ms: int,
    next_lease_id: Callable[[], int],
) -> Pass:
    """Serve a cohort, in order of arrival; leases are installed, nothing is logged here."""
    leases = topic.leases
    assert leases is not None
    done = Pass()
    waiting = [claimer for claimer in cohort if claimer.most > 0]
    turn = 0
    while waiting:
        seq = leases.pop_reclaimed(topic.is_live)
        if seq is None:
            seq = next_fresh(topic)
        if seq is None:
            break
        deliveries = leases.deliveries.get(seq, 0)
        if is_spent(topic, deliveries):
            done.dead.append(seq)
            continue
        claimer = waiting[turn]
        event = LeaseChanged(
            topic.id,
            seq,
            now_ms,
            LeaseChanged.CLAIMED,
            next_lease_id(),
            now_ms + claimer.lease_ms,
            deliveries + 1,
            claimer.node,
        )
        leases.apply(event)
        done.events.append(event)
        claimer.leases.append(event)
        claimer.seqs.append(seq)
        if len(claimer.seqs) == claimer.most:
            del waiting[turn]
            turn = turn % len(waiting) if waiting else 0
        else:
            turn = (turn + 1) % len(waiting)
    for claimer in cohort:
        claimer.leases.sort(key=lambda event: event.seq)
        claimer.seqs.sort()
    return done


def is_spent(topic: Topic, deliveries: int) -> bool:
    """Whether another delivery would be one too many."""
    config = topic.config
    return bool(
        config.max_deliveries and config.dead_letter and deliveries >= config.max_deliveries
    )


def next_fresh(topic: Topic) -> int | None:
    """The first live job that nobody has had yet; the cursor moves past it."""
    leases = topic.leases
    assert leases is not None
    for lo, hi in topic.extents(leases.claim_cursor, topic.head):
        if lo >= topic.exact_from:
            leases.claim_cursor = lo + 1
            return lo
        for seq, _ in topic.sizes(lo, hi):
            leases.claim_cursor = seq + 1
            return seq
    leases.claim_cursor = max(leases.claim_cursor, topic.head + 1)
    return None
