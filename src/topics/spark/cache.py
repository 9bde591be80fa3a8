"""Directories that are made once per machine and kept."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_dir() -> Path:
    """Where they are; under the temporary directory if the home cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    wanted = Path(base, "topics")
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir(), f"topics-cache-{os.getuid()}")
    writable = os.access(wanted, os.W_OK)
    return wanted if writable else Path(tempfile.gettempdir(), f"topics-cache-{os.getuid()}")


def made_once(name: str, fill: Callable[[Path], None], *, root: Path | None = None) -> Path:
    """The directory `name`, filled by the first who asks.

    It is filled under another name, so that nobody ever sees half of it.
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
        if not wanted.is_dir():  # else somebody else was first, with the same in it
            raise
    return wanted
