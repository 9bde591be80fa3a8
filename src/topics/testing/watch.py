"""A file system that watches the order of calls and objects to the ones that risk data.

The rules it can see by itself:

- a `*.tmp` file is renamed only when everything written to it was synced;
- a snapshot is removed only when a newer one has a durable name;
- a WAL file whose sync failed is not written, truncated, synced, renamed or removed again.

The rules that need the product's word, given through a method:

- `acked(path, offset)`: everything below the offset was synced and the name is durable;
- `tier_flip_durable(path)`: only now may the hot copy of a relocated segment go.

It watches and never acts: the calls it passes on are the calls it got, plus `exists` and `size`.
"""

import posixpath
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import NoReturn

from topics.storage.fs import TMP_SUFFIX, Buffer, File, Fs, Lock, parent_of

_SNAPSHOT = re.compile(r"snapshot\.(\d+)\.bin")
_WAL_FILE = "wal-*.log"
_SEGMENT_FILE = "seg-*.*"


@dataclass(eq=False, slots=True)
class _Watched:
    """One file: its newest name and its changes since the last sync.

    A change is (number, first byte affected). The name follows a rename, since a WAL file is
    prepared under another name and renamed while open.
    """

    path: str
    unsynced: list[tuple[int, int]] = field(default_factory=list)
    changes: int = 0
    sync_failed: bool = False
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    """Guards the list and the count: one thread writes while another syncs."""

    def changed(self, start: int) -> None:
        with self._mutex:
            self.changes += 1
            self.unsynced.append((self.changes, start))

    def synced(self, through: int) -> None:
        """A sync covers what was written before it began, not what came meanwhile."""
        with self._mutex:
            self.unsynced = [change for change in self.unsynced if change[0] > through]


class WatchFs:
    """Wraps any `Fs` and raises `AssertionError` at the first call out of order.

    Each objection is also kept in `violations`, since product code may catch the error; end a
    test with `check()`. `data_dir` and `cold_dir` switch on the rule about relocated segments.
    Any thread may call.
    """

    def __init__(
        self, inner: Fs, *, data_dir: str | None = None, cold_dir: str | None = None
    ) -> None:
        self.inner = inner
        self.violations: list[str] = []
        self._data_dir = data_dir
        self._cold_dir = cold_dir
        self._files: dict[str, _Watched] = {}
        self._unsynced_names: set[str] = set()
        self._snapshots: set[str] = set()
        self._released_segments: set[str] = set()
        self._mutex = threading.RLock()

    # What a test says.

    def acked(self, path: str, offset: int) -> None:
        """A caller was told that the bytes of `path` below `offset` are safe."""
        with self._mutex:
            name = self._first_unsynced_name(path)
            if name is not None:
                self.object(f"acked from {path} while the name {name} is not durable")
            if any(start < offset for _, start in self.watched(path).unsynced):
                self.object(f"acked {path} up to {offset} before its sync")

    def tier_flip_durable(self, path: str) -> None:
        """The log durably says that the segment at hot `path` (any of its files) is cold."""
        self._released_segments.add(_segment_of(path))

    def drop_durable(self, path: str) -> None:
        """The log durably says that the segment at hot `path` (any of its files) is dead."""
        self._released_segments.add(_segment_of(path))

    def restart(self, *, power_lost: bool = True) -> None:
        """A new program run begins: it may repair what the last one had to leave alone.

        After a power cut whatever is on the disk is durable; after a mere process death
        (`power_lost=False`) un-synced bytes and names stay un-synced.
        """
        with self._mutex:
            if power_lost:
                self._files.clear()
                self._unsynced_names.clear()
            for watched in self._files.values():
                watched.sync_failed = False

    def check(self) -> None:
        """Fail if anything was ever out of order, even if the product caught the error."""
        if self.violations:
            raise AssertionError("; ".join(self.violations))

    # The seam.

    def open(
        self,
        path: str,
        *,
        write: bool = False,
        create: bool = False,
        exclusive: bool = False,
        truncate: bool = False,
    ) -> File:
        existed = not write or self.inner.exists(path)
        if truncate:
            self.forbid_after_failed_sync(path, "truncate")
        file = self.inner.open(
            path, write=write, create=create, exclusive=exclusive, truncate=truncate
        )
        with self._mutex:
            if not existed:
                self._unsynced_names.add(_clean(path))
                self._files.pop(_clean(path), None)
            if truncate or not existed:
                self.watched(path).changed(0)
            return WatchFile(self, file, self.watched(path))

    def rename(self, source: str, target: str) -> None:
        self.forbid_after_failed_sync(source, "rename")
        with self._mutex:
            if source.endswith(TMP_SUFFIX) and self.watched(source).unsynced:
                self.object(f"{source} renamed before its fsync")
        self.inner.rename(source, target)
        with self._mutex:
            self._forget_name(source)
            self._forget_name(target)
            self._files.pop(_clean(target), None)
            self._move_below(_clean(source), _clean(target))
            self._unsynced_names.add(_clean(target))

    def unlink(self, path: str) -> None:
        self.forbid_after_failed_sync(path, "unlink")
        with self._mutex:
            self._check_snapshot_removal(path)
            self._check_segment_removal(path)
        self.inner.unlink(path)
        with self._mutex:
            self._forget_name(path)
            self._files.pop(_clean(path), None)

    def rmdir(self, path: str) -> None:
        self.inner.rmdir(path)
        with self._mutex:
            self._forget_name(path)

    def mkdirs(self, path: str) -> list[str]:
        created = self.inner.mkdirs(path)
        with self._mutex:
            self._unsynced_names.update(map(_clean, created))
        return created

    def listdir(self, path: str) -> list[str]:
        names = self.inner.listdir(path)
        with self._mutex:
            for name in names:
                self._note_snapshot(posixpath.join(path, name))
        return names

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        return self.inner.size(path)

    def room(self, path: str) -> tuple[int, int]:
        return self.inner.room(path)

    def sync_dir(self, path: str) -> None:
        with self._mutex:
            folder = _clean(path)
            covered = {name for name in self._unsynced_names if parent_of(name) == folder}
        self.inner.sync_dir(path)
        with self._mutex:
            self._unsynced_names -= covered
            for name in covered:
                self._note_snapshot(name)

    def lock(self, path: str) -> Lock:
        return self.inner.lock(path)

    def boot_id(self) -> bytes:
        return self.inner.boot_id()

    # How an order is judged.

    def object(self, reason: str) -> NoReturn:
        self.violations.append(reason)
        raise AssertionError(reason)

    def watched(self, path: str) -> _Watched:
        with self._mutex:
            return self._files.setdefault(_clean(path), _Watched(_clean(path)))

    def forbid_after_failed_sync(self, path: str, op: str) -> None:
        with self._mutex:
            if self.watched(path).sync_failed:
                self.object(f"{op} of {path} after its failed sync")

    def _first_unsynced_name(self, path: str) -> str | None:
        name = _clean(path)
        while name not in self._unsynced_names:
            if parent_of(name) in (name, "."):
                return None
            name = parent_of(name)
        return name

    def _forget_name(self, path: str) -> None:
        self._unsynced_names.discard(_clean(path))
        self._snapshots.discard(_clean(path))

    def _move_below(self, source: str, target: str) -> None:
        """A file, or everything known below a directory, goes on under its new path."""
        for path in [path for path in self._files if _is_within(path, source)]:
            watched = self._files.pop(path)
            watched.path = target + path.removeprefix(source)
            self._files[watched.path] = watched
        for names in (self._unsynced_names, self._snapshots):
            inside = {name for name in names if _is_within(name, source)}
            names.difference_update(inside)
            names.update(target + name.removeprefix(source) for name in inside)

    def _note_snapshot(self, path: str) -> None:
        name = _clean(path)
        if _snapshot_number(name) is not None and name not in self._unsynced_names:
            self._snapshots.add(name)

    def _check_snapshot_removal(self, path: str) -> None:
        number = _snapshot_number(path)
        if number is None:
            return
        folder = parent_of(_clean(path))
        newer = [
            known
            for known in self._snapshots
            if parent_of(known) == folder and (_snapshot_number(known) or 0) > number
        ]
        if not newer:
            self.object(f"{path} removed before a newer snapshot was durable")

    def _check_segment_removal(self, path: str) -> None:
        if self._data_dir is None or self._cold_dir is None:
            return
        relative = posixpath.relpath(_clean(path), _clean(self._data_dir))
        is_hot = not relative.startswith("..") and fnmatch(_base(path), _SEGMENT_FILE)
        if not is_hot or _segment_of(path) in self._released_segments:
            return
        cold = posixpath.join(self._cold_dir, _segment_of(relative) + ".data")
        if self.inner.exists(cold):
            self.object(f"{path} removed before its move to the cold tier was durable")


