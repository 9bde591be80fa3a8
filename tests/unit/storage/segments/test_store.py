"""Reading segments, also damaged ones."""

import errno

import msgspec
import pytest
from tests.unit.storage.segments.builders import (
    COLD_DIR,
    DATA_DIR,
    NOW,
    TOPIC,
    all_frames,
    make_store,
    records,
    write_active,
    write_sealed,
)

from topics.storage import layout
from topics.storage.segments.codec import DEAD, ENTRY_SIZE, Idx
from topics.storage.segments.intact import HOLE
from topics.storage.segments.repair import repair_all, repair_idx, trim
from topics.storage.segments.segment import COLD, HOT, Segment
from topics.storage.segments.store import Copies, CopyState, SegmentStore, finish
from topics.testing import FaultFs, SimDisk

DATA = f"{DATA_DIR}/topics/0000000A/seg-0000000000000001.data"
IDX = DATA.replace(".data", ".idx")
TAG = DATA.replace(".data", ".tag")
TAGS = ["red", None, "blue", "red", None, None, "blue", "red"]


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def store(disk: SimDisk) -> SegmentStore:
    return make_store(disk)


def reopened(disk: SimDisk) -> SegmentStore:
    return make_store(disk)


def test_frames_come_back_as_they_were_logged(store: SegmentStore) -> None:
    piece = records(1, 30)
    seg = write_sealed(store, piece)
    assert all_frames(store, seg) == piece.frames
    assert store.frames(TOPIC, seg, 7, 9) == piece.frames[7:9]


def test_a_hole_is_told_apart_from_a_record(store: SegmentStore) -> None:
    seg = write_sealed(store, records(1, 5, dead={2, 3, 5}))
    first, *_ = all_frames(store, seg)
    assert first
    assert [frame == HOLE for frame in all_frames(store, seg)] == [False, True, True, False, True]
    assert store.frames(TOPIC, seg, 1, 3) == [HOLE, HOLE]


def test_a_run_is_read_with_one_call(disk: SimDisk) -> None:
    fs = FaultFs(disk)
    store = make_store(fs)
    seg = write_sealed(store, records(1, 100))
    store.idx(TOPIC, seg)
    before = fs.count("pread")
    store.frames(TOPIC, seg, 10, 90)
    assert fs.count("pread") == before + 1


def test_a_short_read_is_continued(disk: SimDisk) -> None:
    fs = FaultFs(disk)
    store = make_store(fs)
    seg = write_sealed(store, records(1, 100))
    fs.fail("pread", "short", always=True, keep=1000, path="*.data")
    assert None not in all_frames(store, seg)


def test_the_index_cache_stays_within_its_budget(disk: SimDisk, store: SegmentStore) -> None:
    segments = [write_sealed(store, records(first, 10)) for first in range(1, 101, 10)]
    small = SegmentStore(disk, store.handles, DATA_DIR, cache_bytes=3 * 10 * ENTRY_SIZE)
    for seg in segments:
        assert small.idx(TOPIC, seg).count == 10
    assert len(small._idx) == 3


def test_a_restored_active_segment_knows_its_times(disk: SimDisk, store: SegmentStore) -> None:
    active = write_active(store, records(1, 3, ts=NOW), records(4, 2, ts=NOW + 9))
    first, last, data_len, idx_len = active.recorded()
    restored = reopened(disk).restore_active(
        TOPIC, first=first, last=last, data_len=data_len, idx_len=idx_len
    )
    assert restored == active
    assert (restored.min_ts, restored.max_ts) == (NOW, NOW + 9)


def test_a_segment_is_a_plain_list_in_json(store: SegmentStore) -> None:
    seg = write_sealed(store, records(1, 3))
    text = msgspec.json.encode(seg)
    assert msgspec.json.decode(text) == list(msgspec.structs.astuple(seg))
    assert msgspec.json.decode(text, type=Segment) == seg


def test_sg11_io_errors_are_not_loss(disk: SimDisk) -> None:
    fs = FaultFs(disk)
    store = make_store(fs)
    seg = write_sealed(store, records(1, 3))
    store.idx(TOPIC, seg)
    fs.fail("pread", errno.EIO, path="*.data")
    with pytest.raises(OSError, match="Input/output"):
        all_frames(store, seg)
    assert None not in all_frames(store, seg)


