"""Carrying the topic's deletes into the table.

A delete may fall between the moment a row was read and the moment it was committed to the table,
and a second process may reconcile in between. Three rules keep such a row from staying:

- Deletes are asked for after the rows are in the table, never before.
- Those of an epoch's own range are asked for even if `delete_version` looks unchanged: whoever
  recorded that version had not seen these rows.
- The version that is recorded is the one of the first answer. A delete that came later is seen
  again next time, because the topic's version has moved past the recorded one.

Doing it again finds nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from topics.errors import TopicNotFound
from topics.spark.lake.erasing import erase
from topics.spark.lake.origin import Origin
from topics.spark.lake.place import Place
from topics.spark.lake.seqs import KeySet, Run
from topics.spark.lake.table import LakeTable, deletes_app
from topics.values import Holes

DELETED: Final = "deleted"


@dataclass(frozen=True)
class Carried:
    """What came of it: rows taken out, and the topic's `delete_version` the table now shows."""

    rows: int
    delete_version: int | None


def carry_deletes(
    place: Place, origin: Origin, *, span: Run | None = None, everything: bool = False
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
    erased = erase(place, doomed_by(pages), cause=DELETED, transactions=transactions)
    return Carried(erased.rows, version if transactions else recorded)


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
