"""One log group's writer, without a thread of its own.

Theory of operation. A shard owns the newest file of its group and appends to it with one positioned
write per batch, or a few in a row if it is long. The caller (a committer) decides when to write and
when to sync; the shard keeps the file in order around that:

- room: a file is allocated ahead of its tail, in doubling steps, and rotated when full. Both happen
  between batches, so a batch that does not fit costs nothing on disk.
- relief: the last bytes that are allocated are kept for what makes room (deletes, drops, acks, and
  the marks of a checkpoint). On a full disk such a submission is written there, and is as durable
  as ever; growing or rotating the file sets the same room aside again.
- beacons: once a sync has moved the durable position, the next write carries a beacon that states
  it. After a crash a beacon is what tells rot of acked bytes from a torn tail.
- states: OPEN takes writes. FULL refused a write for want of space and left no byte of it; it takes
  relief only, and reopens as soon as a spare file can be allocated. FAILED is for ever: after a
  failed write or sync nobody knows what the disk holds, and asking again may get a "yes" for pages
  already dropped.

One thread at a time writes, others only read plain attributes. Only a sync may run beside a write,
on another thread, and then it speaks for what was written before it began. Where threads can meet,
whoever writes holds `turn`. A sync does without: it would be let in just when a write under way has
let go of the interpreter, and wait for `turn` each time. The order of steps does instead: a write
moves the tail first and then looks whether the file is dirty, a sync calls it clean first and then
looks at the tail.
"""

import errno
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import NoReturn

from topics.errors import Internal, LogFailed, LogFull
from topics.storage import layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import Fs, write_all
from topics.storage.handles import Handles, is_shortage
from topics.storage.interrupts import is_interrupt
from topics.storage.sources import Ring, Sources, WalSource
from topics.storage.wal import files
from topics.storage.wal.files import BEACON_SIZE, HEADER_SIZE, Link, Writer
from topics.storage.wal.settings import WalSettings
from topics.storage.wal.stats import ShardStats, SyncTimes
from topics.storage.wal.submission import Position, Submission
from topics.storage.wal.successor import NamedFile, Successor

_log = logging.getLogger("topics.storage")

_CLEAN = -1
TELL_AGAIN_NS = 60_000_000_000
"""A disk that fills up again so soon after it had room is the same trouble still."""
_EARLY_SHARE = 8
"""A tail within an eighth of its age limit is synced by whoever looks, to spare a second look."""

LONG_BYTES = 4 << 20
PIECE_BYTES = 1 << 20
"""More than the first is written in pieces of the second."""


class ShardState(Enum):
    """Whether a shard takes writes."""

    OPEN = "open"
    FULL = "full"
    FAILED = "failed"


