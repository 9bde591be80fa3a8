"""Segment files: entries that describe records, and indexes rebuilt from records alone."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest

from topics.batch import RecordBatch
from topics.storage.checksum import h64
from topics.storage.frames import buffer as frames
from topics.storage.frames.append import encode_append, verify
from topics.storage.frames.header import FLAG_NODE, FLAG_TAG, HEADER
from topics.storage.segments import codec
from topics.storage.segments.codec import DEAD, ENTRY_SIZE, FLAG_HOLE, BadSegmentData, Idx

TOPIC = 10
TS = 1_700_000_000_000


def record(seq: int, *, size: int = 3, tag: str | None = None, node: str | None = None) -> bytes:
    batch = RecordBatch([b"7" * size], None, [tag], [node])
    return encode_append(TOPIC, seq, TS + seq, batch, durable=True)[0]


def entries(
    records: list[bytes], first: int, *, data_offset: int = 0, previous_ts: int = 0
) -> bytes:
    found = [frames.decode_at(r, 0, len(r)) if r else None for r in records]
    headers = [frame if isinstance(frame, frames.Frame) else None for frame in found]
    return codec.build_idx(
        data_offset=data_offset,
        lengths=[len(r) for r in records],
        times=[TS + first + i for i in range(len(records))],
        name_lengths=[h.node_len + h.tag_len if h else 0 for h in headers],
        flags=[h.flags if h else 0 for h in headers],
        previous_ts=previous_ts,
    )


def segment(records: list[bytes], first: int = 1) -> tuple[bytes, Idx]:
    """`.data` and `.idx` as the writer makes them; empty bytes make a hole."""
    return codec.pack_records(records), Idx(entries(records, first))


FOUR = [record(1), record(2, tag="t", node="nn", size=9), b"", record(4, size=20)]


def test_an_entry_says_where_its_record_lies_and_how_large_it_is() -> None:
    data, idx = segment(FOUR)
    assert len(idx) == idx.count == 4
    for i in (0, 1, 3):
        start = idx.offset(i)
        assert data[start : start + idx.length(i)] == FOUR[i]
        assert idx.ts(i) == TS + i + 1
        assert not idx.is_dead(i)
        assert not idx.is_hole(i)
    assert [idx.live_between(i, i + 1).nbytes for i in range(4)] == [3, 9, 0, 20]
    assert idx.entry(1)[3:] == (FLAG_TAG | FLAG_NODE, 0, 3)


def test_a_hole_takes_no_bytes_and_the_time_before_it() -> None:
    _, idx = segment(FOUR)
    assert idx.is_hole(2)
    assert idx.is_dead(2)
    assert idx.entry(2) == (idx.offset(3), 0, TS + 2, FLAG_HOLE, DEAD, 0)


def test_a_hole_that_comes_first_takes_the_time_it_is_given() -> None:
    raw = codec.build_idx(
        data_offset=7, lengths=[0], times=[0], name_lengths=[0], flags=[0], previous_ts=99
    )
    assert Idx(raw).entry(0) == (7, 0, 99, FLAG_HOLE, DEAD, 0)


def test_entries_written_in_two_steps_are_those_written_in_one() -> None:
    data, idx = segment(FOUR)
    head = entries(FOUR[:2], 1)
    written = len(codec.pack_records(FOUR[:2]))
    rest = entries(FOUR[2:], 3, data_offset=written, previous_ts=TS + 2)
    assert head + rest == bytes(idx.raw)
    assert codec.pack_records(FOUR[:2]) + codec.pack_records(FOUR[2:]) == data


def test_sums_count_what_is_asked_for() -> None:
    _, idx = segment(FOUR)
    assert idx.live_between(0, 4) == (3, 32)
    idx.mark_dead(1)
    assert idx.live_between(0, 4) == (2, 23)
    assert idx.live_between(1, 3) == (0, 0)
    assert [idx.is_dead(i) for i in range(4)] == [False, True, True, False]


def test_sums_are_the_same_for_many_at_once() -> None:
    _, idx = segment(FOUR)
    step_by_step = [idx.live_between(i, j) for i in range(5) for j in range(i, 5)]
    assert len(idx.columns) == 4
    assert [idx.live_between(i, j) for i in range(5) for j in range(i, 5)] == step_by_step
    idx.mark_dead(1)
    assert idx.live_between(0, 4) == (2, 23)


def test_entries_come_as_a_range() -> None:
    _, idx = segment(FOUR)
    assert list(idx.entries(1, 3)) == [idx.entry(1), idx.entry(2)]
    assert list(idx.entries(4, 4)) == []


@pytest.mark.parametrize(
    ("ts", "start", "position"),
    [(0, 0, 0), (TS + 1, 0, 0), (TS + 2, 0, 1), (TS + 3, 0, 3), (TS + 5, 0, 4), (0, 2, 2)],
)
def test_the_first_record_of_an_age_is_found(ts: int, start: int, position: int) -> None:
    _, idx = segment(FOUR)
    assert idx.first_at_or_after_ts(ts, start=start) == position


def test_deletes_do_not_change_the_hash_but_everything_else_does() -> None:
    _, idx = segment(FOUR)
    before = codec.idx_hash(idx)
    idx.mark_dead(0)
    assert codec.idx_hash(idx) == before
    for i in range(len(idx.raw)):
        changed = Idx(idx.raw)
        changed.raw[i] ^= 1
        assert (codec.idx_hash(changed) == before) == (i % ENTRY_SIZE == codec.DEAD_AT)


def test_columns_show_the_same_memory() -> None:
    _, idx = segment(FOUR)
    idx.mark_dead(3)
    assert idx.columns["dead"].tolist() == [0, 0, DEAD, DEAD]
    idx.mark_dead(0)
    assert idx.columns["dead"].tolist() == [DEAD, 0, DEAD, DEAD]
    assert idx.columns["offset"].tolist() == [idx.offset(i) for i in range(4)]
    assert idx.columns["ts"].tolist() == [idx.ts(i) for i in range(4)]


def test_reading_an_index_does_not_load_numpy() -> None:
    code = (
        "import sys; from topics.storage.segments.codec import Idx; "
        "Idx(bytes(40)).live_between(0, 2); sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_part_of_an_entry_is_no_index() -> None:
    with pytest.raises(ValueError, match="whole number"):
        Idx(bytes(ENTRY_SIZE + 1))


def test_an_index_is_sound_only_for_the_data_it_was_made_for() -> None:
    data, idx = segment(FOUR)
    assert codec.is_sound(idx, len(data))
    assert not codec.is_sound(idx, len(data) - 1)
    assert not codec.is_sound(idx, len(data) + 1)
    assert codec.is_sound(Idx(b""), 0)


@pytest.mark.parametrize("field", [0, 4, 16])
@pytest.mark.parametrize("i", [0, 1, 2, 3])
def test_an_entry_that_points_elsewhere_is_unsound(field: int, i: int) -> None:
    data, idx = segment(FOUR)
    idx.raw[i * ENTRY_SIZE + field] ^= 0x80
    assert not codec.is_sound(idx, len(data))


def test_times_that_run_backwards_are_unsound() -> None:
    data, idx = segment(FOUR)
    idx.raw[15] ^= 0x40  # the first entry's time is now far in the future
    assert not codec.is_sound(idx, len(data))


def test_names_without_a_flag_are_unsound() -> None:
    data, idx = segment(FOUR)
    named = next(i for i in range(idx.count) if idx.entry(i)[5])
    idx.raw[named * ENTRY_SIZE + 16] = 0
    assert not codec.is_sound(idx, len(data))


def test_an_empty_segment_has_no_bytes() -> None:
    assert codec.pack_records([b"", b""]) == b""


# Rebuilding


def deleted(data: bytes, idx: Idx, i: int) -> bytes:
    changed = bytearray(data)
    changed[idx.offset(i) + idx.length(i)] = DEAD
    idx.mark_dead(i)
    return bytes(changed)


def test_an_index_is_rebuilt_from_records_alone() -> None:
    data, idx = segment(FOUR)
    data = deleted(data, idx, 1)
    assert codec.rebuild_idx(data, topic_id=TOPIC, first_seq=1).raw == idx.raw
    assert codec.rebuild_idx(data, topic_id=TOPIC, first_seq=1, count=4).raw == idx.raw


def test_holes_at_both_ends_are_rebuilt_where_the_count_is_known() -> None:
    data = codec.pack_records([record(3)])
    idx = codec.rebuild_idx(data, topic_id=TOPIC, first_seq=1, count=5)
    assert [idx.is_hole(i) for i in range(5)] == [True, True, False, True, True]
    assert codec.is_sound(idx, len(data))


def test_a_delete_byte_that_was_never_written_means_live() -> None:
    data, _ = segment(FOUR)
    idx = codec.rebuild_idx(data[:-1], topic_id=TOPIC, first_seq=1)
    assert not idx.is_dead(3)


@pytest.mark.parametrize("where", [0, 4, 5, 14, 40, -1])
def test_a_damaged_record_is_lost_and_not_taken_for_deleted(where: int) -> None:
    records = [record(seq) for seq in range(1, 6)]
    data, sound = segment(records)
    damaged = bytearray(data)
    at = sound.offset(2) + (where if where >= 0 else sound.length(2) - 1)
    damaged[at] ^= 0x5A
    idx = codec.rebuild_idx(bytes(damaged), topic_id=TOPIC, first_seq=1, count=5)
    assert idx.count == 5
    for i in (0, 1, 3, 4):
        assert idx.entry(i) == sound.entry(i)
    assert not idx.is_dead(2)
    assert not verify(bytes(damaged), idx.offset(2), idx.length(2), topic_id=TOPIC, seq=3)
    assert idx.live_between(2, 3).nbytes >= 0


def test_damage_at_the_end_is_lost_if_the_count_tells_that_something_was_there() -> None:
    records = [record(seq) for seq in range(1, 4)]
    data, sound = segment(records)
    cut = data[: sound.offset(2) + 10]
    idx = codec.rebuild_idx(cut, topic_id=TOPIC, first_seq=1, count=3)
    assert not idx.is_dead(2)
    assert not verify(cut, idx.offset(2), idx.length(2))
    with pytest.raises(BadSegmentData):
        codec.rebuild_idx(cut, topic_id=TOPIC, first_seq=1)


def test_records_of_another_topic_are_never_indexed() -> None:
    data, _ = segment(FOUR)
    with pytest.raises(BadSegmentData):
        codec.rebuild_idx(data, topic_id=TOPIC + 1, first_seq=1)
    idx = codec.rebuild_idx(data, topic_id=TOPIC + 1, first_seq=1, count=4)
    assert not any(idx.is_dead(i) for i in range(4))


def test_a_seq_that_goes_backwards_is_not_indexed() -> None:
    records = [record(1), record(2), record(2), record(3)]
    data, _ = segment(records)
    idx = codec.rebuild_idx(data, topic_id=TOPIC, first_seq=1, count=3)
    assert idx.count == 3
    assert all(a < b for a, b in pairwise(idx.offset(i) for i in range(3)))
    assert verify(data, idx.offset(2), idx.length(2), seq=3)


def test_a_record_whose_lengths_do_not_add_up_is_not_taken_for_one() -> None:
    """Its checksum holds, so only its own words tell that something is wrong with it."""
    good, bad = record(1), bytearray(record(2))
    header = list(HEADER.unpack_from(bad))
    header[-1] += 1  # data_len
    HEADER.pack_into(bad, 0, *header)
    bad[-8:] = h64(bad[4:-8]).to_bytes(8, "little")
    data = codec.pack_records([good, bytes(bad), record(3)])
    rebuilt = codec.rebuild_idx(data, topic_id=TOPIC, first_seq=1, count=3)
    assert [rebuilt.ts(i) - TS for i in range(3)] == [1, 1, 3], "the second is a damaged stretch"
    assert not rebuilt.is_dead(1), "and lost, not deleted"
