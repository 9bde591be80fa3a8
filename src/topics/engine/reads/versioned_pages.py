"""Pages that can be cached: each has a version, and a reader's version can be checked unread.

Theory of operation. A page is a function of immutable records and of a little state. If the epoch
and the delete version are the same, so is the set of records that were ever written or deleted; a
floor that has risen into the page shows as another announcement of loss at its start; a run lost
in a crash shows as an announced run inside it; growth of the topic only matters to a page that had
caught up. What the page's end depends on besides, limits and filter, is part of the question. So
the version holds the end of the page and of its announcement in clear, and a hash of all the rest:
given these two numbers the rest can be computed from memory alone, and compared. No payload is
read, nor is an index.

Two exceptions. A page that ended at a record which could not be read may grow when the file heals:
its version says so and matches no later check. And seqs of class `memory` may be used again after
a crash: there the log's generation is part of the version.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from topics.core.facts import SeqSkipped
from topics.core.topic import Topic
from topics.engine.effects import Op
from topics.engine.kernel import Kernel
from topics.engine.reads.reading import Query, Reader, begin, page_of, tombstone_of
from topics.storage.checksum import h64
from topics.values import Page, Tombstone

if TYPE_CHECKING:
    from topics.engine.reads.bulk import BulkPage, BulkReader

_encode = msgspec.json.Encoder().encode


class Unchanged(msgspec.Struct, frozen=True):
    """The reader has this page already."""

    version: str
    head: int
    earliest: int


class VersionedPage(msgspec.Struct, frozen=True):
    """A page of records with its version, both true of the moment the read began."""

    page: Page
    version: str
    head: int
    earliest: int


class VersionedBulk(msgspec.Struct, frozen=True):
    """A large page, settled but not read yet."""

    bulk: BulkPage
    version: str
    head: int
    earliest: int
    caught_up: bool
    tombstone: Tombstone | None


class _Moment:
    """The state that a page's version speaks of, taken in one step."""

    def __init__(self, topic: Topic, query: Query, start: int, key: bytes, generation: int) -> None:
        self.topic = topic
        self.query = query
        self.start = start
        self.head = topic.head
        self.earliest = topic.earliest
        volatile = topic.durability.may_reuse_seqs
        match = query.match
        self._facts = (
            key.decode("latin-1"),
            topic.epoch,
            topic.delete_version,
            generation if volatile else 0,
            start,
            query.limit,
            query.budget,
            query.to_seq,
            sorted(query.nodes_in(topic)),
            None if match is None else (match.value, match.is_prefix),
        )

    def version(self, end: int, tombstone: Tombstone | None, *, damaged: bool = False) -> str:
        """The version of the page from `start` to `end`."""
        told = None if tombstone is None else tombstone.to_dict()
        facts = (*self._facts, end, end == self.head, told, damaged)
        gap_end = 0 if tombstone is None else tombstone.gap_to
        return f"{end:x}.{gap_end:x}.{h64(_encode(facts)):016x}"

    def among(self, versions: Iterable[str]) -> Unchanged | None:
        """Which of these versions reading now would give again."""
        version = next(filter(self.still_has, versions), None)
        return None if version is None else Unchanged(version, self.head, self.earliest)

    def still_has(self, version: str) -> bool:
        """Whether reading now would give the page of this version again."""
        try:
            end, gap_end = (int(part, 16) for part in version.split(".")[:2])
        except ValueError:
            return False
        progress = begin(self.topic, self.start, self.query.to_seq)
        if not progress.cursor <= end <= progress.stop:
            return False
        gap, announced = progress.gap, self._announced(progress.cursor + 1, end)
        if gap is None and gap_end and announced == [gap_end]:
            run = self.topic.runs.run_at(gap_end)
            assert run is not None
            gap = self.topic.gap_at(max(run[0], progress.cursor + 1))
        elif announced:
            return False
        return version == self.version(end, tombstone_of(self.topic, gap, self.head))

    def _announced(self, lo: int, hi: int) -> list[int]:
        """The ends of announced runs that reach into `lo..hi`."""
        runs = self.topic.runs
        if not len(runs) or lo > hi:
            return []
        return [
            whole[1]
            for a, _, kind in runs.between(lo, hi)
            if kind != SeqSkipped.UNASSIGNED and (whole := runs.run_at(a)) is not None
        ]


class Pages:
    """Cacheable reads. `key` stands for whatever else the caller's answer depends on."""

    def __init__(self, kernel: Kernel, reader: Reader) -> None:
        self._kernel = kernel
        self._reader = reader

    @cached_property
    def bulk(self) -> BulkReader:
        """Reads for large pages; made when first needed, since it brings in numpy."""
        from topics.engine.reads.bulk import BulkReader  # noqa: PLC0415

        return BulkReader(self._kernel, self._reader)

    def read(
        self, name: str, query: Query, key: bytes, known: Iterable[str]
    ) -> Op[VersionedPage | Unchanged]:
        """One page, unless the reader has it already under one of the `known` versions."""
        moment = yield from self._moment(name, query, key)
        unchanged = moment.among(known)
        if unchanged is not None:
            return unchanged
        topic = moment.topic
        progress = begin(topic, moment.start, query.to_seq)
        yield from self._reader.scan(topic, query, progress)
        if len(progress.found) and (progress.full or len(progress.found) == query.limit):
            # A full page ends at its last record, wherever the bytes behind it happen to lie.
            progress.cursor = progress.found[-1].seq
        found = page_of(topic, progress, scanned=0)
        page = msgspec.structs.replace(
            found,
            head_seq=moment.head,
            earliest_seq=moment.earliest,
            caught_up=progress.cursor == moment.head,
            tombstone=tombstone_of(topic, progress.gap, moment.head),
        )
        version = moment.version(page.next_from_seq, page.tombstone, damaged=progress.damaged)
        return VersionedPage(page, version, moment.head, moment.earliest)

    def plan(
        self, name: str, query: Query, key: bytes, known: Iterable[str]
    ) -> Op[VersionedBulk | Unchanged]:
        """Settle a large page, whose limits are those of `query`; its records are read later."""
        from topics.engine.reads.bulk_plan import PageBounds  # noqa: PLC0415 - numpy

        moment = yield from self._moment(name, query, key)
        unchanged = moment.among(known)
        if unchanged is not None:
            return unchanged
        bounds = PageBounds(query.limit, query.budget)
        bulk = yield from self.bulk.plan(moment.topic, query, moment.start, bounds)
        plan = bulk.plan
        tombstone = tombstone_of(moment.topic, plan.gap, plan.head)
        # A plan that had to start again is newer than the moment. The version then tells of a
        # state that is gone: it matches nothing later, which is all that may be said of it.
        moment.head, moment.earliest = plan.head, plan.earliest
        version = moment.version(plan.last, tombstone, damaged=plan.damaged)
        caught_up = plan.last == plan.head
        return VersionedBulk(bulk, version, plan.head, plan.earliest, caught_up, tombstone)

    def _moment(self, name: str, query: Query, key: bytes) -> Op[_Moment]:
        topic = self._kernel.topic(name)
        start = yield from self._reader.start(topic, query)
        return _Moment(topic, query, start, key, self._kernel.generation)
