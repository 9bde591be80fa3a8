"""Records by topic and seq, wherever the log or a segment holds them, for replay.

A router pass logs which source records it copied, not the copies. Replay makes them again from the
originals, whatever became of those since: deleted, evicted, or dropped with their topic. Committed
stages are the same case with another origin. Rebuilt records wait in memory for the checkpoint
that puts them into the destination's segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from topics.core.batch import RecordBatch
from topics.core.catalog import Catalog
from topics.core.derive import derive, next_hops, rule_of_pass
from topics.core.facts import Appended, Forwarded, SeqSkipped, StageCommitted
from topics.core.topic import Topic
from topics.engine.history import SegmentHistory
from topics.errors import RefusedToOpen
from topics.storage import layout, stages
from topics.storage.frames import HOPS_SHIFT, encode_append, record_at, verify
from topics.storage.fs import Fs
from topics.storage.segments.segment import ActiveSegment, Segment
from topics.storage.segments.store import SegmentStore
from topics.storage.sources import Arena, Sources
from topics.storage.wal.scan import GenerationScan
from topics.wire import jsonbytes

ARENA_BYTES = 16 << 20


class Original(NamedTuple):
    """The parts of a record that a copy may take over."""

    node: str | None
    tag: str | None
    data: bytes
    meta: bytes
    hops: int


class _Place(NamedTuple):
    """A run of seqs in the log, appended or forwarded, with the generation that logged it."""

    first: int
    last: int
    generation: int
    fact: Appended | Forwarded


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
        self._places: dict[int, list[_Place]] = {}
        self._staged: list[StageCommitted] = []
        self._buried: dict[int, Topic] = {}
        self._arena: Arena | None = None
        self._arena_id = 0

    def keep(self, frames: bytes) -> tuple[int, int]:
        """Hold rebuilt frames in memory; returns the source id and offset."""
        if self._arena is None or not self._arena.has_room(len(frames)):
            self._arena = Arena(ARENA_BYTES)
            self._arena_id = self._sources.add(self._arena)
        return self._arena_id, self._arena.append(frames)

    def index(self, generation: int, parts: list[GenerationScan]) -> None:
        """Note where one generation holds records, dead ones included."""
        for part in parts:
            for _, fact in part.entries:
                if isinstance(fact, Appended):
                    self._note(fact.topic_id, fact.first_seq, fact.count, generation, fact)
                elif isinstance(fact, Forwarded):
                    count = sum(run[1] for run in fact.runs)
                    if count:
                        self._note(fact.topic_id, fact.dest_first, count, generation, fact)
                elif isinstance(fact, StageCommitted):
                    self._staged.append(fact)

    def _note(
        self, topic_id: int, first: int, count: int, generation: int, fact: Appended | Forwarded
    ) -> None:
        places = self._places.setdefault(topic_id, [])
        places.append(_Place(first, first + count - 1, generation, fact))

    def bury(self, topic: Topic) -> None:
        """A topic was dropped; its records may still be wanted."""
        self._buried[topic.id] = topic

    def topic(self, topic_id: int) -> Topic | None:
        return self._catalog.by_id.get(topic_id) or self._buried.get(topic_id)

    def find(self, topic_id: int, seq: int, generation: int) -> Original | None:
        """The record, or None when nothing holds it any more."""
        for place in reversed(self._places.get(topic_id, ())):
            if place.generation <= generation and place.first <= seq <= place.last:
                if isinstance(place.fact, Appended):
                    return self._from_log(place.fact, seq)
                copied = self._through(place.fact, seq, generation)
                if copied is not None:
                    return copied
        return self._from_stage(topic_id, seq) or self._from_segment(topic_id, seq)

    def _from_log(self, run: Appended, seq: int) -> Original | None:
        at = seq - run.first_seq
        location, length = run.base + run.offsets[at], run.lengths[at]
        source = self._sources.get(location >> 32)
        offset = location & 0xFFFFFFFF
        frame = source.view(offset, length) or source.pread(offset, length)
        if not verify(frame, 0, length, topic_id=run.topic_id, seq=seq):
            return None
        return Original(*record_at(frame, 0), run.flags[at] >> HOPS_SHIFT)

    def _through(self, fact: Forwarded, seq: int, generation: int) -> Original | None:
        """A record that is itself a copy: from its own original."""
        at = seq - fact.dest_first
        for source_first, count, lost in fact.runs:
            if at < count:
                if lost:
                    return None
                found = self.find(fact.source_id, source_first + at, generation)
                if found is None:
                    return None
                return self.copied(fact, source_first + at, found)
            at -= count
        return None

    def copied(self, fact: Forwarded, source_seq: int, found: Original) -> Original:
        """What one pass makes of one record."""
        source = self.topic(fact.source_id)
        rule = rule_of_pass(
            fact,
            source=source.name if source else "",
            source_epoch=source.epoch if source else fact.source_id,
        )
        batch = RecordBatch([found.data], [found.meta], [found.tag], [found.node])
        copy = derive(rule, [source_seq], batch, jsonbytes)
        return Original(
            copy.nodes[0] if copy.nodes else None,
            copy.tags[0] if copy.tags else None,
            copy.datas[0],
            copy.metas[0] if copy.metas else b"",
            next_hops(found.hops),
        )

    def _from_stage(self, topic_id: int, seq: int) -> Original | None:
        for fact in reversed(self._staged):
            for staged_id, first, count in fact.topics:
                if staged_id == topic_id and first <= seq < first + count:
                    topic = self.topic(topic_id)
                    batch = self.staged(fact).get(topic.name) if topic else None
                    return _row(batch, seq - first) if batch else None
        return None

    def _from_segment(self, topic_id: int, seq: int) -> Original | None:
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
        return Original(*record_at(frame, 0), hops)

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


def _row(batch: RecordBatch, at: int) -> Original | None:
    if at >= len(batch):
        return None
    return Original(
        batch.nodes[at] if batch.nodes else None,
        batch.tags[at] if batch.tags else None,
        batch.datas[at],
        batch.metas[at] if batch.metas else b"",
        0,
    )


class Copier:
    """Makes the frames of rebuilt records and keeps them in memory."""

    def __init__(self, catalog: Catalog, originals: Originals) -> None:
        self._catalog = catalog
        self._originals = originals

    def copies(
        self, topic: Topic, fact: Forwarded, generation: int
    ) -> Iterator[Appended | SeqSkipped]:
        """The destination records of one pass that are not there yet, in order."""
        seq = fact.dest_first
        for source_first, count, lost in fact.runs:
            for source_seq in range(source_first, source_first + count):
                if seq > topic.head:
                    yield self._copy(topic, fact, seq, None if lost else source_seq, generation)
                seq += 1

    def _copy(
        self, topic: Topic, fact: Forwarded, seq: int, source_seq: int | None, generation: int
    ) -> Appended | SeqSkipped:
        own = self._originals.find(topic.id, seq, generation)
        if own is None and source_seq is not None:
            found = self._originals.find(fact.source_id, source_seq, generation)
            own = None if found is None else self._originals.copied(fact, source_seq, found)
        if own is None:
            return SeqSkipped(topic.id, fact.ts, seq, seq, SeqSkipped.SOURCE_TRIM)
        batch = RecordBatch([own.data], [own.meta], [own.tag], [own.node])
        return self._keep(topic, seq, max(fact.ts, topic.last_ts), batch, hops=own.hops)

    def staged_run(
        self, topic: Topic, fact: StageCommitted, batch: RecordBatch, first: int
    ) -> Appended:
        return self._keep(topic, first, max(fact.ts, topic.last_ts), batch, hops=0)

    def _keep(self, topic: Topic, seq: int, ts: int, batch: RecordBatch, *, hops: int) -> Appended:
        durable = topic.config.durability == "fsync"
        frames, run = encode_append(topic.id, seq, ts, batch, durable=durable, hops=hops)
        source_id, offset = self._originals.keep(frames)
        run.base = (source_id << 32) + offset
        return run
