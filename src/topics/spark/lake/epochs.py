"""One epoch into the table: what tasks report, what is checked, and in which order it lands.

    1  lost runs go to `<table>__loss`, with the epoch's transaction; of a typed table, records that
       do not fit go to `<table>__bad`, in place of what an epoch that never landed left there
    2  rows go to the table in one commit, with the epoch's transaction and the new position
    3  deletes are carried over; see `reconcile` for why that comes last
    4  the topic's server is told how far the table is

An epoch that comes again after a crash finds its transaction and only does what follows it. Before
anything lands, every seq from the table's position to the epoch's last must be among its rows, its
lost or its deleted runs, or be one that the topic never gave to a record.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from topics.errors import InvalidRequest, TopicsError
from topics.spark.errors import FilesVanished, RangesDoNotJoin
from topics.spark.lake.erasing import Carried, carry_deletes, drop_rows
from topics.spark.lake.evolving import evolve
from topics.spark.lake.origin import SourceTopic
from topics.spark.lake.parquet import (
    LOSS,
    Counts,
    FileWriter,
    MissingRange,
    TaskRows,
    WrittenFile,
    remove_files,
)
from topics.spark.lake.place import TablePath, committing
from topics.spark.lake.seqs import KeySet, Run
from topics.spark.lake.table import (
    LOST,
    ROWS_LANDED,
    TIME,
    TOPIC,
    UNFIT_LANDED,
    LakeTable,
    TableCommit,
    attempt,
    count_app,
    newest_app,
    position_app,
)
from topics.spark.lake.typed import BAD

NEVER_RECORDS: Final = "skipped"
"""The kind of holes that readers are not told of: no record ever had these seqs."""
UNEXPLAINED: Final = "unexplained"
_log = logging.getLogger("topics.spark")


@dataclass(frozen=True)
class Landed:
    """What became of an epoch."""

    deduped: bool
    rows: int
    lost: int
    carried: Carried
    unfit: int = 0


class EpochCommit:
    """One epoch of one query, on the driver."""

    def __init__(
        self,
        place: TablePath,
        origin: SourceTopic,
        *,
        app: str,
        version: int,
        cursor: str | None = None,
    ) -> None:
        self._place = place
        self._origin = origin
        self._app = app
        self._version = version
        self._cursor = cursor or place.cursor

    def run(self, arrived: Sequence[TaskRows]) -> Landed:
        """Land it, once, however often this is called."""
        seen = KeySet()
        for part in arrived:
            for epoch, runs in part.seen:
                seen.add_runs(epoch, runs)
        files = [file for part in arrived for file in part.files]
        lost = [run for part in arrived for run in part.lost]
        bad = [file for part in arrived for file in part.bad]
        with committing(self._place):
            deduped = self._is_landed(seen)
            if deduped:
                remove_files(self._place.path, [file.name for file in files])
                remove_files(self._place.bad.path, [file.name for file in bad])
            elif seen or lost:
                lost += self._check(seen)
                self._land_losses(lost)
                self._land_bad(bad, seen)
                self._land_rows(files, seen, self._counted(arrived, lost, seen))
            carried = self._follow_up(seen)
        self._tell()
        if deduped:
            return Landed(deduped, 0, 0, carried)
        rows, unfit = (sum(f.statistics.rows for f in group) for group in (files, bad))
        return Landed(deduped, rows, len(lost), carried, unfit)

    def _is_landed(self, seen: KeySet) -> bool:
        table = LakeTable.open(self._place)
        landed = table.transaction(self._app)
        if landed is None or landed < self._version:
            return False
        for epoch, runs in seen:
            position = table.position(self._origin.topic, epoch)
            if runs and runs[-1][1] > position:
                raise RangesDoNotJoin(
                    f"epoch {self._version} is in {self._place.path} already, but up to seq "
                    f"{position} only, not {runs[-1][1]}: this checkpoint is older than the table. "
                    "Use the newer one, or none: the table knows where it is"
                )
        return True

    # Before it lands

    def _check(self, seen: KeySet) -> list[MissingRange]:
        """Refuse rows that do not continue the table; returns runs that cannot be explained."""
        table = LakeTable.open(self._place)
        unexplained: list[MissingRange] = []
        for epoch, runs in seen:
            position = table.position(self._origin.topic, epoch)
            first, last = runs[0][0], runs[-1][1]
            if first <= position:
                raise RangesDoNotJoin(
                    f"rows from seq {first} on arrive, but {self._place.path} holds topic "
                    f"{self._origin.topic} (epoch {epoch}) up to seq {position}: this checkpoint "
                    "does not belong to the table. Use the right one, or none: the table knows "
                    "where it is"
                )
            gaps = list(seen.runs(epoch).gaps_between(position + 1, last))
            unexplained += self._judge(epoch, gaps)
        return unexplained

    def _judge(self, epoch: int, gaps: Iterable[Run]) -> list[MissingRange]:
        """Seqs that never were records may be absent; a topic made anew cannot be asked."""
        unexplained: list[MissingRange] = []
        for first, last in gaps:
            known = KeySet()
            for page in self._origin.holes(first, last):
                if page.epoch == epoch:
                    never = [run for run in page.runs if run.kind == NEVER_RECORDS]
                    known.add_runs(epoch, [(run.from_seq, run.to_seq) for run in never])
            absent = list(known.runs(epoch).gaps_between(first, last))
            if absent and self._is_current(epoch):
                raise RangesDoNotJoin(
                    f"seqs {absent[0][0]}..{absent[0][1]} of topic {self._origin.topic} (epoch "
                    f"{epoch}) are neither rows nor gaps of this epoch; nothing was committed to "
                    f"{self._place.path}"
                )
            unexplained += [MissingRange(epoch, lo, hi, UNEXPLAINED) for lo, hi in absent]
        return unexplained

    def _is_current(self, epoch: int) -> bool:
        pages = self._origin.holes(1, 1)
        return any(page.epoch == epoch for page in pages)

    # Landing

    def _land_losses(self, lost: Sequence[MissingRange]) -> None:
        """Write the lost runs that the loss table lacks: an earlier try may have written some."""
        if not lost:
            return
        place = self._place.loss
        LakeTable.create(place, LOSS, {TOPIC: self._origin.topic})
        with committing(place):
            fresh = _not_yet_in(place, lost)
            if fresh:
                file = _loss_file(place, fresh)
                attempt(place, lambda table: table.commit(self._change([file], {})))

    def _land_bad(self, files: list[WrittenFile], seen: KeySet) -> None:
        """Rows of these seqs may be there from a first try that saw other columns."""
        place = self._place.bad
        if not files and not LakeTable.exists(place):
            return
        LakeTable.create(place, BAD, {TOPIC: self._origin.topic})
        with committing(place):
            drop_rows(place, seen)
            if files:
                attempt(place, lambda table: table.commit(self._change(files, {})))

    def _counted(
        self, arrived: Sequence[TaskRows], lost: Sequence[MissingRange], seen: KeySet
    ) -> dict[str, int]:
        """The table's counts with this epoch's; none for rows that were not counted from the first.

        A table that was begun without counts has positions and goes on without.
        """
        table, topic = LakeTable.open(self._place), self._origin.topic
        made = {newest_app(topic): max(epoch for epoch, _ in seen)}
        for epoch, _ in seen:
            if table.position(topic, epoch) and table.count(topic, epoch, ROWS_LANDED) is None:
                continue
            total = Counts()
            for part in arrived:
                total.add(part.counts.get(epoch, Counts()))
            runs = [run for run in lost if run.epoch == epoch and run.last is not None]
            added = {
                ROWS_LANDED: total.fit,
                UNFIT_LANDED: total.unfit,
                LOST: sum((run.last or 0) - run.first + 1 for run in runs),
            }
            for what, count in added.items():
                made[count_app(topic, epoch, what)] = count + (table.count(topic, epoch, what) or 0)
            newest = max(total.newest_ms, table.count(topic, epoch, TIME) or 0)
            made[count_app(topic, epoch, TIME)] = newest
        return made

    def _land_rows(
        self, files: list[WrittenFile], seen: KeySet, counted: Mapping[str, int]
    ) -> None:
        gone = [f.name for f in files if not os.path.exists(self._place.inside(f.name))]
        if gone:
            raise FilesVanished(
                f"{gone[0]} vanished from {self._place.path} before its epoch was committed; was "
                "the table vacuumed by another program? The epoch is written again on restart"
            )
        files = evolve(self._place, files)
        topic = self._origin.topic
        positions = {position_app(topic, epoch): runs[-1][1] for epoch, runs in seen}
        attempt(
            self._place, lambda table: table.commit(self._change(files, {**positions, **counted}))
        )

    def _change(self, files: list[WrittenFile], positions: dict[str, int]) -> TableCommit:
        return TableCommit(
            add=files,
            transactions={self._app: self._version, **positions},
            told={"topics": "epoch", "epoch": self._version, **positions},
        )

    # After it

    def _follow_up(self, seen: KeySet) -> Carried:
        spans = [(runs[0][0], runs[-1][1]) for _, runs in seen if runs]
        span = (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
        return carry_deletes(self._place, self._origin, span=span)

    def _tell(self) -> None:
        report_position(self._place, self._origin, self._cursor)


def report_position(place: TablePath, origin: SourceTopic, cursor: str) -> None:
    """Move the table's cursor to where the table is; a warning if that fails."""
    epochs = [page.epoch for page in origin.holes(1, 1)]
    if not epochs:
        return
    try:
        origin.set_cursor(cursor, LakeTable.open(place).position(origin.topic, epochs[0]))
    except InvalidRequest:
        pass  # the topic was made anew and is shorter now; the next epoch tells
    except TopicsError as error:
        _log.warning("the cursor %s of topic %s was not moved: %s", cursor, origin.topic, error)


