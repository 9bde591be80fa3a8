"""The erasure receipt: what was erased, what was removed and searched, and what is kept elsewhere.

    {"version": 1, "table": ..., "table_version": ..., "topic": ..., "epoch": ...,
     "seqs": [[from, to], ...], "files_removed": [{"path": ..., "bytes": ...}, ...],
     "scanned": {"files": ..., "bytes": ..., "decoded_rows": ...}, "found": 0,
     "kept_elsewhere": [{"what": ..., "where": ..., "why": ...}, ...],
     "started": ..., "finished": ...}

`epoch` and `seqs` are those of the topic as it is; rows of topics of the same name that were
dropped before it are under `earlier`, which is there only then. A receipt says in numbers what was
taken out and never repeats a value of it.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from topics.errors import TopicsError
from topics.spark.lake.leftovers import RemovedFile
from topics.spark.lake.origin import Origin
from topics.spark.lake.parquet import sync_directory
from topics.spark.lake.place import Place
from topics.spark.lake.scan import Scanned
from topics.spark.lake.seqs import KeySet

VERSION: Final = 1


@dataclass(frozen=True)
class Kept:
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
    files_removed: Sequence[RemovedFile]
    scanned: Scanned
    kept_elsewhere: Sequence[Kept]
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
            "kept_elsewhere": [asdict(kept) for kept in self.kept_elsewhere],
            "started": _iso(self.started),
            "finished": _iso(self.finished),
        }
        if epochs[:-1]:
            shown["earlier"] = [{"epoch": e, "seqs": s} for e, s in epochs[:-1]]
        return shown

    def write(self, path: str) -> None:
        """Put it on disk for good, in one step."""
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, exist_ok=True)
        scratch = f"{path}.{os.getpid()}"
        with open(scratch, "w", encoding="utf-8") as file:
            json.dump(self.to_dict(), file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
        sync_directory(folder)


def default_path(place: Place, started: dt.datetime) -> str:
    return os.path.join(place.receipts, started.strftime("%Y%m%dT%H%M%S.%fZ.json"))


def kept_elsewhere(
    place: Place, topic: str, *, origin: Origin | None, where: str, checkpoint: str
) -> list[Kept]:
    """Every place beyond the table that a reader of the receipt should know of."""
    kept = [
        Kept(
            "log segments",
            f"topic {topic} of {where}",
            "a deleted record is marked and no reader gets it any more; its bytes go when every "
            "record of its segment is dead and the whole segment is dropped; log files and a stage "
            "that it came through go with the checkpoints before that",
        ),
        Kept(
            "Spark checkpoint",
            checkpoint,
            "positions of the sync, no values of records"
            + ("; searched" if checkpoint.startswith(place.path + os.sep) else "; not searched"),
        ),
    ]
    flows = _flows(origin)
    named = ", ".join(flows) if flows else f"flows that read topic {topic}"
    why = "windows, joins and results of a flow hold what it made of records; see its checkpoint"
    return [*kept, Kept("flow state", named, why)]


def _flows(origin: Origin | None) -> list[str]:
    if origin is None:
        return []
    try:
        return [name for name in origin.cursors() if name.startswith("flow.")]
    except TopicsError:
        return []


def _iso(stamp: dt.datetime) -> str:
    return stamp.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
