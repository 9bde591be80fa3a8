"""Routers through an end of the program before any of its file calls, by death or by power cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import pytest

from topics.embedded import Log
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.storage.wal.settings import WalSettings
from topics.testing import CrashMode, FaultFs, ManualClock, PowerOff, SimDisk
from topics.values import Record, Tombstone

LOG_FILE_BYTES = 4096
STRIDE = 3
"""Every so many file calls the program is ended; each test begins at another one."""


def opened(fs: FaultFs) -> Log:
    settings = EngineSettings(wal_shards=2, segment_max_events=4, cache_bytes=1 << 16)
    opening = Opening(settings, ManualClock(), prealloc_start=LOG_FILE_BYTES)
    small = partial(WalSettings, file_bytes=LOG_FILE_BYTES)
    with mock.patch("topics.engine.recovery.opening.WalSettings", small):
        return Log(open_engine(fs, "/data", opening))


@dataclass
class Seen:
    """What the program had been told when it ended."""

    appended: int = 0  # the last value whose write was answered
    begun: int = 0  # the last value whose write was begun
    copies: dict[str, dict[int, int]] = field(default_factory=dict)  # topic -> seq -> value
    acked: set[int] = field(default_factory=set)  # values acked at the queue
    acking: set[int] = field(default_factory=set)
    filtered_from: int = 0  # values from here on may be filtered
    dropped_from: int = 0  # and from here on be copied by nobody


def values(log: Log, name: str) -> dict[int, int]:
    events = log.follow(name, limit=1000, wait=0.0)
    return {event.seq: event.data for event in events if isinstance(event, Record)}


def live(log: Log, seen: Seen) -> None:
    """Source deletes, acks at a queue, a cap, a changed filter and a dropped router."""

    def write(count: int) -> None:
        seen.begun += count
        first = seen.begun - count + 1
        drafts = [
            {"data": value, "tag": "even" if value % 2 == 0 else "odd"}
            for value in range(first, first + count)
        ]
        log.append("source", drafts)
        seen.appended = seen.begun

    def read(*names: str) -> None:
        for name in names:
            seen.copies[name] = values(log, name)

    for name, config in (
        ("source", {}),
        ("queue", {"type": "queue", "leases_durable": True}),
        ("capped", {"cap_records": 4}),
        ("last", {}),
    ):
        log.create(name, durability="fsync", **config)
    log.route("q", source="source", dest="queue")
    log.route("c", source="source", dest="capped")
    log.route("l", source="queue", dest="last")
    write(5)
    read("queue", "last")
    queue = log.queue("queue")
    jobs = queue.claim(3)
    seen.acking = {job.data for job in jobs[:2]}
    queue.ack(jobs[:2])
    seen.acked, seen.acking = seen.acking, set()
    read("capped")
    log.delete("source", match="odd")
    log.checkpoint()
    write(4)
    read("queue", "capped", "last")
    seen.filtered_from = seen.begun + 1
    log.route("q", source="source", dest="queue", match="even")
    write(4)
    read("queue", "last")
    log.delete("source", before_seq=12)
    log.checkpoint()
    write(2)
    read("queue")
    seen.dropped_from = seen.begun + 1
    log.drop_router("c")
    write(3)
    read("queue", "capped", "last")


def check(log: Log, seen: Seen) -> None:
    names = {topic.topic for topic in log.topics()}
    for name, before in seen.copies.items():
        assert name in names
        now = values(log, name)
        for seq, value in before.items():
            gone = name == "queue" and value in seen.acked | seen.acking
            if seq in now:
                assert now[seq] == value, f"seq {seq} of {name} has become another record"
            elif name != "capped":
                assert gone, f"seq {seq} of {name} is gone"
        for value in seen.acked:
            assert name != "queue" or value not in now.values(), "an acked job is back"
    if not {"queue", "last", "capped"} <= names:
        return
    routers = {router.router for router in log.routers()}
    if not {"q", "l"} <= routers:
        return
    for name in ("queue", "last", "capped"):
        found = list(values(log, name).values())
        assert found == sorted(set(found)), f"{name} is out of order or has something twice"
        assert all(value <= seen.begun for value in found)
    everything = set(values(log, "queue").values()) | seen.acked | seen.acking
    for value in range(1, seen.appended + 1):
        may_be_filtered = seen.filtered_from and value >= seen.filtered_from and value % 2
        assert value in everything or may_be_filtered, f"{value} was written and never copied"
    assert not any(
        isinstance(event, Tombstone) and event.reason == "source_trim"
        for event in log.follow("queue", wait=0.0)
    )


def calls_of_a_life() -> int:
    fs = FaultFs(SimDisk().mount())
    live(opened(fs), Seen())
    return len(fs.trace)


CALLS = calls_of_a_life()


def end_before(call: int, mode: CrashMode | None) -> None:
    disk = SimDisk()
    fs = FaultFs(disk.mount())
    fs.stop_before(call, disk.kill if mode is None else partial(disk.crash, call, mode))
    seen = Seen()
    with pytest.raises(PowerOff):
        live(opened(fs), seen)
    log = opened(FaultFs(disk.mount()))
    check(log, seen)
    disk.kill()  # and once more: recovery changes nothing
    check(opened(FaultFs(disk.mount())), seen)


@pytest.mark.parametrize("mode", [None, "none", "prefix"])
@pytest.mark.parametrize("part", range(4))
def test_cl13_copies_keep_their_seqs_and_nothing_comes_twice(
    mode: CrashMode | None, part: int
) -> None:
    first = 1 + (0, 1, 2)[(part + len(mode or "")) % STRIDE]
    calls = range(first, CALLS, STRIDE)
    quarter = len(calls) // 4 + 1
    for call in calls[part * quarter : (part + 1) * quarter]:
        end_before(call, mode)
