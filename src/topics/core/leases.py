"""Lease projection of one queue: who holds which job, until when, how often it was handed out.

Every live job is in exactly one place:

    leased    a worker holds it until its deadline; while `finishing` its ack is being logged,
              and neither the clock nor another call takes it away
    delayed   given back, to be handed out at a given time
    reclaim   waits to be handed out again: expired, given back, released, or too much for one
    spent     was handed out as often as it may be, and waits to become a dead letter
    fresh     at or above `claim_cursor`

Whether a job still lives is the topic's business: it calls `forget` when one goes, and entries of
vanished jobs in `reclaim` are dropped when they come up.

Times sit in heaps beside the maps, so that no call ever looks at every lease. A heap may hold
entries that are out of date (a lease extended, a job acked); the map decides, and a heap that has
become mostly out of date is built anew.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import TypeAlias

import msgspec

from topics.core.facts import LeaseChanged
from topics.values import Failure

SLACK = 1024
"""Outdated entries a heap may hold beside as many as there are current ones."""


NEVER_MS = 1 << 64
MAX_FAILURES = 4096
"""Jobs of a queue whose last failure is remembered; those that failed longest ago are forgotten."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    lease_id: int
    node: str
    deadline_ms: int
    claimed_ms: int = 0
    """Kept in memory only: 0 after a restart."""


Holder: TypeAlias = tuple[str, int, int]
"""A node, how many jobs it is to hold, and until when."""


class _Times:
    """Seqs by the time something falls due for them; seqs due together share an entry."""

    __slots__ = ("_heap", "size")

    def __init__(self) -> None:
        self._heap: list[tuple[int, tuple[int, ...]]] = []
        self.size = 0  # seqs, current or not

    def add(self, due_ms: int, seqs: tuple[int, ...]) -> None:
        heapq.heappush(self._heap, (due_ms, seqs))
        self.size += len(seqs)

    def pop_before(self, end_ms: int) -> tuple[int, tuple[int, ...]] | None:
        """The earliest entry, if it is due before `end_ms`."""
        if not self._heap or self._heap[0][0] >= end_ms:
            return None
        entry = heapq.heappop(self._heap)
        self.size -= len(entry[1])
        return entry

    def first_ms(self) -> int:
        return self._heap[0][0] if self._heap else NEVER_MS

    def rebuild(self, due: Iterable[tuple[int, int]]) -> None:
        """Start over with these `(seq, due_ms)`."""
        by_time: dict[int, list[int]] = {}
        for seq, due_ms in due:
            by_time.setdefault(due_ms, []).append(seq)
        self._heap = [(due_ms, tuple(seqs)) for due_ms, seqs in by_time.items()]
        heapq.heapify(self._heap)
        self.size = sum(map(len, by_time.values()))


