"""Small data directories on a simulated disk, and all that a reader can learn from one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from topics.embedded import Log
from topics.engine.recovery.opening import Opening, open_engine, open_view
from topics.engine.settings import EngineSettings
from topics.storage.fs import Fs
from topics.testing import ManualClock, SimDisk
from topics.topic_settings import Durability
from topics.values import Record, Tombstone

DATA_DIR = "/data"
SPARE = 64
"""Zeros left behind the end of a log file."""
CLASSES: tuple[Durability, ...] = ("ephemeral", "memory", "disk", "fsync")


@dataclass
class Contents:
    """One topic as its readers see it."""

    state: dict[str, Any]
    audit: dict[str, Any]
    cursors: list[dict[str, Any]]
    records: dict[int, Record] = field(default_factory=dict)
    tombstones: list[Tombstone] = field(default_factory=list)

    def announces(self, seq: int) -> bool:
        return any(gap.gap_from <= seq <= gap.gap_to for gap in self.tombstones)


def settings(**changes: Any) -> EngineSettings:  # noqa: ANN401 - EngineSettings checks them
    """Settings that make much happen with few records."""
    small: dict[str, Any] = {"segment_max_events": 6, "cache_bytes": 64 << 10}
    return EngineSettings(**small | changes)


def opened(fs: Fs, *, clock: ManualClock | None = None, **changes: Any) -> Log:  # noqa: ANN401
    """A log on the simulated disk."""
    return Log(open_engine(fs, DATA_DIR, Opening(settings(**changes), clock or ManualClock())))


def viewed(fs: Fs, **changes: Any) -> Log:  # noqa: ANN401 - as above
    """The same, read-only."""
    return Log(open_view(fs, DATA_DIR, Opening(settings(**changes), ManualClock())))


def contents(log: Log) -> dict[str, Contents]:
    """Everything in a log, topic by topic."""
    found = {}
    for topic in [summary.topic for summary in log.topics()]:
        shown = Contents(
            log.state(topic, touch=False).to_dict(),
            log.audit(topic).to_dict(),
            [cursor.to_dict() for cursor in log.cursors(topic)],
        )
        for event in log.follow(topic, limit=1000, wait=0.0):
            if isinstance(event, Tombstone):
                shown.tombstones.append(event)
            else:
                shown.records[event.seq] = event
        shown.state["last_read_ts"] = shown.state["last_write_ts"] = None
        found[topic] = shown
    return found


def fill(log: Log) -> None:
    """A little of everything: classes, tags, caps, deletes, cursors, a dropped topic."""
    for number, durability in enumerate(CLASSES):
        log.create(durability, durability=durability, cap_records=12)
        for batch in range(4):
            log.append(
                durability,
                [
                    {
                        "data": {"n": f"{durability}-{batch}-{i}"},
                        "tag": f"t{(batch + i) % 3}",
                        "node": "n1" if i else None,
                        "meta": {"m": batch} if i == 2 else None,
                    }
                    for i in range(4)
                ],
                idempotency_key=f"key-{batch}",
            )
        if number % 2:
            log.delete(durability, match="t1")
    log.checkpoint()
    log.delete("fsync", match="t2")
    log.delete("disk", before_seq=7)
    log.append("fsync", [{"data": [1, 2]}, {"data": "x", "tag": "t9"}])
    log.append("disk", {"data": None})
    log.set_cursor("fsync", "reader", 9)
    log.create("gone")
    log.append("gone", {"data": 0})
    log.drop("gone")


def closed_store(**changes: Any) -> SimDisk:  # noqa: ANN401 - as above
    """A disk with a cleanly closed store that has segments, deletes, two snapshots and a log."""
    disk = SimDisk()
    with opened(disk, **changes) as log:
        fill(log)
    for path in disk.paths():
        if path.endswith(".log"):
            # A mebibyte of allocated zeros would be read again by every open, to no end.
            disk.put(path, disk.peek(path).rstrip(b"\0") + bytes(SPARE))
    disk.settle()
    return disk
