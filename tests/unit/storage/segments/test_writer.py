"""What a checkpoint writes, when it seals, and what it leaves behind when it fails."""

import errno
import os
from pathlib import Path

import msgspec
import pytest
from tests.unit.storage.segments.builders import (
    DATA_DIR,
    NOW,
    SETTINGS,
    TOPIC,
    all_frames,
    make_store,
    records,
    write,
    write_active,
)

from topics.storage.fs import RealFs
from topics.storage.handles import Handles
from topics.storage.segments.codec import idx_hash
from topics.storage.segments.segment import ActiveSegment, AnySegment, SegmentSettings
from topics.storage.segments.store import CopyState, SegmentStore, finish
from topics.storage.segments.writer import SegmentSyncFailed, Slice, append_records, sync_written
from topics.testing import FaultFs, SimDisk

DATA = f"{DATA_DIR}/topics/0000000A/seg-0000000000000001.data"
IDX = DATA.replace(".data", ".idx")
SMALL = SegmentSettings(max_records=10)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def fs(disk: SimDisk) -> FaultFs:
    return FaultFs(disk)


@pytest.fixture
def store(fs: FaultFs) -> SegmentStore:
    return make_store(fs)


def active_of(store: SegmentStore, active: ActiveSegment, piece: Slice) -> ActiveSegment:
    grown = write(store, active, piece).active
    assert grown is not None
    return grown


def test_sg15_data_is_the_logged_frames_with_a_live_byte_behind_each(
    disk: SimDisk, store: SegmentStore
) -> None:
    piece = records(1, 4)
    active = write_active(store, piece)
    assert disk.peek(DATA) == b"".join(bytes(frame) + b"\0" for frame in piece.frames)
    assert active.recorded() == (1, 4, len(disk.peek(DATA)), len(disk.peek(IDX)))


def test_an_active_segment_grows_over_checkpoints(store: SegmentStore) -> None:
    first, second = records(1, 4), records(5, 3, ts=NOW + 5)
    active = active_of(store, write_active(store, first), second)
    assert active.count == 7
    assert (active.min_ts, active.max_ts, active.created_ms) == (NOW, NOW + 5, NOW)
    assert all_frames(store, active) == [*first.frames, *second.frames]


def test_a_full_segment_is_sealed_within_a_slice(store: SegmentStore) -> None:
    piece = records(1, 25)
    written = write(store, None, piece, settings=SMALL)
    assert [(seg.first, seg.last) for seg in written.sealed] == [(1, 10), (11, 20)]
    assert written.active is not None
    assert (written.active.first, written.active.last) == (21, 25)
    segments: list[AnySegment] = [*written.sealed, written.active]
    assert [frame for seg in segments for frame in all_frames(store, seg)] == piece.frames
    assert all(seg.idx_h == idx_hash(store.idx(TOPIC, seg)) for seg in written.sealed)


def test_a_sealed_segment_hashes_all_its_checkpoints(store: SegmentStore, disk: SimDisk) -> None:
    active = write_active(store, records(1, 4))
    (seg,) = write(store, active, records(5, 6), settings=SMALL).sealed
    fresh = make_store(disk)
    assert idx_hash(fresh.idx(TOPIC, seg)) == seg.idx_h
    assert fresh.repairs == {}


def test_bytes_seal_too(store: SegmentStore) -> None:
    size = len(records(1, 1).frames[0]) + 1
    settings = SegmentSettings(max_bytes=3 * size)
    written = write(store, None, records(1, 7), settings=settings)
    assert [seg.count for seg in written.sealed] == [3, 3]
    assert [seg.data_len for seg in written.sealed] == [3 * size, 3 * size]


def test_age_seals_even_without_new_records(store: SegmentStore) -> None:
    active = write_active(store, records(1, 3))
    young = write(store, active, now_ms=NOW + SETTINGS.max_age_ms - 1)
    assert (young.active, young.sealed) == (active, [])
    old = write(store, active, now_ms=NOW + SETTINGS.max_age_ms)
    assert old.active is None
    assert [seg.last for seg in old.sealed] == [3]


def test_age_zero_never_seals(store: SegmentStore) -> None:
    active = write_active(store, records(1, 3))
    settings = SegmentSettings(max_age_ms=0)
    assert write(store, active, settings=settings, now_ms=NOW * 2).active == active


