"""One log group's writer, without a thread of its own.

Theory of operation. A shard appends to the newest file of its group (`rotation`) with one
positioned write per batch, or a few in a row if the batch is long. The caller (a committer) decides
when to write and when to sync. Once a sync has moved the durable position, the next write carries a
beacon that states the position. After a crash a beacon is what tells rot of acked bytes from a torn
tail.

One thread at a time writes, others only read plain attributes. Only a sync may run beside a write,
on another thread, and then it speaks for what was written before it began. Where threads can meet,
the writer holds `write_lock`. A sync does not take that lock: a write under way gives the
interpreter away, so a sync would always arrive inside a write and wait. The order of steps does
instead: a write moves the tail first and then looks whether the file is dirty, a sync calls the
file clean first and then looks at the tail.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from topics.errors import Internal
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import write_rest
from topics.storage.wal.files import BEACON_SIZE, Beacons, is_no_space
from topics.storage.wal.rotation import CLEAN, RotatingFile, ShardSetup, ShardState
from topics.storage.wal.stats import ShardStats
from topics.storage.wal.submission import Submission

__all__ = ["Shard", "ShardState"]

_EARLY_SHARE = 8
"""A tail within an eighth of its age limit is synced by `tick`, which spares a second look."""

LONG_BYTES = 4 << 20
PIECE_BYTES = 1 << 20
"""A write of more than `LONG_BYTES` is done in pieces of `PIECE_BYTES`."""


class Shard(RotatingFile):
    """Appends to one log group; see the module for how it stays consistent."""

    def __init__(self, setup: ShardSetup) -> None:
        super().__init__(setup)
        settings = setup.settings
        self._beacons = Beacons(setup.writer.store_mark)
        self._sync_limit_ns = settings.disk_sync_ms * 1_000_000
        self._sync_early_ns = self._sync_limit_ns - self._sync_limit_ns // _EARLY_SHARE
        self._max_unsynced = settings.max_unsynced
        self._batches = 0
        self._lfn_at_start = self.lfn
        self._closed = False
        self.write_lock = threading.RLock()
        self.wrote_ns = 0
        """How long the last write took."""
        self._wrote_at_ns = 0

    # What others may ask

    @property
    def is_dirty(self) -> bool:
        """Whether written bytes wait for a sync. Beacons alone do not count."""
        return self._dirty_since_ns != CLEAN

    @property
    def sync_is_due(self) -> bool:
        """Whether a sync of the tail was due, by its age or length, at the last write."""
        return self._wrote_at_ns - self._dirty_since_ns >= self._sync_limit_ns or self.is_tail_long

    @property
    def is_tail_long(self) -> bool:
        """Whether more bytes wait for a sync than `max_unsynced`, however short a time."""
        return self._tail - self.synced[1] >= self._max_unsynced

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

    # Writing

    def write_one(self, submission: Submission) -> None:
        """Write one submission that has frames; it is not committed if this raises."""
        frames = submission.frames
        submission.offset = self._write(
            (frames,), len(frames), submission.count, is_relief=submission.is_relief
        )
        submission.source_id = self.source_id
        submission.last_lfn = self.lfn
        submission.wrote_ns = self.wrote_ns

    def write_batch(self, batch: list[Submission]) -> None:
        """Write several submissions as one; none of them is committed if it raises."""
        count = sum([submission.count for submission in batch])
        parts = [submission.frames for submission in batch]
        size = sum(map(len, parts))
        is_relief = all(submission.is_relief for submission in batch)
        offset = self._write(parts, size, count, is_relief=is_relief) if size else self._tail
        lfn = self.lfn - count
        for submission in batch:
            lfn += submission.count
            submission.source_id = self.source_id
            submission.offset = offset
            submission.last_lfn = lfn
            submission.wrote_ns = self.wrote_ns
            offset += len(submission.frames)

    def _write(
        self, parts: Sequence[bytes | memoryview], size: int, count: int, *, is_relief: bool
    ) -> int:
        """Append `count` frames of `size` bytes; returns the offset of the first. Not durable yet.

        A long write is done in pieces, between which other threads get the interpreter. The tail
        moves when the last piece is written, so a sync that runs meanwhile covers none of the
        pieces, and after a crash a part of a write is a torn tail.
        """
        room = size + BEACON_SIZE
        if self.state is not ShardState.OPEN or self._tail + room > self._room:
            self._find_room(room, is_relief=is_relief)
        offset = end = self._tail
        if self._beacon_due:
            self._beacon_due = False  # now, since a sync may end during the write and set it again
            file_lfn, synced_to, _ = self.synced
            parts = (self._beacons.frame(file_lfn, synced_to), *parts)
            count += 1
            offset += BEACON_SIZE
        if size > LONG_BYTES:
            parts = [*_pieces(parts)]
        elif len(parts) != 1:
            parts = (b"".join(parts),)
        began_ns = self.clock()
        try:
            for piece in parts:
                written = self._pwrite(piece, end)
                if written != len(piece):
                    write_rest(self._file, piece, end, written)
                end += len(piece)
        except OSError as error:
            self._write_failed(error)
        self._wrote_at_ns = ended_ns = self.clock()
        self.wrote_ns = ended_ns - began_ns
        crashpoint("wal.after_write")
        if self._ring is not None:
            for piece in parts:
                self._ring.put(piece)
        # The order of these steps against those of a sync is explained in the module.
        self._tail = end
        self.lfn += count
        self._batches += 1
        if self._dirty_since_ns < 0:
            self._dirty_since_ns = began_ns
        return offset

    def _write_failed(self, error: OSError) -> NoReturn:
        """A write that ran out of space is taken back; any other leaves an unknown tail."""
        if not is_no_space(error):
            self._fail(f"write: {error}", error)
        try:
            self._file.truncate(self._tail)
            self._file.fsync()
        except OSError as second:
            self._fail(f"write: {error}, then taking it back: {second}", second)
        self._room = self._allocated = self._tail
        self._dirty_since_ns = CLEAN
        self._note_synced(self.position, self.clock())
        self._no_room(error)

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
        """Whether a thread that sleeps for so long must be woken when the file gets dirty."""
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
        with self.write_lock:
            fits = self._tail + BEACON_SIZE <= self._room
            is_quiet = self.state is ShardState.OPEN and not self.is_dirty
            if self._beacon_due and fits and is_quiet:
                self._write((), 0, 0, is_relief=False)
                self._dirty_since_ns = CLEAN

    # The end

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
    """Long parts in pieces, short parts joined.

    Each write gives the interpreter to other threads. With one write for each of thousands of
    submissions the writer would wait for the interpreter thousands of times.
    """
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
