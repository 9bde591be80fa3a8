"""Restoring a backup into a new directory that an ordinary start opens.

1. Plan: the newest point that is not later than the moment, and the log from there to the moment.
   Nothing is written yet; what is missing is told.
2. Lay out: the files of the point and of the log, cut at the moment, in `DIR.restoring`. Erased
   records are blanked.
3. Open it: recovery does the rest, as after a power cut. Erased records are deleted. Seqs that the
   log gave out after the moment are skipped for good and announced to readers as lost. If it may
   have given out more seqs than the backup knows of, every topic begins a new epoch.
4. Two checkpoints, so that neither of the two kept snapshots is older than this; a clean stop.
5. Note the restore in `meta/restored.json`, sync, and rename to `DIR`.

A restore that is killed leaves `DIR.restoring`, which the next one removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec
import numpy as np

from topics.core.facts import SeqSkipped
from topics.engine.backup.cutting import CutLog, GroupLog, LogPlace, created, cut, time_of
from topics.engine.backup.destination import BackupRefused, Destination
from topics.engine.backup.erasing import KeptOut
from topics.engine.backup.taking import LINEAGE, CopyProgress, Tell, listed_segments
from topics.engine.clock import Clock
from topics.engine.effects import run
from topics.engine.engine import Engine
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.storage import layout
from topics.storage.backup.manifest import (
    BadBackup,
    DeadRuns,
    LogCopy,
    Point,
    Ref,
    SegmentCopy,
    Span,
)
from topics.storage.backup.packing import unpack
from topics.storage.crashpoints import crashpoint
from topics.storage.erasures import BadLedger, Begun, ErasureLedger, verified
from topics.storage.findings import files_below
from topics.storage.frames.buffer import walk
from topics.storage.fs import Fs, parent_of, replace_file, write_all
from topics.storage.segments.codec import FLAG_HOLE, Idx
from topics.storage.segments.segment import Segment
from topics.storage.segments.tiering import claim_cold_dir
from topics.storage.snapshots.chain import read_chain
from topics.storage.snapshots.file import Snapshot, SnapshotWriter
from topics.storage.snapshots.lines import HeadLine, TopicLine

RESTORING = ".restoring"
COLD = ".restoring-cold"
_PIECE_SEQS = 1000
_END = 1 << 62


class RestoreTarget(msgspec.Struct, frozen=True):
    """What to restore: the newest moment, a time, or up to a seq of a topic."""

    at_ms: int | None = None
    topic: str | None = None
    seq: int | None = None
    topics: tuple[str, ...] = ()  # empty: all


class RestorePlan(msgspec.Struct, kw_only=True):
    """What a restore will do, and what is missing for it."""

    source: str
    directory: str
    point: int
    point_ms: int
    at_ms: int
    spans: list[Span]
    objects: int
    bytes: int
    erasures: int
    missing: list[str]


class Restored(msgspec.Struct, kw_only=True):
    """What a restore came to."""

    directory: str
    at_ms: int
    point: int
    topics: int
    records: int
    erased: int  # records that the ledger of erasures kept out
    gaps: dict[str, tuple[int, int]]  # by topic: seqs given out after the moment, announced as lost
    new_epoch: bool


class Restore:
    """One restore, planned against the root as it is now."""

    def __init__(
        self,
        source: Destination,
        fs: Fs,
        directory: str,
        target: RestoreTarget,
        *,
        clock: Clock,
        more_receipts: Sequence[tuple[int, bytes]] = (),
        under_way: Sequence[Begun] = (),
        tell: Tell = lambda progress: None,
    ) -> None:
        self._source = source
        self._fs = fs
        self._dir = directory.rstrip("/")
        if not self._dir:
            raise BackupRefused("a restore makes a new directory; name one that does not exist yet")
        self._target = target
        self._clock = clock
        self._tell = tell
        self._root = source.require()
        self._segments = source.segments(self._root)
        self._done = self._total = 0
        self._ledger = self._newest_ledger(more_receipts)
        self._erased = self._kept_out(under_way)
        self._erased_seqs: dict[int, set[int]] = {}
        self._lines: list[TopicLine] = []
        self._point = self._choose()

    # Plan

    def plan(self) -> RestorePlan:
        """What there is to do; reads the list of objects, writes nothing."""
        refs = {ref.name: ref for ref in self._needed()}
        sizes = {each.name: each.size for each in self._source.objects.list("objects")}
        missing = [
            f"{name} ({'missing' if name not in sizes else 'cut short'})"
            for name, ref in refs.items()
            if sizes.get(name) != ref.size
        ]
        self._total = sum(ref.size for ref in refs.values())
        return RestorePlan(
            source=self._source.url,
            directory=self._dir,
            point=self._point.number,
            point_ms=self._point.ts,
            at_ms=self._at_ms,
            spans=list(self._root.spans),
            objects=len(refs),
            bytes=self._total,
            erasures=len(self._ledger),
            missing=missing,
        )

    @property
    def _at_ms(self) -> int:
        if self._target.at_ms is not None:
            return self._target.at_ms
        return max(self._root.spans[-1].to_ms, self._root.points[-1].ts)

    def _choose(self) -> Point:
        """The point to begin with."""
        spans = self._root.spans
        if not spans:
            raise BackupRefused(f"{self._source.url} holds no complete point yet")
        if self._target.seq is not None:
            fit = [each for each in self._root.points if self._is_before_seq(each)]
            if not fit:
                raise BackupRefused(
                    f"no point of this backup is before the seq {self._target.seq} of "
                    f"{self._target.topic!r}; see `topics backup ls`"
                )
            return fit[-1]
        if self._target.at_ms is None:
            return self._root.points[-1]
        at_ms = self._at_ms
        span = next((each for each in spans if each.from_ms <= at_ms <= each.to_ms), None)
        if span is None:
            raise BackupRefused(
                f"{moment(at_ms)} is not covered by this backup; it covers {covered(spans)}"
            )
        fit = [each for each in self._root.points if span.from_ms <= each.ts <= at_ms]
        assert fit, "a span begins with a point"
        return fit[-1]

    def _is_before_seq(self, point: Point) -> bool:
        """Whether the seq that is to be the last one is not behind already."""
        assert self._target.seq is not None
        lines = {line.name: line for line in self._lines_of(point)}
        line = lines.get(self._target.topic or "")
        return line is None or line.head <= self._target.seq

    def _needed(self) -> Iterator[Ref]:
        for copied in self._point.chain:
            yield copied.ref
        if self._point.dead is not None:
            yield self._point.dead
        for each in self._listed():
            for piece in each.pieces:
                yield piece.ref
        for _, files in self._log_files():
            for log_file in files:
                yield from log_file.chunks

    def _listed(self) -> Iterator[SegmentCopy]:
        number = self._point.number
        for each in self._segments:
            if each.since <= number and (each.until is None or number < each.until):
                yield each

    def _log_files(self) -> Iterator[tuple[str, list[LogCopy]]]:
        """By group the log files from the point on, as far as none is missing."""
        starts = {each.key: each.file_lfn for each in self._point.positions}
        for key in sorted({each.group for each in self._root.log}):
            if key != layout.FLAT_GROUP and layout.parse_group(key) is None:
                raise BadBackup(
                    f"{self._source.url} names {key!r} as a group of log files, which is none: "
                    "this backup was changed; restore another one"
                )
            files: list[LogCopy] = []
            for each in self._root.log:
                if each.group != key or each.first_lfn < starts.get(key, 0):
                    continue
                if files and (each.prev_first_lfn, each.prev_len) != (
                    files[-1].first_lfn,
                    files[-1].size,
                ):
                    break
                files.append(each)
            if files:
                yield key, files

    def _newest_ledger(self, more: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """The longer one of the backup's ledger and the one that was given."""
        ours = [(each.number, self._source.get(each.ref)) for each in self._root.erasures]
        longer, shorter = (ours, list(more)) if len(ours) >= len(more) else (list(more), ours)
        if longer[: len(shorter)] != shorter:
            raise BackupRefused("the two ledgers of erasures are not of one store")
        return longer

    def _kept_out(self, under_way: Sequence[Begun]) -> KeptOut:
        """What the ledger keeps out; a ledger of another store would take out good records."""
        try:
            erasures: list[Begun] = [*verified(self._ledger), *under_way]
        except BadLedger as error:
            raise BackupRefused(
                f"{error}; without its receipts a restore could bring erased records back"
            ) from error
        if any(each.store_id != self._root.store_id for each in erasures):
            raise BackupRefused("the ledger of erasures is of another log than the backup")
        return KeptOut.of(erasures)

    # Lay out

    def run(self) -> Restored:
        """Do it; `BackupRefused` or `BadBackup`, and no directory, if it cannot be done."""
        self._refuse_a_full_directory()
        plan = self.plan()
        if plan.missing:
            raise BadBackup("objects of the backup are missing: " + ", ".join(plan.missing[:5]))
        work = self._dir + RESTORING
        remove_tree(self._fs, work)
        remove_tree(self._fs, self._dir + COLD)
        make_directory(self._fs, work)
        self._write(f"{work}/{layout.FORMAT}", self._root.format_file.encode())
        self._lines = self._lines_of(self._point)
        self._lay_snapshot(work)
        dead = self._dead_runs()
        copies = {(each.topic_id, each.first): each for each in self._listed()}
        for line in self._lines:
            for segment in listed_segments(line):
                self._lay_segment(work, line, segment, copies, dead.get(line.id, []))
        done = self._lay_log(work)
        ErasureLedger(self._fs, work).restore(self._ledger)
        crashpoint("restore.laid")
        restored = self._open(work, done)
        lineage = {
            "lineage": os.urandom(16).hex(),
            "from": self._root.store_id,
            "at_ms": self._at_ms,
            "restored_ms": self._clock.now_ms(),
        }
        make_directory(self._fs, f"{work}/{layout.META}")
        replace_file(
            self._fs, f"{work}/{layout.META}/{LINEAGE}", msgspec.json.encode(lineage) + b"\n"
        )
        crashpoint("restore.marked")
        remove_tree(self._fs, self._dir + COLD)
        if self._fs.exists(self._dir):
            self._fs.rmdir(self._dir)
        self._fs.rename(work, self._dir)
        self._fs.sync_dir(parent_of(self._dir))
        crashpoint("restore.renamed")
        return restored

    def _refuse_a_full_directory(self) -> None:
        if not self._fs.exists(self._dir):
            return
        try:
            names = self._fs.listdir(self._dir)
        except NotADirectoryError as error:
            raise BackupRefused(f"{self._dir} is a file; give a new directory") from error
        if names:
            raise BackupRefused(
                f"{self._dir} has files in it; give a new directory, or move this one away"
            )

    def _lines_of(self, point: Point) -> list[TopicLine]:
        snapshot = self._read_snapshot(point)
        return [] if snapshot is None else snapshot.topics

    def _read_snapshot(self, point: Point) -> Snapshot | None:
        if not point.chain:
            return None
        held = _Held({each.number: self._source.get(each.ref) for each in point.chain})
        store_id = bytes.fromhex(self._root.store_id)
        numbers = [each.number for each in point.chain]
        return read_chain(cast("Fs", held), "", numbers[-1], store_id, present=numbers).snapshot

    def _lay_snapshot(self, work: str) -> None:
        """The point's snapshot as one file, with every segment in the hot tier."""
        snapshot = self._read_snapshot(self._point)
        make_directory(self._fs, f"{work}/{layout.META}")
        if snapshot is None:
            return
        head = snapshot.head
        names = HeadLine.__struct_fields__
        whole = HeadLine(**{name: getattr(head, name) for name in names})
        path = layout.snapshot_path(work, head.id)
        file = self._fs.open(path, write=True, create=True, truncate=True)
        try:
            writer = SnapshotWriter(file, whole)
            topics = [
                msgspec.structs.replace(
                    line,
                    segs=[
                        msgspec.structs.replace(each, place=2 * each.version) for each in line.segs
                    ],
                )
                for line in snapshot.topics
            ]
            for _ in writer.add([*topics, *snapshot.routers, *snapshot.apps]):
                pass
            for _ in writer.finish():
                pass
            file.fsync()
        finally:
            file.close()
        self._write(f"{work}/{layout.META}/{layout.TRIMMED}", b"")

    def _dead_runs(self) -> dict[int, list[tuple[int, int]]]:
        if self._point.dead is None:
            return {}
        found = msgspec.json.decode(self._get(self._point.dead), type=list[DeadRuns])
        return {each.topic_id: each.runs for each in found}

    def _lay_segment(
        self,
        work: str,
        line: TopicLine,
        segment: Segment,
        copies: Mapping[tuple[int, int], SegmentCopy],
        byte_runs: Sequence[tuple[int, int]],
    ) -> None:
        copied = copies.get((line.id, segment.first))
        if copied is None or copied.data_len < segment.data_len:
            raise BadBackup(f"the segment {segment.first} of topic {line.name!r} is not in it")
        data, idx = bytearray(), bytearray()
        for piece in copied.pieces:
            content = self._get(piece.ref)
            data += content[: piece.data_len]
            idx += content[piece.data_len :]
        del data[segment.data_len :], idx[segment.idx_len :]
        if line.id in self._erased.by_topic:
            columns = Idx(bytes(idx)).columns
            seqs = segment.first + np.flatnonzero((columns["flags"] & FLAG_HOLE) == 0)
            records = columns[seqs - segment.first]
            places = zip(
                seqs.tolist(), records["offset"].tolist(), records["length"].tolist(), strict=True
            )
            self._note_erased(self._erased.blank_segment(data, line.id, places))
        named = [run for run in line.deleted_runs if run[1] >= line.exact_from]
        told = [(max(lo, line.exact_from), hi) for lo, hi in named]
        data, idx = unpack(data, idx, segment.first, [*byte_runs, *told])
        folder = layout.topic_dir(work, line.id)
        make_directory(self._fs, folder)
        self._write(f"{folder}/{layout.segment_name(segment.first, 'data', segment.version)}", data)
        self._write(f"{folder}/{layout.segment_name(segment.first, 'idx', segment.version)}", idx)

    def _lay_log(self, work: str) -> CutLog:
        positions = {each.key: each for each in self._point.positions}
        groups: list[GroupLog] = []
        for key, files in self._log_files():
            position = positions.get(key)
            start = (0, 0)
            if position is not None and files[0].first_lfn == position.file_lfn:
                start = (0, position.offset)
            groups.append(GroupLog(key, files, _LogData(files, self._get), start))
        at_seq = None
        if self._target.topic is not None and self._target.seq is not None:
            at_seq = (self._topic_id(self._target.topic, groups), self._target.seq)
        found = cut(groups, at_ms=self._moment(groups, at_seq), at_seq=at_seq)
        for group in groups:
            self._lay_group(work, group, found.ends[group.key])
        return self._with_the_rest(found, {each for group in groups for each in group.files})

    def _with_the_rest(self, found: CutLog, passed: Collection[LogCopy]) -> CutLog:
        """The same with the seqs that were given out behind a hole."""
        if self._point is not self._root.points[-1]:
            for line in self._lines_of(self._root.points[-1]):
                found.beyond.note(line.id, max(line.head, line.reserved))
        starts = {each.key: each.file_lfn for each in self._point.positions}
        rest = [
            each
            for each in self._root.log
            if each not in passed and each.first_lfn >= starts.get(each.group, 0)
        ]
        for each in rest:
            group = GroupLog(each.group, [each], _LogData([each], self._get), (0, 0))
            found.beyond.note_all(group, LogPlace(0, 0))
        return found._replace(is_whole=found.is_whole and not rest)

    def _moment(self, groups: list[GroupLog], at_seq: tuple[int, int] | None) -> int:
        if at_seq is None:
            return self._at_ms if self._target.at_ms is not None else _END
        found = time_of(groups, *at_seq)
        if found is None:
            if any(line.head == at_seq[1] for line in self._lines if line.id == at_seq[0]):
                return self._point.ts
            raise BackupRefused(
                f"the seq {at_seq[1]} of {self._target.topic!r} is not in this backup"
            )
        return found

    def _topic_id(self, name: str, groups: list[GroupLog]) -> int:
        found = [line.id for line in self._lines if line.name == name] + created(groups, name)
        if not found:
            raise BackupRefused(f"the backup has no topic {name!r} at that time")
        return found[-1]

    def _lay_group(self, work: str, group: GroupLog, end: LogPlace) -> None:
        folder = layout.group_dir(work, group.key)
        make_directory(self._fs, folder)
        for number in range(end.file + 1):
            log_file = group.files[number]
            size = end.offset if number == end.file else log_file.size
            data = bytearray(group.data[number][:size])
            if self._erased.by_topic:
                offsets: list[int] = []
                position = 0
                while True:
                    walked = walk(bytes(data), position, size)
                    offsets += walked.offsets
                    position = walked.stop
                    if walked.end is not None:
                        break
                self._note_erased(self._erased.blank(data, offsets))
            self._write(layout.wal_path(folder, log_file.first_lfn), data)

    def _note_erased(self, found: Collection[tuple[int, int]]) -> None:
        for topic_id, seq in found:
            self._erased_seqs.setdefault(topic_id, set()).add(seq)

    # Open

    def _open(self, work: str, done: CutLog) -> Restored:
        cold = self._dir + COLD
        make_directory(self._fs, f"{cold}/{layout.TOPICS}")
        claim_cold_dir(self._fs, cold, bytes.fromhex(self._root.store_id))
        settings = EngineSettings(cold_dir=cold)
        engine = open_engine(
            cast("Fs", _AfterPowerLoss(self._fs)), work, Opening(settings, self._clock)
        )
        try:
            crashpoint("restore.opened")
            gaps = dict(self._announce(engine, done))
            erased = self._delete_erased(engine)
            is_new = not done.is_whole
            if is_new:
                _begin_epochs(engine)
            self._drop_others(engine)
            engine.checkpoint()
            engine.checkpoint()
            catalog = engine.kernel.catalog
            restored = Restored(
                directory=self._dir,
                at_ms=self._at_ms,
                point=self._point.number,
                topics=len(list(catalog)),
                records=sum(topic.count for topic in catalog),
                erased=erased,
                gaps=gaps,
                new_epoch=is_new,
            )
        except BaseException:
            engine.release()
            raise
        engine.close()
        return restored

    def _announce(self, engine: Engine, done: CutLog) -> Iterator[tuple[str, tuple[int, int]]]:
        """Skip the seqs that were given out after the moment, as lost."""
        for topic in list(engine.kernel.catalog):
            end = done.beyond.heads.get(topic.id, 0)
            first = topic.head + 1
            if end >= first:
                fact = SeqSkipped(topic.id, topic.last_ts, first, end, SeqSkipped.REPAIR)
                run(engine.kernel.commit([fact], topic_id=topic.id, durable=True))
                yield topic.name, (first, end)

    def _delete_erased(self, engine: Engine) -> int:
        count = 0
        for topic in list(engine.kernel.catalog):
            seqs = sorted(self._erased_seqs.get(topic.id, ()))
            for start in range(0, len(seqs), _PIECE_SEQS):
                count += run(engine.delete_seqs(topic, seqs[start : start + _PIECE_SEQS]))
        return count

    def _drop_others(self, engine: Engine) -> None:
        if not self._target.topics:
            return
        names = {topic.name for topic in engine.kernel.catalog}
        missing = sorted(set(self._target.topics) - names)
        if missing:
            raise BackupRefused(f"the backup has no topic {missing[0]!r} at that time")
        for name in sorted(names - set(self._target.topics)):
            run(engine.drop(name))

    # Files

    def _get(self, ref: Ref) -> bytes:
        data = self._source.get(ref)
        self._done += ref.size
        self._tell(CopyProgress(self._done, self._total))
        return data

    def _write(self, path: str, data: bytes | bytearray) -> None:
        file = self._fs.open(path, write=True, create=True, truncate=True)
        try:
            write_all(file, data, 0) if data else None
            file.fsync()
        finally:
            file.close()
        self._fs.sync_dir(parent_of(path))


