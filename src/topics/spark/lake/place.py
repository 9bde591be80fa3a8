"""Where a lake table is, what lies beside it, and its locks.

    <table>/                      Parquet files of the table
    <table>/_delta_log/           its log
    <table>/_topics_checkpoint/   the Spark checkpoint, unless another place was named
    <table>/_topics_lock          held during a commit; `_topics_sync` during a sync
    <table>/_topics_erased.jsonl  which (epoch, seq) were taken out of it
    <table>__loss/                a table of the runs that the log had lost before they arrived
    <table>__bad/                 of a typed table: records that its columns do not take
    <table>__receipts/            erasure receipts

Names in the table's directory begin with an underscore: by Delta's rules a vacuum leaves them be.

Locks are between processes: the kernel drops them when their holder dies. `committing` is held
while the table is changed. delta-rs lets a rewrite of a file win over a compaction that removed the
same file, and its rows would be there twice; so only one process changes the table at a time.
`syncing` is held by a sync as long as it runs: its files of the running epoch are in no log yet,
and maintenance must not take them for leftovers.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from topics.errors import InvalidRequest
from topics.spark.errors import TableBusy

LOG_DIR: Final = "_delta_log"
CHECKPOINT_DIR: Final = "_topics_checkpoint"
LOCK: Final = "_topics_lock"
SYNC_LOCK: Final = "_topics_sync"
ERASED: Final = "_topics_erased.jsonl"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._:-]")
_MAX_NAME: Final = 255


@dataclass(frozen=True)
class TablePath:
    """The directory of a table."""

    path: str

    @staticmethod
    def of(table: str) -> TablePath:
        """From a path or a `file://` address."""
        if "://" in table:
            parts = urlsplit(table)
            if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
                raise InvalidRequest(
                    f"{table} cannot be a lake table: give a path or a file:// address"
                )
            table = unquote(parts.path)
        path = os.path.abspath(os.path.expanduser(table))
        if not os.path.basename(path):
            raise InvalidRequest(f"{table!r} is no place for a table; name a directory")
        return TablePath(path)

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def cursor(self) -> str:
        """The name under which a sync tells the topic's server how far it is."""
        return f"lake.{_NOT_IN_NAMES.sub('-', self.name)}"[:_MAX_NAME]

    @property
    def log(self) -> str:
        return self.inside(LOG_DIR)

    @property
    def checkpoint(self) -> str:
        return self.inside(CHECKPOINT_DIR)

    @property
    def loss(self) -> TablePath:
        return TablePath(f"{self.path}__loss")

    @property
    def bad(self) -> TablePath:
        return TablePath(f"{self.path}__bad")

    @property
    def receipts(self) -> str:
        return f"{self.path}__receipts"

    def inside(self, name: str) -> str:
        return os.path.join(self.path, name)


PATIENCE_S: Final = 600.0
_POLL_S: Final = 0.02


@contextmanager
def committing(place: TablePath, *, patience: float = PATIENCE_S) -> Iterator[None]:
    """Wait for the lock on changes of the table, and hold it."""
    with _held(place.inside(LOCK), patience) as got:
        if not got:
            raise TableBusy(f"{place.path} is being changed by another process; try again later")
        yield


@contextmanager
def syncing(place: TablePath) -> Iterator[None]:
    """Be the only sync of the table."""
    with _held(place.inside(SYNC_LOCK), 0) as got:
        if not got:
            raise TableBusy(f"another `topics lake sync` is running on {place.path}")
        yield


@contextmanager
def unless_syncing(place: TablePath) -> Iterator[bool]:
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
