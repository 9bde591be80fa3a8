"""Directories that are made once per machine and kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from topics.spark.errors import CannotStartSpark


def cache_dir() -> Path:
    """Where they are; under the temporary directory if the home cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    wanted = Path(base, "topics")
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _shared_dir()
    return wanted if os.access(wanted, os.W_OK) else _shared_dir()


def _shared_dir() -> Path:
    """A directory of this user alone, where every user of the machine may make directories.

    Programs are started from it (Java, Spark), so a directory of another user is refused.
    """
    made = Path(tempfile.gettempdir(), f"topics-cache-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        made.mkdir(mode=0o700)
    found = made.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise CannotStartSpark(
            f"{made} is not a directory of this user, so nothing is run from it; remove it, or "
            "set XDG_CACHE_HOME to a directory that only you can write"
        )
    if found.st_mode & 0o022:
        raise CannotStartSpark(
            f"{made} can be written by others than its owner, so nothing is run from it; remove "
            "it, or set XDG_CACHE_HOME to a directory that only you can write"
        )
    made.chmod(0o700)
    return made


def made_once(name: str, fill: Callable[[Path], None], *, root: Path | None = None) -> Path:
    """The directory `name`, filled by the first process that needs it.

    It is filled under another name and then renamed, so that no process sees half of it.
    """
    root = cache_dir() if root is None else root
    wanted = root / name
    if wanted.is_dir():
        return wanted
    root.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=root))
    try:
        fill(made)
        made.chmod(0o755)
        made.rename(wanted)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not wanted.is_dir():  # else another process was first, with the same contents
            raise
    return wanted
