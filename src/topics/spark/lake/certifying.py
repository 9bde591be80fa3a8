"""What a table says of itself, held against what is in it: up to where it is complete.

Every commit of an epoch counts, in the same Delta transaction as its rows, how many records landed
and how many were lost; every commit that takes rows out counts those. So one version of the table
tells all of this, and it can be checked without the topic:

    rows in the table + rows taken out            =  rows that landed
    the same for the records that do not fit
    landed + lost + without a record              =  the position

`without a record` are seqs that were deleted before they were read, or that never were a record; it
is what is left, and cannot be less than nothing. No (epoch, seq) may be there twice, none beyond
the position, and none that was taken out. Records that do not fit land before their epoch, so those
beyond the position belong to one that has not landed yet, and do not count.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow.parquet as pq

from topics.spark.lake.erasing import keys_of, noted
from topics.spark.lake.place import TablePath, committing
from topics.spark.lake.seqs import KeySet, Run
from topics.spark.lake.table import (
    ERASED_ROWS,
    LOST,
    ROWS_LANDED,
    TIME,
    UNFIT_LANDED,
    LakeTable,
    newest_app,
)

VERSION: Final = 1
_COUNTS: Final = (ROWS_LANDED, UNFIT_LANDED, LOST, ERASED_ROWS, TIME)


@dataclass
class EpochCertificate:
    """One epoch of the topic; counts are None if the table was begun without them."""

    epoch: int
    seq: int
    """Up to this one the table is complete."""
    time: str | None
    """When the newest record up to there was written."""
    rows: int
    unfit: int
    deleted: int
    """Rows that were taken out, of either table."""
    deleted_seqs: list[Run]
    landed: int | None
    lost: int | None
    without_record: int | None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Certificate:
    """What one version of a table shows."""

    table: str
    table_version: int
    topic: str
    epochs: Sequence[EpochCertificate]

    @property
    def ok(self) -> bool:
        return not any(epoch.problems for epoch in self.epochs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "table": self.table,
            "table_version": self.table_version,
            "topic": self.topic,
            "complete": self.ok,
            "epochs": [vars(epoch) for epoch in self.epochs],
        }


def certify(place: TablePath) -> Certificate:
    """Hold the table against its counts; no commit can come in between."""
    LakeTable.open(place)  # what is no table is told before a lock is made there
    with committing(place):
        table = LakeTable.open(place)
        beside = LakeTable.open(place.bad) if LakeTable.exists(place.bad) else None
        look = _Look(table, beside, noted(place))
        newest = table.transaction(newest_app(table.topic))
        epochs = look.epochs() | _lost_epochs(place) | (set() if newest is None else {newest})
        made = [look.at(epoch) for epoch in sorted(epochs)]
        return Certificate(place.path, table.version, table.topic, made)


class _TableKeys:
    """The keys of a table, and how many rows have them."""

    def __init__(self) -> None:
        self.keys = KeySet()
        self.count: dict[int, int] = {}

    @staticmethod
    def of(table: LakeTable) -> _TableKeys:
        found = _TableKeys()
        for file in table.files():
            epochs, seqs = keys_of(table.place.inside(file.name))
            found.keys.add_column(epochs, seqs)
            for epoch in set(epochs.tolist()):
                found.count[epoch] = found.count.get(epoch, 0) + int((epochs == epoch).sum())
        return found


class _Look:
    """At one version of a table, and of the one beside it."""

    def __init__(self, table: LakeTable, beside: LakeTable | None, gone: KeySet) -> None:
        self._table = table
        self._beside = beside
        self._gone = gone
        self._rows = _TableKeys.of(table)
        self._unfit = _TableKeys() if beside is None else _TableKeys.of(beside)

    def epochs(self) -> set[int]:
        return {epoch for epoch, _ in (*self._rows.keys, *self._unfit.keys, *self._gone)}

    def at(self, epoch: int) -> EpochCertificate:
        topic = self._table.topic
        position = self._table.position(topic, epoch)
        told = {what: self._table.count(topic, epoch, what) for what in _COUNTS}
        landed_fit, landed_unfit, lost, taken, newest = (told[what] or 0 for what in _COUNTS)
        taken_beside = 0
        if self._beside is not None:
            taken_beside = self._beside.count(topic, epoch, ERASED_ROWS) or 0
        unfit = self._unfit.keys.runs(epoch).between(1, position)
        is_counted = told[ROWS_LANDED] is not None
        landed = landed_fit + landed_unfit
        made = EpochCertificate(
            epoch=epoch,
            seq=position,
            time=_iso(newest) if newest else None,
            rows=self._rows.count.get(epoch, 0),
            unfit=sum(last - first + 1 for first, last in unfit),
            deleted=taken + taken_beside,
            deleted_seqs=list(self._gone.runs(epoch)),
            landed=landed if is_counted else None,
            lost=lost if is_counted else None,
            without_record=position - landed - lost if is_counted else None,
        )
        if is_counted:
            _compare(made, "rows", made.rows + taken, landed_fit)
            _compare(made, "records that do not fit", made.unfit + taken_beside, landed_unfit)
            if landed + lost > position:
                made.problems.append(f"{landed + lost} seqs are told of, and there are {position}")
        self._judge(made, "the table", self._rows)
        self._judge(made, "the table beside", self._unfit)
        ahead = self._rows.keys.runs(epoch)
        if ahead and list(ahead)[-1][1] > position:
            made.problems.append(f"the table has rows behind seq {position}")
        return made

    def _judge(self, made: EpochCertificate, name: str, found: _TableKeys) -> None:
        mine = found.keys.runs(made.epoch)
        twice = found.count.get(made.epoch, 0) - mine.size
        if twice:
            made.problems.append(f"{twice} rows of {name} are there twice")
        if any(True for run in self._gone.runs(made.epoch) for _ in mine.between(*run)):
            made.problems.append(f"{name} has rows that were taken out")


def _compare(made: EpochCertificate, what: str, found: int, told: int) -> None:
    if found != told:
        made.problems.append(f"{told} {what} landed, and {found} are there or were taken out")


def _lost_epochs(place: TablePath) -> set[int]:
    if not LakeTable.exists(place.loss):
        return set()
    files = LakeTable.open(place.loss).files()
    read = (pq.read_table(place.loss.inside(file.name), columns=["epoch"]) for file in files)
    return {epoch for rows in read for epoch in rows.column("epoch").to_pylist()}


def _iso(ms: int) -> str:
    stamp = dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
