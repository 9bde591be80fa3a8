"""Reading a log group back: which frames count, and whether any that should be there is not.

Theory of operation. A crash may leave anything in the part of the newest file that was not synced:
half a frame, sectors out of order, zeros. That is a *torn tail*; no write in it was acked as
durable, and it is cut off. Damage to bytes that were once durable is *rot*, and cutting there would
lose what follows, so the start is refused. Proof in the log tells them apart:

- a beacon states a position below which everything was durable when it was written. It counts
  wherever it is found behind the bad spot, even if nothing else there can be read;
- a file header proves the whole file before it;
- the snapshot's position proves what lies before it.

Without such proof the bad spot lies behind everything that was promised. Frames found behind it
were written but never acked; they are counted and dropped. A log that ends inside a submission
loses that submission whole.

One file at a time is in memory. Nothing is written: `Repair` says what recovery has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec

from topics.core.facts import ClosedCleanly, Fact
from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.frames.buffer import CleanEnd, Frame, Unreadable, decode_at, walk
from topics.storage.frames.header import FLAG_CONT, FLAG_DURABLE, FLAGS_AT, OVERHEAD, ForeignFrame
from topics.storage.fs import Fs, read_exact
from topics.storage.identity import store_mark
from topics.storage.wal.collect import Collector
from topics.storage.wal.files import HEADER_SIZE, Link
from topics.storage.wal.groups import Group, LogFile, files_from, reading, refusal
from topics.storage.wal.repair import Repair
from topics.storage.wal.salvage import intact_frames, proven_behind, resync, stated_position
from topics.storage.wal.submission import Position

BULK_BYTES = 16 << 20
"""From this much on, reading with numpy pays for importing it."""

_CHUNK_FRAMES = 32_768
_TOPICS_NAMED = 10
_ANY_NUMBER = 1 << 64


class LostFrames(NamedTuple):
    """Frames that salvage gave up in one place."""

    behind: int
    """The lfn of the last frame before them."""
    frames: int
    """How many they were at the most."""


class GenerationScan(msgspec.Struct):
    """What one run of the program logged in a group."""

    generation: int
    shard: int
    shards: int
    boot_id: bytes
    entries: list[tuple[int, Fact]] = msgspec.field(default_factory=list)
    """Facts in log order, each with the lfn of its last frame. Beacons are left out."""
    frames: int = 0
    """How many frames these are, beacons included."""
    lost: list[LostFrames] = msgspec.field(default_factory=list)
    """In log order; always empty without salvage."""

    @property
    def closed(self) -> ClosedCleanly | None:
        """The exact heads, if the run stopped cleanly: then nothing was logged behind them."""
        if not self.entries:
            return None
        fact = max(self.entries, key=lambda entry: entry[0])[1]
        return fact if isinstance(fact, ClosedCleanly) else None


class GroupScan(msgspec.Struct):
    """A group read to its valid end."""

    group: Group
    end: Position
    """Where the last whole submission ends."""
    next_link: Link
    """How the first file of the next generation hangs on this group."""
    generations: list[GenerationScan] = msgspec.field(default_factory=list)
    sources: dict[int, LogFile] = msgspec.field(default_factory=dict)
    """Source id of each file that was read."""
    repair: Repair | None = None
    damaged: list[str] = msgspec.field(default_factory=list)
    """Files that lost frames to salvage; to be copied aside before anything else is written."""
    bytes_scanned: int = 0
    torn_bytes: int = 0
    orphans: int = 0
    """Intact frames behind a torn spot: written, never acked, dropped."""

    @property
    def key(self) -> str:
        return self.group.key

    @property
    def has_frames(self) -> bool:
        """Whether the newest run logged anything here, be it before the scan's start."""
        newest = [file for file in self.sources.values() if self._is_newest(file)]
        return len(newest) > 1 or self.end.offset > HEADER_SIZE

    def _is_newest(self, file: LogFile) -> bool:
        return file.header.generation == self.newest_generation

    @property
    def newest_generation(self) -> int:
        """0 when no file was left to read."""
        return self.generations[-1].generation if self.generations else 0


