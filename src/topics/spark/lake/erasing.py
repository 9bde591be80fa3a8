"""Taking rows out of a table by (epoch, seq), and the list of what was taken out.

A file with rows to go is written again without them; the old one leaves the table in the same
commit and its bytes leave the disk at the next maintenance. No value of a row is ever named, so
nothing of it gets into the table's log.

The list is written before the table is changed: after a crash in between it names rows that are
still there, which the next run takes out, and never leaves out one that is gone.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from topics.spark.lake.parquet import FileWriter, WrittenFile, row_groups, sync_directory
from topics.spark.lake.place import ERASED, Place
from topics.spark.lake.seqs import KeySet, Mask, Seqs
from topics.spark.lake.table import Change, LakeTable, StoredFile, attempt

Cause = Literal["deleted", "match"]
"""Deleted in the topic, or found by its tag in the table."""


@dataclass(frozen=True)
class Erased:
    """What a call took out of the table."""

    rows: int
    files: int
    version: int


def erase(
    place: Place, doomed: KeySet, *, cause: Cause, transactions: Mapping[str, int] | None = None
) -> Erased:
    """Take the named rows out, if they are there, in one commit; hold the lock.

    `transactions` are part of that commit. With neither rows nor transactions there is none.
    """
    return attempt(place, lambda table: _erase(table, doomed, cause, transactions or {}))


def _erase(
    table: LakeTable, doomed: KeySet, cause: Cause, transactions: Mapping[str, int]
) -> Erased:
    found = KeySet()
    touched: list[tuple[StoredFile, Mask]] = []
    for file in table.files():
        if file.seqs is None or doomed.touches(*file.seqs):
            epochs, seqs = keys_of(os.path.join(table.place.path, file.name))
            hit = doomed.mask(epochs, seqs)
            if hit.any():
                found.add_column(epochs[hit], seqs[hit])
                touched.append((file, hit))
    if not touched and not transactions:
        return Erased(0, 0, table.version)
    note(table.place, found, cause)
    kept = [_without(table.place, file, hit) for file, hit in touched]
    table.commit(
        Change(
            add=[file for file in kept if file is not None],
            remove=[file for file, _ in touched],
            transactions=transactions,
            told={"topics": "erase", "rows": len(found)},
        )
    )
    return Erased(len(found), len(touched), table.version + 1)


def keys_of(path: str) -> tuple[Seqs, Seqs]:
    """The epochs and seqs of a file's rows."""
    with pq.ParquetFile(path) as file:
        keys = file.read(columns=["epoch", "seq"])
    return keys.column("epoch").to_numpy(), keys.column("seq").to_numpy()


def _without(place: Place, file: StoredFile, hit: Mask) -> WrittenFile | None:
    """A copy of a file less the rows that are hit; None if no row is left."""
    if hit.all():
        return None
    writer: FileWriter | None = None
    at = 0
    try:
        for group in row_groups(os.path.join(place.path, file.name)):
            if writer is None:
                writer = FileWriter(place.path, f"kept-{uuid.uuid4().hex}.parquet", group.schema)
            left = group.filter(pa.array(~hit[at : at + group.num_rows]))
            at += group.num_rows
            for batch in left.to_batches():
                writer.write(batch)
        assert writer is not None
        return writer.finish()
    except BaseException:
        if writer is not None:
            writer.drop()
        raise


# The list


def note(place: Place, keys: KeySet, cause: Cause) -> None:
    """Add to the list, durably."""
    if not keys:
        return
    path = place.inside(ERASED)
    is_new = not os.path.exists(path)
    lines = [
        json.dumps({"epoch": epoch, "cause": cause, "seqs": runs}, separators=(",", ":"))
        for epoch, runs in keys
    ]
    with open(path, "ab") as file:
        # A line that a crash cut short must not swallow the next one.
        file.write(("\n" + "\n".join(lines) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_directory(place.path)


def noted(place: Place) -> KeySet:
    """Everything that was ever taken out of the table."""
    keys = KeySet()
    try:
        with open(place.inside(ERASED), "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return keys
    for line in filter(None, lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut short by a crash: what it was about is still in the table
        keys.add_runs(entry["epoch"], [(first, last) for first, last in entry["seqs"]])
    return keys


def matching(place: Place, match: str) -> KeySet:
    """The keys of the rows whose tag is `match`, or begins with it if that ends in `*`."""
    prefix = match[:-1] if match.endswith("*") else None
    keys = KeySet()
    for file in LakeTable.open(place).files():
        for group in row_groups(os.path.join(place.path, file.name), ["epoch", "seq", "tag"]):
            tags = group.column("tag")
            if prefix is None:
                hit = pa.compute.equal(tags, match)
            else:
                hit = pa.compute.starts_with(tags, prefix)
            rows = group.filter(pa.compute.fill_null(hit, False))
            if rows.num_rows:
                epochs = np.asarray(rows.column("epoch").to_numpy())
                keys.add_column(epochs, np.asarray(rows.column("seq").to_numpy()))
    return keys
