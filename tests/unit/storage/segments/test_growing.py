"""The index of a segment that still grows is held against its records."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.storage.segments.builders import NOW, TOPIC, make_store, records, write_active

from topics.storage.segments import intact
from topics.storage.segments.codec import DEAD_AT, ENTRY, ENTRY_SIZE, Idx
from topics.storage.segments.segment import ActiveSegment
from topics.storage.segments.store import SegmentStore
from topics.testing import FaultFs, SimDisk

FILES = "/data/topics/0000000A/seg-0000000000000001"
TAGS = ["a", None, "b", None, None, "c"]


def grown() -> tuple[SimDisk, ActiveSegment]:
    """Records of two times, some with tags, one of them dead before it came there."""
    disk = SimDisk()
    store = make_store(disk)
    pieces = records(1, 6, tags=TAGS, dead={4}), records(7, 3, ts=NOW + (1 << 20))
    return disk, write_active(store, *pieces)


def restored(disk: SimDisk, active: ActiveSegment) -> tuple[SegmentStore, ActiveSegment]:
    first, last, data_len, idx_len = active.recorded()
    store = make_store(disk)
    found = store.restore_active(TOPIC, first=first, last=last, data_len=data_len, idx_len=idx_len)
    return store, found


def test_a_changed_bit_anywhere_but_in_a_delete_byte_is_noticed_and_put_right() -> None:
    disk, active = grown()
    good = disk.peek(f"{FILES}.idx")
    for offset in range(len(good)):
        for bit in range(8):
            disk.flip(f"{FILES}.idx", offset, 1 << bit)
            store, found = restored(disk, active)
            assert found == active
            if offset % ENTRY_SIZE != DEAD_AT:
                assert store.repairs, f"bit {bit} of byte {offset % ENTRY_SIZE} of an entry"
                assert store.idx(TOPIC, found).raw == good
            disk.flip(f"{FILES}.idx", offset, 1 << bit)


def test_an_index_that_is_right_is_left_alone_though_a_record_is_rotten() -> None:
    disk, active = grown()
    good = disk.peek(f"{FILES}.idx")
    for offset in range(active.data_len):
        disk.flip(f"{FILES}.data", offset, 1 << offset % 8)
        store, found = restored(disk, active)
        assert not store.repairs
        assert found == active
        assert store.idx(TOPIC, found).raw == good
        disk.flip(f"{FILES}.data", offset, 1 << offset % 8)


@pytest.mark.parametrize(("sparse", "reads"), [(1 << 20, 1), (1, 8)])
def test_small_records_are_read_in_ranges_and_of_large_ones_only_headers(
    monkeypatch: pytest.MonkeyPatch, sparse: int, reads: int
) -> None:
    disk, active = grown()
    monkeypatch.setattr(intact, "SPARSE", sparse)
    fs = FaultFs(disk)
    first, last, data_len, idx_len = active.recorded()
    make_store(fs).restore_active(TOPIC, first=first, last=last, data_len=data_len, idx_len=idx_len)
    assert fs.count("pread", path="*.data") == reads


def test_an_index_that_rots_while_the_program_runs_is_noticed_by_its_hash() -> None:
    disk, active = grown()
    good = disk.peek(f"{FILES}.idx")
    disk.flip(f"{FILES}.idx", active.idx_len - 12, 1)  # the time of the last record
    store = make_store(disk)
    assert store.idx(TOPIC, active).raw == good
    assert store.repairs
    unknown = msgspec.structs.replace(active, idx_h=None)
    assert make_store(disk).idx(TOPIC, unknown).raw != good, "arithmetic alone does not tell"


def test_a_hole_has_the_time_of_the_entry_before_it() -> None:
    disk, active = grown()
    raw = bytearray(disk.peek(f"{FILES}.idx"))
    data = disk.peek(f"{FILES}.data")

    def agrees() -> bool:
        return intact.agrees(
            Idx(raw),
            lambda offset, size: data[offset : offset + size],
            topic_id=TOPIC,
            first=1,
            data_len=active.data_len,
        )

    assert agrees()
    offset, length, ts, *rest = Idx(raw).entry(3)
    assert not length
    ENTRY.pack_into(raw, 3 * ENTRY_SIZE, offset, length, ts + 1, *rest)
    assert not agrees()