def scan_group(
    fs: Fs,
    group: Group,
    *,
    store_id: bytes,
    start: Position | None,
    add_source: Callable[[str], int],
    salvage: bool = False,
    progress: Callable[[float], None] = lambda share: None,
) -> GroupScan:
    """Read everything after `start` (None: the whole group); `RefusedToOpen` when it is not sound.

    `add_source` makes a byte source of a log file and returns its id: runs of records point there.
    With `salvage` damage costs the frames it hit instead of the start. `progress` hears which share
    of the bytes has been passed.
    """
    found = files_from(fs, group, start, store_id=store_id)
    lfn = 0 if start is None else start.lfn
    if not found:
        end = start or Position(0, 0, 0)
        return GroupScan(group, end, next_link=Link(lfn + 1, 0, 0))
    mark = store_mark(store_id)
    total, passed = sum(log_file.size for log_file in found), 0
    result = GroupScan(group, Position(0, 0, 0), Link(1, 0, 0))
    for number, log_file in enumerate(found):
        is_newest = number == len(found) - 1
        first_lfn = log_file.header.first_lfn
        offset = HEADER_SIZE
        if start is not None and start.file_lfn == first_lfn:
            offset = start.offset
        elif result.damaged:
            lfn = first_lfn - 1
        elif lfn != first_lfn - 1:
            message = f"begins with frame {first_lfn}, but frame {lfn + 1} comes next; "
            message += "a file between is missing, restore it"
            raise refusal("wal_missing", message, log_file.path, 0)
        source_id = add_source(log_file.path)
        result.sources[source_id] = log_file
        reader = _FileReader(fs, log_file, mark, is_newest=is_newest, salvage=salvage)
        note = partial(_tell, progress, passed, total)
        reader.read(offset, lfn, note)
        if reader.lost and not is_newest:
            # The next file's header tells how many frames there were. With a higher number, frames
            # behind the damage would seem to be later than the frames of the next file.
            most_lost = found[number + 1].header.first_lfn - 1 - lfn - reader.frames
            reader = _FileReader(
                fs, log_file, mark, is_newest=False, salvage=True, most_lost=most_lost
            )
            reader.read(offset, lfn, note)
        _take(result, reader, reader.collector.entries(source_id))
        lfn = reader.lfn
        passed += log_file.size
        progress(passed / total)
    _finish(result, found[-1], reader, lfn)
    return result


def require_whole_generation(scans: Sequence[GroupScan]) -> None:
    """Refuse if a group of the newest run is gone.

    A run creates a file in each of its groups before it logs anything, so with frames in one of
    them none may be missing. A run that was cut short while it created them left only headers.
    """
    newest = max((scan.newest_generation for scan in scans), default=0)
    present = [scan for scan in scans if newest and scan.newest_generation == newest]
    if not any(scan.has_frames for scan in present):
        return
    shards = present[0].generations[-1].shards
    missing = {layout.group_key(shard, shards) for shard in range(shards)}
    missing -= {scan.key for scan in present}
    if missing:
        key = min(missing)
        beside = present[0].group.directory
        message = f"the log group {key} of the same run is gone; restore it"
        raise refusal("wal_missing", message, beside)


def _tell(progress: Callable[[float], None], passed: int, total: int, offset: int) -> None:
    progress((passed + offset) / total)


def _take(result: GroupScan, reader: _FileReader, entries: list[tuple[int, Fact]]) -> None:
    header = reader.log_file.header
    if not result.generations or result.generations[-1].generation != header.generation:
        result.generations.append(
            GenerationScan(header.generation, header.shard, header.shards, header.boot_id)
        )
    generation = result.generations[-1]
    generation.entries += entries
    generation.frames += reader.frames
    generation.lost += reader.lost
    result.bytes_scanned += reader.bytes_read
    result.torn_bytes += reader.torn_bytes
    result.orphans += reader.orphans
    if reader.lost:
        result.damaged.append(reader.log_file.path)