class LeaseBook:
    __slots__ = (
        "_deadlines",
        "_ready_times",
        "claim_cursor",
        "dead_lettered",
        "delayed",
        "deliveries",
        "failures",
        "finishing",
        "furthest_ms",
        "leased",
        "quiet_until_ms",
        "reclaim",
        "spent",
        "spent_limit",
    )

    def __init__(self) -> None:
        self.dead_lettered = 0  # since the queue was made or the process started
        self.claim_cursor = 1  # first seq never handed out
        self.leased: dict[int, Lease] = {}
        self.finishing: set[int] = set()
        self.delayed: dict[int, int] = {}  # seq -> ready_at
        self.deliveries: dict[int, int] = {}
        self.failures: dict[int, Failure] = {}  # the last one of each job, in memory only
        self.reclaim: list[int] = []  # min-heap of seqs
        self.spent: deque[int] = deque()
        self.spent_limit = 0  # deliveries by which jobs were judged spent
        self._deadlines = _Times()
        self._ready_times = _Times()
        self.quiet_until_ms = NEVER_MS  # before this a sweep would find nothing
        self.furthest_ms = 0  # no lease or delay ends later

    # Handing out

    def pop_reclaimed(self, is_live: Callable[[int], bool]) -> int | None:
        """The lowest seq that waits to be handed out again."""
        while self.reclaim:
            seq = heapq.heappop(self.reclaim)
            if seq not in self.leased and seq not in self.delayed and is_live(seq):
                return seq
        return None

    def first_reclaimed(self, most: int, is_live: Callable[[int], bool]) -> list[int]:
        """The lowest seqs that wait to be handed out again; all of them stay.

        Walks the heap from its root and looks at a bounded number of entries whose job is gone.
        """
        heap, found, steps = self.reclaim, list[int](), 4 * most
        ahead = [(seq, 0) for seq in heap[:1]]
        while ahead and len(found) < most and steps:
            seq, at = heapq.heappop(ahead)
            steps -= 1
            for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
                heapq.heappush(ahead, (heap[child], child))
            is_waiting = seq not in self.leased and seq not in self.delayed and is_live(seq)
            if is_waiting and seq not in found[-1:]:
                found.append(seq)
        return found

    def put_back(self, seqs: Iterable[int]) -> None:
        """Return jobs that were taken from their places but not leased."""
        for seq in seqs:
            heapq.heappush(self.reclaim, seq)

    def grant(
        self,
        seqs: Sequence[int],
        lease_ids: Sequence[int],
        holders: Sequence[Holder],
        claimed_ms: int = 0,
    ) -> tuple[list[Lease], list[int]]:
        """Lease jobs that were taken from their places, to one holder after the other.

        Returns the leases and how often each job was handed out by now.
        """
        leases: list[Lease] = []
        since = repeat(claimed_ms)
        for node, count, ends_ms in holders:
            ids = lease_ids[len(leases) : len(leases) + count]
            leases += map(Lease, ids, repeat(node), repeat(ends_ms), since)
        self.leased.update(zip(seqs, leases, strict=True))
        counts = self.deliveries
        if counts.keys().isdisjoint(seqs):
            deliveries = [1] * len(leases)
        else:
            deliveries = [counts.get(seq, 0) + 1 for seq in seqs]
        counts.update(zip(seqs, deliveries, strict=True))
        end = 0
        for ends_ms, same in groupby((x for x in holders if x[1]), key=itemgetter(2)):
            start, end = end, end + sum(count for _, count, _ in same)
            self.watch(tuple(seqs[start:end]), ends_ms)
        return leases, deliveries

    def watch(self, seqs: tuple[int, ...], deadline_ms: int) -> None:
        """Note when these leases end. They are in `leased`, from which the heap may be built."""
        times = self._deadlines
        times.add(deadline_ms, seqs)
        # A lease ends after its deadline, a delay is over at its time.
        if deadline_ms < self.quiet_until_ms:
            self.quiet_until_ms = deadline_ms + 1
        self.furthest_ms = max(self.furthest_ms, deadline_ms)
        if times.size > 2 * len(self.leased) + SLACK:
            times.rebuild((seq, x.deadline_ms) for seq, x in self.leased.items())

    def holder(self, seq: int) -> Lease | None:
        """The lease of a job, unless it is about to end with an ack."""
        return None if seq in self.finishing else self.leased.get(seq)

    def extend(self, seqs: tuple[int, ...], deadline_ms: int) -> None:
        """Move the deadline of leases; id and holder stay."""
        for seq in seqs:
            held = self.leased[seq]
            self.leased[seq] = Lease(held.lease_id, held.node, deadline_ms, held.claimed_ms)
        self.watch(seqs, deadline_ms)

    def release(self, seq: int, ready_at: int | None = None) -> None:
        """End a lease: the job can be handed out again, now or at a time."""
        del self.leased[seq]
        if ready_at is None:
            heapq.heappush(self.reclaim, seq)
            return
        self.put_off(seq, ready_at)

    def put_off(self, seq: int, ready_at: int) -> None:
        """Let a job that no worker holds be handed out from a time on."""
        self.delayed[seq] = ready_at
        self._ready_times.add(ready_at, (seq,))
        self.quiet_until_ms = min(self.quiet_until_ms, ready_at)
        self.furthest_ms = max(self.furthest_ms, ready_at)
        if self._ready_times.size > 2 * len(self.delayed) + SLACK:
            self._ready_times.rebuild(self.delayed.items())

    def forget(self, seqs: Iterable[int]) -> None:
        """These jobs are gone: acked, deleted, evicted or moved."""
        leased, delayed, deliveries = self.leased, self.delayed, self.deliveries
        failures = self.failures
        for seq in seqs:
            leased.pop(seq, None)
            deliveries.pop(seq, None)
            if delayed:
                delayed.pop(seq, None)
            if failures:
                failures.pop(seq, None)

    def note_failure(self, seqs: Iterable[int], failure: Failure) -> None:
        """Remember why these jobs came back."""
        failures = self.failures
        for seq in seqs:
            failures.pop(seq, None)
            failures[seq] = failure
        while len(failures) > MAX_FAILURES:
            del failures[next(iter(failures))]

    def judge_by(self, limit: int) -> None:
        """Jobs judged spent by another limit are to be judged again."""
        if self.spent and limit != self.spent_limit:
            self.put_back(self.spent)
            self.spent.clear()
        self.spent_limit = limit

    # Time

    def sweep(self, now_ms: int) -> list[tuple[int, Lease]]:
        """Free every lease whose deadline has passed and every job whose delay is over.

        Returns the leases that expired, with their seqs.
        """
        expired: list[tuple[int, Lease]] = []
        while (entry := self._deadlines.pop_before(now_ms)) is not None:
            for seq in entry[1]:
                lease = self.leased.get(seq)
                is_over = lease is not None and lease.deadline_ms == entry[0]
                if lease is not None and is_over and seq not in self.finishing:
                    self.release(seq)
                    expired.append((seq, lease))
        while (entry := self._ready_times.pop_before(now_ms + 1)) is not None:
            for seq in entry[1]:
                if self.delayed.get(seq) == entry[0]:
                    del self.delayed[seq]
                    heapq.heappush(self.reclaim, seq)
        self._look_ahead()
        return expired

    def pull_in(self, now_ms: int, *, latest_ms: int, lease_ms: int) -> None:
        """Shorten leases and delays that end later than any call can ask for.

        A wrong clock set them, so their intended length is unknown: such a lease gets the usual
        time from now, and such a delay is over.
        """
        for seq, lease in self.leased.items():
            if lease.deadline_ms > latest_ms:
                self.leased[seq] = Lease(
                    lease.lease_id, lease.node, now_ms + lease_ms, lease.claimed_ms
                )
        for seq, ready_at in self.delayed.items():
            if ready_at > latest_ms:
                self.delayed[seq] = now_ms
        self._note_times()

    def _note_times(self) -> None:
        """Build the heaps anew from what is leased and delayed."""
        ends = [lease.deadline_ms for lease in self.leased.values()]
        self._deadlines.rebuild(zip(self.leased, ends, strict=True))
        self._ready_times.rebuild(self.delayed.items())
        self.furthest_ms = max([*ends, *self.delayed.values()], default=0)
        self._look_ahead()

    def _look_ahead(self) -> None:
        self.quiet_until_ms = min(self._deadlines.first_ms() + 1, self._ready_times.first_ms())

    def next_event_ms(self) -> int | None:
        """A time before which no lease ends and no delay is over; None: nothing is pending."""
        return self.quiet_until_ms if self.quiet_until_ms < NEVER_MS else None

    # Replay and restart

    def apply(self, fact: LeaseChanged) -> None:
        """Install a logged event. All but a claim count only for the lease they name."""
        if fact.event == LeaseChanged.CLAIMED:
            self.leased[fact.seq] = Lease(fact.lease_id, fact.node, fact.deadline_ms)
            self.deliveries[fact.seq] = fact.deliveries
            self.delayed.pop(fact.seq, None)
            self.claim_cursor = max(self.claim_cursor, fact.seq + 1)
            self.watch((fact.seq,), fact.deadline_ms)
            return
        held = self.leased.get(fact.seq)
        if held is None or held.lease_id != fact.lease_id:
            return
        if fact.event == LeaseChanged.EXTENDED:
            self.extend((fact.seq,), fact.deadline_ms)
        elif fact.event == LeaseChanged.RELEASED:
            self.release(fact.seq, fact.deadline_ms if fact.deadline_ms > fact.ts else None)
        else:
            self.forget((fact.seq,))

    def restore(
        self,
        *,
        leased: Iterable[tuple[int, Lease]],
        delayed: Iterable[tuple[int, int]],
        deliveries: Iterable[tuple[int, int]],
    ) -> None:
        """Put back what a snapshot holds."""
        self.leased = dict(leased)
        self.delayed = dict(delayed)
        self.deliveries = dict(deliveries)

    def resume(self, live_below_cursor: Collection[int]) -> None:
        """After replay: keep what belongs to live jobs; those without lease or delay wait.

        An event may stand behind the delete of its job in the log, so the dead are swept out.
        """
        live = set(live_below_cursor)
        self.leased = {seq: lease for seq, lease in self.leased.items() if seq in live}
        self.delayed = {seq: time for seq, time in self.delayed.items() if seq in live}
        self.deliveries = {seq: times for seq, times in self.deliveries.items() if seq in live}
        self._note_times()
        self.reclaim = sorted(live - self.leased.keys() - self.delayed.keys())
        self.spent.clear()
        self.dead_lettered = 0
