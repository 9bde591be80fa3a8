"""Lease projection of one queue: who holds which job, until when, how often it was handed out.

Every live job is in exactly one place: leased, waiting to be handed out again (`reclaim`), delayed
until a time, or fresh (at or above `claim_cursor`). Only what a lease event says is kept here;
whether a job still lives is the topic's business, and entries of vanished jobs are pruned lazily.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import msgspec

from topics.core.facts import LeaseChanged


class Lease(msgspec.Struct, frozen=True, gc=False):
    lease_id: int
    node: str
    deadline_ms: int


class LeaseBook:
    __slots__ = (
        "claim_cursor",
        "dead_lettered",
        "delayed",
        "deliveries",
        "last_lease_id",
        "leased",
        "reclaim",
    )

    def __init__(self) -> None:
        self.claim_cursor = 1  # first seq never handed out
        self.leased: dict[int, Lease] = {}
        self.delayed: dict[int, int] = {}  # seq -> ready_at
        self.deliveries: dict[int, int] = {}
        self.reclaim: list[int] = []  # min-heap of seqs
        self.dead_lettered = 0
        self.last_lease_id = 0

    def apply(self, fact: LeaseChanged) -> None:
        """Install one event. All but a claim count only for the lease they name."""
        if fact.event == LeaseChanged.CLAIMED:
            self._claimed(fact)
            return
        held = self.leased.get(fact.seq)
        if held is None or held.lease_id != fact.lease_id:
            return
        if fact.event == LeaseChanged.EXTENDED:
            self.leased[fact.seq] = Lease(held.lease_id, held.node, fact.deadline_ms)
        elif fact.event == LeaseChanged.RELEASED:
            del self.leased[fact.seq]
            if fact.deadline_ms > fact.ts:
                self.delayed[fact.seq] = fact.deadline_ms
            else:
                heapq.heappush(self.reclaim, fact.seq)
        else:
            self.forget(fact.seq)

    def _claimed(self, fact: LeaseChanged) -> None:
        self.leased[fact.seq] = Lease(fact.lease_id, fact.node, fact.deadline_ms)
        self.deliveries[fact.seq] = fact.deliveries
        self.delayed.pop(fact.seq, None)
        self.claim_cursor = max(self.claim_cursor, fact.seq + 1)
        self.last_lease_id = max(self.last_lease_id, fact.lease_id)

    def forget(self, seq: int) -> None:
        """The job is gone: acked, deleted, evicted or moved."""
        self.leased.pop(seq, None)
        self.delayed.pop(seq, None)
        self.deliveries.pop(seq, None)

    def forget_dead(self, is_live: Iterable[int]) -> None:
        """Keep only entries of the live jobs given."""
        live = set(is_live)
        for seq in [s for s in self.deliveries if s not in live]:
            self.forget(seq)

    def resume(self, live_below_cursor: Iterable[int], *, durable: bool) -> None:
        """After replay: every live job below the cursor without lease or delay is claimable.

        Without durable leases nothing of the projection survives a restart.
        """
        if not durable:
            self.leased.clear()
            self.delayed.clear()
            self.deliveries.clear()
            self.reclaim = []
            self.claim_cursor = 1
            return
        self.reclaim = [
            seq for seq in live_below_cursor if seq not in self.leased and seq not in self.delayed
        ]
        heapq.heapify(self.reclaim)
