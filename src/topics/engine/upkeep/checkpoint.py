"""The checkpoint: records move from the log to segments, state moves into a snapshot, old log goes.

    barrier     a durable frame on every shard; what lies before it is in the capture
    capture     state of the topics that changed, and what has still to reach a segment  `capture`
    sync        deletes in the capture are durable before their bytes change on disk
    segments    captured records are appended, delete bytes written, all of it synced
    mark        a durable frame on every shard says what the segments now hold
    snapshot    a new file, durable and named before any older one may go  `snapshots`
    trim        snapshots but the newest two, log files below the older of the two, dead segments

Any error gives the attempt up: nothing is trimmed, records stay readable from the log, and bytes
past the recorded lengths do not exist. What reached the segments durably is kept.

A topic that is dropped once it was captured is written and listed all the same: routers may have
copied from it since, and what lies before the barrier is then found in its segments only. So its
memory stays until the snapshot is there, and its directory is renamed by upkeep, before or after a
checkpoint. A replay of the snapshot comes to the drop in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from topics.core.facts import CheckpointEntry, CheckpointMarked, Evicted
from topics.core.tail import Tail
from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Io, Op, run, stepwise
from topics.engine.kernel import Kernel
from topics.engine.reads.history import Resident, segments_of
from topics.engine.reads.tail_frames import fetch_slots
from topics.engine.retention import retain
from topics.engine.upkeep.capture import Capturer, CheckpointCapture
from topics.engine.upkeep.delete_bytes import DeleteBytes
from topics.engine.upkeep.growing_segments import GrowingSegments
from topics.engine.upkeep.snapshots import SnapshotBody, Snapshots, Track
from topics.engine.upkeep.topic_lines import (
    STEP_RUNS,
    TopicCapture,
    deleted_runs,
    listed,
    with_segments,
)
from topics.engine.upkeep.trimming import Kept, Trimmer
from topics.storage import layout
from topics.storage.crashpoints import crashpoint
from topics.storage.frames.append import verify
from topics.storage.segments.flips import flip
from topics.storage.segments.repair import put_aside
from topics.storage.segments.segment import AnySegment, SegmentSettings
from topics.storage.segments.store import SegmentStore
from topics.storage.segments.writer import Slice, Written, append_records, sync_written
from topics.storage.snapshots.chain import SnapshotFile
from topics.storage.snapshots.lines import (
    GoneLine,
    GroupPosition,
    HeadLine,
    TopicLine,
)
from topics.storage.sources import WalSource, split_location
from topics.storage.wal.submission import Submission

T = TypeVar("T")
R = TypeVar("R")

SLICE_RECORDS = 1024
SLICE_BYTES = 1 << 20
TOPICS_BETWEEN_PAUSES = 128
MOST_OPEN = 64
"""Topics whose segments are open for writing at a time, with two files each."""
ALL_BYTES = 1 << 62
FEW_PIECES = 2
"""What is kept in so few pieces is little enough to be listed at once."""


class Identity(msgspec.Struct, frozen=True):
    """What every snapshot repeats of its store."""

    store_id: bytes
    generation: int
    shards: int


class Checkpointer:
    """Runs checkpoints one at a time. `trimmer` knows which files older snapshots still need."""

    def __init__(
        self,
        kernel: Kernel,
        identity: Identity,
        trimmer: Trimmer,
        snapshots: Snapshots,
        *,
        snapshot_id: int,
    ) -> None:
        assert kernel.segments is not None
        self._kernel = kernel
        self._identity = identity
        self._trimmer = trimmer
        self._snapshots = snapshots
        self._growing = GrowingSegments(kernel.catalog)
        self._delete_bytes = DeleteBytes(kernel.catalog)
        self._capturer = Capturer(kernel, snapshots, self._growing, self._delete_bytes)
        self._store: SegmentStore = kernel.segments
        self.snapshot_id = snapshot_id  # of the newest one

    @property
    def is_settled(self) -> Callable[[int, int], bool]:
        """Whether a segment, by topic id and first seq, is sealed for every snapshot on disk."""
        return self._trimmer.is_settled

    def checkpoint(self) -> Op[None]:
        """One whole checkpoint; raises `Internal` or `OSError` when it was given up."""
        kernel = self._kernel
        state: CheckpointCapture | None = None
        try:
            positions = yield from self._barrier()
            crashpoint("ckpt.barrier")
            state = yield from self._capturer.capture()
            captures = state.captures
            yield from self._sync_log()
            written = yield from self._write_segments(captures)
            lines = yield from self._finished_lines(captures)
            yield from self._mark(lines)
            # Everything that was submitted before records moved to segments is applied by now.
            # Until then the indexes had to be in memory, because applying reads no file.
            del written
            crashpoint("ckpt.mark")
            head = self._head(positions, state.agnostic_lfn)
            body = SnapshotBody(state.source, [*lines, *state.routers, *state.apps], state.gone)
            files = yield from self._snapshots.write(head, body)
            del body
        except BaseException:
            if state is not None:
                self._capturer.give_back(state)
            raise
        finally:
            kernel.arenas.let_go()
        self.snapshot_id = head.id
        yield from _each(captures, self._let_go)
        kept = yield from self._keep(head, files, state.source, lines, state.gone)
        yield from self._trimmer.trim(kept)
        yield from _drained(captures)
        yield from _drained(lines)

    def _keep(
        self,
        head: HeadLine,
        files: tuple[SnapshotFile, ...],
        source: Track | None,
        lines: list[TopicLine],
        gone: GoneLine,
    ) -> Op[Kept]:
        """Note what the new snapshot needs on disk, which is what its source needed but for
        what changed."""
        snapshots, trimmer = self._snapshots, self._trimmer
        if source is None:
            kept = Kept()
            trimmer.forget_all()
        else:
            kept = source.kept if source is snapshots.older else source.kept.copy()
        snapshots.older = None  # until everything is noted nothing may be built on it

        def enter(line: TopicLine) -> None:
            kept.put(line)
            trimmer.note(line)

        yield from _each(lines, enter)
        for topic_id in gone.topics:
            kept.remove(topic_id)
            trimmer.forget(topic_id)
        kept.stand_at(head, [file.number for file in files])
        snapshots.advance(files, kept)
        return kept

    # Barrier

    def _barrier(self) -> Op[list[GroupPosition]]:
        """A durable frame on every shard; its end is where replay may begin."""
        kernel = self._kernel
        by_id = kernel.catalog.by_id
        for count, topic_id in enumerate(kernel.dirty | kernel.catalog.expiring, 1):
            if count % TOPICS_BETWEEN_PAUSES == 0:
                yield PAUSE
            topic = by_id.get(topic_id)
            if topic is None:
                continue  # dropped in the meantime
            yield from retain(kernel, topic)
            if topic.ttl_hi > topic.ttl_logged_hi:
                fact = Evicted(topic.id, topic.last_ts, topic.cap_hi, topic.earliest, topic.ttl_hi)
                yield from _logged(kernel.submit([fact], topic_id=topic.id, durable=False))
        positions = []
        for shard in range(self._identity.shards):
            mark = CheckpointMarked(kernel.clock.now_ms(), self.snapshot_id + 1, ())
            submission = yield from self._durably(shard, mark)
            positions.append(self._position(submission))
        return positions

    def _durably(self, shard: int, fact: CheckpointMarked) -> Op[Submission]:
        return (yield from _logged(self._kernel.submit_to(shard, [fact], durable=True)))

    def _position(self, submission: Submission) -> GroupPosition:
        source = self._kernel.sources.get(submission.source_id)
        assert isinstance(source, WalSource)
        first_lfn = layout.parse_wal(source.path.rsplit("/", 1)[-1])
        assert first_lfn is not None
        return GroupPosition(
            layout.group_key(submission.shard, self._identity.shards),
            first_lfn,
            submission.offset + len(submission.frames),
            submission.last_lfn,
        )

    def _sync_log(self) -> Op[None]:
        committer = self._kernel.committer
        for shard in range(self._identity.shards):
            yield Io(partial(committer.sync, shard))

    # Segments

    def _write_segments(self, captures: list[TopicCapture]) -> Op[object]:
        """Move captured records to segments; their indexes stay in memory while the caller holds
        what is returned."""
        by_topic: dict[int, Written] = {}
        unsynced: list[Written] = []
        try:
            for count, captured in enumerate(captures, 1):
                if count % TOPICS_BETWEEN_PAUSES == 0:
                    yield PAUSE
                yield from self._flip(captured)
                written = yield from self._append(captured)
                if written is None:
                    continue
                by_topic[captured.topic.id] = written
                unsynced.append(written)
                if len(unsynced) == MOST_OPEN:
                    yield from stepwise(sync_written(self._store, unsynced))
                    unsynced = []
            yield from stepwise(sync_written(self._store, unsynced))
        except BaseException:
            for written in unsynced:
                written.close()
            raise

        held: list[object] = []
        for topic_id, written in by_topic.items():
            held += [self._store.keep(topic_id, part, idx) for part, idx in written.indexes]

        def absorb(captured: TopicCapture) -> None:
            _absorb(captured, by_topic.get(captured.topic.id))
            self._free_memory(captured.topic)
            self._growing.note(captured.topic)

        yield from _each(captures, absorb)
        return held

    def _free_memory(self, topic: Topic) -> None:
        """Router copies are in segments now; records of an ephemeral life still need theirs."""
        if not topic.volatile_from and not len(topic.volatile):
            self._kernel.arenas.release(topic.id, topic.tail.first)

    def _flip(self, captured: TopicCapture) -> Op[None]:
        """Write the delete bytes of records that are in segments. Dead segments need none."""
        topic = captured.topic
        history = segments_of(topic)
        doomed = {seg.first for seg in captured.drops}
        parts: list[AnySegment] = [seg for seg in history.sealed if seg.first not in doomed]
        if history.active is not None:
            parts.append(history.active)
        now_ms = self._kernel.clock.now_ms()
        for seg in parts:
            seqs = [
                seq
                for lo, hi in captured.flips.due.between(seg.first, seg.last)
                for seq in range(lo, hi + 1)
            ]
            if seqs:
                yield from stepwise(flip(self._store, topic.id, seg, seqs, now_ms=now_ms))

    def _append(self, captured: TopicCapture) -> Op[Written | None]:
        topic = captured.topic
        active = segments_of(topic).active
        if not captured.live and active is None:
            return None
        settings = self._kernel.settings
        steps = append_records(
            self._store,
            topic.id,
            active,
            self._slices(captured),
            settings=SegmentSettings(
                settings.segment_max_events,
                settings.segment_max_bytes,
                settings.segment_max_age_ms,
            ),
            now_ms=self._kernel.clock.now_ms(),
        )
        return (yield from stepwise(steps))

    def _slices(self, captured: TopicCapture) -> Iterator[Slice]:
        """Captured records with the dead seqs between them as holes; losses interrupt."""
        tail = captured.tail
        for lo, hi in captured.live:
            at, end = lo - tail.first, hi - tail.first + 1
            while at < end:
                stop = min(end, at + SLICE_RECORDS)
                while stop > at + 1 and sum(tail.lengths[at:stop]) > SLICE_BYTES:
                    stop = (at + stop) // 2
                yield Slice(
                    tail.first + at,
                    self._frames(captured, at, stop),
                    tail.times[at:stop],
                    tail.name_lengths[at:stop],
                    tail.flags[at:stop],
                )
                at = stop

    def _frames(self, captured: TopicCapture, a: int, b: int) -> list[bytes]:
        """Frames of slots `a` to `b - 1`, verified when they come from a file; empty if dead."""
        topic, tail = captured.topic, captured.tail
        dead = captured.deleted.bits(tail.first + a, tail.first + b - 1)
        steps = fetch_slots(self._kernel.sources, topic.id, tail, (a, b), ALL_BYTES, dead=dead)
        piece, frames = run(steps), [b""] * (b - a)
        for seq, buf, start in zip(piece.seqs, piece.bufs, piece.offsets, strict=True):
            slot = seq - tail.first
            frames[slot - a] = (
                self._read_again(topic, tail, slot)
                if start is None
                else buf[start : start + tail.lengths[slot]]
            )
        return frames

    def _read_again(self, topic: Topic, tail: Tail, slot: int) -> bytes:
        """A record that failed its checksum, if it is sound now; zeros for one that is rotten.

        Zeros are no record, so readers of the segment are told of its loss as readers of the log
        were, and one bad record does not keep all others in the log for ever.
        """
        seq, length = tail.first + slot, tail.lengths[slot]
        source_id, offset = split_location(tail.locations[slot])
        frame = self._kernel.sources.get(source_id).pread(offset, length)
        if verify(frame, 0, length, topic_id=topic.id, seq=seq):
            return frame
        put_aside(self._store, topic.id, seq, frame, ts=tail.times[slot])
        return bytes(length)

    def _let_go(self, captured: TopicCapture) -> None:
        """Forget dead segments, now that a snapshot lists them as dropped, and the oldest deletes.

        Not earlier: dead segments have no delete bytes, so until then only memory knows that they
        are dead.
        """
        topic = captured.topic
        history = segments_of(topic)
        if captured.drops:
            doomed = {seg.first for seg in captured.drops}
            kept = [p for p in history.parts if isinstance(p, Resident) or p.first not in doomed]
            history.replace(kept, last=history.last)
            # The other chain of snapshots has to hear of it, too, even if nothing else changes.
            self._kernel.dirty.add(topic.id)
        topic.forget_deleted_below(captured.line.exact_from)
        if self._delete_bytes.noted(topic, captured.flips, captured.line.exact_from):
            self._kernel.dirty.add(topic.id)

    # Mark and snapshot

    def _finished_lines(self, captures: list[TopicCapture]) -> Op[list[TopicLine]]:
        """The lines with all that follows from the captures."""
        lines = yield from _each(captures, self._finished_line)
        listed_since = 0
        for at, captured in enumerate(captures):
            if at % TOPICS_BETWEEN_PAUSES == 0:
                yield PAUSE
            if not captured.deleted and not captured.flips.named and not captured.keys:
                continue
            runs = yield from _listed(
                listed(deleted_runs(captured)), beside=captured.deleted.pieces > FEW_PIECES
            )
            keys = yield from _listed(
                captured.keys.listed(), beside=len(captured.keys.blocks) > FEW_PIECES
            )
            lines[at] = msgspec.structs.replace(lines[at], deleted_runs=runs, keys=keys)
            listed_since += len(runs) + len(keys)
            if listed_since > STEP_RUNS:
                yield PAUSE
                listed_since = 0
        return lines

    def _finished_line(self, captured: TopicCapture) -> TopicLine:
        history = segments_of(captured.topic)
        doomed = {seg.first for seg in captured.drops}
        kept = [seg for seg in history.sealed if seg.first not in doomed]
        dropped = self._trimmer.dropped(captured.topic.id) + [
            (seg.label, seg.last) for seg in captured.drops
        ]
        return with_segments(captured.line, kept, history.active, dropped)

    def _mark(self, lines: list[TopicLine]) -> Op[None]:
        kernel = self._kernel
        by_shard: list[list[CheckpointEntry]] = [[] for _ in range(self._identity.shards)]

        def enter(line: TopicLine) -> None:
            active = line.active or (0, 0, 0, 0)
            by_shard[kernel.committer.shard_of(line.id)].append(
                CheckpointEntry(
                    line.id,
                    line.head,
                    line.cap_hi,
                    line.ttl_hi,
                    line.earliest,
                    active[0],
                    active[2],
                    active[3],
                )
            )

        yield from _each(lines, enter)
        for shard, entries in enumerate(by_shard):
            fact = CheckpointMarked(kernel.clock.now_ms(), self.snapshot_id + 1, tuple(entries))
            yield from self._durably(shard, fact)

    def _head(self, positions: list[GroupPosition], agnostic_lfn: int) -> HeadLine:
        kernel, identity = self._kernel, self._identity
        return HeadLine(
            id=self.snapshot_id + 1,
            ts=kernel.clock.now_ms(),
            generation=identity.generation,
            store_id=identity.store_id.hex(),
            next_topic_id=kernel.catalog.next_topic_id,
            groups=(*positions, *self._trimmer.leftovers()),
            agnostic_lfn=agnostic_lfn,
            last_lease_id=kernel.catalog.lease_floor,
        )


def _each(items: Sequence[T], do: Callable[[T], R]) -> Op[list[R]]:
    """Do something for each of very many topics, with pauses."""
    done: list[R] = []
    for at in range(0, len(items), TOPICS_BETWEEN_PAUSES):
        done += [do(item) for item in items[at : at + TOPICS_BETWEEN_PAUSES]]
        yield PAUSE
    return done


def _drained(items: list[T]) -> Op[None]:
    """Let go of what was found out about very many topics, with pauses: that takes time, too."""
    while items:
        del items[-TOPICS_BETWEEN_PAUSES:]
        yield PAUSE


def _listed(steps: Generator[None, None, list[T]], *, beside: bool) -> Op[list[T]]:
    """A list that may be long: made in steps beside the loop, or at once."""
    if beside:
        return (yield from stepwise(steps))
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            found: list[T] = finished.value
            return found


def _logged(submission: Submission) -> Op[Submission]:
    """Wait for the log. A full queue does not refuse a checkpoint, because it makes room."""
    if not submission.done:
        yield submission
    if submission.error is not None:
        raise submission.error
    return submission


def _absorb(captured: TopicCapture, written: Written | None) -> None:
    """Read from segments what is durable there, and forget its place in the log."""
    topic = captured.topic
    history = segments_of(topic)
    parts: list[AnySegment | Resident] = [*history.sealed]
    parts += [part for part in history.residents if part.last >= topic.earliest]
    parts += [Resident(tail) for tail in captured.residents if len(tail)]
    if written is not None:
        parts += written.sealed
        if written.active is not None:
            parts.append(written.active)
    elif history.active is not None:
        parts.append(history.active)
    history.replace(parts, last=max(history.last, captured.through))
    topic.tail.drop_front(captured.through + 1)
    if not len(topic.tail):
        topic.tail = Tail(captured.through + 1)