class WatchFile:
    """A file whose changes and syncs its `WatchFs` writes down."""

    def __init__(self, owner: WatchFs, inner: File, watched: _Watched) -> None:
        self._owner = owner
        self._inner = inner
        self._watched = watched

    def pread(self, size: int, offset: int) -> bytes:
        return self._inner.pread(size, offset)

    def pwrite(self, data: Buffer, offset: int) -> int:
        self._forbid("pwrite")
        # Noted before the call: a sync that starts in between must not be taken to cover it.
        self._watched.changed(offset)
        return self._inner.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        self._forbid("truncate")
        self._watched.changed(min(size, self._inner.size()))
        self._inner.truncate(size)

    def fallocate(self, size: int) -> None:
        self._forbid("fallocate")
        before = self._inner.size()
        self._inner.fallocate(size)
        if size > before:
            self._watched.changed(before)

    def fdatasync(self) -> None:
        self._sync("fdatasync", self._inner.fdatasync)

    def fsync(self) -> None:
        self._sync("fsync", self._inner.fsync)

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()

    def _sync(self, op: str, sync: Callable[[], None]) -> None:
        self._forbid(op)
        through = self._watched.changes
        try:
            sync()
        except OSError:
            if fnmatch(_base(self._watched.path), _WAL_FILE):
                self._watched.sync_failed = True
            raise
        self._watched.synced(through)

    def _forbid(self, op: str) -> None:
        if self._watched.sync_failed:
            self._owner.object(f"{op} of {self._watched.path} after its failed sync")


def _clean(path: str) -> str:
    return posixpath.normpath(path)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _base(path: str) -> str:
    return posixpath.basename(_clean(path))


def _segment_of(path: str) -> str:
    """A segment's path without the extension that tells its files apart."""
    return posixpath.splitext(_clean(path))[0]


def _snapshot_number(path: str) -> int | None:
    match = _SNAPSHOT.fullmatch(_base(path))
    return int(match[1]) if match else None