def _finish(result: GroupScan, newest: LogFile, reader: _FileReader, lfn: int) -> None:
    header, end = newest.header, reader.valid_end
    result.end = Position(header.first_lfn, end, lfn)
    if end == HEADER_SIZE:
        result.next_link = Link(header.first_lfn, header.prev_first_lfn, header.prev_len)
    else:
        result.next_link = Link(lfn + 1, header.first_lfn, end)
    result.repair = Repair(
        newest.path,
        write_from=reader.durable_to,
        valid_end=end,
        may_hold_acks=reader.tail_may_hold_acks,
    )


class _FileReader:
    """Reads one log file and judges where it ends."""

    def __init__(
        self,
        fs: Fs,
        log_file: LogFile,
        mark: int,
        *,
        is_newest: bool,
        salvage: bool,
        most_lost: int = _ANY_NUMBER,
    ) -> None:
        self.log_file = log_file
        self._fs = fs
        self._mark = mark
        self._is_newest = is_newest
        self._salvage = salvage
        self._most_lost = most_lost
        self.collector = _collector(log_file.size, mark)
        self.lfn = 0
        self.frames = 0
        self.bytes_read = 0
        self.valid_end = 0
        self.durable_to = 0
        self.tail_may_hold_acks = False
        self.torn_bytes = 0
        self.orphans = 0
        self.lost: list[LostFrames] = []
        self._buf = b""
        self._note: Callable[[int], None] = lambda offset: None

    def read(self, offset: int, lfn: int, note: Callable[[int], None]) -> None:
        """Collect every frame from `offset` on; the one before it has ordinal `lfn`.

        `note` hears from time to time up to where that is done.
        """
        self._note = note
        self._buf = self._load()
        self.lfn = lfn
        self.durable_to = max(offset, HEADER_SIZE)
        position: int | None = offset
        try:
            while position is not None:
                position = self._follow(position)
        except ForeignFrame as error:
            raise refusal(
                "foreign_frame",
                f"{error}; it is intact but not understood, use the version that wrote it",
                self.log_file.path,
                error.offset,
            ) from error
        self._note_proof()
        self.bytes_read = self.valid_end - offset
        self._buf = b""

    def _load(self) -> bytes:
        path, size = self.log_file.path, self.log_file.size
        file = reading(path, lambda: self._fs.open(path))
        try:
            return reading(path, lambda: read_exact(file, size, 0))
        finally:
            file.close()

    def _follow(self, offset: int) -> int | None:
        """Collect up to the next bad spot; returns where to go on behind it, None at the end."""
        buf, limit = self._buf, len(self._buf)
        self.valid_end = offset
        pending: list[int] = []  # frames of a submission whose last frame was not seen yet
        while True:
            walked = walk(buf, offset, limit, max_frames=_CHUNK_FRAMES)
            pending += walked.offsets
            offset = walked.stop
            count = _whole_submissions(buf, pending)
            self._collect(pending[:count], pending[count] if count < len(pending) else offset)
            pending = pending[count:]
            if walked.end is not None:
                return self._judge(walked.end, pending)

    def _collect(self, offsets: list[int], end: int) -> None:
        if offsets:
            self.collector.add(self._buf, offsets, self.lfn + 1)
            self.lfn += len(offsets)
            self.frames += len(offsets)
        self.valid_end = end
        self._note(end)

    def _judge(self, end: CleanEnd | Unreadable, pending: list[int]) -> int | None:
        """Decide what the end of readable frames means."""
        is_clean = isinstance(end, CleanEnd) and not pending
        if is_clean and (self._is_newest or end.offset == len(self._buf)):
            return None
        if not self._is_newest or self._proven_behind(end.offset) > self.valid_end:
            return self._damage(end, pending)
        self._tear(end.offset)
        return None

    def _proven_behind(self, offset: int) -> int:
        """The highest offset of this file that a beacon at or behind `offset` calls durable."""
        file_lfn = self.log_file.header.first_lfn
        behind = proven_behind(self._buf, offset, file_lfn=file_lfn, store_mark=self._mark)
        return max(self._last_stated(), behind)

    def _last_stated(self) -> int:
        """What the last beacon among the collected frames proves."""
        at = self.collector.last_beacon
        if at is None:
            return 0
        frame = decode_at(self._buf, at, len(self._buf))
        assert isinstance(frame, Frame)
        stated = stated_position(self._buf, frame, store_mark=self._mark)
        assert stated is not None
        return stated[1] if stated[0] == self.log_file.header.first_lfn else 0

    def _note_proof(self) -> None:
        """From where on the newest file has to be written back: see `repair`."""
        self.durable_to = min(max(self.durable_to, self._last_stated()), self.valid_end)
        if self._is_newest:
            self.tail_may_hold_acks = self._has_durable_frames()

    def _has_durable_frames(self) -> bool:
        """Whether a writer may have been told that something behind the proof is durable."""
        offset, end = self.durable_to, self.valid_end
        while offset < end:
            walked = walk(self._buf, offset, end, max_frames=_CHUNK_FRAMES)
            is_broken = walked.end is not None and walked.stop < end  # no telling what was there
            if is_broken or any(self._buf[at + FLAGS_AT] & FLAG_DURABLE for at in walked.offsets):
                return True
            offset = walked.stop
        return False

    def _tear(self, offset: int) -> None:
        self.orphans = sum(1 for _ in intact_frames(self._buf, offset, len(self._buf)))
        self.torn_bytes = max(0, len(self._buf.rstrip(b"\0")) - self.valid_end)

    def _damage(self, end: CleanEnd | Unreadable, pending: list[int]) -> int | None:
        """Bytes that were durable are gone: refuse, or in salvage find the next sound frame."""
        if not self._salvage:
            raise self._corrupt(end)
        self._collect(pending, end.offset)
        resumed = resync(self._buf, end.offset, len(self._buf), store_mark=self._mark)
        stop = len(self._buf) if resumed is None else resumed
        # How many frames were lost is unknown. Too high an ordinal is safe, one too low would
        # pass for a frame that the snapshot already contains.
        frames = min(max(1, (stop - end.offset) // OVERHEAD), self._most_lost)
        left = self._most_lost - sum(place.frames for place in self.lost)
        self.lost.append(LostFrames(self.lfn, frames))
        self.lfn += max(0, min(frames, left))
        return resumed

    def _corrupt(self, end: CleanEnd | Unreadable) -> RefusedToOpen:
        behind = intact_frames(self._buf, end.offset, len(self._buf))
        topics = sorted({frame.topic_id for frame in islice(behind, 10_000)} - {0})
        named = ", ".join(map(str, topics[:_TOPICS_NAMED])) or "no topic"
        why = end.why if isinstance(end, Unreadable) else "zeros where frames were"
        return refusal(
            "wal_corrupt",
            f"damaged at {end.offset} ({why}) although it was durable; shard "
            f"{self.log_file.header.shard}, intact frames behind it belong to topics {named}; "
            "restore the file, or set TOPICS_WAL_REPAIR=salvage to give up what is lost",
            self.log_file.path,
            end.offset,
        )


def _collector(size: int, mark: int) -> Collector:
    if size < BULK_BYTES:
        return Collector(mark)
    from topics.storage.wal.collect_bulk import BulkCollector  # noqa: PLC0415 - numpy is slow

    return BulkCollector(mark)


def _whole_submissions(buf: bytes, offsets: list[int]) -> int:
    """How many of these frames, from the first on, make up whole submissions."""
    count = len(offsets)
    while count and buf[offsets[count - 1] + FLAGS_AT] & FLAG_CONT:
        count -= 1
    return count
