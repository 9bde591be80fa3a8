"""Entering a data directory: is it ours, is it free, may we write to it.

Nothing is created in a directory that seems to belong to another program, and nothing is read
before the lock is held. A store is created in an order that a crash may cut anywhere: directories,
the first log files, and only then FORMAT. So FORMAT without log files means that the contents were
lost, and log files with records but without FORMAT mean that FORMAT was lost.
"""

from __future__ import annotations

import errno
import gc
import os
from contextlib import suppress
from typing import cast

import msgspec

from topics.engine.clock import Clock
from topics.errors import DirectoryLocked, RefusedToOpen
from topics.storage import identity, layout
from topics.storage.fs import Fs, Lock, parent_of, read_file, replace_file
from topics.storage.wal.files import HEADER_SIZE

_NO_DIR_SYNC = (errno.EINVAL, errno.ENOTSUP)
_OURS = frozenset(
    {
        layout.LOCK,
        layout.FORMAT,
        layout.META,
        layout.WAL,
        layout.TOPICS,
        layout.STAGES,
        layout.QUARANTINE,
        layout.FORMAT + ".tmp",
    }
)


class DataDirectory(msgspec.Struct):
    """A data directory. `format` is None for a store that is still to be created.

    The caller makes this object before `enter` locks the directory and calls `leave` after any
    exception: a signal handler may raise between the lock and the next step.
    """

    path: str
    format: identity.StoreFormat | None = None
    lock: Lock | None = None

    def enter(self, fs: Fs, clock: Clock) -> None:
        """Lock it for writing and find out what it is; `leave` it if this raises."""
        _refuse_foreign(fs, self.path)
        try:
            for created in fs.mkdirs(self.path):
                # `probe` judges what it means if that cannot be.
                without_dir_sync(fs).sync_dir(parent_of(created))
            self._lock(fs, clock)
        except OSError as error:
            raise _cannot("enter", self.path, error) from error
        self.format = _read_format(fs, self.path)

    def _lock(self, fs: Fs, clock: Clock) -> None:
        self.lock = _take_lock(fs, self.path)
        owner = identity.LockOwner(
            os.getpid(), os.uname().nodename, clock.now_ms(), fs.boot_id().hex()
        )
        self.lock.replace(identity.encode_lock(owner))

    def look_again(self, fs: Fs) -> None:
        """Read the format again: the store may have been created since `enter`."""
        self.format = _read_format(fs, self.path)

    def leave(self) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None


def enter(fs: Fs, path: str, clock: Clock) -> DataDirectory:
    """Lock a directory for writing and find out what it is."""
    entered = DataDirectory(path)
    try:
        entered.enter(fs, clock)
    except BaseException:
        entered.leave()
        raise
    return entered


def look_into(fs: Fs, path: str) -> DataDirectory:
    """Enter for reading only: no lock, no write."""
    _refuse_foreign(fs, path)
    found = _read_format(fs, path) if fs.exists(path) else None
    if found is None:
        raise RefusedToOpen(
            "format", message=f"{path} holds no topics store; create it by writing to it", file=path
        )
    return DataDirectory(path, found, None)


def _refuse_foreign(fs: Fs, path: str) -> None:
    try:
        names = set(fs.listdir(path))
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise RefusedToOpen(
            "format", message=f"{path} is a file; give a directory", file=path
        ) from error
    except OSError as error:
        raise _cannot("list", path, error) from error
    if names and not names & {layout.FORMAT, layout.LOCK, layout.WAL}:
        raise RefusedToOpen(
            "format",
            message=f"{path} has other files in it ({min(names)}, ...) and is not a topics "
            "store; give an empty or a new directory",
            file=path,
        )


def _take_lock(fs: Fs, path: str) -> Lock:
    lock_path = f"{path}/{layout.LOCK}"
    try:
        return fs.lock(lock_path)
    except BlockingIOError as error:
        owner = _owner(fs, lock_path)
        if owner is None:
            raise DirectoryLocked(lock_path) from error
        if owner.pid != os.getpid():
            raise _locked_by(lock_path, owner) from error
    # A log of this process that was not closed and is no longer referenced gives up its lock when
    # it is collected.
    gc.collect()
    try:
        return fs.lock(lock_path)
    except BlockingIOError as error:
        raise _locked_by(lock_path, owner) from error


def _owner(fs: Fs, lock_path: str) -> identity.LockOwner | None:
    with suppress(OSError, EOFError):
        return identity.decode_lock(read_file(fs, lock_path))
    return None


