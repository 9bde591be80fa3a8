"""A backup: first a point, then the log behind it.

The order makes every published root whole. Log and snapshot are read while the owner goes on:

1. The newest snapshot is read, with all files of its chain.
2. The log is copied from its positions on, as far as it can be read.
3. The segments that it lists are copied up to the lengths that it records. Those bytes do not
   change any more, but for delete bytes, which are zeroed (see `storage.backup.packing`). Below the
   `exact_from` of a topic only delete bytes tell what is deleted. The owner writes such a byte for
   a later delete only after two more snapshots (ADR 14), so what is read counts if no such snapshot
   is there yet.
4. The root is swapped: the point counts.

If a file vanished meanwhile because the owner went on, everything begins again with the newer
snapshot; what was copied is not copied again. What was copied of segments is published from time to
time, so that a run after a kill goes on where the first one ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from topics.engine.backup.destination import BackupRefused, Destination
from topics.engine.backup.log_copy import LogCopier
from topics.engine.clock import Clock
from topics.storage import layout
from topics.storage.backup.manifest import (
    DeadRuns,
    LogCopy,
    Point,
    ReceiptCopy,
    Ref,
    Root,
    SegmentCopy,
    SegmentPiece,
    SnapshotCopy,
    Span,
)
from topics.storage.backup.packing import bad_frame, cuts, dead_runs, hash_of, pack_data, pack_idx
from topics.storage.crashpoints import crashpoint
from topics.storage.erasures import BadLedger, ErasureLedger, verified
from topics.storage.fs import Fs, read_exact, read_file
from topics.storage.identity import StoreFormat, decode_format
from topics.storage.segments.codec import ENTRY_SIZE
from topics.storage.segments.segment import Segment
from topics.storage.snapshots.chain import Chain, list_snapshots, read_chain
from topics.storage.snapshots.file import BadSnapshot
from topics.storage.snapshots.lines import TopicLine

LINEAGE = "restored.json"
"""In `meta/` of a restored store: which restore it comes from."""
TRIES = 20
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.25
"""Before the next try; each pause is twice as long as the one before."""
PROGRESS_S = 10.0
PROGRESS_BYTES = 256 << 20
SEQ_BASE = 1


class SourceMoved(Exception):
    """The owner went on, and what a snapshot lists is not there any more."""


class CopyProgress(msgspec.Struct):
    """How far a backup is, for whoever watches."""

    done_bytes: int
    total_bytes: int


Tell = Callable[[CopyProgress], None]


class BackupTaken(msgspec.Struct, kw_only=True):
    """What a run of a backup did."""

    url: str
    point: int
    new_point: bool
    covered_to_ms: int
    has_hole: bool
    segments: int  # copied, as a whole or in part
    put_bytes: int
    log_bytes: int
    damaged: list[str]


class Backup:
    """Copies one data directory to one destination, again and again."""

    def __init__(
        self,
        fs: Fs,
        data_dir: str,
        destination: Destination,
        *,
        cold_dir: str | None = None,
        clock: Clock,
        tell: Tell = lambda progress: None,
    ) -> None:
        self._fs = fs
        self._dir = data_dir
        self._cold_dir = cold_dir
        self._dest = destination
        self._clock = clock
        self._tell = tell
        self._log = LogCopier(fs, data_dir, destination.put, destination.get)
        self._index: dict[tuple[int, int], SegmentCopy] = {}  # that count at the newest point
        self._past: list[SegmentCopy] = []
        self._damaged: list[str] = []
        self._copied_segments = 0
        self._published_at = time.monotonic()
        self._published_bytes = 0
        self._is_indexed = True  # whether the root's list of segments has all of these
        self._list: Ref | None = None  # what they were read from, or last published as
        self._receipts: dict[int, ReceiptCopy] = {}
        self._created_ms = 0

    def begin(self) -> None:
        """Claim the destination for this session."""
        path = f"{self._dir}/{layout.FORMAT}"
        if not self._fs.exists(path):
            raise BackupRefused(f"{self._dir} holds no topics store; check the path")
        text = read_file(self._fs, path)
        store: StoreFormat = decode_format(text, file=path)
        self._created_ms = store.created_ms
        root = self._dest.claim(
            store_id=store.id_bytes.hex(),
            lineage=lineage_of(self._fs, self._dir),
            format_file=text.decode(),
        )
        self._take_over(root)

    def _take_over(self, root: Root) -> None:
        """Know what a root names, and nothing else."""
        self._index, self._past = {}, []
        for each in self._dest.segments(root):
            if each.until is None:
                self._index[each.topic_id, each.first] = each
            else:
                self._past.append(each)
        self._is_indexed = True
        self._list = root.segments
        self._receipts = {each.number: each for each in root.erasures}

    def run(self) -> BackupTaken:
        """Copy what is new: a point if there is a newer snapshot, and the log."""
        return self._steadily(self._run)

    def ship(self) -> BackupTaken:
        """Copy the log only."""
        return self._steadily(lambda put_before: self._ship(self._root, None, put_before))

    def _steadily(self, work: Callable[[int], BackupTaken]) -> BackupTaken:
        """Begin again when the owner removes a file under the work."""
        put_before = self._dest.put_bytes
        for attempt in range(TRIES):
            try:
                return work(put_before)
            except (SourceMoved, FileNotFoundError, BadSnapshot) as error:
                if attempt == TRIES - 1:
                    raise BackupRefused(
                        f"{self._dir} keeps changing while it is read ({error}); try again"
                    ) from error
                time.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt))
        raise AssertionError  # the loop returns or raises

    def _run(self, put_before: int) -> BackupTaken:
        root = self._root
        if root.segments != self._list:
            self._take_over(root)  # a prune removed the other objects
        chain = self._newest_chain()
        number = 0 if chain is None else chain.snapshot.head.id
        newest = root.points[-1] if root.points else None
        is_new = newest is None or newest.number < number or not root.is_open
        taken = self._ship(root, chain if is_new else None, put_before)
        if is_new:
            taken = self._take_point(chain, taken, put_before)
        return taken

    def end(self) -> None:
        """Let others write to the destination."""
        self._dest.publish(self._root, is_done=True)

    @property
    def _root(self) -> Root:
        assert self._dest.root is not None, "begin first"
        return self._dest.root

    # The log

    def _ship(self, root: Root, chain: Chain | None, put_before: int) -> BackupTaken:
        covered_to = self._clock.now_ms() - 1  # this millisecond is not over
        starts = None
        if chain is not None:
            starts = {each.key: each.file_lfn for each in chain.snapshot.head.groups}
        elif not root.points:
            starts = {}
        copied = self._log.copy(list(root.log), starts=starts)
        spans = root.spans
        is_open = root.is_open and copied.is_whole
        if is_open:
            spans = (*spans[:-1], Span(spans[-1].from_ms, max(covered_to, spans[-1].to_ms)))
        if tuple(copied.files) != root.log or spans != root.spans or is_open != root.is_open:
            root = msgspec.structs.replace(
                root,
                log=tuple(copied.files),
                spans=spans,
                is_open=is_open,
                erasures=self._ledger(),
            )
            self._publish(root)
        return BackupTaken(
            url=self._dest.url,
            point=root.points[-1].number if root.points else 0,
            new_point=False,
            covered_to_ms=covered_to,
            has_hole=not copied.is_whole,
            segments=0,
            put_bytes=self._dest.put_bytes - put_before,
            log_bytes=copied.bytes,
            damaged=[],
        )

    def _ledger(self) -> tuple[ReceiptCopy, ...]:
        """The receipts of erasures, those that are new put to the destination."""
        files = ErasureLedger(self._fs, self._dir).files()
        try:
            verified(files)
        except BadLedger as error:
            self._damaged.append(
                f"the ledger of erasures: {error}; a restore refuses such a ledger"
            )
        for number, data in files:
            if number not in self._receipts:
                self._receipts[number] = ReceiptCopy(number, self._dest.put(data))
        return tuple(self._receipts[number] for number in sorted(self._receipts))

    # A point

    def _newest_chain(self) -> Chain | None:
        """The newest snapshot; None if there never was one."""
        store_id = bytes.fromhex(self._root.store_id)
        numbers = sorted(list_snapshots(self._fs, self._dir), reverse=True)
        error: BadSnapshot | None = None
        for number in numbers[:2]:
            try:
                return read_chain(self._fs, self._dir, number, store_id, present=numbers)
            except BadSnapshot as bad:
                error = error or bad
        if error is not None:
            raise error
        if self._fs.exists(f"{self._dir}/{layout.META}/{layout.TRIMMED}"):
            raise SourceMoved("its snapshots are gone")
        return None

    def _take_point(self, chain: Chain | None, taken: BackupTaken, put_before: int) -> BackupTaken:
        number = 0 if chain is None else chain.snapshot.head.id
        files = () if chain is None else tuple(self._copy_chain(chain))
        crashpoint("backup.snapshot")
        lines = [] if chain is None else chain.snapshot.topics
        listed = [(line.id, segment) for line in lines for segment in listed_segments(line)]
        total = sum(segment.data_len for _, segment in listed)
        self._copy_segments(listed, number, total)
        crashpoint("backup.segments")
        dead = self._copy_dead(lines, number)
        self._retire({(topic_id, segment.first) for topic_id, segment in listed}, number)
        ts = self._created_ms if chain is None else chain.snapshot.head.ts
        point = Point(
            number=number,
            ts=ts,
            positions=() if chain is None else chain.snapshot.head.groups,
            chain=files,
            dead=dead,
            records=sum(line.count for line in lines),
            bytes=total,
        )
        root = self._root
        is_open = _reaches(point, root.log)
        spans = root.spans
        if is_open and not root.is_open:
            spans = (*spans, Span(ts, taken.covered_to_ms))
        older = tuple(each for each in root.points if each.number != number)
        log = tuple(self._log.joined(each) for each in root.log)
        replaced = _named_by_log(root.log) - _named_by_log(log)
        root = msgspec.structs.replace(
            root,
            points=(*older, point),
            spans=spans,
            is_open=is_open,
            log=log,
            segments=self._put_index(),
            erasures=self._ledger(),
            format_file=read_file(self._fs, f"{self._dir}/{layout.FORMAT}").decode(),
        )
        self._publish(root, replaced)
        segments, damaged = self._copied_segments, list(dict.fromkeys(self._damaged))
        self._copied_segments, self._damaged = 0, []
        return msgspec.structs.replace(
            taken,
            point=number,
            new_point=True,
            has_hole=not is_open,
            segments=segments,
            put_bytes=self._dest.put_bytes - put_before,
            damaged=damaged,
        )

    def _copy_chain(self, chain: Chain) -> Iterator[SnapshotCopy]:
        known = {
            (each.number, each.ref.size): each
            for point in self._root.points
            for each in point.chain
        }
        for file in chain.files:
            copied = known.get((file.number, file.size))
            if copied is None:
                data = read_file(self._fs, layout.snapshot_path(self._dir, file.number))
                if len(data) != file.size:
                    raise SourceMoved(f"snapshot {file.number} was replaced")
                copied = SnapshotCopy(file.number, self._dest.put(data))
            yield copied

    def _copy_segments(
        self, listed: Sequence[tuple[int, Segment]], number: int, total: int
    ) -> None:
        done = 0
        for topic_id, segment in listed:
            known = self._index.get((topic_id, segment.first))
            if known is None or not _is_copied(known, segment):
                self._copy_segment(topic_id, segment, known, number)
                self._publish_progress()
            done += segment.data_len
            self._tell(CopyProgress(done, total))

    def _copy_segment(
        self, topic_id: int, segment: Segment, known: SegmentCopy | None, number: int
    ) -> None:
        raw = self._read(topic_id, segment, "idx", 0, segment.idx_len)
        packed = pack_idx(raw)
        whole = hash_of(packed)
        if known is not None and known.idx_hash == whole and known.idx_len == len(packed):
            return
        if segment.idx_h and whole != f"{segment.idx_h:016x}":
            # The owner rebuilds a damaged index from the records; so will a restore.
            self._damaged.append(self._name(topic_id, segment, "idx"))
        copied = _begun(known, topic_id, segment, packed, number)
        pieces = list(copied.pieces)
        data_at, idx_at = copied.data_len, copied.idx_len
        for cut in cuts(packed, segment.data_len):
            if cut.idx_len <= idx_at:
                continue
            part = packed[idx_at : cut.idx_len]
            data = self._read(topic_id, segment, "data", data_at, cut.data_len - data_at)
            records = pack_data(data, part, start=data_at)
            bad = bad_frame(records, part, start=data_at)
            if bad is not None:
                seq = segment.first + idx_at // ENTRY_SIZE + bad
                name = self._name(topic_id, segment, "data")
                self._damaged.append(f"{name}: the record {seq} is damaged")
            pieces.append(SegmentPiece(self._dest.put(records + part), len(records), len(part)))
            data_at, idx_at = cut
        self._is_indexed = False
        if known is not None and copied.since != known.since:
            self._past.append(msgspec.structs.replace(known, until=number))
        self._index[topic_id, segment.first] = msgspec.structs.replace(
            copied,
            data_len=segment.data_len,
            idx_len=segment.idx_len,
            idx_hash=whole,
            pieces=tuple(pieces),
        )
        self._copied_segments += 1

    def _copy_dead(self, lines: Sequence[TopicLine], number: int) -> Ref | None:
        """What only delete bytes tell, if no later delete can be among them."""
        found = []
        for line in lines:
            if line.exact_from <= SEQ_BASE:
                continue
            runs: list[tuple[int, int]] = []
            for segment in listed_segments(line):
                if segment.first < line.exact_from:
                    raw = self._read(line.id, segment, "idx", 0, segment.idx_len)
                    runs += [
                        (lo, min(hi, line.exact_from - 1))
                        for lo, hi in dead_runs(raw, segment.first)
                        if lo < line.exact_from
                    ]
            found.append(DeadRuns(line.id, runs))
        if not found:
            return None
        if max(list_snapshots(self._fs, self._dir), default=0) > number + 1:
            raise SourceMoved("newer snapshots came meanwhile")
        return self._dest.put(msgspec.json.encode(found))

    def _retire(self, listed: set[tuple[int, int]], number: int) -> None:
        """Segments that the newest point does not list serve older points only."""
        for key in [key for key in self._index if key not in listed]:
            self._past.append(msgspec.structs.replace(self._index.pop(key), until=number))
            self._is_indexed = False

    def _put_index(self) -> Ref | None:
        if self._is_indexed and self._root.segments is not None:
            return self._root.segments
        return self._dest.put_segments([*self._past, *self._index.values()])

    def _publish_progress(self) -> None:
        """Name what was copied of segments, so that it is not copied again after a kill."""
        unpublished = self._dest.put_bytes - self._published_bytes
        if unpublished >= PROGRESS_BYTES or time.monotonic() - self._published_at >= PROGRESS_S:
            self._publish(msgspec.structs.replace(self._root, segments=self._put_index()))

    def _publish(self, root: Root, replaced: set[str] | frozenset[str] = frozenset()) -> None:
        before = self._root.segments
        self._dest.publish(root)
        if root.segments != before:
            self._is_indexed = True
            self._list = root.segments
        self._published_at = time.monotonic()
        self._published_bytes = self._dest.put_bytes
        if before is not None and before != root.segments:
            replaced = {*replaced, before.name}
        self._dest.remove(replaced)

    # Files

    def _read(
        self, topic_id: int, segment: Segment, part: layout.SegmentPart, offset: int, size: int
    ) -> bytes:
        """Bytes of a segment, from whichever tier has it as a whole."""
        name = layout.segment_name(segment.first, part, segment.version)
        for tier in (self._dir, self._cold_dir):
            if tier is None:
                continue
            try:
                file = self._fs.open(f"{layout.topic_dir(tier, topic_id)}/{name}")
            except FileNotFoundError:
                continue
            try:
                return read_exact(file, size, offset)
            except EOFError:
                continue
            finally:
                file.close()
        raise SourceMoved(f"{self._name(topic_id, segment, part)} is gone")

    def _name(self, topic_id: int, segment: Segment, part: layout.SegmentPart) -> str:
        name = layout.segment_name(segment.first, part, segment.version)
        return f"{layout.topic_dir(self._dir, topic_id)}/{name}"


def lineage_of(fs: Fs, data_dir: str) -> str:
    """Which restore a store comes from; empty for one that was never restored."""
    path = f"{data_dir}/{layout.META}/{LINEAGE}"
    if not fs.exists(path):
        return ""
    found: dict[str, str] = msgspec.json.decode(read_file(fs, path))
    return found["lineage"]


def listed_segments(line: TopicLine) -> list[Segment]:
    """The segments that a snapshot lists, the active one with a hash of 0."""
    segments = list(line.segs)
    if line.active is not None:
        first, last, data_len, idx_len = line.active
        segments.append(Segment(first, last, data_len, idx_len, 0, 0, 0, 0))
    return segments


def _is_copied(known: SegmentCopy, segment: Segment) -> bool:
    """Whether nothing of a segment is missing; a sealed one is known by its hash."""
    if (known.data_len, known.idx_len) != (segment.data_len, segment.idx_len):
        return False
    return bool(segment.idx_h) and known.idx_hash == f"{segment.idx_h:016x}"


def _begun(
    known: SegmentCopy | None, topic_id: int, segment: Segment, packed: bytearray, number: int
) -> SegmentCopy:
    """The copy to go on with: the known one if the segment has only grown since."""
    if (
        known is not None
        and known.idx_len <= segment.idx_len
        and known.data_len <= segment.data_len
        and hash_of(packed[: known.idx_len]) == known.idx_hash
    ):
        return known
    return SegmentCopy(topic_id, segment.first, number, None, 0, 0, "", ())


def _reaches(point: Point, log: Sequence[LogCopy]) -> bool:
    """Whether the copied log goes on behind a point, in every group that has files there."""
    for group in {each.group for each in log}:
        files = [each for each in log if each.group == group]
        position = next((each for each in point.positions if each.key == group), None)
        if position is None:
            if files[0].prev_first_lfn:
                return False
            behind = files
        else:
            behind = [each for each in files if each.first_lfn >= position.file_lfn]
        if not _is_chain(behind):
            return False
    return True


def _is_chain(files: Sequence[LogCopy]) -> bool:
    return all(
        after.prev_first_lfn == before.first_lfn and after.prev_len == before.size
        for before, after in pairwise(files)
    )


def _named_by_log(log: Sequence[LogCopy]) -> set[str]:
    return {ref.name for each in log for ref in each.chunks}
