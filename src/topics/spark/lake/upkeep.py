"""Maintenance of a table: take pending rows out, compact, remove files, clean the log, prove it.

The order matters. Rows that are known to be erased go first, so no later step copies them. Files
leave the disk after the table has let them go, leftovers after that, the log's history last. Then
every byte under the table is searched, and the receipt says what was found.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from topics.errors import InvalidRequest
from topics.spark.lake.erasing import erase, noted
from topics.spark.lake.leftovers import RemovedFile, remove_leftovers
from topics.spark.lake.locking import committing
from topics.spark.lake.origin import Origin
from topics.spark.lake.place import Place
from topics.spark.lake.receipt import Receipt, kept_elsewhere
from topics.spark.lake.scan import Scanned, scan
from topics.spark.lake.table import CHECKPOINT, ORIGIN, LakeTable

_SPAN: Final = re.compile(r"(\d+)\s*(h|hours?|d|days?)")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Maintenance:
    """What to do: how long files that the table let go stay, and what to search for."""

    retain_hours: int = 0
    needles: Sequence[str] = ()


def hours_of(text: str) -> int:
    """A time such as `0h`, `12 hours` or `7d`, in hours."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidRequest(f"{text!r} is no time to retain files; write 0h, 12h or 7d")
    return int(found[1]) * (24 if found[2].startswith("d") else 1)


def needles_of(path: str) -> list[str]:
    """Needles from a file, one a line: on a command line others could read them."""
    with open(path, encoding="utf-8") as file:
        found = [line.strip("\r\n") for line in file]
    needles = [line for line in found if line.strip()]
    if not needles:
        raise InvalidRequest(f"{path} has no needle in it; write one a line")
    return needles


def maintain(
    place: Place,
    task: Maintenance,
    *,
    origin: Origin | None = None,
    say: Say = lambda line: None,
) -> Receipt:
    """Do all of it and return the receipt, not yet written."""
    started = dt.datetime.now(dt.UTC)
    table = LakeTable.open(place)
    topic = table.topic
    with committing(place):
        erased = noted(place)
        if erased:
            erase(place, erased, cause="deleted")
        removed = _tidy(place, task.retain_hours, say)
        if LakeTable.exists(place.loss):
            with committing(place.loss):
                removed += _tidy(place.loss, task.retain_hours, say)
        scanned = _search(place, task.needles, say)
    table = LakeTable.open(place)
    where = table.settings.get(ORIGIN, "an unknown server")
    checkpoint = table.settings.get(CHECKPOINT, place.checkpoint)
    return Receipt(
        table=place.path,
        table_version=table.version,
        topic=topic,
        erased=erased,
        files_removed=removed,
        scanned=scanned,
        kept_elsewhere=kept_elsewhere(
            place, topic, origin=origin, where=where, checkpoint=checkpoint
        ),
        started=started,
        finished=dt.datetime.now(dt.UTC),
    )


def search(place: Place, needles: Sequence[str] = (), say: Say = lambda line: None) -> Scanned:
    """Only search, as maintenance does at its end."""
    LakeTable.open(place)
    return _search(place, needles, say)


def _search(place: Place, needles: Sequence[str], say: Say) -> Scanned:
    say(f"searching every file under {place.path}")
    return scan([place.path, place.loss.path], noted(place), needles)


def _tidy(place: Place, retain_hours: int, say: Say) -> list[RemovedFile]:
    say(f"compacting {place.name}")
    LakeTable.open(place).delta.optimize.compact()
    say(f"removing files that {place.name} has let go for {retain_hours} h or longer")
    removed = _vacuum(place, retain_hours)
    kept = frozenset(_still_retained(place, retain_hours))
    removed += remove_leftovers(place, keep=kept, older_than_s=retain_hours * 3600.0)
    say(f"cleaning the log of {place.name}")
    _clean_log(place, retain_hours)
    return removed


def _vacuum(place: Place, retain_hours: int) -> list[RemovedFile]:
    """Remove files that the log says were let go; those of other programs are not touched."""
    doomed = _let_go(place, retain_hours)
    sizes = {name: os.path.getsize(place.inside(name)) for name in doomed}
    LakeTable.open(place).delta.vacuum(
        retain_hours, dry_run=False, enforce_retention_duration=False
    )
    gone = [name for name in sizes if not os.path.exists(place.inside(name))]
    return [RemovedFile(name, sizes[name]) for name in sorted(gone)]


def _let_go(place: Place, retain_hours: int) -> list[str]:
    listed = LakeTable.open(place).delta.vacuum(
        retain_hours, dry_run=True, enforce_retention_duration=False
    )
    names = {os.path.relpath(name, place.path) if os.path.isabs(name) else name for name in listed}
    return [name for name in names if os.path.exists(place.inside(name))]


def _still_retained(place: Place, retain_hours: int) -> list[str]:
    """Files that were let go, but not long enough ago: they are no leftovers."""
    return _let_go(place, 0) if retain_hours else []


def _clean_log(place: Place, retain_hours: int) -> None:
    table = LakeTable.open(place)
    window = f"interval {retain_hours} hours"
    if table.settings.get("delta.logRetentionDuration") != window:
        table.delta.alter.set_table_properties(
            {"delta.logRetentionDuration": window, "delta.deletedFileRetentionDuration": window}
        )
        table = LakeTable.open(place)
    table.delta.create_checkpoint()
    table.delta.cleanup_metadata()
