"""The file-system seam: every byte the store keeps passes through an `Fs`.

Nothing else in `topics` opens, renames or removes a data file, so a test can put a disk in memory,
an injected error or an ordering check under the whole store. `RealFs` is the thinnest possible
implementation: one call, one system call, every error passed on. Retrying and healing are
decisions of the layers above, which know what was promised; a seam that retried would hide the
failed fsync the writer must see.

Bytes and names become durable separately. `File.fdatasync` and `File.fsync` cover a file's
contents; `Fs.sync_dir` covers the creations, renames and removals inside one directory. A new file
is safe only after both.
"""

import errno
import fcntl
import os
import stat
import sys
from collections import deque
from functools import cache
from typing import Protocol, TypeAlias
from uuid import UUID
from weakref import WeakSet

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What can be written: anything that is already bytes, without copying it first."""

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
TMP_SUFFIX = ".tmp"
"""Ends the name of every file that is not finished; recovery removes such files unread."""

_CLOSED_FD = 2**31 - 1
"""A descriptor no process has: using a closed handle is EBADF, as an `OSError` should be."""

_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"


class File(Protocol):
    """An open regular file, addressed by offset so that readers and the writer share no cursor."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only when the file ends before."""
        ...

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Write some or all of `data`; return how many bytes were taken (see `write_all`)."""
        ...

    def truncate(self, size: int) -> None:
        """Set the size; a longer file reads zeros in the new part."""
        ...

    def fallocate(self, size: int) -> None:
        """Reserve room for the first `size` bytes and grow the file to it; never shrinks it."""
        ...

    def fdatasync(self) -> None:
        """Make the contents durable, and the size if a reader needs it."""
        ...

    def fsync(self) -> None:
        """Make the contents and the inode durable; not the name, see `Fs.sync_dir`."""
        ...

    def size(self) -> int:
        """The current size in bytes."""
        ...

    def close(self) -> None:
        """Release the handle; a second call does nothing."""
        ...


class Lock(Protocol):
    """Exclusive ownership of a store, held until `close` or the death of the process."""

    def read(self) -> bytes:
        """The lock file's contents, which tell an operator who owns it."""
        ...

    def replace(self, data: bytes) -> None:
        """Change the contents in place; the file itself must keep its identity to stay locked."""
        ...

    def close(self) -> None:
        """Give up the lock; the file stays. A second call does nothing."""
        ...


class Fs(Protocol):
    """The directory tree. Paths are plain strings; a missing one raises `FileNotFoundError`."""

    def open(
        self,
        path: str,
        *,
        write: bool = False,
        create: bool = False,
        exclusive: bool = False,
        truncate: bool = False,
    ) -> File:
        """Open a regular file for reading, or with `write` for both.

        `create` makes a missing file, `exclusive` insists on making it (`FileExistsError`
        otherwise) and `truncate` empties it; all three need `write`.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory; a file at `target` is replaced in one step."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file's name; handles already open keep working."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def mkdirs(self, path: str) -> list[str]:
        """Create a directory and its missing parents; return those created, parents first.

        The caller owes a `sync_dir` of each new directory's parent before relying on it.
        """
        ...

    def listdir(self, path: str) -> list[str]:
        """The names inside a directory, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""
        ...

    def size(self, path: str) -> int:
        """The size of a regular file in bytes."""
        ...

    def room(self, path: str) -> tuple[int, int]:
        """Bytes that may still be written where `path` is, and bytes there in all."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the creations, renames and removals inside this directory durable."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the lock file, creating it if missing; `BlockingIOError` when it is held."""
        ...

    def boot_id(self) -> bytes:
        """16 bytes naming this boot: equal ids mean the page cache survived in between."""
        ...


def write_all(file: File, data: Buffer, offset: int) -> None:
    """Write every byte of `data` at `offset`, however little the disk accepts at a time."""
    written = file.pwrite(data, offset)
    if written != len(data):
        write_rest(file, data, offset, written)


def write_rest(file: File, data: Buffer, offset: int, written: int) -> None:
    """Go on with a write of `data` at `offset` of which `written` bytes were accepted.

    A write that takes nothing is reported as `EIO`: asking again could go on for ever.
    """
    rest = memoryview(data).cast("B")
    while True:
        if written <= 0:
            raise OSError(errno.EIO, "write made no progress")
        rest = rest[written:]
        offset += written
        if not rest:
            return
        written = file.pwrite(rest, offset)


def read_exact(file: File, size: int, offset: int) -> bytes:
    """Exactly `size` bytes at `offset`; `EOFError` when the file ends before."""
    data = file.pread(size, offset)
    if len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing:
        if not parts[-1]:
            raise EOFError(f"file ends {missing} bytes before {offset + size}")
        parts.append(file.pread(missing, offset + size - missing))
        missing -= len(parts[-1])
    return b"".join(parts)


def read_file(fs: Fs, path: str) -> bytes:
    """The whole contents of a small file."""
    file = fs.open(path)
    try:
        return read_exact(file, file.size(), 0)
    finally:
        file.close()