def test_sg14_a_jump_in_seqs_begins_a_new_segment(store: SegmentStore) -> None:
    active = write_active(store, records(1, 3))
    written = write(store, active, records(8, 2))
    assert [(seg.first, seg.last) for seg in written.sealed] == [(1, 3)]
    assert written.active is not None
    assert (written.active.first, written.active.last) == (8, 9)


def test_holes_have_no_bytes_and_the_time_before_them(store: SegmentStore) -> None:
    active = write_active(store, records(1, 3, ts=NOW, dead={3}), records(4, 2, ts=NOW + 9))
    idx = store.idx(TOPIC, active)
    assert [idx.is_hole(i) for i in range(5)] == [False, False, True, False, False]
    assert idx.ts(2) == NOW
    assert idx.offset(2) == idx.offset(3)
    assert idx.is_dead(2)


def test_dead_seqs_never_begin_a_segment(disk: SimDisk, store: SegmentStore) -> None:
    nothing = write(store, None, records(1, 50, dead=range(1, 51)), settings=SMALL)
    assert (nothing.active, nothing.sealed) == (None, [])
    assert disk.paths() == []
    late = write(store, None, records(1, 50, dead=range(1, 48)), settings=SMALL).active
    assert late is not None
    assert (late.first, late.last) == (48, 50)


def test_a_long_dead_stretch_costs_one_segment_of_entries(store: SegmentStore) -> None:
    active = write_active(store, records(1, 3))
    written = write(
        store, active, records(4, 500, dead=range(4, 504)), records(504, 2), settings=SMALL
    )
    assert [(seg.first, seg.last) for seg in written.sealed] == [(1, 10)]
    assert written.active is not None
    assert (written.active.first, written.active.last) == (504, 505)


def test_work_is_yielded_after_every_slice(store: SegmentStore) -> None:
    slices = [records(first, 5) for first in range(1, 51, 5)]
    work = append_records(store, TOPIC, None, slices, settings=SETTINGS, now_ms=NOW)
    assert sum(1 for _ in work) == len(slices)


def test_a_long_backlog_keeps_no_more_than_one_pair_open(tmp_path: Path) -> None:
    fs = RealFs()
    store = SegmentStore(fs, Handles(fs), str(tmp_path))
    work = append_records(store, TOPIC, None, [records(1, 200)], settings=SMALL, now_ms=NOW)
    assert max(len(open_files(tmp_path)) for _ in work) == 2
    assert open_files(tmp_path) == []


def open_files(directory: Path) -> list[str]:
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return [target for target in targets if target.startswith(str(directory))]


def test_data_is_synced_before_any_idx_and_names_last(fs: FaultFs, store: SegmentStore) -> None:
    results = [
        finish(
            append_records(
                store,
                topic_id,
                None,
                [records(1, 3, topic_id=topic_id)],
                settings=SETTINGS,
                now_ms=NOW,
            )
        )
        for topic_id in (1, 2)
    ]
    start = len(fs.trace)
    finish(sync_written(store, results))
    calls = [(call.op, call.path.rsplit(".", 1)[-1]) for call in fs.trace[start:]]
    assert calls[:4] == [("fdatasync", "data")] * 2 + [("fdatasync", "idx")] * 2
    assert [call.path for call in fs.trace[start + 4 :]] == [
        f"{DATA_DIR}/topics",
        f"{DATA_DIR}/topics/00000001",
        f"{DATA_DIR}/topics/00000002",
    ]


@pytest.mark.parametrize("file", ["*.data", "*.idx"])
@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC])
def test_sg03_a_failed_write_changes_nothing_that_is_recorded(file: str, fault: int) -> None:
    disk = SimDisk()
    fs = FaultFs(disk)
    store = make_store(fs)
    active = write_active(store, records(1, 4))
    before = (disk.peek(DATA), disk.peek(IDX))
    fs.fail("pwrite", fault, path=file)
    with pytest.raises(OSError, match="seg-"):
        write(store, active, records(5, 4))
    assert all_frames(store, active) == records(1, 4).frames
    assert disk.peek(DATA).startswith(before[0])
    grown = active_of(store, active, records(5, 6))
    assert all_frames(store, grown) == records(1, 10).frames
    assert store.check(TOPIC, grown).hot is CopyState.OK


def test_sg02_bytes_past_the_recorded_lengths_are_cut_before_the_next_ones(
    disk: SimDisk, store: SegmentStore
) -> None:
    active = write_active(store, records(1, 4))
    write(store, active, records(5, 20))  # a checkpoint that was given up later
    assert all_frames(store, active) == records(1, 4).frames
    assert store.check(TOPIC, active).hot is CopyState.LONGER
    grown = active_of(store, active, records(5, 2))
    assert grown.data_len == len(disk.peek(DATA))
    assert all_frames(make_store(disk), grown) == records(1, 6).frames


