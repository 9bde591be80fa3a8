"""Delete bytes on disk."""

import errno

import pytest
from tests.unit.storage.segments.builders import (
    COLD_DIR,
    DATA_DIR,
    NOW,
    TOPIC,
    all_frames,
    make_store,
    records,
    write,
    write_active,
    write_sealed,
)

from topics.storage.segments.flips import STEP, flip
from topics.storage.segments.segment import AnySegment
from topics.storage.segments.store import SegmentStore, finish
from topics.testing import FaultFs, SimDisk, stop_at

DATA = f"{DATA_DIR}/topics/0000000A/seg-0000000000000001.data"
IDX = DATA.replace(".data", ".idx")


def dead(store: SegmentStore, seg: AnySegment) -> list[int]:
    idx = store.idx(TOPIC, seg)
    return [seg.first + i for i in range(seg.count) if idx.is_dead(i)]


def dead_in_data(disk: SimDisk, seg: AnySegment) -> list[int]:
    """What an index rebuilt from `.data` alone says."""
    twin = disk.clone()
    twin.unlink(IDX)
    return dead(make_store(twin), seg)


def flipped(store: SegmentStore, seg: AnySegment, *seqs: int) -> None:
    finish(flip(store, TOPIC, seg, seqs, now_ms=NOW))


@pytest.mark.parametrize("sealed", [True, False])
def test_flipped_records_are_dead_in_memory_and_in_both_files(sealed: bool) -> None:
    disk = SimDisk()
    store = make_store(disk)
    piece = records(1, 10)
    seg = write_sealed(store, piece) if sealed else write_active(store, piece)
    flipped(store, seg, 2, 10)
    assert dead(store, seg) == [2, 10]
    disk.crash(mode="none", names="none")
    assert dead(make_store(disk), seg) == [2, 10]
    assert dead_in_data(disk, seg) == [2, 10]
    assert all_frames(make_store(disk), seg) == piece.frames


def test_each_file_is_synced_once_data_first() -> None:
    fs = FaultFs(SimDisk())
    store = make_store(fs)
    seg = write_sealed(store, records(1, 10))
    store.idx(TOPIC, seg)
    start = len(fs.trace)
    flipped(store, seg, 1, 5, 9)
    calls = [(call.op, call.path) for call in fs.trace[start:]]
    assert [op for op, _ in calls] == ["open", *["pwrite"] * 3, "fdatasync"] * 2
    assert [path for op, path in calls if op == "fdatasync"] == [DATA, IDX]


def test_holes_need_no_byte() -> None:
    fs = FaultFs(SimDisk())
    store = make_store(fs)
    seg = write_sealed(store, records(1, 5, dead={3}))
    writes = fs.count("pwrite")
    flipped(store, seg, 3)
    assert fs.count("pwrite") == writes


def test_many_flips_are_done_in_steps() -> None:
    store = make_store(SimDisk())
    seg = write_sealed(store, records(1, 3 * STEP))
    work = flip(store, TOPIC, seg, range(1, 3 * STEP + 1), now_ms=NOW)
    assert sum(1 for _ in work) >= 6


@pytest.mark.parametrize("mode", ["none", "all"])
@pytest.mark.parametrize("point", ["del.data_byte", "del.data_sync", "del.idx_byte"])
def test_dl03_dl04_a_crash_in_a_flip_leaves_each_record_whole_and_the_flip_repeatable(
    point: str, mode: str
) -> None:
    disk = SimDisk()
    store = make_store(disk)
    piece = records(1, 10)
    seg = write_sealed(store, piece)
    with stop_at(point, lambda: disk.crash(mode=mode)) as stop:  # type: ignore[arg-type]
        flipped(store, seg, 2, 7)
    assert stop.reached
    after = make_store(disk)
    assert all_frames(after, seg) == piece.frames
    assert set(dead(after, seg)) <= set(dead_in_data(disk, seg)) <= {2, 7}
    flipped(after, seg, 2, 7)
    assert dead(make_store(disk), seg) == dead_in_data(disk, seg) == [2, 7]


@pytest.mark.parametrize("file", ["*.data", "*.idx"])
def test_bytes_whose_sync_failed_are_written_again(file: str) -> None:
    disk = SimDisk()
    store = make_store(disk)
    seg = write_sealed(store, records(1, 10))
    disk.fsyncgate(file)
    with pytest.raises(OSError, match=r"\[Errno 5\]"):
        flipped(store, seg, 4)
    assert dead(store, seg) == []
    flipped(store, seg, 4)
    disk.crash(mode="none", names="none")
    assert dead(make_store(disk), seg) == dead_in_data(disk, seg) == [4]


def test_a_failed_flip_stops_an_active_segment_from_growing() -> None:
    fs = FaultFs(SimDisk())
    store = make_store(fs)
    active = write_active(store, records(1, 4))
    fs.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="seg-"):
        flipped(store, active, 1)
    assert [seg.last for seg in write(store, active, records(5, 1)).sealed] == [4]


def test_a_bad_idx_is_repaired_before_it_is_marked() -> None:
    disk = SimDisk()
    seg = write_sealed(make_store(disk), records(1, 4))
    disk.unlink(IDX)
    flipped(make_store(disk), seg, 2)
    fresh = make_store(disk)
    assert dead(fresh, seg) == [2]
    assert fresh.repairs == {}


def test_every_complete_copy_is_marked() -> None:
    disk = SimDisk()
    store = make_store(disk, cold=True)
    seg = write_sealed(store, records(1, 4))
    for path in DATA, IDX:
        disk.put(path.replace(DATA_DIR, COLD_DIR, 1), disk.peek(path))
    flipped(store, seg, 3)
    for path in DATA, IDX:
        assert disk.peek(path) == disk.peek(path.replace(DATA_DIR, COLD_DIR, 1))
    disk.unlink(DATA)
    cold = make_store(disk, cold=True)
    assert dead(cold, seg) == [3]
    flipped(cold, seg, 1)
    assert dead(make_store(disk, cold=True), seg) == [1, 3]
