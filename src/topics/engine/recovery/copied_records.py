"""Records by topic and seq, wherever the log or a segment holds them, for replay.

A router pass logs which source records it copied, not the copies. Replay makes them again from the
originals, whatever became of those since: deleted, evicted, or dropped with their topic. Committed
stages are the same case with another origin. Rebuilt records wait in memory for the checkpoint
that puts them into the destination's segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from topics.batch import RecordBatch
from topics.core.catalog import Catalog
from topics.core.derive import derive, next_hops, rule_of_pass
from topics.core.facts import Appended, Forwarded, SeqSkipped, StageCommitted, TopicCreated
from topics.core.topic import Topic
from topics.engine.arenas import Arenas
from topics.engine.reads.history import SegmentHistory
from topics.errors import RefusedToOpen
from topics.storage import layout, stages
from topics.storage.frames.append import encode_append, record_at, verify
from topics.storage.frames.header import HOPS_SHIFT
from topics.storage.fs import Fs
from topics.storage.segments.segment import ActiveSegment, Segment
from topics.storage.segments.store import SegmentStore
from topics.storage.sources import Sources, location, split_location
from topics.storage.wal.scan import GenerationScan
from topics.wire import jsonbytes

Holds = Callable[[int, int, int], bool]
"""Whether the snapshot contains a frame, by generation, lfn and topic."""


class CopiedRecord(NamedTuple):
    """The parts of a record that a copy may take over."""

    node: str | None
    tag: str | None
    data: bytes
    meta: bytes
    hops: int


class _Places:
    """Where one generation logged the records of one topic, in the order of their seqs.

    A copy that was logged itself is in both columns; its own frame is the better place.
    """

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._appended: tuple[list[int], list[Appended]] = ([], [])
        self._forwarded: tuple[list[int], list[Forwarded]] = ([], [])

    def note_run(self, fact: Appended) -> None:
        self._appended[0].append(fact.first_seq)
        self._appended[1].append(fact)

    def note_pass(self, fact: Forwarded) -> None:
        self._forwarded[0].append(fact.dest_first)
        self._forwarded[1].append(fact)

    def run_with(self, seq: int) -> Appended | None:
        firsts, runs = self._appended
        at = bisect_right(firsts, seq) - 1
        return runs[at] if at >= 0 and seq <= runs[at].last_seq else None

    def pass_with(self, seq: int) -> Forwarded | None:
        firsts, passes = self._forwarded
        at = bisect_right(firsts, seq) - 1
        if at < 0 or seq >= firsts[at] + sum(run[1] for run in passes[at].runs):
            return None
        return passes[at]


def _copied_from(fact: Forwarded, seq: int) -> int | None:
    """The source seq behind a seq of the destination; None for a hole."""
    offset = seq - fact.dest_first
    for source_first, count, lost in fact.runs:
        if offset < count:
            return None if lost else source_first + offset
        offset -= count
    raise AssertionError(f"the pass did not make seq {seq}")


class Originals:
    """Finds originals. Only generations already indexed are searched, newest first."""

    def __init__(
        self, fs: Fs, data_dir: str, store: SegmentStore, sources: Sources, catalog: Catalog
    ) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._store = store
        self._sources = sources
        self._catalog = catalog
        self._places: dict[int, list[_Places]] = {}
        self._names: dict[int, str] = {}
        self._staged: list[StageCommitted] = []
        self._buried: dict[int, Topic] = {}

    def index(self, generation: int, parts: list[GenerationScan], holds: Holds) -> None:
        """Note where one generation holds records, dead ones included.

        Commits that the snapshot holds are left out: segments have every record of theirs that may
        still be needed, and their stages may be gone.
        """
        for part in parts:
            for lfn, fact in part.entries:
                if isinstance(fact, Appended):
                    self._places_of(fact.topic_id, generation).note_run(fact)
                elif isinstance(fact, Forwarded) and fact.runs:
                    self._places_of(fact.topic_id, generation).note_pass(fact)
                elif isinstance(fact, StageCommitted):
                    if not holds(generation, lfn, 0):
                        self._staged.append(fact)
                elif isinstance(fact, TopicCreated):
                    self._names[fact.topic_id] = fact.name

    def _places_of(self, topic_id: int, generation: int) -> _Places:
        places = self._places.setdefault(topic_id, [])
        if not places or places[-1].generation != generation:
            places.append(_Places(generation))
        return places[-1]

    def bury(self, topic: Topic) -> None:
        """A topic was dropped; its records may still be wanted."""
        self._buried[topic.id] = topic

    def topic(self, topic_id: int) -> Topic | None:
        return self._catalog.by_id.get(topic_id) or self._buried.get(topic_id)

    def find(self, topic_id: int, seq: int, generation: int) -> CopiedRecord | None:
        """The record, or None when nothing holds it any more."""
        for places in reversed(self._places.get(topic_id, ())):
            if places.generation > generation:
                continue
            run, made = places.run_with(seq), places.pass_with(seq)
            if run is not None:
                return self._from_log(run, seq)
            if made is not None:
                # An older run may have used the seq for something else: look no further back.
                return self._through(made, seq, generation) or self._from_segment(topic_id, seq)
        return self._from_stage(topic_id, seq) or self._from_segment(topic_id, seq)

    def _from_log(self, run: Appended, seq: int) -> CopiedRecord | None:
        at = seq - run.first_seq
        source_id, offset = split_location(run.base + run.offsets[at])
        source, length = self._sources.get(source_id), run.lengths[at]
        frame = source.view(offset, length) or source.pread(offset, length)
        if not verify(frame, 0, length, topic_id=run.topic_id, seq=seq):
            return None
        return CopiedRecord(*record_at(frame, 0), run.flags[at] >> HOPS_SHIFT)

    def _through(self, fact: Forwarded, seq: int, generation: int) -> CopiedRecord | None:
        """A record that is itself a copy: from its own original."""
        source_seq = _copied_from(fact, seq)
        if source_seq is None:
            return None
        found = self.find(fact.source_id, source_seq, generation)
        return None if found is None else self._copied(fact, source_seq, found)

    def _name(self, topic_id: int) -> str:
        """A topic's name; its creation may stand in the log of a shard that is replayed later."""
        topic = self.topic(topic_id)
        return self._names.get(topic_id, "") if topic is None else topic.name

    def _copied(self, fact: Forwarded, source_seq: int, found: CopiedRecord) -> CopiedRecord:
        """What one pass makes of one record. A topic's epoch is its id."""
        rule = rule_of_pass(fact, source=self._name(fact.source_id), source_epoch=fact.source_id)
        batch = RecordBatch([found.data], [found.meta], [found.tag], [found.node])
        copy = derive(rule, [source_seq], batch, jsonbytes)
        return CopiedRecord(
            copy.nodes[0] if copy.nodes else None,
            copy.tags[0] if copy.tags else None,
            copy.datas[0],
            copy.metas[0] if copy.metas else b"",
            next_hops(found.hops),
        )

    def _from_stage(self, topic_id: int, seq: int) -> CopiedRecord | None:
        for fact in reversed(self._staged):
            for staged_id, first, count in fact.topics:
                if staged_id == topic_id and first <= seq < first + count:
                    batch = self.staged(fact).get(self._name(topic_id))
                    return _row(batch, seq - first) if batch else None
        return None

    def _from_segment(self, topic_id: int, seq: int) -> CopiedRecord | None:
        topic = self.topic(topic_id)
        if topic is None or not isinstance(topic.history, SegmentHistory):
            return None
        parts = [p for p in topic.history.parts if isinstance(p, Segment | ActiveSegment)]
        at = bisect_right([part.first for part in parts], seq) - 1
        if at < 0 or parts[at].last < seq:
            return None
        position = seq - parts[at].first
        (frame,) = self._store.frames(topic_id, parts[at], position, position + 1)
        if not frame:
            return None
        hops = frame[5] >> HOPS_SHIFT
        return CopiedRecord(*record_at(frame, 0), hops)

    def staged(self, fact: StageCommitted) -> dict[str, RecordBatch]:
        """The records of a committed epoch, by topic; refuses when a stage is gone or damaged."""
        found = []
        for part, attempt in fact.parts:
            key = stages.StageKey(fact.app, fact.epoch, part, attempt)
            path = layout.stage_path(
                self._data_dir, app=fact.app, epoch=fact.epoch, part=part, attempt=attempt
            )
            try:
                found.append(stages.read_stage(self._fs, path, key))
            except FileNotFoundError as error:
                raise RefusedToOpen(
                    "wal_missing",
                    message=f"{path}: this stage was committed and is gone; restore it",
                    file=path,
                ) from error
            except stages.BadStage as error:
                raise RefusedToOpen(
                    "wal_corrupt",
                    message=f"{path}: this stage was committed and is damaged ({error}); "
                    "restore it",
                    file=path,
                ) from error
        return stages.by_topic(found)


