"""Lease projection of one queue: who holds which job, until when, how often it was handed out.

Every live job is in exactly one place: leased, waiting to be handed out again (`reclaim`), delayed
until a time, or fresh (at or above `claim_cursor`). Whether a job still lives is the topic's
business: entries of vanished jobs are pruned when they come up.

Times sit in heaps beside the maps, so that no call ever looks at every lease. A heap may hold
entries that are out of date (a lease extended, a job acked); the map decides.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import msgspec

from topics.core.facts import LeaseChanged


class Lease(msgspec.Struct, frozen=True, gc=False):
    lease_id: int
    node: str
    deadline_ms: int


class LeaseBook:
    __slots__ = (
        "_deadlines",
        "_ready_times",
        "claim_cursor",
        "dead_lettered",
        "delayed",
        "deliveries",
        "last_lease_id",
        "leased",
        "reclaim",
    )

    def __init__(self) -> None:
        self.dead_lettered = 0
        self.last_lease_id = 0
        self._begin_again()

    def _begin_again(self) -> None:
        self.claim_cursor = 1  # first seq never handed out
        self.leased: dict[int, Lease] = {}
        self.delayed: dict[int, int] = {}  # seq -> ready_at
        self.deliveries: dict[int, int] = {}
        self.reclaim: list[int] = []  # min-heap of seqs
        self._deadlines: list[tuple[int, int]] = []  # min-heap of (deadline, seq)
        self._ready_times: list[tuple[int, int]] = []  # min-heap of (ready_at, seq)

    # Events, live and replayed

    def apply(self, fact: LeaseChanged) -> None:
        """Install one event. All but a claim count only for the lease they name."""
        if fact.event == LeaseChanged.CLAIMED:
            self._claimed(fact)
            return
        held = self.leased.get(fact.seq)
        if held is None or held.lease_id != fact.lease_id:
            return
        if fact.event == LeaseChanged.EXTENDED:
            self._hold(fact.seq, Lease(held.lease_id, held.node, fact.deadline_ms))
        elif fact.event == LeaseChanged.RELEASED:
            del self.leased[fact.seq]
            if fact.deadline_ms > fact.ts:
                self._delay(fact.seq, fact.deadline_ms)
            else:
                heapq.heappush(self.reclaim, fact.seq)
        else:
            self.forget(fact.seq)

    def _claimed(self, fact: LeaseChanged) -> None:
        self._hold(fact.seq, Lease(fact.lease_id, fact.node, fact.deadline_ms))
        self.deliveries[fact.seq] = fact.deliveries
        self.delayed.pop(fact.seq, None)
        self.claim_cursor = max(self.claim_cursor, fact.seq + 1)
        self.last_lease_id = max(self.last_lease_id, fact.lease_id)

    def _hold(self, seq: int, lease: Lease) -> None:
        self.leased[seq] = lease
        heapq.heappush(self._deadlines, (lease.deadline_ms, seq))

    def _delay(self, seq: int, ready_at: int) -> None:
        self.delayed[seq] = ready_at
        heapq.heappush(self._ready_times, (ready_at, seq))

    def forget(self, seq: int) -> None:
        """The job is gone: acked, deleted, evicted or moved."""
        self.leased.pop(seq, None)
        self.delayed.pop(seq, None)
        self.deliveries.pop(seq, None)

    # Time

    def sweep(self, now_ms: int) -> list[int]:
        """Free every lease whose deadline has passed and every job whose delay is over.

        Returns the seqs whose lease expired, in the order of their deadlines.
        """
        expired = []
        while self._deadlines and self._deadlines[0][0] < now_ms:
            deadline_ms, seq = heapq.heappop(self._deadlines)
            lease = self.leased.get(seq)
            if lease is not None and lease.deadline_ms == deadline_ms:
                del self.leased[seq]
                heapq.heappush(self.reclaim, seq)
                expired.append(seq)
        while self._ready_times and self._ready_times[0][0] <= now_ms:
            ready_at, seq = heapq.heappop(self._ready_times)
            if self.delayed.get(seq) == ready_at:
                del self.delayed[seq]
                heapq.heappush(self.reclaim, seq)
        return expired

    def next_event_ms(self) -> int | None:
        """When a lease ends or a delay is over next, about; None when nothing is pending."""
        times = [heap[0][0] for heap in (self._deadlines, self._ready_times) if heap]
        return min(times, default=None)

    # Handing out

    def pop_reclaimed(self, is_live: Callable[[int], bool]) -> int | None:
        """The lowest seq that waits to be handed out again."""
        while self.reclaim:
            seq = heapq.heappop(self.reclaim)
            if seq not in self.leased and seq not in self.delayed and is_live(seq):
                return seq
        return None

    def put_back(self, seq: int) -> None:
        """A job that was taken but not handed out is claimable again."""
        self.leased.pop(seq, None)
        heapq.heappush(self.reclaim, seq)

    # Restart

    def restore(
        self,
        *,
        leased: Iterable[tuple[int, Lease]],
        delayed: Iterable[tuple[int, int]],
        deliveries: Iterable[tuple[int, int]],
    ) -> None:
        """Put back what a snapshot holds."""
        for seq, lease in leased:
            self._hold(seq, lease)
        for seq, ready_at in delayed:
            self._delay(seq, ready_at)
        self.deliveries = dict(deliveries)

    def resume(self, live_below_cursor: Iterable[int], *, durable: bool) -> None:
        """After replay: every live job below the cursor without lease or delay is claimable.

        Without durable leases nothing of the projection survives a restart.
        """
        if not durable:
            self._begin_again()
            return
        self.reclaim = [
            seq for seq in live_below_cursor if seq not in self.leased and seq not in self.delayed
        ]
        heapq.heapify(self.reclaim)