@pytest.mark.parametrize("damage", ["missing", "odd length", "offset", "beyond the end", "empty"])
@pytest.mark.parametrize("sealed", [True, False])
def test_sg07_sg08_a_bad_idx_is_rebuilt_from_data(damage: str, sealed: bool) -> None:
    disk = SimDisk()
    store = make_store(disk)
    piece = records(1, 12, dead={5})
    seg = write_sealed(store, piece) if sealed else write_active(store, piece)
    disk.poke(DATA, store.idx(TOPIC, seg).offset(3) - 1, bytes([DEAD]))  # delete of seq 3
    good = disk.peek(IDX)
    match damage:
        case "missing":
            disk.unlink(IDX)
        case "odd length":
            disk.put(IDX, good[:-7])
        case "offset":
            disk.flip(IDX, 4 * ENTRY_SIZE)
        case "beyond the end":
            disk.poke(IDX, 11 * ENTRY_SIZE, b"\xff\xff\xff\x7f")
        case _:
            disk.put(IDX, b"")
    damaged = reopened(disk)
    assert all_frames(damaged, seg) == piece.frames
    idx = damaged.idx(TOPIC, seg)
    assert [i for i in range(12) if idx.is_dead(i)] == [2, 4]
    assert list(damaged.repairs) == [(TOPIC, 1)]


def test_a_repaired_idx_is_good_and_the_old_one_is_kept(disk: SimDisk, store: SegmentStore) -> None:
    seg = write_sealed(store, records(1, 12))
    disk.flip(IDX, 44)
    bad = disk.peek(IDX)
    damaged = reopened(disk)
    damaged.idx(TOPIC, seg)
    assert finish(repair_all(damaged, now_ms=NOW)) == 1
    assert damaged.repairs == {}
    assert [disk.peek(path) for path in disk.paths() if "quarantine" in path] == [bad]
    disk.crash(mode="none", names="none")
    healed = reopened(disk)
    healed.idx(TOPIC, seg)
    assert healed.repairs == {}


def test_a_missing_idx_is_repaired_without_quarantine(disk: SimDisk, store: SegmentStore) -> None:
    seg = write_sealed(store, records(1, 12))
    disk.unlink(IDX)
    damaged = reopened(disk)
    repair_idx(damaged, TOPIC, seg, now_ms=NOW)
    assert not any("quarantine" in path for path in disk.paths())
    assert damaged.check(TOPIC, seg).hot is CopyState.OK


def test_sg10_rot_costs_only_the_record_it_hits_and_heals(
    disk: SimDisk, store: SegmentStore
) -> None:
    piece = records(1, 40)
    seg = write_sealed(store, piece)
    place = store.idx(TOPIC, seg).offset(20) + 45
    disk.flip(DATA, place)
    assert [i for i, frame in enumerate(all_frames(store, seg)) if frame is None] == [20]
    assert store.rotten_frames == 1
    disk.flip(DATA, place)
    assert all_frames(store, seg) == piece.frames


def test_a_flipped_length_field_is_rot_though_no_checksum_covers_it(
    disk: SimDisk, store: SegmentStore
) -> None:
    seg = write_sealed(store, records(1, 4))
    disk.flip(DATA, store.idx(TOPIC, seg).offset(1))
    assert [frame is None for frame in all_frames(store, seg)] == [False, True, False, False]


def test_sg12_the_files_of_another_topic_are_not_believed(
    disk: SimDisk, store: SegmentStore
) -> None:
    seg = write_sealed(store, records(1, 3))
    write_sealed(store, records(1, 3, topic_id=11), topic_id=11)
    for part in "data", "idx":
        other = f"{DATA_DIR}/topics/0000000B/seg-0000000000000001.{part}"
        disk.put(DATA.replace(".data", f".{part}"), disk.peek(other))
    assert all_frames(reopened(disk), seg) == [None, None, None]


def test_a_record_of_another_seq_is_not_believed(disk: SimDisk, store: SegmentStore) -> None:
    seg = write_sealed(store, records(1, 2))
    other = write_sealed(store, records(8, 2))
    raw = disk.peek(DATA.replace("1.data", "8.data"))
    assert other.data_len == seg.data_len
    disk.put(DATA, raw)
    assert all_frames(store, seg) == [None, None]


@pytest.mark.parametrize("mark", [0x01, 0x55, 0xD4, 0xD6, 0xFF])
def test_dl05_only_the_sentinel_byte_means_deleted(mark: int) -> None:
    disk = SimDisk()
    store = make_store(disk)
    piece = records(1, 3)
    seg = write_sealed(store, piece)
    idx = store.idx(TOPIC, seg)
    disk.poke(DATA, idx.offset(1) + idx.length(1), bytes([mark]))
    disk.unlink(IDX)
    damaged = reopened(disk)
    assert not damaged.idx(TOPIC, seg).has_dead(0, seg.count)
    assert all_frames(damaged, seg) == piece.frames