def test_a_segment_begun_anew_forgets_what_was_cached_of_the_old_one(store: SegmentStore) -> None:
    abandoned = write_active(store, records(1, 6))
    all_frames(store, abandoned)
    again = write_active(store, records(1, 6, dead={2}))
    assert again.count == abandoned.count
    assert all_frames(store, again) == records(1, 6, dead={2}).frames


@pytest.mark.parametrize("file", ["*.data", "*.idx"])
def test_sg04_after_a_failed_sync_a_segment_is_sealed_where_it_was_durable(file: str) -> None:
    disk = SimDisk()
    fs = FaultFs(disk)
    store = make_store(fs)
    active = write_active(store, records(1, 4))
    fs.fail("fdatasync", errno.EIO, path=file)
    with pytest.raises(SegmentSyncFailed) as failure:
        write(store, active, records(5, 4))
    assert (failure.value.topic_id, failure.value.first) == (TOPIC, 1)
    assert failure.value.errno == errno.EIO
    writes = fs.count("pwrite", DATA)
    written = write(store, active, records(5, 6))
    assert fs.count("pwrite", DATA) == writes
    assert [(seg.first, seg.last, seg.data_len) for seg in written.sealed] == [
        (1, 4, active.data_len)
    ]
    assert written.active is not None
    assert (written.active.first, written.active.last) == (5, 10)
    disk.crash(mode="none", names="none")
    survivor = make_store(disk)
    assert all_frames(survivor, written.sealed[0]) == records(1, 4).frames
    assert all_frames(survivor, written.active) == records(5, 6).frames


def test_sg04_a_new_file_whose_sync_failed_is_replaced_by_another(disk: SimDisk) -> None:
    store = make_store(disk)
    disk.fsyncgate("*.data")
    with pytest.raises(SegmentSyncFailed):
        write(store, None, records(1, 4))
    active = write_active(store, records(1, 4))
    assert write(store, active, records(5, 1)).sealed == []
    disk.crash(mode="none", names="none")
    assert all_frames(make_store(disk), active) == records(1, 4).frames


def test_a_directory_sync_that_failed_is_done_next_time(fs: FaultFs, store: SegmentStore) -> None:
    fs.fail("sync_dir", errno.EIO, path=f"{DATA_DIR}/topics")
    with pytest.raises(OSError, match="topics"):
        write(store, None, records(1, 4))
    before = fs.count("sync_dir", f"{DATA_DIR}/topics")
    write(store, None, records(1, 4))
    assert fs.count("sync_dir", f"{DATA_DIR}/topics") == before + 1
    assert store.unsynced_dirs == set()


def test_a_bad_active_idx_is_repaired_before_it_grows(disk: SimDisk, store: SegmentStore) -> None:
    active = write_active(store, records(1, 4))
    disk.unlink(IDX)
    grown = active_of(make_store(disk), active, records(5, 2))
    fresh = make_store(disk)
    assert all_frames(fresh, grown) == records(1, 6).frames
    assert fresh.repairs == {}


def test_an_active_file_that_lost_recorded_bytes_is_not_extended(
    disk: SimDisk, store: SegmentStore
) -> None:
    active = write_active(store, records(1, 4))
    disk.put(DATA, disk.peek(DATA)[:-1])
    with pytest.raises(OSError, match="recorded bytes"):
        write(store, active, records(5, 2))


def test_a_refused_tag_file_does_not_cost_the_checkpoint(fs: FaultFs, store: SegmentStore) -> None:
    fs.fail("open", errno.ENOSPC, path="*.tag")
    settings = msgspec.structs.replace(SETTINGS, max_records=2)
    (seg,) = write(store, None, records(1, 2, tags=["a", "b"]), settings=settings).sealed
    assert store.tag_write_errors == 1
    assert list(store.tags(TOPIC, seg)) == ["a", "b"]


def test_files_are_closed_when_work_is_abandoned_midway(store: SegmentStore) -> None:
    work = append_records(
        store, TOPIC, None, [records(1, 3), records(4, 3)], settings=SETTINGS, now_ms=NOW
    )
    next(work)
    work.close()
    assert write_active(store, records(1, 6)).count == 6
