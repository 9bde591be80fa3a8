"""Power cuts at every file-system call of the work on segments.

Each sweep runs its work once to count the calls, then once per call with the power cut there, and
asks whether what was recorded before still stands and whether the work can simply be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Literal, get_args

import msgspec
import pytest
from tests.unit.storage.segments.builders import (
    COLD_DIR,
    DATA_DIR,
    NOW,
    SETTINGS,
    TOPIC,
    all_frames,
    make_store,
    records,
    write,
    write_active,
    write_sealed,
)

from topics.storage.crashpoints import NAMES
from topics.storage.fs import Fs
from topics.storage.segments.drop import drop_segment, drop_unreferenced
from topics.storage.segments.flips import flip
from topics.storage.segments.segment import COLD, ActiveSegment, Segment
from topics.storage.segments.store import SegmentStore, finish
from topics.storage.segments.tiering import Relocated, has_hot_files, relocate, remove_hot, settled
from topics.testing import CrashMode, FaultFs, PowerOff, SimDisk, stop_at

MODES: tuple[CrashMode, ...] = get_args(CrashMode)
TAGS = ["a", None, "b"] * 10
PIECE = records(1, 30, tags=TAGS)

Work = Callable[[Fs], None]


def cuts(image: SimDisk, work: Work, mode: CrashMode) -> Iterator[SimDisk]:
    """The disk after a power cut at each call of the work in turn."""
    counting = FaultFs(image.clone())
    work(counting)
    for call in range(1, len(counting.trace) + 1):
        disk = image.clone()
        fs = FaultFs(disk)
        fs.stop_before(call, partial(disk.crash, call, mode))
        try:
            work(fs)
        except PowerOff:
            yield disk
        else:
            raise AssertionError(f"call {call} was not reached")


def prepared(build: Callable[[SegmentStore], Any], *, cold: bool = False) -> tuple[SimDisk, Any]:
    """A disk where this was built and everything is durable."""
    disk = SimDisk()
    built = build(make_store(disk, cold=cold))
    disk.settle()
    return disk, built


# Checkpoint

MORE = records(31, 40, tags=[*TAGS, *TAGS[:10]])
SEALING = msgspec.structs.replace(SETTINGS, max_records=50)


def grow(active: ActiveSegment, fs: Fs) -> None:
    write(make_store(fs), active, MORE, settings=SEALING)


@pytest.mark.parametrize("lie", ["honest", "size_first"])
@pytest.mark.parametrize("mode", MODES)
def test_sg01_sg02_sg06_a_cut_in_a_checkpoint_costs_nothing_recorded(
    mode: CrashMode, lie: Literal["honest", "size_first"]
) -> None:
    image, active = prepared(lambda store: write_active(store, PIECE))
    getattr(image, lie)()
    for disk in cuts(image, partial(grow, active), mode):
        after = make_store(disk)
        assert all_frames(after, active) == PIECE.frames
        assert after.repairs == {}
        again = write(after, active, MORE, settings=SEALING)
        disk.crash(mode="none", names="none")
        check_grown(disk, again.sealed, again.active)


def check_grown(disk: SimDisk, sealed: list[Segment], active: ActiveSegment | None) -> None:
    store = make_store(disk)
    assert active is not None
    assert [(seg.first, seg.last) for seg in sealed] == [(1, 50)]
    assert (active.first, active.last) == (51, 70)
    frames = [*all_frames(store, sealed[0]), *all_frames(store, active)]
    assert frames == [*PIECE.frames, *MORE.frames]
    assert list(store.tags(TOPIC, sealed[0])) == ["a", "b"]
    assert store.repairs == {}


@pytest.mark.parametrize("point", ["ckpt.data", "ckpt.idx", "ckpt.synced"])
def test_sg01_each_checkpoint_crash_point_leaves_the_recorded_segment(point: str) -> None:
    image, active = prepared(lambda store: write_active(store, PIECE))
    for mode in MODES:
        disk = image.clone()
        with stop_at(point, partial(disk.crash, 1, mode)) as stop:
            grow(active, disk.mount())
        assert stop.reached
        assert all_frames(make_store(disk), active) == PIECE.frames


@pytest.mark.parametrize("mode", MODES)
def test_sg05_a_first_checkpoint_cut_anywhere_is_done_again(mode: CrashMode) -> None:
    image = SimDisk()
    make_store(image)
    for disk in cuts(image, grow_first, mode):
        active = write_active(make_store(disk), PIECE)
        disk.crash(mode="none", names="none")
        assert all_frames(make_store(disk), active) == PIECE.frames


def grow_first(fs: Fs) -> None:
    write(make_store(fs), None, PIECE)


# Deletes

DOOMED = (2, 3, 17, 30)


@pytest.mark.parametrize("mode", ["none", "all", "prefix", "subset"])
def test_dl03_dl04_a_cut_in_a_flip_damages_no_record_and_loses_no_delete(mode: CrashMode) -> None:
    image, seg = prepared(lambda store: write_sealed(store, PIECE))
    for disk in cuts(image, partial(flip_doomed, seg), mode):
        after = make_store(disk)
        assert all_frames(after, seg) == PIECE.frames
        assert set(dead(after, seg)) <= set(DOOMED)
        flip_doomed(seg, disk)
        disk.crash(mode="none", names="none")
        assert dead(make_store(disk), seg) == list(DOOMED)
        disk.unlink(f"{DATA_DIR}/topics/0000000A/seg-0000000000000001.idx")
        assert dead(make_store(disk), seg) == list(DOOMED)


def flip_doomed(seg: Segment, fs: Fs) -> None:
    finish(flip(make_store(fs), TOPIC, seg, DOOMED, now_ms=NOW))


def dead(store: SegmentStore, seg: Segment) -> list[int]:
    idx = store.idx(TOPIC, seg)
    return [seg.first + i for i in range(seg.count) if idx.is_dead(i)]


@pytest.mark.parametrize("mode", MODES)
def test_dl09_a_cut_in_a_drop_leaves_nothing_a_sweep_cannot_remove(mode: CrashMode) -> None:
    image, _ = prepared(lambda store: write_sealed(store, PIECE))
    for disk in cuts(image, drop_first, mode):
        finish(drop_unreferenced(make_store(disk), TOPIC, set()))
        disk.crash(mode="none", names="none")
        assert disk.paths() == []


def drop_first(fs: Fs) -> None:
    assert finish(drop_segment(make_store(fs), TOPIC, 1)) == []


# Relocation


class Mover:
    """A relocation and the log that is asked to remember it."""

    def __init__(self, seg: Segment) -> None:
        self.seg = seg
        self.flipped = False

    def __call__(self, fs: Fs) -> None:
        self.flipped = False
        work: Generator[Relocated | None, bool | None, object]
        work = relocate(make_store(fs, cold=True), TOPIC, self.seg, now_ms=NOW)
        answer = None
        while True:
            try:
                step = work.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(step, Relocated):
                answer = self.flipped = True

    def registered(self) -> Segment:
        """What metadata says after a restart."""
        return self.seg.in_tier(COLD) if self.flipped else self.seg


def check_served_and_finish(disk: SimDisk, mover: Mover) -> None:
    """The segment is served in full, and the move can be brought to its end."""
    seg = mover.registered()
    after = make_store(disk, cold=True)
    assert all_frames(after, seg) == PIECE.frames
    assert list(after.tags(TOPIC, seg)) == ["a", "b"]
    assert settled(after, TOPIC, seg) == seg
    if seg.tier == COLD:
        assert finish(remove_hot(after, TOPIC, seg))
    else:
        mover(disk)
        seg = mover.registered()
    disk.crash(mode="none", names="none")
    last = make_store(disk, cold=True)
    assert not has_hot_files(last, TOPIC, seg)
    assert all_frames(last, seg) == PIECE.frames
    assert not any(path.endswith(".tmp") for path in disk.paths())
    assert {path.split("/")[1] for path in disk.paths()} == {COLD_DIR.strip("/")}


@pytest.mark.parametrize("mode", MODES)
def test_tr02_a_cut_anywhere_in_a_move_leaves_a_complete_copy(mode: CrashMode) -> None:
    image, seg = prepared(lambda store: write_sealed(store, PIECE), cold=True)
    mover = Mover(seg)
    for disk in cuts(image, mover, mode):
        check_served_and_finish(disk, mover)


@pytest.mark.parametrize("point", sorted(name for name in NAMES if name.startswith("tier.")))
def test_tr02_each_crash_point_of_a_move_leaves_a_complete_copy(point: str) -> None:
    image, seg = prepared(lambda store: write_sealed(store, PIECE), cold=True)
    for mode in MODES:
        disk = image.clone()
        mover = Mover(seg)
        with stop_at(point, partial(disk.crash, 1, mode)) as stop:
            mover(disk.mount())
        assert stop.reached
        check_served_and_finish(disk, mover)
