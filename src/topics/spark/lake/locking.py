"""Locks on a table, between processes: the kernel drops them when their holder dies.

`committing` is held by whoever is about to change the table. delta-rs lets a rewrite of a file win
over a compaction that took the same file away, and its rows would be there twice; so changes take
turns. `syncing` is held by a sync as long as it runs: its files of the running epoch are in no log
yet, and maintenance must not take them for leftovers.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from topics.spark.lake.errors import TableBusy
from topics.spark.lake.place import LOCK, SYNC_LOCK, Place

PATIENCE_S: Final = 600.0
_POLL_S: Final = 0.02


@contextmanager
def committing(place: Place, *, patience: float = PATIENCE_S) -> Iterator[None]:
    """Wait for the turn to change the table, and take it."""
    with _held(place.inside(LOCK), patience) as got:
        if not got:
            raise TableBusy(f"{place.path} is being changed by another process; try again later")
        yield


@contextmanager
def syncing(place: Place) -> Iterator[None]:
    """Be the only sync of the table."""
    with _held(place.inside(SYNC_LOCK), 0) as got:
        if not got:
            raise TableBusy(f"another `topics lake sync` is running on {place.path}")
        yield


@contextmanager
def unless_syncing(place: Place) -> Iterator[bool]:
    """Whether no sync runs; none can begin until this ends."""
    with _held(place.inside(SYNC_LOCK), 0) as got:
        yield got


@contextmanager
def _held(path: str, patience: float) -> Iterator[bool]:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield _take(handle, time.monotonic() + patience)
    finally:
        os.close(handle)


def _take(handle: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True