def test_a_data_file_cut_short_loses_what_is_gone_and_no_more(
    disk: SimDisk, store: SegmentStore
) -> None:
    seg = write_sealed(store, records(1, 20))
    idx = store.idx(TOPIC, seg)
    disk.put(DATA, disk.peek(DATA)[: idx.offset(15) + 10])
    store.handles.close()
    lost = [i for i, frame in enumerate(all_frames(store, seg)) if frame is None]
    assert lost == [15, 16, 17, 18, 19]
    with pytest.raises(OSError, match="shorter than registered"):
        store.read(TOPIC, seg, 0, seg.data_len)


# Sizes


def test_check_compares_sizes_with_the_registry(disk: SimDisk, store: SegmentStore) -> None:
    seg = write_sealed(store, records(1, 3))
    data, idx = disk.peek(DATA), disk.peek(IDX)

    def state() -> CopyState:
        return store.check(TOPIC, seg).hot

    assert state() is CopyState.OK
    disk.put(DATA, data + b"more")
    assert state() is CopyState.LONGER
    assert trim(store, TOPIC, seg)
    assert not trim(store, TOPIC, seg)
    assert state() is CopyState.OK
    disk.put(IDX, idx[:-1])
    assert state() is CopyState.NO_IDX
    disk.put(DATA, data[:-1])
    assert state() is CopyState.SHORTER
    disk.unlink(DATA)
    assert state() is CopyState.MISSING


@pytest.mark.parametrize(
    ("hot", "cold", "best"),
    [
        (CopyState.OK, CopyState.OK, HOT),
        (CopyState.LONGER, CopyState.OK, HOT),
        (CopyState.NO_IDX, CopyState.OK, COLD),
        (CopyState.NO_IDX, CopyState.SHORTER, HOT),
        (CopyState.MISSING, CopyState.NO_IDX, COLD),
        (CopyState.SHORTER, CopyState.MISSING, None),
    ],
)
def test_the_best_copy_is_complete_then_rebuildable_then_hot(
    hot: CopyState, cold: CopyState, best: int | None
) -> None:
    assert Copies(hot, cold).best == best


def test_a_segment_in_no_tier_is_reported_missing(disk: SimDisk, store: SegmentStore) -> None:
    seg = write_sealed(store, records(1, 3))
    disk.unlink(DATA)
    with pytest.raises(FileNotFoundError):
        reopened(disk).idx(TOPIC, seg)


# Tags


def test_tags_are_read_from_their_file_without_touching_records(disk: SimDisk) -> None:
    fs = FaultFs(disk)
    seg = write_sealed(make_store(fs), records(1, 8, tags=TAGS))
    before = fs.count("pread", "*.data")
    tags = make_store(fs).tags(TOPIC, seg)
    assert {tag: list(seqs) for tag, seqs in tags.items()} == {"red": [1, 4, 8], "blue": [3, 7]}
    assert fs.count("pread", "*.data") == before


@pytest.mark.parametrize("damage", ["missing", "bad", "stale", "unreadable"])
def test_st06_a_tag_file_that_cannot_be_used_is_rebuilt(damage: str) -> None:
    disk = SimDisk()
    fs = FaultFs(disk)
    seg = write_sealed(make_store(fs), records(1, 8, tags=TAGS))
    match damage:
        case "missing":
            disk.unlink(TAG)
        case "bad":
            disk.flip(TAG, 12)
        case "stale":
            write_sealed(make_store(fs), records(100, 8, tags=TAGS[::-1]))
            disk.put(TAG, disk.peek(TAG.replace("001.tag", "100.tag")))
        case _:
            fs.fail("pread", errno.EIO, path="*.tag")
    store = make_store(fs)
    tags = store.tags(TOPIC, seg)
    assert {tag: list(seqs) for tag, seqs in tags.items()} == {"red": [1, 4, 8], "blue": [3, 7]}
    assert store.tags_rebuilt == 1


def test_a_segment_without_tags_has_no_tag_file(disk: SimDisk, store: SegmentStore) -> None:
    seg = write_sealed(store, records(1, 8))
    assert not disk.exists(TAG)
    assert len(store.tags(TOPIC, seg)) == 0
    assert store.tags_rebuilt == 0


