"""Open read-only files, shared and bounded.

Readers name a file by its path and get bytes; how many files stay open meanwhile is decided here,
once for segments and old log files together. A handle in use is never closed under its reader, so
a file may be unlinked while a reader still uses it.
"""

import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from topics.storage.fs import File, Fs

T = TypeVar("T")

DEFAULT_LIMIT = 256
_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE})


def is_shortage(error: OSError) -> bool:
    """Whether the process or the machine ran out of open files."""
    return error.errno in _SHORTAGE


class _OpenFile:
    """One open file; `users` counts the reads that are inside it right now."""

    __slots__ = ("file", "forgotten", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 0
        self.forgotten = False


class Handles:
    """Up to `limit` open files, least recently used first out.

    The bound counts idle files: reads that run at the same time may exceed it for as long as they
    last. Safe to use from several threads.
    """

    def __init__(self, fs: Fs, limit: int = DEFAULT_LIMIT) -> None:
        self._fs = fs
        self._limit = limit
        self._entries: OrderedDict[str, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()  # guards _entries and users; never held across file I/O

    def __len__(self) -> int:
        return len(self._entries)

    def pread(self, path: str, size: int, offset: int) -> bytes:
        """Read from the file at `path`; fewer bytes only where it ends."""
        with self.borrow(path) as file:
            return file.pread(size, offset)

    @contextmanager
    def borrow(self, path: str) -> Iterator[File]:
        """The open file at `path`, sure to stay open inside the `with` block."""
        entry = self._acquire(path)
        try:
            yield entry.file
        finally:
            self._release(entry)

    def retrying(self, action: Callable[[], T]) -> T:
        """Run an action that opens files; once out of descriptors, give ours up and try again."""
        try:
            return action()
        except OSError as error:
            if not is_shortage(error):
                raise
        self.evict_idle()
        return action()

    def forget(self, path: str) -> None:
        """Let go of a file that is gone or replaced; running reads finish on the old one."""
        with self._lock:
            entry = self._entries.pop(path, None)
            if entry is None:
                return
            entry.forgotten = True
            idle = entry.users == 0
        if idle:
            entry.file.close()

    def forget_below(self, directory: str) -> None:
        """The same for every file of a directory that is gone or has another name."""
        with self._lock:
            paths = [path for path in self._entries if path.startswith(f"{directory}/")]
        for path in paths:
            self.forget(path)

    def evict_idle(self) -> None:
        """Close every file that is not being read at this moment."""
        for file in self._take_idle(keep=0):
            file.close()

    def close(self) -> None:
        """Close all files; those still being read are closed by their readers."""
        for path in list(self._entries):
            self.forget(path)

    def _acquire(self, path: str) -> _OpenFile:
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None:
                self._entries.move_to_end(path)
                entry.users += 1
                return entry
        file = self.retrying(lambda: self._fs.open(path))
        with self._lock:
            known = self._entries.get(path)
            if known is None:
                entry = self._entries[path] = _OpenFile(file)
            else:
                entry = known
            entry.users += 1
        surplus = [file] if known is not None else self._take_idle(keep=self._limit)
        for extra in surplus:
            extra.close()
        return entry

    def _release(self, entry: _OpenFile) -> None:
        with self._lock:
            entry.users -= 1
            unused = entry.forgotten and entry.users == 0
        if unused:
            entry.file.close()

    def _take_idle(self, *, keep: int) -> list[File]:
        """Remove the oldest idle entries until `keep` are left; their files are the caller's."""
        taken: list[File] = []
        with self._lock:
            excess = len(self._entries) - keep
            if excess > 0:
                idle = [path for path, entry in self._entries.items() if entry.users == 0]
                taken = [self._entries.pop(path).file for path in idle[:excess]]
        return taken
