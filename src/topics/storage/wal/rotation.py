"""The newest file of a log group: its room, its syncs, its successor, and what a full disk does.

Theory of operation.

- room: a file is allocated ahead of its tail, in doubling steps, and rotated when full. Both happen
  between batches, so a batch that does not fit costs nothing on disk.
- relief: the last bytes that are allocated are kept for what makes room (deletes, drops, acks, and
  the marks of a checkpoint). On a full disk such a submission is written there, and is as durable
  as ever; growing or rotating the file sets the same room aside again.
- states: OPEN takes writes. FULL refused a write for want of space and left no byte of it; it takes
  relief only, and reopens as soon as a spare file can be allocated. FAILED is for ever: after a
  failed write or sync the contents of the disk are unknown, and a second sync may succeed although
  the kernel has dropped the pages.
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, NoReturn

from topics.errors import Internal, LogFailed, LogFull
from topics.storage import layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import Fs
from topics.storage.handles import Handles, is_shortage
from topics.storage.interrupts import is_interrupt
from topics.storage.sources import Ring, Sources, WalSource
from topics.storage.wal import files
from topics.storage.wal.files import HEADER_SIZE, Link, Writer
from topics.storage.wal.settings import WalSettings
from topics.storage.wal.stats import SyncTimes
from topics.storage.wal.submission import Position
from topics.storage.wal.successor import NamedFile, Successor

_log = logging.getLogger("topics.storage")

CLEAN = -1
"""Since when the file is dirty, if it is not."""
_TELL_AGAIN_NS = 60_000_000_000
"""A disk that is full again this soon after it had room is not logged a second time."""


class ShardState(Enum):
    """Whether a shard takes writes."""

    OPEN = "open"
    FULL = "full"
    FAILED = "failed"


class ShardSetup(NamedTuple):
    """What a shard is made of."""

    fs: Fs
    directory: str
    writer: Writer
    link: Link
    settings: WalSettings
    sources: Sources
    handles: Handles
    monotonic_ns: Callable[[], int]
    ring: Ring | None


class RotatingFile:
    """The file that a shard appends to, and the one that comes after it.

    Building it creates the first file of its generation, durably named and pointed at by CURRENT;
    an `OSError` then means that nothing may be written to this group.
    """

    def __init__(self, setup: ShardSetup) -> None:
        fs, directory, writer, link, settings, sources, handles, monotonic_ns, ring = setup
        self.state = ShardState.OPEN
        self.writer = writer
        self.directory = directory
        self._settings = settings
        self._sources = sources
        self._handles = handles
        self.clock = monotonic_ns
        """What the sync tick is judged by."""
        self._ring = ring
        self._reason = ""
        self.was_interrupted = False
        """Whether it failed by an exception from outside, which was taken for the disk's."""
        self._probe_at_ns = 0
        self._told_at_ns: int | None = None  # when the log last said that the disk is full
        self._next = Successor(fs, directory, writer, handles)
        self._rotations = 0
        self._bytes_before = 0
        self._sync_times = SyncTimes()
        self.synced_ns = 0
        """How long the last sync took."""
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
        self.path = layout.wal_path(self.directory, link.first_lfn)
        """The file being written."""
        ring_start = 0
        if self._ring is not None:
            ring_start = self._ring.end
            self._ring.put(header)
        self._file = file
        self._pwrite = file.pwrite
        self._link = link
        self.source_id = self._sources.add(
            WalSource(self.path, self._handles, self._ring, ring_start=ring_start)
        )
        self._tail = HEADER_SIZE
        self._allocated = room
        self._room = room - self._kept  # without what is kept for relief
        self.synced = Position(link.first_lfn, HEADER_SIZE, self.lfn)
        """Everything before this place is durable."""
        self._synced_at_ns = 0
        self._dirty_since_ns = CLEAN
        # The header already proves all that came before it.
        self._beacon_due = False
        self._idle_due = False

    @property
    def position(self) -> Position:
        """Where the next frame goes."""
        return Position(self._link.first_lfn, self._tail, self.lfn)

    def refusal(self) -> Internal:
        """Why this shard takes no writes."""
        if self.state is ShardState.FULL:
            needed = min(self._step, files.LEAST_ROOM)
            return LogFull(shard=self.writer.shard, reason=self._reason, needed_bytes=needed)
        return LogFailed(shard=self.writer.shard, reason=self._reason)

    def sync(self) -> Position:
        """Make everything written so far durable; returns the place it reaches.

        Works in FULL too: no byte is added. A failure is final (see the module).
        """
        if self.state is ShardState.FAILED:
            raise self.refusal()
        if self._dirty_since_ns != CLEAN:
            self._sync_file()
        return self.synced

    def _sync_file(self) -> None:
        self._dirty_since_ns = CLEAN  # what comes after this makes it dirty again
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
        try:
            try:
                self._grow(self._tail + size)
            except OSError as error:
                if not files.is_no_space(error) or not self._next.has_room:
                    raise
                # The spare that let this shard heal has room of its own.
                self._rotate()
                self._grow(self._tail + size)
        except OSError as error:
            self._no_room(error)

    def _grow(self, needed: int) -> None:
        """Allocate this file further: twice as much, or what is needed where that does not fit."""
        if needed <= self._room:
            return
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

    def rotate(self) -> None:
        """Continue in a new file now, so that this one can go once no snapshot needs it.

        A file without frames stays: nothing is in it. By the thread that writes.
        """
        if self.state is not ShardState.OPEN:
            raise self.refusal()
        if self._tail > HEADER_SIZE:
            self._rotate()

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

    # Trouble

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
        """One line for a full disk, however many writes find the disk full."""
        if self._told_at_ns is None or now_ns - self._told_at_ns >= _TELL_AGAIN_NS:
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
        """Take no writes any more: a write here stopped at an unknown point."""
        if self.state is not ShardState.FAILED:
            self.state = ShardState.FAILED
            self._reason = reason