class _LogData(Sequence[bytes]):
    """The contents of log files, fetched when they are asked for; the newest one is kept."""

    def __init__(self, files: Sequence[LogCopy], get: Callable[[Ref], bytes]) -> None:
        self._files = files
        self._get = get
        self._kept: tuple[int, bytes] = (-1, b"")

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> bytes:  # type: ignore[override]  # no slices are asked for
        if self._kept[0] != number:
            data = b"".join(map(self._get, self._files[number].chunks))
            self._kept = (number, data[: self._files[number].size])
        return self._kept[1]


class _Held:
    """Files in memory, by snapshot number: as much of an `Fs` as reading a chain needs."""

    def __init__(self, files: Mapping[int, bytes]) -> None:
        self._files = {layout.snapshot_path("", number): data for number, data in files.items()}

    def open(self, path: str) -> _HeldFile:
        return _HeldFile(self._files[path])


class _HeldFile:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size]

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        pass


class _AfterPowerLoss:
    """The same files after another boot: what was reserved may have been given out."""

    def __init__(self, fs: Fs) -> None:
        self._fs = fs
        self._boot_id = os.urandom(16)

    def __getattr__(self, name: str) -> object:
        return getattr(self._fs, name)

    def boot_id(self) -> bytes:
        return self._boot_id


