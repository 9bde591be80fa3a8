"""The bare operation behind a row, timed in the same run and on the same disk.

Files are allocated ahead as the log allocates its own, so that the ratio shows what the engine
adds and not what a growing file costs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from topics.bench.measure import Rates, rate

ALLOCATED = 64 << 20


class RawFile:
    """A scratch file that is written round and round."""

    def __init__(self, directory: Path, size: int, *, sync_s: float | None = None) -> None:
        self._fd = os.open(directory / "raw", os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(self._fd, 0, ALLOCATED)
        self._data = os.urandom(size)
        self._at = 0
        self._sync_s = sync_s
        self._synced_at = time.monotonic()

    def write(self) -> None:
        """Write the next block, and sync if the last sync is `sync_s` seconds ago (None: never)."""
        if self._at + len(self._data) > ALLOCATED:
            self._at = 0
        os.pwrite(self._fd, self._data, self._at)
        self._at += len(self._data)
        if self._sync_s is not None and time.monotonic() - self._synced_at >= self._sync_s:
            self.sync()

    def sync(self) -> None:
        """Make all that was written durable."""
        os.fdatasync(self._fd)
        self._synced_at = time.monotonic()

    def read(self) -> bytes:
        """Read the first block: from the page cache, after `write`."""
        return os.pread(self._fd, len(self._data), 0)

    def close(self) -> None:
        os.close(self._fd)


def writes(directory: Path, size: int, *, calls: int, repeats: int, sync_s: float) -> Rates:
    """Writes of `size` bytes a second, with a sync every `sync_s` seconds."""
    file = RawFile(directory, size, sync_s=sync_s)
    return _with_file(file, lambda file: file.write, calls, repeats)


def reads(directory: Path, size: int, *, calls: int, repeats: int) -> Rates:
    """Reads of `size` bytes a second from a file that is in the page cache."""

    def prepare(file: RawFile) -> Callable[[], object]:
        file.write()
        return file.read

    return _with_file(RawFile(directory, size), prepare, calls, repeats)


def copies(size: int, *, calls: int, repeats: int) -> Rates:
    """Copies of `size` bytes a second in memory."""
    block = bytearray(os.urandom(size))
    return rate(lambda: bytes(block), calls=calls, repeats=repeats)


def _with_file(
    file: RawFile,
    prepare: Callable[[RawFile], Callable[[], object]],
    calls: int,
    repeats: int,
) -> Rates:
    try:
        return rate(prepare(file), calls=calls, repeats=repeats)
    finally:
        file.close()
