"""What a topic looks like from outside: state, list, ledger, holes. Records stay as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice

import msgspec

from topics.core.facts import SeqSkipped
from topics.core.priority import shown_priority
from topics.core.topic import SEQ_BASE, Topic
from topics.engine.effects import Op
from topics.engine.kernel import Kernel
from topics.engine.reads.reading import CatchUp
from topics.engine.retention import retain
from topics.engine.upkeep.lease_log import queue_counts, sweep_leases
from topics.errors import InvalidRequest
from topics.values import (
    Audit,
    Gap,
    Hole,
    HoleKind,
    Holes,
    QueueCounts,
    QueueDetails,
    TopicState,
    TopicSummary,
)

MAX_AUDIT_GAPS = 100
MAX_HOLES = 10_000
_RUN_KIND: dict[int, HoleKind] = {
    SeqSkipped.UNASSIGNED: "skipped",
    SeqSkipped.POWER_LOSS: "crash",
    SeqSkipped.REPAIR: "crash",
    SeqSkipped.SOURCE_TRIM: "source_trim",
}


class Views:
    def __init__(self, kernel: Kernel, catch_up: CatchUp) -> None:
        self._kernel = kernel
        self._catch_up = catch_up

    def state(self, name: str, *, touch: bool = True) -> Op[TopicState]:
        topic = self._kernel.topic(name)
        yield from self._catch_up(topic)
        yield from retain(self._kernel, topic)
        now_ms = self._kernel.clock.now_ms()
        if touch:
            topic.last_read_ts = topic.last_consumed = now_ms
        return TopicState(
            topic=name,
            type=topic.config.type,
            head_seq=topic.head,
            earliest_seq=topic.earliest,
            count=topic.count,
            bytes=topic.bytes,
            config=topic.config.to_dict(),
            effective_priority=shown_priority(topic, now_ms),
            last_write_ts=topic.last_write_ts,
            last_read_ts=topic.last_read_ts,
            epoch=topic.epoch,
            delete_version=topic.delete_version,
            queue=self._queue_counts(topic),
        )

    def _queue_counts(self, topic: Topic) -> QueueCounts | None:
        if topic.leases is None:
            return None
        sweep_leases(self._kernel, topic)
        return QueueCounts(*queue_counts(topic), topic.leases.dead_lettered)

    def topics(self, *, prefix: str = "", details: bool = False) -> Op[list[TopicSummary]]:
        """Every topic, by name in byte order."""
        size = len(self._kernel.catalog.by_name)
        found, _ = yield from self.page(prefix=prefix, size=size, details=details)
        return found

    def page(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        size: int,
        allowed: Callable[[str], bool] = lambda name: True,
        touch: bool = False,
        details: bool = False,
    ) -> Op[tuple[list[TopicSummary], bool]]:
        """Topics behind `after`, by name in byte order, and whether more follow."""
        behind = self._kernel.catalog.names(prefix=prefix, after=after)
        names = [*islice(filter(allowed, behind), size + 1)]
        found = []
        for name in names[:size]:
            topic = self._kernel.catalog.by_name.get(name)
            if topic is None:
                continue  # dropped while an earlier topic was brought up to date
            yield from retain(self._kernel, topic)
            found.append(self._summary(topic, touch=touch))
        if details:
            found = [*self._detailed(found, allowed)]
        return found, len(names) > size

    def _detailed(
        self, found: list[TopicSummary], allowed: Callable[[str], bool]
    ) -> Iterator[TopicSummary]:
        """Lines with type, durability, losses and jobs. A key that may not see the dead-letter
        topic of a queue is told of the jobs that died since the start."""
        catalog = self._kernel.catalog
        shared = Counter(topic.config.dead_letter for topic in catalog.by_id.values())
        for line in found:
            topic = catalog.by_name.get(line.topic)
            if topic is None:
                continue  # dropped while others were brought up to date
            ledger, config, jobs = topic.ledger, topic.config, None
            if topic.leases is not None:
                letters = catalog.by_name.get(config.dead_letter or "")
                is_own = letters is not None and shared[letters.name] == 1 and allowed(letters.name)
                dead = letters.count if is_own and letters else topic.leases.dead_lettered
                jobs = QueueDetails(*queue_counts(topic), len(topic.leases.delayed), dead)
            yield msgspec.structs.replace(
                line,
                type=config.type,
                durability=config.durability,
                lost=ledger.lost_cap + ledger.lost_ttl + ledger.lost_crash + ledger.source_trim,
                queue=jobs,
            )

    def _summary(self, topic: Topic, *, touch: bool) -> TopicSummary:
        now_ms = self._kernel.clock.now_ms()
        if touch:
            topic.last_consumed = now_ms
        return TopicSummary(
            topic=topic.name,
            head_seq=topic.head,
            earliest_seq=topic.earliest,
            count=topic.count,
            bytes=topic.bytes,
            durable=topic.config.durable,
            effective_priority=shown_priority(topic, now_ms),
        )

    def audit(self, name: str) -> Op[Audit]:
        """The ledger: where every seq went."""
        topic = self._kernel.topic(name)
        yield from retain(self._kernel, topic)
        ledger = topic.ledger
        lost = ledger.lost_cap + ledger.lost_ttl + ledger.lost_crash
        return Audit(
            topic=name,
            epoch=topic.epoch,
            head_seq=topic.head,
            earliest_seq=topic.earliest,
            evict_floor=topic.evict_floor,
            skipped=ledger.skipped,
            source_trim=ledger.source_trim,
            written=topic.count + ledger.deleted + lost,
            live=topic.count,
            deleted=ledger.deleted,
            lost_cap=ledger.lost_cap,
            lost_ttl=ledger.lost_ttl,
            lost_crash=ledger.lost_crash,
            gaps=_gaps(topic),
        )

    def holes(self, name: str, *, from_seq: int, to_seq: int) -> Op[Holes]:
        """The dead runs of a range, each with what removed it first."""
        if from_seq < 0 or to_seq < from_seq - 1:  # nothing is what follows the end
            raise InvalidRequest("holes wants 0 <= from_seq <= to_seq + 1")
        topic = self._kernel.topic(name)
        yield from retain(self._kernel, topic)
        lo, hi = max(from_seq, SEQ_BASE), min(to_seq, topic.head)
        runs: list[Hole] = []
        following = hi + 1
        for a, b, kind in merged(dead_runs(topic, lo, hi)):
            if len(runs) == MAX_HOLES:
                following = a
                break
            runs.append(Hole(a, b, kind))
        return Holes(
            topic=name,
            epoch=topic.epoch,
            delete_version=topic.delete_version,
            runs=runs,
            next_from_seq=max(following, lo),
            exact_from=topic.exact_from,
        )


def _gaps(topic: Topic) -> list[Gap]:
    causes = {
        SeqSkipped.POWER_LOSS: ("cap", "crash"),
        SeqSkipped.REPAIR: ("cap", "repair"),
        SeqSkipped.SOURCE_TRIM: ("source_trim", "source_trim"),
    }
    announced = [run for run in topic.runs if run[2] in causes][-MAX_AUDIT_GAPS:]
    return [Gap(lo, hi, *causes[kind]) for lo, hi, kind in announced]  # type: ignore[arg-type]


def dead_runs(topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int, HoleKind]]:
    """Dead seqs of `lo..hi` in order; neighbours of one kind may come apart."""
    floor = topic.evict_floor - 1
    deleted = (_kind(a, b, "deleted") for a, b in _deleted(topic, lo, hi))
    skipped = ((a, b, _RUN_KIND[kind]) for a, b, kind in topic.runs.between(lo, hi))
    lost = _lost(topic, lo, min(hi, floor))
    return merge(deleted, skipped, lost)


def _kind(lo: int, hi: int, kind: HoleKind) -> tuple[int, int, HoleKind]:
    return lo, hi, kind


def _deleted(topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Deletes: those that are remembered, and what else lies between the floor and what is live."""
    known = topic.deleted.between(lo, hi)
    start, end = max(lo, topic.evict_floor), min(hi, topic.exact_from - 1, topic.earliest - 1)
    return merge(known, topic.runs.gaps_between(start, end)) if start <= end else known


def _lost(topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int, HoleKind]]:
    """Seqs at or below a floor that no delete had taken before.

    Below both floors the smaller one was there first: only live records raise a floor.
    """
    both = min(topic.cap_hi, topic.ttl_hi)
    kinds: tuple[HoleKind, HoleKind] = ("cap", "ttl")
    if topic.cap_hi > topic.ttl_hi:
        kinds = ("ttl", "cap")
    for a, b in topic.deleted.gaps_between(lo, hi):
        if a <= both:
            yield a, min(b, both), kinds[0]
        if b > both:
            yield max(a, both + 1), b, kinds[1]


def merged(
    runs: Iterator[tuple[int, int, HoleKind]],
) -> Iterator[tuple[int, int, HoleKind]]:
    last: tuple[int, int, HoleKind] | None = None
    for run in runs:
        if last is not None and last[2] == run[2] and last[1] + 1 >= run[0]:
            last = (last[0], max(last[1], run[1]), run[2])
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last
