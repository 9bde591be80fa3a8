"""Parquet files in a table's directory that its log does not name.

A task that was killed, or that lost to another attempt, leaves files behind. They hold rows in
clear, so they have to go like the files that the table has let go. A file of an epoch that is still
being written is no leftover: while a sync runs, files of epochs after its last commit stay.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from topics.spark.lake.locking import unless_syncing
from topics.spark.lake.place import Place
from topics.spark.lake.table import LakeTable

_STAGED: Final = re.compile(r"part-(?P<query>[0-9a-f-]{36})-(?P<epoch>\d+)-\d+-\d+-[0-9a-f]{8}-\d+")
_SUFFIX: Final = ".parquet"


@dataclass(frozen=True)
class RemovedFile:
    """A file that is gone, with its size."""

    path: str
    bytes: int


def remove_leftovers(
    place: Place, *, keep: frozenset[str] = frozenset(), older_than_s: float = 0.0
) -> list[RemovedFile]:
    """Remove what no log names; hold the lock. `keep` are names that must stay all the same."""
    with unless_syncing(place) as nobody_writes:
        return _remove(place, keep, older_than_s, nobody_writes=nobody_writes)


def remove_before_sync(place: Place) -> list[RemovedFile]:
    """The same for a sync that is about to begin: it knows that no other one runs."""
    return _remove(place, frozenset(), 0.0, nobody_writes=True)


def _remove(
    place: Place, keep: frozenset[str], older_than_s: float, *, nobody_writes: bool
) -> list[RemovedFile]:
    table = LakeTable.open(place)
    named = {file.name for file in table.files()} | keep
    before = time.time() - older_than_s
    found = [
        name
        for name in _parquet_files(place)
        if name not in named
        and (not older_than_s or os.path.getmtime(place.inside(name)) <= before)
        and (nobody_writes or _is_settled(name, table))
    ]
    return [_unlink(place, name) for name in sorted(found)]


def _unlink(place: Place, name: str) -> RemovedFile:
    path = place.inside(name)
    size = os.path.getsize(path)
    os.unlink(path)
    return RemovedFile(name, size)


def _parquet_files(place: Place) -> Iterator[str]:
    with os.scandir(place.path) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                yield entry.name


def _is_settled(name: str, table: LakeTable) -> bool:
    """Whether the epoch a file was written for is over, as far as its name tells."""
    staged = _STAGED.match(name)
    if staged is None:
        return name.startswith("kept-")  # only made under the lock, which we hold
    landed = table.transaction(staged["query"])
    return landed is not None and landed >= int(staged["epoch"])
