"""What happens to a server besides kills: a disk that fills up, a clock that jumps.

A small disk is a tmpfs, which takes root to mount. The clock is a small library in the servers'
process, which takes a C compiler. If one of these is missing, the command says which.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

SMALL_DISK_MIB = 24
_CHUNK = b"\0" * (1 << 16)
_OFFSET = struct.Struct("=q")
JUMPS_S = (-86_400, -3600, -30, 0, 30, 3600, 86_400)


class NotPossible(Exception):
    """This machine cannot do what was asked for; says what is missing."""


@contextmanager
def small_disk(where: Path) -> Iterator[Path]:
    """A file system of a few MiB at `where`, gone afterwards."""
    if os.geteuid() != 0:
        raise NotPossible("a small disk is a tmpfs, and only root may mount one")
    where.mkdir(parents=True, exist_ok=True)
    options = f"size={SMALL_DISK_MIB}m,mode=0700"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "topics-torture", str(where)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotPossible(f"mount of a tmpfs failed: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


class Ballast:
    """A file that takes all the room there is."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "ballast"

    def fill(self) -> None:
        """Take what is free, to the last page; also what becomes free meanwhile."""
        with self._path.open("ab", buffering=0) as file:
            chunk = _CHUNK
            while chunk:
                try:
                    written = file.write(chunk)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    written = 0
                if written < len(chunk):
                    chunk = chunk[: len(chunk) // 2]

    def drop(self) -> None:
        """Give it back."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


class FakeClock:
    """The wall clock of servers, some seconds off the real one and able to jump at any moment.

    Built from `clock.c`. libfaketime is no alternative: it bends timeouts as well, so that a sync
    takes a hundred milliseconds and an idle server never rests.
    """

    def __init__(self, folder: Path) -> None:
        self._library = folder / "clock.so"
        _build(self._library)
        self._file = folder / "clock"
        self._file.write_bytes(_OFFSET.pack(0))

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to see this clock."""
        return {"LD_PRELOAD": str(self._library), "TOPICS_FAKE_CLOCK": str(self._file)}

    def jump(self, rng: Random) -> None:
        """Go some way off, forwards or back, or return to the real time."""
        self.set(rng.choice(JUMPS_S))

    def set(self, ahead_s: int) -> None:
        """Be so many seconds ahead of the real time."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(_OFFSET.pack(ahead_s))


def _build(library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotPossible("a clock that jumps has to be compiled, and there is no C compiler (cc)")
    source = Path(__file__).with_name("clock.c")
    done = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotPossible(f"the clock cannot be compiled: {done.stderr.strip()}")