def _row(batch: RecordBatch, at: int) -> CopiedRecord | None:
    if at >= len(batch):
        return None
    return CopiedRecord(
        batch.nodes[at] if batch.nodes else None,
        batch.tags[at] if batch.tags else None,
        batch.datas[at],
        batch.metas[at] if batch.metas else b"",
        0,
    )


class Copier:
    """Makes the frames of rebuilt records and keeps them in memory."""

    def __init__(self, arenas: Arenas, originals: Originals) -> None:
        self._arenas = arenas
        self._originals = originals

    def copies(
        self, topic: Topic, fact: Forwarded, generation: int
    ) -> Iterator[Appended | SeqSkipped]:
        """The destination records of one pass that are not there yet, in order."""
        known, first = topic.head, fact.dest_first
        for _, count, lost in fact.runs:
            last = first + count - 1
            start = max(first, known + 1)
            if lost and start <= last:
                yield SeqSkipped(topic.id, fact.ts, start, last, SeqSkipped.SOURCE_TRIM)
            elif start <= last:
                yield from self._copied(topic, fact, (start, last), generation)
            first = last + 1

    def _copied(
        self, topic: Topic, fact: Forwarded, seqs: tuple[int, int], generation: int
    ) -> Iterator[Appended | SeqSkipped]:
        """Copies in runs of equal hops; what nothing holds any more is a hole."""
        ready: list[CopiedRecord] = []
        lo, hi = seqs
        for seq in range(lo, hi + 1):
            copy = self._originals.find(topic.id, seq, generation)
            if ready and (copy is None or copy.hops != ready[0].hops):
                yield self._run(topic, seq - len(ready), fact.ts, ready)
                ready = []
            if copy is None:
                yield SeqSkipped(topic.id, fact.ts, seq, seq, SeqSkipped.SOURCE_TRIM)
            else:
                ready.append(copy)
        if ready:
            yield self._run(topic, hi + 1 - len(ready), fact.ts, ready)

    def _run(self, topic: Topic, first: int, ts: int, copies: list[CopiedRecord]) -> Appended:
        batch = RecordBatch(
            [copy.data for copy in copies],
            [copy.meta for copy in copies],
            [copy.tag for copy in copies],
            [copy.node for copy in copies],
        )
        return self._keep(topic, first, max(ts, topic.last_ts), batch, hops=copies[0].hops)

    def staged_run(
        self, topic: Topic, fact: StageCommitted, batch: RecordBatch, first: int
    ) -> Appended:
        return self._keep(topic, first, max(fact.ts, topic.last_ts), batch, hops=0)

    def _keep(self, topic: Topic, seq: int, ts: int, batch: RecordBatch, *, hops: int) -> Appended:
        durable = topic.durability.needs_sync
        frames, run = encode_append(topic.id, seq, ts, batch, durable=durable, hops=hops)
        source_id, offset = self._arenas.keep(topic.id, frames, run.last_seq)
        run.base = location(source_id, offset)
        return run
