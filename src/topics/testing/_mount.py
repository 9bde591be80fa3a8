"""A simulated disk as a running program sees it: the `Fs` seam over a `Platter`."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from topics.storage.fs import Buffer, parent_of
from topics.testing._inode import DirNode, Inode
from topics.testing._platter import Platter, os_error


class PowerOff(BaseException):
    """The machine this program ran on is gone.

    Not an `Exception`: a handler meant for I/O errors must not treat the end of the world as one,
    carry on and acknowledge something.
    """


class SimFile:
    """A handle. It dies with the program that opened it."""

    __slots__ = ("_closed", "_era", "_inode", "_platter", "_writable")

    def __init__(self, platter: Platter, inode: Inode, *, writable: bool) -> None:
        self._platter = platter
        self._inode = inode
        self._writable = writable
        self._era = platter.era
        self._closed = False
        inode.handles += 1

    def pread(self, size: int, offset: int) -> bytes:
        with self._platter.mutex:
            self._check()
            _check_offset(offset)
            return self._inode.seen.read(size, offset)

    def pwrite(self, data: Buffer, offset: int) -> int:
        with self._platter.mutex:
            self._check_writable()
            _check_offset(offset)
            return self._platter.write(self._inode, data, offset) if len(data) else 0

    def truncate(self, size: int) -> None:
        with self._platter.mutex:
            self._check_writable(refusal=errno.EINVAL)
            _check_offset(size)
            self._platter.resize(self._inode, size)

    def fallocate(self, size: int) -> None:
        with self._platter.mutex:
            self._check_writable()
            if size <= 0:
                raise os_error(errno.EINVAL, self._inode.path)
            self._platter.fallocate(self._inode, size)

    def fdatasync(self) -> None:
        self._sync()

    def fsync(self) -> None:
        self._sync()

    def size(self) -> int:
        with self._platter.mutex:
            self._check()
            return self._inode.seen.size

    def close(self) -> None:
        """Also allowed after a power cut: it can do no harm, and clean-up code calls it."""
        with self._platter.mutex:
            if not self._closed and self._era == self._platter.era:
                self._inode.handles -= 1
                self._platter.release_if_unused(self._inode)
            self._closed = True

    def _sync(self) -> None:
        with self._platter.mutex:
            self._check()
            self._platter.sync(self._inode)

    def _check(self) -> None:
        if self._era != self._platter.era:
            raise PowerOff(self._inode.path)
        if self._closed:
            raise os_error(errno.EBADF, self._inode.path)

    def _check_writable(self, refusal: int = errno.EBADF) -> None:
        self._check()
        if not self._writable:
            raise os_error(refusal, self._inode.path)


class SimLock:
    """A held lock; it is free again when closed or when its program dies."""

    def __init__(self, platter: Platter, file: SimFile, inode: Inode) -> None:
        self._platter = platter
        self._file = file
        self._inode = inode
        self._era = platter.era
        self._held = True
        inode.lock_era = self._era

    def read(self) -> bytes:
        return self._file.pread(self._file.size(), 0)

    def replace(self, data: bytes) -> None:
        self._file.truncate(0)
        self._file.pwrite(data, 0)

    def close(self) -> None:
        with self._platter.mutex:
            if self._held and self._inode.lock_era == self._era:
                self._inode.lock_era = -1
            self._held = False
            self._file.close()


class Mount:
    """The `Fs` of one running program.

    With `era` set, every call raises `PowerOff` once the disk went on to another era, so a thread
    of the dead program cannot touch what its successor reads. Paths start at the root of the
    simulated disk, with or without a leading slash.
    """

    def __init__(self, platter: Platter, *, era: int | None) -> None:
        self._platter = platter
        self._era = era

    def open(
        self,
        path: str,
        *,
        write: bool = False,
        create: bool = False,
        exclusive: bool = False,
        truncate: bool = False,
    ) -> SimFile:
        if not write and (create or exclusive or truncate):
            raise ValueError("create, exclusive and truncate need write")
        with self._running():
            inode = self._opened(path, create=create or exclusive, exclusive=exclusive)
            if truncate and inode.seen.size:
                self._platter.resize(inode, 0)
            return SimFile(self._platter, inode, writable=write)

    def rename(self, source: str, target: str) -> None:
        with self._running():
            self._platter.rename(source, target)

    def unlink(self, path: str) -> None:
        with self._running():
            self._platter.unlink(path)

    def rmdir(self, path: str) -> None:
        with self._running():
            self._platter.rmdir(path)

    def mkdirs(self, path: str) -> list[str]:
        with self._running():
            created: list[str] = []
            self._make_directory(path, created)
            return created

    def listdir(self, path: str) -> list[str]:
        with self._running():
            return sorted(self._platter.directory(path).seen)

    def exists(self, path: str) -> bool:
        with self._running():
            try:
                return self._platter.lookup(path) is not None
            except (FileNotFoundError, NotADirectoryError):
                return False

    def size(self, path: str) -> int:
        with self._running():
            return self._platter.file(path).seen.size

    def room(self, path: str) -> tuple[int, int]:
        with self._running():
            self._platter.lookup(path)
            free, capacity = self._platter.room(), self._platter.capacity
            return (1 << 50, 1 << 50) if free is None or capacity is None else (free, capacity)

    def sync_dir(self, path: str) -> None:
        with self._running():
            self._platter.sync_dir(self._platter.directory(path))

    def lock(self, path: str) -> SimLock:
        with self._running():
            inode = self._opened(path, create=True, exclusive=False)
            if inode.lock_era == self._platter.era:
                raise os_error(errno.EAGAIN, path)
            return SimLock(self._platter, SimFile(self._platter, inode, writable=True), inode)

    def boot_id(self) -> bytes:
        with self._running():
            return self._platter.boot_id()

    def _opened(self, path: str, *, create: bool, exclusive: bool) -> Inode:
        node = self._platter.lookup(path)
        if node is None and create:
            return self._platter.create(path)
        if node is not None and exclusive:
            raise os_error(errno.EEXIST, path)
        return self._platter.file(path)

    def _make_directory(self, path: str, created: list[str]) -> None:
        try:
            found = self._platter.lookup(path)
        except FileNotFoundError:
            self._make_directory(parent_of(path), created)
            found = None
        if found is None:
            self._platter.mkdir(path)
            created.append(path)
        elif not isinstance(found, DirNode):
            raise os_error(errno.EEXIST, path)

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Hold the disk for one call of a program that still runs."""
        with self._platter.mutex:
            if self._era is not None and self._era != self._platter.era:
                raise PowerOff
            yield


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise os_error(errno.EINVAL)