def test_a_rotten_record_gets_no_posting(disk: SimDisk, store: SegmentStore) -> None:
    seg = write_sealed(store, records(1, 8, tags=TAGS))
    disk.unlink(TAG)
    disk.flip(DATA, store.idx(TOPIC, seg).offset(3) + 39)
    assert list(reopened(disk).tags(TOPIC, seg)["red"]) == [1, 8]


def test_the_index_hash_ignores_delete_bytes(store: SegmentStore, disk: SimDisk) -> None:
    seg = write_sealed(store, records(1, 4))
    disk.poke(IDX, 2 * ENTRY_SIZE + 17, bytes([DEAD]))
    loaded = reopened(disk)
    idx: Idx = loaded.idx(TOPIC, seg)
    assert loaded.repairs == {}
    assert idx.is_dead(2)


def test_a_record_that_rots_where_there_is_no_other_copy_is_lost_alone(disk: SimDisk) -> None:
    store = make_store(disk, cold=True)
    seg = write_sealed(store, records(1, 4))
    disk.flip(DATA, store.idx(TOPIC, seg).offset(1) + 39)
    frames = all_frames(store, seg)
    assert [frame is None for frame in frames] == [False, True, False, False]
    assert store.rotten_frames == 1


def test_a_segment_that_moved_under_a_reader_is_found_where_it_is_now(disk: SimDisk) -> None:
    store = make_store(disk, cold=True)
    seg = write_sealed(store, records(1, 4))
    store.idx(TOPIC, seg)  # so that it is known to be hot
    for path in disk.paths():
        disk.put(path.replace(DATA_DIR, COLD_DIR, 1), disk.peek(path))
        disk.unlink(path)
        store.handles.forget(path)
    assert all_frames(store, seg) == records(1, 4).frames
    assert store.cold_reads == 1


def test_what_indexes_take_is_known_and_deletes_need_none_loaded(disk: SimDisk) -> None:
    seg = write_sealed(make_store(disk), records(1, 4))
    store = reopened(disk)
    store.mark_dead(TOPIC, seg, [0])
    assert store.cached_bytes == 0
    store.idx(TOPIC, seg)
    assert store.cached_bytes == seg.idx_len
    store.mark_dead(TOPIC, seg, [0])
    assert store.idx(TOPIC, seg).is_dead(0)


def test_an_index_stays_in_memory_while_somebody_holds_it(disk: SimDisk) -> None:
    segs = [write_sealed(make_store(disk), records(first, 4)) for first in (1, 5)]
    store = SegmentStore(disk, make_store(disk).handles, DATA_DIR, cache_bytes=0)
    assert store.known_idx(TOPIC, segs[0]) is None
    held = store.idx(TOPIC, segs[0])
    store.idx(TOPIC, segs[1])
    assert store.known_idx(TOPIC, segs[0]) is held, "though the cache has only the other one"
    store.mark_dead(TOPIC, segs[0], [1])
    assert held.is_dead(1)
    store.idx(TOPIC, segs[1])
    del held
    assert store.known_idx(TOPIC, segs[0]) is None


def test_of_two_who_load_an_index_at_once_both_get_the_same_one(disk: SimDisk) -> None:
    seg = write_sealed(make_store(disk), records(1, 4))
    store = reopened(disk)
    mine, theirs = store._load_idx(TOPIC, seg), store._load_idx(TOPIC, seg)
    assert store.keep(TOPIC, seg, theirs) is theirs
    assert store.keep(TOPIC, seg, mine) is theirs


def test_an_index_of_a_segment_that_has_grown_does_not_do_for_it(disk: SimDisk) -> None:
    seg = write_sealed(make_store(disk), records(1, 4))
    store = reopened(disk)
    before = msgspec.structs.replace(seg, last=3)
    idx = Idx(store.idx(TOPIC, seg).raw[: 3 * ENTRY_SIZE])
    assert store.known_idx(TOPIC, before) is None
    assert store.keep(TOPIC, before, idx) is idx
    assert store.idx(TOPIC, seg) is not idx


def test_new_names_of_a_dropped_topic_are_still_to_be_synced(disk: SimDisk) -> None:
    store = make_store(disk)
    other = write_sealed(store, records(1, 4, topic_id=99), topic_id=99)
    store.idx(99, other)
    store.unsynced_dirs = {layout.topic_dir(DATA_DIR, TOPIC), layout.topic_dir(DATA_DIR, 99)}
    store.retired(TOPIC)
    assert store.unsynced_dirs == {
        layout.deleted_topic_dir(DATA_DIR, TOPIC),
        layout.topic_dir(DATA_DIR, 99),
    }
    assert store.tier_of(99, other) == HOT
