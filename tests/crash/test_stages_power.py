"""ST01: a stage and a commit over three shards, ended at every step and at every call."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import pytest
from tests.crash.stage_stores import (
    APP,
    PARTS,
    TOPICS,
    Sink,
    check_after,
    new_store,
    open_sharded,
    records,
    rows,
)
from tests.crash.stores import opened

from topics.embedded import Log
from topics.engine.effects import run
from topics.engine.reads.bulk import slices
from topics.engine.reads.reading import Query
from topics.engine.reads.versioned_pages import VersionedBulk
from topics.storage.frames.columns import Frames, bounds, headers
from topics.testing import CrashMode, FaultFs, PowerOff, SimDisk, WatchFs, stop_at

STORE = new_store()
MODES: tuple[CrashMode, ...] = get_args(CrashMode)
POINTS = ("stage.file", "stage.barrier", "stage.committed", "stage.appended", "stage.published")

ENDS: dict[str, Callable[[SimDisk], None]] = {"kill": SimDisk.kill}
for number, mode in enumerate(MODES):
    ENDS[mode] = partial(SimDisk.crash, seed=number, mode=mode)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("point", POINTS)
def test_st01_an_end_at_a_crash_point_leaves_all_or_nothing(point: str, end: str) -> None:
    disk, sink = STORE.clone(), Sink()
    log = open_sharded(disk.mount())
    with stop_at(point, partial(ENDS[end], disk)) as stop:
        sink.run(log)
    assert stop.reached
    check_after(disk, sink)


@pytest.mark.parametrize("nth", [2, 3])
def test_st01_an_end_in_a_later_stage_keeps_the_earlier_ones(nth: int) -> None:
    disk, sink = STORE.clone(), Sink()
    log = open_sharded(disk.mount())
    with stop_at("stage.file", partial(disk.crash, mode="none"), nth=nth) as stop:
        sink.run(log)
    assert stop.reached
    assert len(sink.staged) == nth - 1
    again = open_sharded(disk.mount())
    assert again._engine.staging.taken.nbytes > 0
    again.close()
    check_after(disk, sink)


def calls_of_a_run() -> range:
    """The numbers of the file-system calls that staging and committing make."""
    disk = STORE.clone()
    fs = FaultFs(disk.mount())
    log = open_sharded(fs)
    first = len(fs.trace) + 1
    Sink().run(log)
    return range(first, len(fs.trace) + 1)


CALLS = calls_of_a_run()


@pytest.mark.parametrize("call", CALLS)
def test_st01_an_end_at_any_call_leaves_all_or_nothing(call: int) -> None:
    some = MODES[call % len(MODES)]
    for end in (SimDisk.kill, ENDS["none"], partial(SimDisk.crash, seed=call, mode=some)):
        disk, sink = STORE.clone(), Sink()
        fs = FaultFs(disk.mount())
        log = open_sharded(WatchFs(fs))
        fs.stop_before(call, partial(end, disk))
        with pytest.raises(PowerOff):
            sink.run(log)
        check_after(disk, sink)


def test_st01_writes_that_were_not_yet_synced_are_safe_once_a_commit_builds_on_them() -> None:
    disk, sink = STORE.clone(), Sink()
    log = open_sharded(disk.mount())
    acks = {topic: log.append(topic, {"data": "just before"}) for topic in TOPICS}
    with stop_at("stage.committed", partial(disk.crash, mode="none")):
        sink.run(log)
    shown = records(open_sharded(disk.mount()))
    for topic, ack in acks.items():
        assert shown[topic][1][ack.first_seq].data == "just before"
    disk.kill()
    check_after(disk, sink)


def stage_both(fs: FaultFs) -> int:
    """Stage both parts; returns the number of the first call that syncs a name of the second."""
    log = open_sharded(fs)
    done = 0
    for part, attempt in PARTS:
        done = len(fs.trace)
        log.stage(APP, 2, part, rows(2, part), attempt=attempt)
    return done + 1 + [call.op for call in fs.trace[done:]].index("sync_dir")


def test_st01_a_stage_found_by_a_restart_is_as_safe_as_one_just_staged() -> None:
    disk = STORE.clone()
    fs = FaultFs(disk.mount())
    fs.stop_before(stage_both(FaultFs(STORE.clone().mount())), disk.kill)
    with pytest.raises(PowerOff):
        stage_both(fs)
    again = open_sharded(disk.mount())  # finds the second part, by a name that could vanish
    with stop_at("stage.committed", partial(disk.crash, mode="none", names="none")) as stop:
        again.commit(APP, 2, PARTS)
    assert stop.reached
    check_after(disk, Sink())


def test_st01_a_second_end_while_recovering_changes_nothing() -> None:
    for point in ("rec.snapshot", "rec.scan", "rec.newgen", "rec.skip"):
        disk, sink = STORE.clone(), Sink()
        log = open_sharded(disk.mount())
        with stop_at("stage.committed", partial(disk.crash, mode="none")):
            sink.run(log)
        with stop_at(point, partial(disk.crash, mode="none")) as stop:
            open_sharded(disk.mount())
        assert stop.reached
        check_after(disk, sink)


def test_st01_a_rebuilt_commit_survives_checkpoints_and_the_loss_of_the_newest_snapshot() -> None:
    disk, sink = STORE.clone(), Sink()
    log = open_sharded(disk.mount())
    log.checkpoint()
    with stop_at("stage.committed", partial(disk.crash, mode="none")):
        sink.run(log)
    again = open_sharded(disk.mount())
    again.checkpoint()  # puts the records that came from the stages into segments
    disk.crash(mode="none")
    newest = max(path for path in disk.paths() if "/meta/snapshot" in path)
    disk.flip(newest, 100)
    check_after(disk, sink)


def test_st01_records_of_rebuilt_commits_are_read_in_bulk_beside_those_of_the_log() -> None:
    """Two rebuilt commits lie together in memory, and what came between them in a log file."""
    disk = SimDisk()
    log = opened(disk.mount())
    log.create("t", durability="fsync")
    log.append("t", {"data": 0})
    for epoch in (1, 2):
        log.stage("sink", epoch, 0, [{"topic": "t", "data": [epoch, n]} for n in range(2)])
        with stop_at("stage.committed", disk.kill) as stop:
            log.commit("sink", epoch, [(0, 0)])
        assert stop.reached
        log = opened(disk.mount())
        if epoch == 1:
            log.append("t", {"data": -1})
    expected = [0, [1, 0], [1, 1], -1, [2, 0], [2, 1]]
    assert [record.data for record in log.read("t").records] == expected
    assert bulk(log, "t") == expected


def bulk(log: Log, name: str) -> list[Any]:
    """All records of a topic, read the way of Arrow pages."""
    pages = log._engine.pages
    page = run(pages.plan(name, Query(limit=100), b"", []))
    assert isinstance(page, VersionedBulk)
    found: list[Any] = []

    def datas(frames: Frames) -> int:
        inside = bounds(frames, headers(frames))
        spans = zip(inside.datas.tolist(), inside.metas.tolist(), strict=True)
        found.extend(json.loads(frames.buf[start:end]) for start, end in spans)
        return frames.size

    for seqs in slices(page.bulk.plan.runs):
        left = seqs
        while len(left):
            left = left[run(pages.bulk.step(page.bulk.plan.topic, left, datas)) :]
    return found