class Shard:
    """Appends to one log group; see the module for how it stays consistent.

    Building a shard creates the first file of its generation, durably named and pointed at by
    CURRENT; an `OSError` then means that nothing may be written to this group.
    """

    def __init__(
        self,
        fs: Fs,
        directory: str,
        writer: Writer,
        link: Link,
        *,
        settings: WalSettings,
        sources: Sources,
        handles: Handles,
        monotonic_ns: Callable[[], int],
        ring: Ring | None = None,
    ) -> None:
        self.state = ShardState.OPEN
        self.writer = writer
        self.directory = directory
        self._fs = fs
        self._settings = settings
        self._sources = sources
        self._handles = handles
        self.clock = monotonic_ns
        """What the sync tick is judged by."""
        self._ring = ring
        self._beacons = files.Beacons(writer.store_mark)
        self._reason = ""
        self.was_interrupted = False
        """Whether it failed by an exception from outside, which was taken for the disk's."""
        self._sync_limit_ns = settings.disk_sync_ms * 1_000_000
        self._sync_early_ns = self._sync_limit_ns - self._sync_limit_ns // _EARLY_SHARE
        self._max_unsynced = settings.max_unsynced
        self._probe_at_ns = 0
        self._told_at_ns: int | None = None  # when somebody was last told that the disk is full
        self._next = Successor(fs, directory, writer, handles)
        self._batches = 0
        self._rotations = 0
        self._bytes_before = 0
        self._lfn_at_start = link.first_lfn - 1
        self._sync_times = SyncTimes()
        self._closed = False
        self.turn = threading.RLock()
        self.wrote_ns = 0
        """How long the last write took."""
        self.synced_ns = 0
        """How long the last sync took."""
        self._wrote_at_ns = 0
        self._step = min(settings.prealloc_start, settings.file_bytes)
        self._kept = min(files.KEPT_ROOM, self._step // 16)

        self.lfn = link.first_lfn - 1
        """The last frame written."""
        try:
            self._next.reserve(self._step)
            self._next.name(link, self._next.head(link))
            named = self._next.take()
        except BaseException:
            self._next.close()
            raise
        self._start_file(named)

    def _start_file(self, named: NamedFile) -> None:
        """Write to this file from now on: its name, its header and CURRENT are durable."""
        file, link, header, room = named
        path = f"{self.directory}/{layout.wal_name(link.first_lfn)}"
        ring_start = 0
        if self._ring is not None:
            ring_start = self._ring.end
            self._ring.put(header)
        self._file = file
        self._pwrite = file.pwrite
        self._link = link
        self.source_id = self._sources.add(
            WalSource(path, self._handles, self._ring, ring_start=ring_start)
        )
        self._tail = HEADER_SIZE
        self._allocated = room
        self._room = room - self._kept  # without what is kept for relief
        self.synced = Position(link.first_lfn, HEADER_SIZE, self.lfn)
        """Everything before this place is durable."""
        self._synced_at_ns = 0
        self._dirty_since_ns = _CLEAN
        # The header already proves all that came before it.
        self._beacon_due = False
        self._idle_due = False

    # What others may ask

    @property
    def position(self) -> Position:
        """Where the next frame goes."""
        return Position(self._link.first_lfn, self._tail, self.lfn)

    @property
    def is_dirty(self) -> bool:
        """Whether written bytes wait for a sync. Beacons alone do not count."""
        return self._dirty_since_ns != _CLEAN

    @property
    def sync_is_due(self) -> bool:
        """Whether the tail was too old or too long for comfort when it was last written."""
        return self._wrote_at_ns - self._dirty_since_ns >= self._sync_limit_ns or self.is_tail_long

    @property
    def is_tail_long(self) -> bool:
        """Whether more than enough waits for a sync, however short a time."""
        return self._tail - self.synced[1] >= self._max_unsynced

    @property
    def path(self) -> str:
        """The file being written."""
        return f"{self.directory}/{layout.wal_name(self._link.first_lfn)}"

    def takes_at_once(self, size: int) -> bool:
        """Whether a write of this size needs nothing but the write: no room to make, no sync."""
        end = self._tail + size + BEACON_SIZE
        return (
            self.state is ShardState.OPEN
            and end <= self._room
            and end - self.synced[1] <= self._max_unsynced
        )

    def stats(self) -> ShardStats:
        """Totals so far; the syncs are those in the buckets, also while another one ends."""
        syncs = self._sync_times
        buckets = tuple(syncs.buckets)
        return ShardStats(
            frames=self.lfn - self._lfn_at_start,
            batches=self._batches,
            bytes_written=self._bytes_before + self._tail,
            rotations=self._rotations,
            syncs=sum(buckets),
            sync_ns=syncs.total_ns,
            sync_buckets=buckets,
        )

    def refusal(self) -> Internal:
        """Why this shard takes no writes."""
        if self.state is ShardState.FULL:
            needed = min(self._step, files.LEAST_ROOM)
            return LogFull(shard=self.writer.shard, reason=self._reason, needed_bytes=needed)
        return LogFailed(shard=self.writer.shard, reason=self._reason)

    # Committing

    def commit(self, submission: Submission) -> None:
        """Write one submission and sync if it, or the age of the tail, asks for it.

        Raises with the submission not committed; the usual path of an embedded write, so short.
        """
        self.write_one(submission)
        if submission.durable or self.sync_is_due:
            self.sync()
            submission.synced_ns = self.synced_ns

    def write_one(self, submission: Submission) -> None:
        """Write one submission that has frames; it is not committed if this raises."""
        submission.offset = self.write(
            submission.frames, submission.count, is_relief=submission.is_relief
        )
        submission.source_id = self.source_id
        submission.last_lfn = self.lfn
        submission.wrote_ns = self.wrote_ns

    def write_batch(self, batch: list[Submission]) -> None:
        """Write several submissions as one; none of them is committed if it raises."""
        count = sum([submission.count for submission in batch])
        if sum([len(submission.frames) for submission in batch]) > LONG_BYTES:
            offset = self._write_long([submission.frames for submission in batch], count)
        else:
            data = b"".join([submission.frames for submission in batch])
            is_relief = all(submission.is_relief for submission in batch)
            offset = self.write(data, count, is_relief=is_relief) if data else self._tail
        lfn = self.lfn - count
        for submission in batch:
            lfn += submission.count
            submission.source_id = self.source_id
            submission.offset = offset
            submission.last_lfn = lfn
            submission.wrote_ns = self.wrote_ns
            offset += len(submission.frames)

    def write(self, data: bytes | memoryview, count: int, *, is_relief: bool = False) -> int:
        """Append `count` frames; returns the offset of the first. Not durable yet."""
        if len(data) > LONG_BYTES:
            return self._write_long([data], count)
        size = len(data) + BEACON_SIZE
        if self.state is not ShardState.OPEN or self._tail + size > self._room:
            self._find_room(size, is_relief=is_relief)
        offset = start = self._tail
        if self._beacon_due:
            self._beacon_due = False  # now, since a sync may end during the write and set it again
            data = self._beacon() + data
            count += 1
            offset += BEACON_SIZE
        began = self.clock()
        try:
            written = self._pwrite(data, start)
            if written != len(data):
                self._put_rest(data, start, written)
        except OSError as error:
            self._write_failed(error)
        self._take_over((data,), start + len(data), count, began)
        return offset

    def _write_long(self, parts: Sequence[bytes | memoryview], count: int) -> int:
        """`write` without a copy of it all, in pieces between which others have the interpreter.

        Nobody sees that there are pieces: the tail moves when the last one is written, so a sync
        beside them speaks for none, and after a crash a part of a write is a torn tail.
        """
        self._find_room(sum(map(len, parts)) + BEACON_SIZE, is_relief=False)
        offset = end = self._tail
        if self._beacon_due:
            self._beacon_due = False
            parts = [self._beacon(), *parts]
            count += 1
            offset += BEACON_SIZE
        pieces = [*_pieces(parts)]
        began = self.clock()
        try:
            for piece in pieces:
                write_all(self._file, piece, end)
                end += len(piece)
        except OSError as error:
            self._write_failed(error)
        self._take_over(pieces, end, count, began)
        return offset

    def _take_over(
        self, pieces: Sequence[bytes | memoryview], end: int, count: int, began_ns: int
    ) -> None:
        """Count on what was written; the order of steps is explained in the module."""
        self._wrote_at_ns = ended_ns = self.clock()
        self.wrote_ns = ended_ns - began_ns
        crashpoint("wal.after_write")
        if self._ring is not None:
            for piece in pieces:
                self._ring.put(piece)
        self._tail = end
        self.lfn += count
        self._batches += 1
        if self._dirty_since_ns < 0:
            self._dirty_since_ns = began_ns

    def _put_rest(self, data: bytes | memoryview, start: int, written: int) -> None:
        if written <= 0:
            raise OSError(errno.EIO, "write made no progress")
        write_all(self._file, memoryview(data)[written:], start + written)

    def _beacon(self) -> bytes:
        file_lfn, offset, _ = self.synced
        return self._beacons.frame(file_lfn, offset)

    def sync(self) -> Position:
        """Make everything written so far durable; returns the place it reaches.

        Works in FULL too: no byte is added. A failure is final (see the module).
        """
        if self.state is ShardState.FAILED:
            raise self.refusal()
        if self._dirty_since_ns != _CLEAN:
            self._sync_file()
        return self.synced

    def _sync_file(self) -> None:
        self._dirty_since_ns = _CLEAN  # what comes after this makes it dirty again
        lfn = self.lfn  # before the tail, which a write moves first: never a frame too many
        reached = Position(self._link.first_lfn, self._tail, lfn)
        began = self.clock()
        try:
            self._file.fdatasync()
        except OSError as error:
            self._fail(f"sync: {error}", error)
        ended = self.clock()
        crashpoint("wal.after_sync")
        self.synced_ns = ended - began
        self._sync_times.add(self.synced_ns)
        self._note_synced(reached, ended)

    def _note_synced(self, reached: Position, now_ns: int) -> None:
        self.synced = max(self.synced, reached)
        self._synced_at_ns = now_ns
        self._beacon_due = True
        self._idle_due = True

    # Time

    def tick(self) -> None:
        """Do what is due by now: sync an old or long tail, leave a beacon, look for room.

        Never raises for the disk: a failure shows in `state`.
        """
        now = self.clock()
        try:
            if self._dirty_since_ns >= 0:
                if self.sync_is_due or now - self._dirty_since_ns >= self._sync_early_ns:
                    self.sync()
            elif self._idle_due and now - self._synced_at_ns >= self._sync_limit_ns:
                self._idle_due = False
                self._leave_beacon()
        except Internal:
            return
        if self.state is ShardState.FULL and now >= self._probe_at_ns:
            self.try_heal()

    def sleeps_too_long(self, wait_ns: int | None) -> bool:
        """Whether who sleeps for so long has to be told when the file gets dirty."""
        return wait_ns is None or wait_ns > self._sync_limit_ns

    def wait_ns(self) -> int | None:
        """How long until `tick` has something to do; None when nothing is due by itself."""
        due: int | None = None
        if self.state is ShardState.FAILED:
            return None
        if self._dirty_since_ns >= 0:
            due = self._dirty_since_ns + self._sync_limit_ns
        elif self._idle_due:
            due = self._synced_at_ns + self._sync_limit_ns
        if self.state is ShardState.FULL:
            due = self._probe_at_ns if due is None else min(due, self._probe_at_ns)
        return None if due is None else max(0, due - self.clock())

    def _leave_beacon(self) -> None:
        """Append a beacon without a sync: the tail stays clean, so it earns no further one."""
        with self.turn:
            fits = self._tail + BEACON_SIZE <= self._room
            is_quiet = self.state is ShardState.OPEN and not self.is_dirty
            if self._beacon_due and fits and is_quiet:
                self.write(b"", 0)
                self._dirty_since_ns = _CLEAN

    def prepare_spare(self) -> None:
        """Allocate the next file early once this one is three quarters full.

        Without room nothing happens: it matters only when rotation needs the file.
        """
        limit = self._settings.file_bytes
        if self._tail >= limit - limit // 4 and self.state is ShardState.OPEN:
            self._try_reserve()

    def try_heal(self) -> bool:
        """Leave FULL if a spare file can be allocated; returns whether writes are taken."""
        if self.state is ShardState.FULL:
            self._probe_at_ns = self.clock() + self._settings.probe_ms * 1_000_000
            if self._try_reserve():
                self.state = ShardState.OPEN
        return self.state is ShardState.OPEN

    def _heal_or_refuse(self) -> None:
        if self.state is ShardState.FAILED or self.clock() < self._probe_at_ns:
            raise self.refusal()
        if not self.try_heal():
            raise self.refusal()

    def _try_reserve(self) -> bool:
        try:
            self._next.reserve(self._step)
        except OSError:
            return False
        return True

    # Room

    def _find_room(self, size: int, *, is_relief: bool) -> None:
        """Have `size` bytes behind the tail that a write may use; raises when there are none."""
        try:
            if self.state is not ShardState.OPEN:
                self._heal_or_refuse()
            if self._tail + size > self._room:
                self._make_room(size)
        except LogFull:
            if not is_relief or self._tail + size > self._allocated:
                raise

    def _make_room(self, size: int) -> None:
        """Have `size` bytes allocated behind the tail, in this file or in the next."""
        end = self._tail + size + self._kept
        is_over = end > self._settings.file_bytes and self._tail > HEADER_SIZE
        if is_over or self._next.named is not None:
            self._rotate()
        if self._tail + size <= self._room:
            return
        try:
            self._grow(self._tail + size)
        except OSError as error:
            if not files.is_no_space(error) or not self._next.has_room:
                self._no_room(error)
            # The spare that let this shard heal has room of its own.
            self._rotate()
            self._grow_or_refuse(size)

    def _grow_or_refuse(self, size: int) -> None:
        if self._tail + size > self._room:
            try:
                self._grow(self._tail + size)
            except OSError as error:
                self._no_room(error)

    def _grow(self, needed: int) -> None:
        """Allocate this file further: twice as much, or what is needed where that does not fit."""
        doubled = min(self._allocated * 2, self._settings.file_bytes)
        least = files.whole_mib(needed + self._kept)
        room = max(doubled, least)
        try:
            files.allocate(self._file, room)
        except OSError as error:
            if room == least or not files.is_no_space(error):
                raise
            files.allocate(self._file, least)
            room = least
        self._allocated = room
        self._room = room - self._kept
        self._step = min(room, self._settings.file_bytes)

    def _rotate(self) -> None:
        """Continue in a new file. The order is what a crash at any point needs.

        The old file is whole, cut to length and durable before the new one has a name; the new one
        is written only after CURRENT names it. No space at any step leaves the shard FULL and the
        step to be done again; any other error is final.
        """
        try:
            newer = self._next.newer_generation()
            if newer is not None:
                self._fail(f"fenced: generation {newer} has taken over")
            if self._next.named is None:
                self._name_next()
            named = self._next.take()
        except (OSError, EOFError) as error:
            self._no_room(error)
        self._bytes_before += self._tail
        self._rotations += 1
        self._file.close()
        self._start_file(named)

    def _name_next(self) -> None:
        self._next.reserve(self._step)
        self._close_tail()
        # A file without frames is replaced rather than followed: both would have one name.
        link = self._link
        if self._tail > HEADER_SIZE:
            link = Link(self.lfn + 1, link.first_lfn, self._tail)
        header = self._next.head(link)
        try:
            self._next.name(link, header)
        except OSError as error:
            self._fail(f"rotation: {error}", error)
        # The old file may have lost its name: nothing goes there any more.
        self._room = self._allocated = self._tail

    def _close_tail(self) -> None:
        """Make the old file whole: its length is what the next header will insist on."""
        if self._tail == HEADER_SIZE:
            return
        if self._dirty_since_ns >= 0:
            self._sync_file()
        crashpoint("wal.rotate.synced")
        try:
            self._file.truncate(self._tail)
            self._room = self._allocated = self._tail
            crashpoint("wal.rotate.truncated")
            self._file.fsync()
        except OSError as error:
            self._fail(f"rotation: {error}", error)

    # Trouble

    def _write_failed(self, error: OSError) -> NoReturn:
        """A write that ran out of space is taken back; any other leaves an unknown tail."""
        if not files.is_no_space(error):
            self._fail(f"write: {error}", error)
        try:
            self._file.truncate(self._tail)
            self._file.fsync()
        except OSError as second:
            self._fail(f"write: {error}, then taking it back: {second}", second)
        self._room = self._allocated = self._tail
        self._dirty_since_ns = _CLEAN
        self._note_synced(self.position, self.clock())
        self._no_room(error)

    def _no_room(self, error: OSError | EOFError) -> NoReturn:
        """Nothing was written. Full disks heal; a lack of descriptors is this batch's alone."""
        if isinstance(error, OSError) and files.is_no_space(error):
            if self.state is ShardState.FAILED:  # by a sync beside this write: nothing heals that
                raise self.refusal() from error
            self.state = ShardState.FULL
            self._reason = str(error)
            now = self.clock()
            self._probe_at_ns = now + self._settings.probe_ms * 1_000_000
            self._tell_full(now)
            raise self.refusal() from error
        if isinstance(error, OSError) and is_shortage(error):
            raise Internal(
                f"log shard {self.writer.shard} could not open its next file ({error}); "
                "nothing was written, raise the limit of open files"
            ) from error
        self._fail(f"rotation: {error}", error)

    def _tell_full(self, now_ns: int) -> None:
        """One line for a full disk, however many writes find it so."""
        if self._told_at_ns is None or now_ns - self._told_at_ns >= TELL_AGAIN_NS:
            self._told_at_ns = now_ns
            refusal = str(self.refusal())
            _log.warning("%s", refusal)

    def _fail(self, reason: str, cause: Exception | None = None) -> NoReturn:
        if cause is not None and is_interrupt(cause):
            self.was_interrupted = True
        elif self.state is not ShardState.FAILED:
            _log.error("log shard %d failed: %s", self.writer.shard, reason)
        self.state = ShardState.FAILED
        self._reason = reason
        raise self.refusal() from cause

    def abandon(self, reason: str) -> None:
        """Take no writes any more: whoever wrote here stopped at an unknown point."""
        if self.state is not ShardState.FAILED:
            self.state = ShardState.FAILED
            self._reason = reason

    def close(self) -> None:
        """Sync, leave a last beacon, sync that too. Raises `LogFailed` if it is not all durable.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._settle()
        finally:
            self._next.discard()
            self._file.close()

    def release(self) -> None:
        """Close the files and write nothing, whatever was under way; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self.abandon("it was given up")
        self._next.close()
        self._file.close()

    def _settle(self) -> None:
        self.sync()
        before = self._tail
        self._leave_beacon()
        if self._tail > before:
            self._sync_file()


def _pieces(parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Long parts in pieces, short ones joined: each piece gives the interpreter away, and with a
    piece for each of thousands of submissions whoever writes would wait for it as many times."""
    short: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        if short and size + len(part) > PIECE_BYTES:
            yield b"".join(short)
            short, size = [], 0
        if len(part) <= PIECE_BYTES:
            short.append(part)
            size += len(part)
        else:
            whole = memoryview(part)
            yield from (whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES))
    if short:
        yield b"".join(short)
