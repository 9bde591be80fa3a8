"""From granted jobs to their payloads: from memory at once, or read from files."""

from __future__ import annotations

from collections.abc import Sequence

from topics.core.topic import Topic
from topics.engine.effects import Op
from topics.engine.engine import Engine
from topics.engine.upkeep.lease_log import live_leases
from topics.queue.claiming import Claimer
from topics.queue.jobs import NO_JOBS, Jobs
from topics.queue.read_ahead import Background, ReadAhead


class Fetcher:
    """Fetches what claimers were granted."""

    __slots__ = ("_ahead", "_engine")

    def __init__(self, engine: Engine, in_background: Background | None) -> None:
        self._engine = engine
        self._ahead = ReadAhead(engine, in_background)

    def at_hand(self, queue: Topic, claimers: Sequence[Claimer]) -> list[Jobs] | None:
        """The jobs of claimers that were granted just now, if all of them are in memory."""
        seqs = [seq for claimer in claimers for seq in claimer.seqs]
        if not seqs:
            return [NO_JOBS] * len(claimers)
        found = self._engine.frames_at_hand(queue, seqs) or self._ahead.find(queue, seqs)
        if found is None:
            return None
        bufs, offsets = found
        jobs, at = [], 0
        for x in claimers:
            start, at = at, at + len(x.seqs)
            jobs.append(Jobs(x.seqs, x.leases, x.deliveries, bufs[start:at], offsets[start:at]))
        return jobs

    def fetch(
        self, queue: Topic, claimers: Sequence[Claimer]
    ) -> Op[tuple[list[Jobs], dict[int, int]]]:
        """The jobs of each claimer, and the leases, by seq and id, of jobs that cannot be read.

        Jobs that go away meanwhile are left out: they take their leases with them.
        """
        yield from self._ahead.settled(queue)
        leased = live_leases(self._engine.kernel, queue).leased
        shares = [list(zip(x.seqs, x.leases, x.deliveries, strict=True)) for x in claimers]
        grants = [grant for share in shares for grant in share if leased.get(grant[0]) is grant[1]]
        fresh = [seq for seq, _, deliveries in grants if deliveries == 1]
        frames = (yield from self._ahead.frames(queue, fresh)) if fresh else {}
        again = [seq for seq, _, times in grants if times > 1 and queue.is_live(seq)]
        if again:
            frames |= yield from self._engine.frames(queue, again)
        live_leases(self._engine.kernel, queue)  # it may have been dropped meanwhile
        jobs = []
        for share in shares:
            held = [x for x in share if leased.get(x[0]) is x[1] and x[0] in frames]
            rows = [(*grant, *frames[grant[0]]) for grant in held]
            jobs.append(Jobs(*zip(*rows, strict=True)) if rows else NO_JOBS)
        return jobs, {seq: lease.lease_id for seq, lease, _ in grants if seq not in frames}
