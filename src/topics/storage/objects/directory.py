"""Objects as files in a directory, which may be on a mounted volume.

An object is written to a file beside it, synced and renamed: a crash leaves the old object, the new
one, or no object, and maybe a file that ends in `.tmp`, which no list shows and `tidy` removes.
`create` and `swap` hold a lock file from the look at the old object to the new name, so that two
processes cannot both find the version that they want to replace. Reading takes no lock and writes
nothing: a directory that is mounted read-only can be restored from.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from topics.errors import ObjectStoreFailed
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import TMP_SUFFIX, Buffer, Fs, parent_of, read_exact, read_file, write_all
from topics.storage.objects.interface import (
    Listed,
    NoSuchObject,
    ObjectChanged,
    ObjectContents,
    ObjectExists,
    Version,
    check_name,
)

LOCK: Final = ".objects.lock"
_PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 0.01
_DENIED: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
_HOPELESS: Final = (*_DENIED, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)


class DirectoryObjects:
    """The objects below one directory, which is made by the first put."""

    def __init__(
        self,
        fs: Fs,
        root: str,
        *,
        patience_s: float = _PATIENCE_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._fs = fs
        self._root = root.rstrip("/") or "/"
        self._tries = max(1, round(patience_s / _PAUSE_S))
        self._pause = partial(pause, _PAUSE_S)

    @property
    def url(self) -> str:
        return self._root

    def put(self, name: str, data: Buffer | Iterable[Buffer]) -> None:
        pieces = [data] if isinstance(data, bytes | bytearray | memoryview) else data
        with self._explained("write", name):
            self._write(self._path(name), pieces)

    def create(self, name: str, data: bytes) -> Version:
        path = self._path(name)
        with self._explained("write", name):
            self._make(parent_of(path))
            with self._locked():
                if self._fs.exists(path):
                    raise ObjectExists(name)
                self._write(path, [data])
        return _version(data)

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        path = self._path(name)
        with self._explained("write", name), self._locked():
            try:
                found = _version(read_file(self._fs, path))
            except FileNotFoundError as error:
                raise ObjectChanged(name) from error
            if found != version:
                raise ObjectChanged(name)
            self._write(path, [data])
        return _version(data)

    def read(self, name: str) -> ObjectContents:
        path = self._path(name)
        with self._explained("read", name):
            data = read_file(self._fs, path)
        return ObjectContents(data, _version(data))

    def read_range(self, name: str, start: int, size: int) -> bytes:
        path = self._path(name)
        with self._explained("read", name):
            file = self._fs.open(path)
            try:
                return read_exact(file, max(0, min(size, file.size() - start)), start)
            finally:
                file.close()

    def size(self, name: str) -> int:
        path = self._path(name)
        with self._explained("read", name):
            return self._fs.size(path)

    def list(self, folder: str = "") -> Iterator[Listed]:
        path = self._path(folder) if folder else self._root
        with self._explained("list", folder):
            found = list(self._walk(path, f"{folder}/" if folder else ""))
        return iter(found)

    def delete(self, name: str) -> None:
        path = self._path(name)
        with self._explained("delete", name):
            try:
                self._fs.unlink(path)
            except FileNotFoundError:
                return
            self._fs.sync_dir(parent_of(path))

    def tidy(self) -> None:
        """Remove what unfinished puts left; only while no other process writes here."""
        with self._explained("list", ""):
            for leftover in list(self._files(self._root)):
                if leftover.endswith(TMP_SUFFIX):
                    self._fs.unlink(leftover)

    def _path(self, name: str) -> str:
        check_name(name)
        return f"{self._root}/{name}"

    def _write(self, path: str, pieces: Iterable[Buffer]) -> None:
        folder = parent_of(path)
        self._make(folder)
        # Two processes may put one object at a time; each writes a file of its own.
        tmp = f"{path}.{os.urandom(8).hex()}{TMP_SUFFIX}"
        file = self._fs.open(tmp, write=True, create=True, exclusive=True)
        try:
            end = 0
            for piece in pieces:
                write_all(file, piece, end)
                end += len(piece)
            crashpoint("object.written")
            file.fsync()
        except BaseException:
            file.close()
            self._fs.unlink(tmp)
            raise
        file.close()
        crashpoint("object.synced")
        self._fs.rename(tmp, path)
        crashpoint("object.renamed")
        self._fs.sync_dir(folder)

    def _make(self, folder: str) -> None:
        for created in self._fs.mkdirs(folder):
            self._fs.sync_dir(parent_of(created))

    def _walk(self, path: str, prefix: str) -> Iterator[Listed]:
        for file in self._files(path):
            name = prefix + file[len(path) :].lstrip("/")
            if not file.endswith(TMP_SUFFIX) and name != LOCK:
                try:
                    yield Listed(name, self._fs.size(file))
                except FileNotFoundError:
                    continue  # deleted since it was listed

    def _files(self, path: str) -> Iterator[str]:
        try:
            names = self._fs.listdir(path)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            yield path
            return
        for name in names:
            yield from self._files(f"{path.rstrip('/')}/{name}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = f"{self._root}/{LOCK}"
        for _ in range(self._tries):
            try:
                lock = self._fs.lock(path)
                break
            except BlockingIOError:
                self._pause()
        else:
            raise ObjectStoreFailed(
                self.url, doing=f"lock {path}", reason="another process holds it", retryable=True
            )
        try:
            yield
        finally:
            lock.close()

    @contextmanager
    def _explained(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if action == "read":
                raise NoSuchObject(name) from error
            raise self._failed(action, name, error) from error
        except (OSError, EOFError) as error:
            raise self._failed(action, name, error) from error

    def _failed(self, action: str, name: str, error: OSError | EOFError) -> ObjectStoreFailed:
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number is not None else str(error)
        return ObjectStoreFailed(
            self.url,
            doing=f"{action} {name or 'objects'}",
            reason=reason,
            retryable=number not in _HOPELESS,
            denied=number in _DENIED,
        )


def _version(data: bytes) -> Version:
    return {"sha256": hashlib.sha256(data).hexdigest()}