def replace_file(fs: Fs, path: str, data: Buffer) -> None:
    """Give `path` new contents so that a crash leaves the old or the new file, never a mix.

    On return both contents and name are durable. On an error the old file still stands, and a
    leftover temporary file is overwritten by the next try or removed by recovery.
    """
    tmp = path + TMP_SUFFIX
    file = fs.open(tmp, write=True, create=True, truncate=True)
    try:
        write_all(file, data, 0)
        file.fsync()
    finally:
        file.close()
    fs.rename(tmp, path)
    fs.sync_dir(parent_of(path))


def parent_of(path: str) -> str:
    """The directory that holds this name: what to `sync_dir` after changing it."""
    return os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


class RealFile:
    """A descriptor and nothing more. If an exception keeps its users from closing it, the garbage
    collector does."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        self.close()

    def pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def pwrite(self, data: Buffer, offset: int) -> int:
        return os.pwrite(self._fd, data, offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def fallocate(self, size: int) -> None:
        if sys.platform == "linux":
            os.posix_fallocate(self._fd, 0, size)
        else:  # pragma: no cover - the tests run on Linux
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def fdatasync(self) -> None:
        if sys.platform == "linux":
            os.fdatasync(self._fd)
        else:  # pragma: no cover - the tests run on Linux
            os.fsync(self._fd)

    def fsync(self) -> None:
        os.fsync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        fd, self._fd = self._fd, _CLOSED_FD
        if fd != _CLOSED_FD:
            os.close(fd)


class RealLock:
    """An exclusive `flock`.

    It is released by closing, never by unlocking: a forked child that closes its copy must not
    take the lock away from its parent. A child closes it at once, or the lock would outlive the
    parent for as long as any child does.

    A signal handler may raise between any two bytecodes, and a descriptor that no variable holds
    would keep the directory locked until the process ends. So the list owns the descriptor from the
    start: the interpreter runs no signal handler inside `extend` and `map`.
    """

    def __init__(self) -> None:
        self._fds: list[int] = []
        _locks.add(self)

    def take(self, path: str) -> None:
        """Open and lock the file; after an exception it is neither."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fds.extend(map(os.open, (path,), (flags,), (FILE_MODE,)))
            fcntl.flock(self._fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.close()
            raise

    @property
    def _fd(self) -> int:
        return self._fds[0] if self._fds else _CLOSED_FD

    def read(self) -> bytes:
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0)

    def replace(self, data: bytes) -> None:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, data, 0)

    def close(self) -> None:
        # As with `extend`: no signal handler runs between taking a descriptor out and closing it.
        deque(map(os.close, map(self._fds.pop, [0] * len(self._fds))), maxlen=0)

    def __del__(self) -> None:
        self.close()


_locks: WeakSet[RealLock] = WeakSet()


def _close_locks() -> None:  # pragma: no cover - runs in forked children, which are not measured
    for lock in list(_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_locks)


class RealFs:
    """The operating system's file system, unadorned."""

    def open(
        self,
        path: str,
        *,
        write: bool = False,
        create: bool = False,
        exclusive: bool = False,
        truncate: bool = False,
    ) -> RealFile:
        flags = open_flags(write=write, create=create, exclusive=exclusive, truncate=truncate)
        file = RealFile(os.open(path, flags, FILE_MODE))
        if stat.S_ISDIR(os.fstat(file._fd).st_mode):
            file.close()
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return file

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def mkdirs(self, path: str) -> list[str]:
        created: list[str] = []
        _make_directory(path, created)
        return created

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: str) -> int:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return found.st_size

    def room(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> RealLock:
        lock = RealLock()
        lock.take(path)
        return lock

    def boot_id(self) -> bytes:
        return _kernel_boot_id()


def open_flags(*, write: bool, create: bool, exclusive: bool, truncate: bool) -> int:
    """The flags of `os.open`; refuses to create or empty a file that is opened for reading."""
    if not write and (create or exclusive or truncate):
        raise ValueError("create, exclusive and truncate need write")
    flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
    if create or exclusive:
        flags |= os.O_CREAT
    if exclusive:
        flags |= os.O_EXCL
    if truncate:
        flags |= os.O_TRUNC
    return flags


def is_open_to_all(path: str) -> bool:
    """Whether every user of the machine may put files into a directory, or replace those there."""
    return bool(os.stat(path).st_mode & stat.S_IWOTH)


def _make_directory(path: str, created: list[str]) -> None:
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileNotFoundError:
        _make_directory(parent_of(path), created)
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    created.append(path)


@cache
def _kernel_boot_id() -> bytes:
    """The kernel's id, or one that no other process shares.

    Where the kernel gives none we must not guess that the page cache survived, so every process
    gets its own id and its successor assumes a power loss: slower to recover, never wrong.
    """
    try:
        with open(_BOOT_ID_PATH, encoding="ascii") as source:
            return UUID(source.read().strip()).bytes
    except (OSError, ValueError):
        return os.urandom(16)
