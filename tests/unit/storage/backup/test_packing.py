"""The bytes of a backup: segments without what changes in them, and lists that tell damage."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from topics.storage.backup import packing
from topics.storage.backup.manifest import (
    BadBackup,
    Ref,
    SegmentCopy,
    checked,
    decode_root,
    decode_segments,
    encode_segments,
    ref_of,
)
from topics.storage.segments.codec import DEAD, DEAD_AT, ENTRY_SIZE

GOLDEN = Path(__file__).parents[3] / "formats" / "golden"
DATA = (GOLDEN / "segment.data").read_bytes()  # records 5 to 8 and 10: 6 is deleted, 9 a hole
IDX = (GOLDEN / "segment.idx").read_bytes()


def test_a_segment_comes_back_with_exactly_the_deletes_of_the_moment() -> None:
    packed = packing.pack_idx(IDX)
    data = packing.pack_data(DATA, packed, start=0)
    assert DEAD not in packed[DEAD_AT::ENTRY_SIZE]
    assert list(map(bytes, packing.unpack(bytearray(data), packed, 5, [(6, 6)]))) == [DATA, IDX]
    earlier, index = packing.unpack(bytearray(data), packed, 5, [])
    assert packing.dead_runs(bytes(index), 5) == [(9, 9)]
    assert earlier == data
    later, index = packing.unpack(bytearray(data), packed, 5, [(1, 7), (10, 99)])
    assert packing.dead_runs(bytes(index), 5) == [(5, 7), (9, 10)]
    assert packing.pack_data(bytes(later), packed, start=0) == data


def test_deletes_do_not_change_what_a_segment_is_known_by() -> None:
    alive = bytearray(IDX)
    alive[DEAD_AT::ENTRY_SIZE] = bytes(6)
    assert packing.hash_of(packing.pack_idx(IDX)) == packing.hash_of(alive)


def test_a_damaged_record_is_found() -> None:
    packed = packing.pack_idx(IDX)
    data = packing.pack_data(DATA, packed, start=0)
    assert packing.bad_frame(data, packed, start=0) is None
    data[-10] ^= 1
    assert packing.bad_frame(data, packed, start=0) == 5


@pytest.mark.parametrize("limit", [1, 60, 120, 1 << 20])
def test_pieces_of_a_segment_end_between_records(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "PIECE_BYTES", limit)
    packed = packing.pack_idx(IDX)
    data_at = idx_at = 0
    whole = bytearray()
    for cut in packing.cuts(packed, len(DATA)):
        part = packed[idx_at : cut.idx_len]
        whole += packing.pack_data(DATA[data_at : cut.data_len], part, start=data_at)
        data_at, idx_at = cut
    assert whole == packing.pack_data(DATA, packed, start=0)
    assert idx_at == len(IDX)


def test_an_object_that_is_not_as_it_was_put_is_refused() -> None:
    ref = ref_of("objects/a/1", b"contents")
    assert checked(ref, b"contents") == b"contents"
    for other in (b"content", b"contentS", b""):
        with pytest.raises(BadBackup, match="not as it was written"):
            checked(ref, other)


def test_a_list_that_is_damaged_or_not_understood_is_refused() -> None:
    listed = [SegmentCopy(1, 5, 1, None, 9, 20, "ab", ())]
    data = encode_segments(listed)
    assert decode_segments(data) == listed
    with pytest.raises(BadBackup, match="damaged"):
        decode_segments(data[:-9])
    line = zlib.decompress(data)
    with pytest.raises(BadBackup, match="its checksum does not match"):
        decode_segments(zlib.compress(line.replace(b"5", b"6", 1)))
    with pytest.raises(BadBackup, match=r"cannot be read.*; use the version that wrote it"):
        decode_segments(encode_segments([Ref("a", 1, "b")]))  # type: ignore[list-item]  # wrong
    with pytest.raises(BadBackup, match=r"topics-backup\.json is damaged"):
        decode_root(b"{}\n")