def _begin_epochs(engine: Engine) -> None:
    """Another life for every topic: who remembers a seq above the head must not meet it again."""
    kernel = engine.kernel
    for topic in kernel.catalog:
        topic.epoch = kernel.catalog.next_topic_id
        kernel.catalog.next_topic_id += 1
        kernel.dirty.add(topic.id)


def make_directory(fs: Fs, path: str) -> None:
    for made in fs.mkdirs(path):
        fs.sync_dir(parent_of(made))


def remove_tree(fs: Fs, path: str) -> None:
    """Remove a directory with all that is in it; a missing one is fine."""
    if not fs.exists(path):
        return
    for file in list(files_below(fs, path)):
        fs.unlink(file)
    _remove_directories(fs, path)


def _remove_directories(fs: Fs, path: str) -> None:
    for name in fs.listdir(path):
        _remove_directories(fs, f"{path}/{name}")
    fs.rmdir(path)


def moment(ms: int) -> str:
    """A time for people: UTC, to the millisecond."""
    try:
        when = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms after 1970"
    return f"{when:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def covered(spans: Sequence[Span]) -> str:
    shown = [each for each in spans if each.from_ms <= each.to_ms]
    return ", ".join(f"{moment(each.from_ms)} to {moment(each.to_ms)}" for each in shown) or "none"
