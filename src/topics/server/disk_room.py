"""How much room the disk has, and how much of it the log takes. File work, for a thread."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from topics.http.api.history import Disk
from topics.storage.fs import Fs
from topics.storage.layout import WAL

_log = logging.getLogger("topics.server")


def measure(fs: Fs, data_dir: str) -> Disk | None:
    """The numbers of a data directory; None when the disk does not tell."""
    try:
        free, total = fs.room(data_dir)
        return Disk(free, total, sum(_sizes(fs, f"{data_dir}/{WAL}")))
    except OSError as error:
        _log.warning("cannot tell the room on disk: %s", error)
        return None


def _sizes(fs: Fs, folder: str) -> Iterator[int]:
    """Of the log files below a folder; one that goes meanwhile counts nothing."""
    for name in fs.listdir(folder):
        path = f"{folder}/{name}"
        try:
            if name.startswith("shard-"):
                yield from _sizes(fs, path)
            else:
                yield fs.size(path)
        except FileNotFoundError:
            continue
