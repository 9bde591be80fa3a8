"""Maintenance of a table: take pending rows out, compact, remove files, clean the log, prove it.

The order matters. Rows that are known to be erased go first, so no later step copies them. Files
leave the disk after the table has let them go, leftovers after that, the log's history last. Then
every byte under the table is searched, and the receipt says what was found.

Leftovers are Parquet files that the log does not name: a task that was killed, or that lost to
another attempt, leaves them behind. They hold rows in clear, so they have to go. A file of an epoch
that is still being written is no leftover: while a sync runs, files of epochs after its last commit
stay.

The erasure receipt:

    {"version": 1, "table": ..., "table_version": ..., "topic": ..., "epoch": ...,
     "seqs": [[from, to], ...], "files_removed": [{"path": ..., "bytes": ...}, ...],
     "scanned": {"files": ..., "bytes": ..., "decoded_rows": ...}, "found": 0,
     "retained": {"hours": 0, "files": 0, "bytes": 0},
     "kept_elsewhere": [{"what": ..., "where": ..., "why": ...}, ...],
     "started": ..., "finished": ...}

`epoch` and `seqs` are those of the topic as it is; rows of topics of the same name that were
dropped before it are under `earlier`, which is there only then. `retained` are files that were let
go and stay for readers that have opened the table before: erased rows count as found in them. A
receipt says in numbers what was taken out and never repeats a value of it.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from topics.errors import InvalidRequest, TopicsError
from topics.spark.lake.erasing import erase_everywhere, noted
from topics.spark.lake.origin import SourceTopic
from topics.spark.lake.parquet import write_json
from topics.spark.lake.place import TablePath, committing, unless_syncing
from topics.spark.lake.scan import Scanned, scan
from topics.spark.lake.seqs import KeySet
from topics.spark.lake.table import CHECKPOINT, ORIGIN, RETAIN_HOURS, TOPIC, LakeTable
from topics.spark.lake.typed import BAD

_SPAN: Final = re.compile(r"(\d+)\s*(h|hours?|d|days?)")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Maintenance:
    """What to do: how long files that the table let go stay, and what to search for.

    Files stay for programs that opened the table before they were let go and read them still.
    """

    retain_hours: int = RETAIN_HOURS
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
    place: TablePath,
    task: Maintenance,
    *,
    origin: SourceTopic | None = None,
    say: Say = lambda line: None,
) -> Receipt:
    """Do all of it and return the receipt, not yet written."""
    started = dt.datetime.now(dt.UTC)
    table = LakeTable.open(place)
    topic = table.topic
    with committing(place):
        erased = noted(place)
        if erased:
            erase_everywhere(place, erased, cause="deleted")
        removed = _tidy(place, task.retain_hours, say)
        for beside in (place.loss, place.bad):
            if LakeTable.exists(beside):
                with committing(beside):
                    removed += _tidy(beside, task.retain_hours, say, synced_as=place)
        scanned = _search(place, task.needles, say)
        retained = _retained(place, task.retain_hours)
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
        retain_hours=task.retain_hours,
        retained=retained,
        kept_elsewhere=kept_elsewhere(
            place, topic, origin=origin, where=where, checkpoint=checkpoint
        ),
        started=started,
        finished=dt.datetime.now(dt.UTC),
    )


def search(place: TablePath, needles: Sequence[str] = (), say: Say = lambda line: None) -> Scanned:
    """Only search, as maintenance does at its end."""
    LakeTable.open(place)
    return _search(place, needles, say)


def _search(place: TablePath, needles: Sequence[str], say: Say) -> Scanned:
    say(f"searching every file under {place.path}")
    return scan([place.path, place.loss.path, place.bad.path], noted(place), needles)


def _tidy(
    place: TablePath, retain_hours: int, say: Say, synced_as: TablePath | None = None
) -> list[TableFile]:
    say(f"compacting {place.name}")
    LakeTable.open(place).delta.optimize.compact()
    say(f"removing files that {place.name} has let go for {retain_hours} h or longer")
    removed = _vacuum(place, retain_hours)
    kept = frozenset(_still_retained(place, retain_hours))
    removed += remove_leftovers(
        place, keep=kept, older_than_s=retain_hours * 3600.0, synced_as=synced_as
    )
    say(f"cleaning the log of {place.name}")
    _clean_log(place, retain_hours)
    return removed


def _vacuum(place: TablePath, retain_hours: int) -> list[TableFile]:
    """Remove files that the log says were let go; those of other programs are not touched."""
    doomed = _let_go(place, retain_hours)
    sizes = {name: os.path.getsize(place.inside(name)) for name in doomed}
    LakeTable.open(place).delta.vacuum(
        retain_hours, dry_run=False, enforce_retention_duration=False
    )
    gone = [name for name in sizes if not os.path.exists(place.inside(name))]
    return [TableFile(name, sizes[name]) for name in sorted(gone)]


def _let_go(place: TablePath, retain_hours: int) -> list[str]:
    listed = LakeTable.open(place).delta.vacuum(
        retain_hours, dry_run=True, enforce_retention_duration=False
    )
    names = {os.path.relpath(name, place.path) if os.path.isabs(name) else name for name in listed}
    return [name for name in names if os.path.exists(place.inside(name))]


def _still_retained(place: TablePath, retain_hours: int) -> list[str]:
    """Files that were let go, but not long enough ago: they are no leftovers."""
    return _let_go(place, 0) if retain_hours else []


def _retained(place: TablePath, retain_hours: int) -> list[TableFile]:
    """What was let go and stays for readers, of the table and of its loss table."""
    places = [each for each in (place, place.loss, place.bad) if LakeTable.exists(each)]
    found = [each.inside(name) for each in places for name in _still_retained(each, retain_hours)]
    return [TableFile(os.path.relpath(path, place.path), os.path.getsize(path)) for path in found]


def _clean_log(place: TablePath, retain_hours: int) -> None:
    table = LakeTable.open(place)
    window = f"interval {retain_hours} hours"
    if table.settings.get("delta.logRetentionDuration") != window:
        table.delta.alter.set_table_properties(
            {"delta.logRetentionDuration": window, "delta.deletedFileRetentionDuration": window}
        )
        table = LakeTable.open(place)
    table.delta.create_checkpoint()
    table.delta.cleanup_metadata()


_STAGED: Final = re.compile(r"part-(?P<query>[0-9a-f-]{36})-(?P<epoch>\d+)-\d+-\d+-[0-9a-f]{8}-\d+")
_SUFFIX: Final = ".parquet"


@dataclass(frozen=True)
class TableFile:
    """A file that is gone, or was let go, with its size."""

    path: str
    bytes: int


def remove_leftovers(
    place: TablePath,
    *,
    keep: frozenset[str] = frozenset(),
    older_than_s: float = 0.0,
    synced_as: TablePath | None = None,
) -> list[TableFile]:
    """Remove what no log names; hold the lock. `keep` are names that must stay all the same.

    `synced_as` is the table whose sync writes to this one as well.
    """
    with unless_syncing(synced_as or place) as nobody_writes:
        return _remove(place, keep, older_than_s, nobody_writes=nobody_writes)


def remove_before_sync(place: TablePath) -> list[TableFile]:
    """The same for a sync that is about to begin: it knows that no other one runs."""
    found = _remove(place, frozenset(), 0.0, nobody_writes=True)
    if os.path.isdir(place.bad.path):
        LakeTable.create(place.bad, BAD, {TOPIC: LakeTable.open(place).topic})
        found += _remove(place.bad, frozenset(), 0.0, nobody_writes=True)
    return found


def _remove(
    place: TablePath, keep: frozenset[str], older_than_s: float, *, nobody_writes: bool
) -> list[TableFile]:
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


def _unlink(place: TablePath, name: str) -> TableFile:
    path = place.inside(name)
    size = os.path.getsize(path)
    os.unlink(path)
    return TableFile(name, size)


def _parquet_files(place: TablePath) -> Iterator[str]:
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


VERSION: Final = 1


@dataclass(frozen=True)
class KeptCopy:
    """Where something of erased rows may still be, and by which rule it goes."""

    what: str
    where: str
    why: str


@dataclass(frozen=True)
class Receipt:
    """What one maintenance did and found."""

    table: str
    table_version: int
    topic: str
    erased: KeySet
    files_removed: Sequence[TableFile]
    scanned: Scanned
    retain_hours: int
    retained: Sequence[TableFile]
    """Files that the table has let go and that readers may still need."""
    kept_elsewhere: Sequence[KeptCopy]
    started: dt.datetime
    finished: dt.datetime

    @property
    def found(self) -> int:
        return self.scanned.found

    def to_dict(self) -> dict[str, Any]:
        epochs = [(epoch, [list(run) for run in runs]) for epoch, runs in self.erased]
        epoch, seqs = epochs[-1] if epochs else (None, [])
        shown = {
            "version": VERSION,
            "table": self.table,
            "table_version": self.table_version,
            "topic": self.topic,
            "epoch": epoch,
            "seqs": seqs,
            "files_removed": [asdict(file) for file in self.files_removed],
            "scanned": {
                "files": self.scanned.files,
                "bytes": self.scanned.bytes,
                "decoded_rows": self.scanned.decoded_rows,
            },
            "found": self.found,
            "retained": {
                "hours": self.retain_hours,
                "files": len(self.retained),
                "bytes": sum(file.bytes for file in self.retained),
            },
            "kept_elsewhere": [asdict(kept) for kept in self.kept_elsewhere],
            "started": _iso(self.started),
            "finished": _iso(self.finished),
        }
        if epochs[:-1]:
            shown["earlier"] = [{"epoch": e, "seqs": s} for e, s in epochs[:-1]]
        return shown

    def write(self, path: str) -> None:
        """Put it on disk for good, in one step."""
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        write_json(path, self.to_dict())


def default_path(place: TablePath, started: dt.datetime) -> str:
    return os.path.join(place.receipts, started.strftime("%Y%m%dT%H%M%S.%fZ.json"))


def kept_elsewhere(
    place: TablePath, topic: str, *, origin: SourceTopic | None, where: str, checkpoint: str
) -> list[KeptCopy]:
    """Every place beyond the table that a reader of the receipt should know of."""
    kept = [
        KeptCopy(
            "log segments",
            f"topic {topic} of {where}",
            "a deleted record is marked and no reader gets it any more; its bytes go when every "
            "record of its segment is dead and the whole segment is dropped; log files and a stage "
            "that it came through go with the checkpoints before that",
        ),
        KeptCopy(
            "Spark checkpoint",
            checkpoint,
            "positions of the sync, no values of records"
            + ("; searched" if checkpoint.startswith(place.path + os.sep) else "; not searched"),
        ),
    ]
    flows = _flows(origin)
    named = ", ".join(flows) if flows else f"flows that read topic {topic}"
    why = "windows, joins and results of a flow hold what it made of records; see its checkpoint"
    return [*kept, KeptCopy("flow state", named, why)]


def _flows(origin: SourceTopic | None) -> list[str]:
    if origin is None:
        return []
    try:
        return [name for name in origin.cursors() if name.startswith("flow.")]
    except TopicsError:
        return []


def _iso(stamp: dt.datetime) -> str:
    return stamp.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
