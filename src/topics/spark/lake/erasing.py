"""Taking rows out of a table by (epoch, seq), and the list of all rows that were ever taken out.

A file with rows to go is written again without them; the old one leaves the table in the same
commit and its bytes leave the disk at the next maintenance. No value of a row is ever named, so
nothing of it gets into the table's log.

The list is written before the table is changed: after a crash in between it names rows that are
still there, which the next run takes out, and never leaves out one that is gone.

A delete in the topic may fall between the moment a row was read and the moment it was committed to
the table, and a second process may reconcile in between. Three rules keep such a row from staying:

- Deletes are asked for after the rows are in the table, never before.
- Deletes in an epoch's own range are asked for even if `delete_version` looks unchanged: the
  process that recorded that version had not seen these rows.
- The version that is recorded is the one of the first answer. A delete that came later is seen
  again next time, because the topic's version has moved past the recorded one.

Doing it again finds nothing to do.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from topics.errors import TopicNotFound
from topics.spark.lake.origin import SourceTopic
from topics.spark.lake.parquet import FileWriter, WrittenFile, row_groups, sync_directory
from topics.spark.lake.place import ERASED, TablePath, committing
from topics.spark.lake.seqs import KeySet, Mask, Run, Seqs
from topics.spark.lake.table import (
    ERASED_ROWS,
    LakeTable,
    StoredFile,
    TableCommit,
    attempt,
    count_app,
    deletes_app,
)
from topics.values import Holes

Cause = Literal["deleted", "match"]
"""Deleted in the topic, or found by its tag in the table."""


@dataclass(frozen=True)
class Erased:
    """What a call took out of the table."""

    rows: int
    files: int
    version: int


def erase(
    place: TablePath, doomed: KeySet, *, cause: Cause, transactions: Mapping[str, int] | None = None
) -> Erased:
    """Take the named rows out, if they are there, in one commit; hold the lock.

    `transactions` are part of that commit. With neither rows nor transactions there is none.
    """
    return attempt(place, lambda table: _erase(table, doomed, cause, transactions or {}))


def erase_everywhere(place: TablePath, doomed: KeySet, *, cause: Cause) -> Erased:
    """The same for the table and for its records that do not fit; hold the lock."""
    unfit = _erase_unfit(place, doomed, cause)
    erased = erase(place, doomed, cause=cause)
    return Erased(erased.rows + unfit.rows, erased.files + unfit.files, erased.version)


def _erase_unfit(place: TablePath, doomed: KeySet, cause: Cause) -> Erased:
    if not LakeTable.exists(place.bad):
        return Erased(0, 0, 0)
    with committing(place.bad):
        return erase(place.bad, doomed, cause=cause)


def drop_rows(place: TablePath, keys: KeySet) -> None:
    """Take rows out that an epoch left without landing; hold the lock. No list gets them."""
    attempt(place, lambda table: _erase(table, keys, None, {}))


def _erase(
    table: LakeTable, doomed: KeySet, cause: Cause | None, transactions: Mapping[str, int]
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
    if cause is not None:
        note(table.place, found, cause)
    kept = [_without(table.place, file, hit) for file, hit in touched]
    table.commit(
        TableCommit(
            add=[file for file in kept if file is not None],
            remove=[file for file, _ in touched],
            transactions={**transactions, **({} if cause is None else _counted(table, found))},
            told={"topics": "erase", "rows": len(found)},
        )
    )
    return Erased(len(found), len(touched), table.version + 1)


def _counted(table: LakeTable, found: KeySet) -> dict[str, int]:
    """How many rows of each epoch will have been taken out."""
    topic = table.topic
    return {
        count_app(topic, epoch, ERASED_ROWS): sum(last - first + 1 for first, last in runs)
        + (table.count(topic, epoch, ERASED_ROWS) or 0)
        for epoch, runs in found
    }


def keys_of(path: str) -> tuple[Seqs, Seqs]:
    """The epochs and seqs of a file's rows."""
    with pq.ParquetFile(path) as file:
        keys = file.read(columns=["epoch", "seq"])
    return keys.column("epoch").to_numpy(), keys.column("seq").to_numpy()


def _without(place: TablePath, file: StoredFile, hit: Mask) -> WrittenFile | None:
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


def note(place: TablePath, keys: KeySet, cause: Cause) -> None:
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


def noted(place: TablePath) -> KeySet:
    """Everything that was ever taken out of the table, and of its records that do not fit."""
    keys = _noted(place)
    for epoch, runs in _noted(place.bad):
        keys.add_runs(epoch, runs)
    return keys


def _noted(place: TablePath) -> KeySet:
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


def matching(place: TablePath, match: str) -> KeySet:
    """The keys of the rows whose tag is `match`, or begins with it if that ends in `*`.

    Those of records that do not fit are among them.
    """
    keys = _matching(place, match)
    if LakeTable.exists(place.bad):
        for epoch, runs in _matching(place.bad, match):
            keys.add_runs(epoch, runs)
    return keys


def _matching(place: TablePath, match: str) -> KeySet:
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


DELETED: Final = "deleted"


@dataclass(frozen=True)
class Carried:
    """What came of it: rows taken out, and the topic's `delete_version` the table now shows."""

    rows: int
    delete_version: int | None


def carry_deletes(
    place: TablePath, origin: SourceTopic, *, span: Run | None = None, everything: bool = False
) -> Carried:
    """Take rows out of the table that were deleted in the topic; hold the lock.

    Looks at the whole table if the topic's `delete_version` moved or `everything` is asked for,
    else at `span`, the seqs that just arrived.
    """
    try:
        state = origin.state()
    except TopicNotFound:
        return Carried(0, None)  # what a dropped topic had, the table keeps
    table = LakeTable.open(place)
    epoch, app = state.epoch, deletes_app(origin.topic, state.epoch)
    end = table.position(origin.topic, epoch)
    recorded = table.transaction(app) or 0
    has_moved = state.delete_version != recorded
    if has_moved or everything:
        span = (1, end)
    if span is None or not end:
        return Carried(0, recorded)
    pages = list(origin.holes(span[0], min(span[1], end)))
    if not pages or any(page.epoch != epoch for page in pages):
        return Carried(0, recorded)  # dropped or made anew meanwhile
    version = pages[0].delete_version
    transactions = {app: version} if has_moved and span[0] == 1 and span[1] == end else {}
    doomed = doomed_by(pages)
    unfit = _erase_unfit(place, doomed, DELETED)
    erased = erase(place, doomed, cause=DELETED, transactions=transactions)
    return Carried(erased.rows + unfit.rows, version if transactions else recorded)


def doomed_by(pages: list[Holes]) -> KeySet:
    """What a mirror has to let go: what was deleted, and whatever might have been.

    A topic remembers a bounded number of deleted runs. Below `exact_from` a seq that counts as
    evicted may have been deleted before, so every dead one goes.
    """
    doomed = KeySet()
    for page in pages:
        for run in page.runs:
            end = run.to_seq if run.kind == DELETED else min(run.to_seq, page.exact_from - 1)
            if run.from_seq <= end:
                doomed.add(page.epoch, run.from_seq, end)
    return doomed