def _not_yet_in(place: TablePath, lost: Sequence[MissingRange]) -> list[MissingRange]:
    known, open_ended = KeySet(), set()
    for file in LakeTable.open(place).files():
        for row in pq.read_table(place.inside(file.name)).to_pylist():
            if row["last_seq"] is None:
                open_ended.add((row["epoch"], row["seq"]))
            else:
                known.add(row["epoch"], row["seq"], row["last_seq"])
    fresh: list[MissingRange] = []
    for run in lost:
        if run.last is None:
            if (run.epoch, run.first) not in open_ended:
                fresh.append(run)
        else:
            absent = list(known.runs(run.epoch).gaps_between(run.first, run.last))
            fresh += [MissingRange(run.epoch, lo, hi, run.reason) for lo, hi in absent]
    return fresh


def _loss_file(place: TablePath, lost: Sequence[MissingRange]) -> WrittenFile:
    now = pa.scalar(time.time_ns() // 1000, pa.timestamp("us", "UTC"))
    rows = pa.record_batch(
        [
            pa.array([run.epoch for run in lost], pa.int64()),
            pa.array([run.first for run in lost], pa.int64()),
            pa.array([run.last for run in lost], pa.int64()),
            pa.array([run.reason for run in lost], pa.string()),
            pa.array([now] * len(lost), pa.timestamp("us", "UTC")),
        ],
        schema=LOSS,
    )
    writer = FileWriter(place.path, f"loss-{uuid.uuid4().hex}.parquet", LOSS)
    writer.write(rows)
    return writer.finish()