def _locked_by(lock_path: str, owner: identity.LockOwner) -> DirectoryLocked:
    return DirectoryLocked(lock_path, pid=owner.pid, host=owner.host, since_ms=owner.started_ms)


def _read_format(fs: Fs, path: str) -> identity.StoreFormat | None:
    format_path = f"{path}/{layout.FORMAT}"
    try:
        if fs.exists(format_path):
            found = identity.decode_format(read_file(fs, format_path), file=format_path)
            _insist_on_contents(fs, path)
            return found
        _insist_on_nothing(fs, path)
    except (OSError, EOFError) as error:
        raise _cannot("read", format_path, error) from error
    return None


def _insist_on_contents(fs: Fs, path: str) -> None:
    if _log_files(fs, path):
        return
    with suppress(FileNotFoundError):
        if any(layout.parse_snapshot(n) for n in fs.listdir(f"{path}/{layout.META}")):
            return
    raise RefusedToOpen(
        "metadata_lost",
        message=f"{path} says it is a store, but its log and snapshots are gone; restore them",
        file=path,
    )


def _insist_on_nothing(fs: Fs, path: str) -> None:
    """Without FORMAT there may be at most what an interrupted creation leaves."""
    leftovers = [f for f in _log_files(fs, path) if fs.size(f) > 0 and not _is_header_only(fs, f)]
    for name in (layout.META, layout.TOPICS):
        with suppress(FileNotFoundError):
            leftovers += [f"{path}/{name}/{n}" for n in fs.listdir(f"{path}/{name}")]
    unknown = set(fs.listdir(path)) - _OURS
    if leftovers or unknown:
        first = min(leftovers or [f"{path}/{name}" for name in unknown])
        raise RefusedToOpen(
            "format",
            message=f"{path} has data in it ({first}) but no FORMAT file; restore FORMAT, "
            "or give an empty directory",
            file=f"{path}/{layout.FORMAT}",
        )


def _log_files(fs: Fs, path: str) -> list[str]:
    found = []
    wal = f"{path}/{layout.WAL}"
    if not fs.exists(wal):
        return []
    names = fs.listdir(wal)
    directories = [wal, *(f"{wal}/{n}" for n in names if layout.parse_group(n) is not None)]
    for directory in directories:
        found += [
            f"{directory}/{name}"
            for name in fs.listdir(directory)
            if layout.parse_wal(name) is not None
        ]
    return found


def _is_header_only(fs: Fs, path: str) -> bool:
    file = fs.open(path)
    try:
        rest = file.pread(file.size() - HEADER_SIZE, HEADER_SIZE)
        return not rest.strip(b"\0")
    finally:
        file.close()


def clear_unborn(fs: Fs, path: str) -> None:
    """Remove what an interrupted creation left: log files without a record, temporary files."""
    wal = f"{path}/{layout.WAL}"
    if not fs.exists(wal):
        return
    for file in _log_files(fs, path):
        fs.unlink(file)
    names = fs.listdir(wal)
    for directory in [wal, *(f"{wal}/{n}" for n in names if layout.parse_group(n) is not None)]:
        for name in fs.listdir(directory):
            if name == layout.CURRENT or name.endswith(".tmp"):
                fs.unlink(f"{directory}/{name}")
        fs.sync_dir(directory)


def give_birth(fs: Fs, path: str, store: identity.StoreFormat) -> None:
    """The last step of a creation: FORMAT, durably."""
    replace_file(fs, f"{path}/{layout.FORMAT}", identity.encode_format(store))


def probe(fs: Fs, path: str) -> None:
    """Refuse a file system on which names cannot be made durable."""
    try:
        fs.sync_dir(path)
    except OSError as error:
        raise RefusedToOpen(
            "io_error",
            message=f"{path}: directories cannot be synced here ({error}); a crash could lose "
            "files. Use another file system, or set TOPICS_UNSAFE_NO_DIR_FSYNC=1",
            file=path,
        ) from error


def without_dir_sync(fs: Fs) -> Fs:
    """The same file system without syncs of directories, for an operator who accepts the risk."""
    return cast("Fs", _WithoutDirSync(fs))


class _WithoutDirSync:
    def __init__(self, fs: Fs) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> object:
        return getattr(self._fs, name)

    def sync_dir(self, path: str) -> None:
        try:
            self._fs.sync_dir(path)
        except OSError as error:
            if error.errno not in _NO_DIR_SYNC:
                raise


def _cannot(action: str, path: str, error: Exception) -> RefusedToOpen:
    return RefusedToOpen(
        "io_error",
        message=f"cannot {action} {path}: {error}; check permissions, space and the disk",
        file=path,
    )
