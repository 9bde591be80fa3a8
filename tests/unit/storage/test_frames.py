"""Frames: what is written, what is found, and what is never taken for a frame of ours."""

from __future__ import annotations

import struct

import pytest

from topics.batch import RecordBatch, joined
from topics.core.facts import (
    Appended,
    Beacon,
    CheckpointEntry,
    CheckpointMarked,
    Deleted,
    Evicted,
    Fact,
    FileHeader,
    HeadReserved,
    KeyRemembered,
    LeaseChanged,
    SeqSkipped,
    TierFlipped,
)
from topics.storage.checksum import h64
from topics.storage.frames import buffer as frames
from topics.storage.frames.append import appended_run, encode_append, record_at, verify
from topics.storage.frames.buffer import CleanEnd, Frame, Unreadable
from topics.storage.frames.header import (
    FLAG_CONT,
    FLAG_DURABLE,
    FLAG_NODE,
    FLAG_TAG,
    HEADER,
    MAX_FRAME,
    MAX_NAME,
    OVERHEAD,
    ForeignFrame,
)
from topics.storage.frames.payloads import FrameType, content_of

TS = 1_700_000_000_000
DATAS = [b'{"a":1}', b"2", b'"three"']


def found(data: bytes, offset: int = 0) -> Frame:
    frame = frames.decode_at(data, offset, len(data))
    assert isinstance(frame, Frame)
    return frame


def forged(
    kind: int,
    payload: bytes = b"",
    *,
    flags: int = 0,
    topic_id: int = 10,
    seq: int = 0,
    names: bytes = b"",
    node_len: int = 0,
    tag_len: int = 0,
    data_len: int | None = None,
) -> bytes:
    """A frame with a good checksum, whatever it says."""
    size = len(payload) if data_len is None else data_len
    body = struct.pack("<BBQQQHHI", kind, flags, topic_id, seq, TS, node_len, tag_len, size)
    body += names + payload
    return struct.pack("<I", len(body) + 8) + body + struct.pack("<Q", h64(body))


def blob(data: bytes, meta: bytes = b"") -> bytes:
    return struct.pack("<I", len(data)) + data + meta


def why_foreign(data: bytes) -> str:
    frame = found(data)
    with pytest.raises(ForeignFrame) as caught:
        frame.fact(data)
    assert caught.value.offset == 0
    return caught.value.why


# Writing records


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_write_reads_back_record_by_record(count: int) -> None:
    data, fact = encode_append(10, 5, TS, RecordBatch(DATAS[:count]), durable=False)
    assert fact.count == count
    assert fact.last_seq == 5 + count - 1
    assert sum(fact.lengths) == len(data)
    for i, offset in enumerate(fact.offsets):
        frame = found(data, offset)
        assert (frame.topic_id, frame.seq, frame.ts) == (10, 5 + i, TS)
        assert frame.length == fact.lengths[i]
        assert record_at(data, offset) == (None, None, DATAS[i], b"")


def test_every_part_of_a_record_comes_back() -> None:
    batch = RecordBatch(DATAS, [b"", b'{"m":1}', b""], ["tag", None, ""], [None, "nöde", "n"])
    data, fact = encode_append(10, 1, TS, batch, durable=True)
    assert [record_at(data, offset) for offset in fact.offsets] == [
        (None, "tag", DATAS[0], b""),
        ("nöde", None, DATAS[1], b'{"m":1}'),
        ("n", "", DATAS[2], b""),
    ]
    assert list(fact.name_lengths) == [3, 5, 1]
    assert [flags & (FLAG_TAG | FLAG_NODE) for flags in fact.flags] == [
        FLAG_TAG,
        FLAG_NODE,
        FLAG_TAG | FLAG_NODE,
    ]
    assert fact.tags == batch.tags


def test_all_frames_of_a_write_but_the_last_say_that_more_follows() -> None:
    for batch in (RecordBatch(DATAS), RecordBatch(DATAS, tags=[None, "t", None])):
        data, fact = encode_append(10, 1, TS, batch, durable=False)
        assert [found(data, at).is_continued for at in fact.offsets] == [True, True, False]
        data, fact = encode_append(10, 1, TS, batch, durable=False, cont_last=True)
        assert [found(data, at).is_continued for at in fact.offsets] == [True, True, True]


def test_a_single_record_may_be_followed_by_more_of_its_submission() -> None:
    data, fact = encode_append(10, 1, TS, RecordBatch([b"1"]), durable=True, cont_last=True)
    assert fact.flags[0] == FLAG_DURABLE | FLAG_CONT
    assert found(data).is_continued


def test_a_batch_with_empty_columns_is_written_like_one_without() -> None:
    plain, plain_fact = encode_append(10, 1, TS, RecordBatch(DATAS), durable=True)
    batch = RecordBatch(DATAS, [b""] * 3, [None] * 3, [None] * 3)
    full, full_fact = encode_append(10, 1, TS, batch, durable=True)
    assert plain == full
    full_fact.tags = None
    assert plain_fact == full_fact


@pytest.mark.parametrize(
    "batches",
    [
        [RecordBatch(DATAS), RecordBatch([b"4"]), RecordBatch([b"5", b"6"])],
        [RecordBatch([b"1"]), RecordBatch([b"2"])],
        [RecordBatch([b"1"])],
        [
            RecordBatch([b"1", b"2"], tags=["red", None]),
            RecordBatch([b"3"], metas=[b'{"k":1}']),
            RecordBatch([b"4"]),
            RecordBatch([b"5", b"6"], nodes=[None, "n"]),
        ],
    ],
)
@pytest.mark.parametrize("durable", [True, False])
def test_several_writes_in_one_are_the_frames_of_each(
    batches: list[RecordBatch], durable: bool
) -> None:
    alone, ends, seq = b"", [], 1
    for batch in batches:
        alone += encode_append(10, seq, TS, batch, durable=durable)[0]
        seq += len(batch)
        ends.append(seq - 1)
    data, fact = encode_append(10, 1, TS, joined(batches), durable=durable, ends=ends)
    assert data == alone
    assert [seq for seq in range(1, fact.count + 1) if not fact.flags[seq - 1] & FLAG_CONT] == ends
    assert sum(fact.lengths) == len(data)


@pytest.mark.parametrize(
    "batches",
    [
        [RecordBatch([b"1"])],
        [RecordBatch(DATAS)],
        [RecordBatch(DATAS), RecordBatch([b"4"]), RecordBatch([b"5", b"6"])],
        [RecordBatch([b"1"], tags=["red"])],
        [RecordBatch([b"1", b"2"], tags=["red", None]), RecordBatch([b"3"]), RecordBatch([b"4"])],
    ],
)
def test_each_of_several_writes_may_be_led_by_other_frames(batches: list[RecordBatch]) -> None:
    alone, ends, seq = b"", [], 1
    leads: dict[int, bytes] = {}
    places: list[int] = []
    for number, batch in enumerate(batches):
        if number != 1:  # the second has none
            key = KeyRemembered(10, TS, "k" * (number + 1), seq, len(batch), seq + len(batch) - 1)
            leads[seq - 1] = frames.encode(key, cont=True)
            alone += leads[seq - 1]
        data, fact = encode_append(10, seq, TS, batch, durable=False)
        places += [len(alone) + offset for offset in fact.offsets]
        alone += data
        seq += len(batch)
        ends.append(seq - 1)
    data, fact = encode_append(10, 1, TS, joined(batches), durable=False, ends=ends, leads=leads)
    assert data == alone
    assert list(fact.offsets) == places
    walked = frames.walk(data, 0, len(data))
    appends = [at for at in walked.offsets if found(data, at).seq]
    assert appends == places, "only records have a seq"
    assert [found(data, at).length for at in places] == list(fact.lengths)


def test_one_record_is_written_alike_alone_and_in_a_batch() -> None:
    alone, _ = encode_append(10, 3, TS, RecordBatch(DATAS[2:]), durable=True)
    together, fact = encode_append(10, 1, TS, RecordBatch(DATAS), durable=True)
    assert together[fact.offsets[2] :] == alone


@pytest.mark.parametrize(("hops", "stored"), [(0, 0), (1, 1), (15, 15), (16, 15), (99, 15)])
def test_hops_are_counted_up_to_fifteen(hops: int, stored: int) -> None:
    data, _ = encode_append(10, 1, TS, RecordBatch([b"1"]), durable=True, hops=hops)
    assert found(data).hops == stored
    assert found(data).is_durable


@pytest.mark.parametrize("count", [1, 2])
def test_the_largest_record_fits_and_one_byte_more_is_not_written(count: int) -> None:
    largest = bytes(MAX_FRAME - OVERHEAD - 4)
    data, fact = encode_append(10, 1, TS, RecordBatch([largest] * count), durable=False)
    assert found(data, fact.offsets[-1]).length == MAX_FRAME
    for metas in (None, [b""] * count):
        with pytest.raises(ValueError, match="does not fit"):
            encode_append(10, 1, TS, RecordBatch([largest + b"0"] * count, metas), durable=False)


def test_a_name_longer_than_a_reader_accepts_is_not_written() -> None:
    name = "x" * MAX_NAME
    data, _ = encode_append(10, 1, TS, RecordBatch([b"1"], None, [name]), durable=False)
    assert record_at(data, 0)[1] == name
    for batch in (
        RecordBatch([b"1"], None, [name + "x"]),
        RecordBatch([b"1"], None, None, ["é" * 2049]),
    ):
        with pytest.raises(ValueError, match="longer than 4096"):
            encode_append(10, 1, TS, batch, durable=False)


def test_a_batch_counts_data_and_meta_but_no_names() -> None:
    batch = RecordBatch(DATAS, [b"", b"{}", b""], ["tag"] * 3, ["node"] * 3)
    assert len(batch) == 3
    assert batch.nbytes == sum(map(len, DATAS)) + 2
    assert RecordBatch(DATAS).nbytes == sum(map(len, DATAS))


# Writing other facts


def test_a_checkpoint_of_many_topics_becomes_one_run_of_frames() -> None:
    entries = tuple(CheckpointEntry(i, 1, 2, 3, 4, 5, 6, 7) for i in range(20_001))
    fact = CheckpointMarked(TS, 7, entries)
    data = frames.encode(fact, durable=True)
    walk = frames.walk(data, 0, len(data))
    found_frames = [found(data, at) for at in walk.offsets]
    assert frames.frame_count(fact) == len(found_frames) == 3
    assert [frame.is_continued for frame in found_frames] == [True, True, False]
    parts = [frame.fact(data) for frame in found_frames]
    assert all(isinstance(p, CheckpointMarked) and p.checkpoint_id == 7 for p in parts)
    with pytest.raises(ValueError, match="20001 checkpoint entries do not fit one frame"):
        content_of(fact)
    assert sum((p.entries for p in parts if isinstance(p, CheckpointMarked)), ()) == entries


@pytest.mark.parametrize(
    "fact", [CheckpointMarked(TS, 1, ()), Evicted(10, TS, 1, 2, 3), Deleted(10, TS, seqs=(1,))]
)
def test_other_facts_are_one_frame(fact: Fact) -> None:
    assert frames.frame_count(fact) == 1
    data = frames.encode(fact, cont=True)
    assert found(data).flags == FLAG_CONT
    assert found(data).fact(data) == fact


def test_a_run_of_records_counts_its_frames() -> None:
    _, fact = encode_append(10, 1, TS, RecordBatch(DATAS), durable=True)
    assert frames.frame_count(fact) == 3


def test_a_fact_too_large_for_a_frame_is_not_written() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        frames.encode(Deleted(10, TS, seqs=(1,) * (2 << 20)))


@pytest.mark.parametrize(
    "fact",
    [
        LeaseChanged(10, 1, TS, 4, 1, TS, 1, "n"),
        SeqSkipped(10, TS, 1, 2, SeqSkipped.SOURCE_TRIM),
        SeqSkipped(10, TS, 1, 2, 0),
        TierFlipped(10, TS, 1, 2, 3, 4, 5, 6),
        FileHeader(TS, 3, 0, 1, 1, 1, 0, 0, b"short", bytes(16)),
    ],
)
def test_a_fact_that_could_not_be_read_back_is_not_written(fact: Fact) -> None:
    with pytest.raises(ValueError, match=r"unknown|never|16 bytes"):
        frames.encode(fact)


def test_a_beacon_can_be_found_by_its_first_bytes() -> None:
    data = frames.encode(Beacon(TS, 1, 2, 3))
    assert len(data) == 63
    assert data.startswith(b"\x3b\0\0\0\x08")


def test_a_file_header_has_its_documented_size() -> None:
    assert len(frames.encode(FileHeader(TS, 3, 0, 1, 1, 1, 0, 0, bytes(16), bytes(16)))) == 118


# Finding frames


@pytest.mark.parametrize("size", [0, 1, 3, 4, 45, 46, 100_000, 1 << 17])
def test_zeros_to_the_end_are_a_clean_end(size: int) -> None:
    data = frames.encode(HeadReserved(10, TS, 1))
    whole = data + bytes(size)
    assert frames.decode_at(whole, len(data), len(whole)) == CleanEnd(len(data))
    walk = frames.walk(whole, 0, len(whole))
    assert (walk.offsets, walk.stop, walk.end) == ([0], len(data), CleanEnd(len(data)))


@pytest.mark.parametrize("size", [1, 3, 4, 50, 65_536, 100_000])
def test_zeros_with_anything_behind_them_are_no_clean_end(size: int) -> None:
    data = bytes(size) + b"\1"
    assert isinstance(frames.decode_at(data, 0, len(data)), Unreadable)
    assert isinstance(frames.walk(data, 0, len(data)).end, Unreadable)


@pytest.mark.parametrize("length", [1, 41, (16 << 20) + 1, (1 << 32) - 1])
def test_an_impossible_length_is_unreadable(length: int) -> None:
    data = struct.pack("<I", length) + bytes(100)
    end = frames.decode_at(data, 0, len(data))
    assert isinstance(end, Unreadable)
    assert str(length) in end.why
    assert frames.walk(data, 0, len(data)).end == end


def test_nothing_at_or_past_the_limit_is_looked_at() -> None:
    data = frames.encode(HeadReserved(10, TS, 1))
    both = data + data
    assert isinstance(frames.decode_at(both, len(data), len(both) - 1), Unreadable)
    walk = frames.walk(both, 0, len(both) - 1)
    assert walk.offsets == [0]
    assert isinstance(walk.end, Unreadable)
    assert frames.walk(both, 0, len(data)).end == CleanEnd(len(data))


def test_a_limit_past_the_buffer_means_its_end() -> None:
    data = frames.encode(HeadReserved(10, TS, 1))
    assert isinstance(frames.decode_at(data, 0, 1 << 40), Frame)
    assert frames.walk(data, 0, 1 << 40).end == CleanEnd(len(data))
    assert isinstance(frames.decode_at(data[:-1], 0, 1 << 40), Unreadable)


def test_a_walk_pauses_after_as_many_frames_as_allowed_and_goes_on_from_there() -> None:
    data, fact = encode_append(10, 1, TS, RecordBatch([b"1"] * 10), durable=False)
    first = frames.walk(data, 0, len(data), max_frames=4)
    assert first.end is None
    assert first.stop == fact.offsets[4]
    rest = frames.walk(data, first.stop, len(data))
    assert first.offsets + rest.offsets == list(fact.offsets)
    assert rest.end == CleanEnd(len(data))


def test_records_are_gathered_to_the_run_they_were_written_as() -> None:
    batch = RecordBatch(DATAS, None, [None, "t", None], ["n", None, None])
    data, fact = encode_append(10, 5, TS, batch, durable=True, hops=3)
    walk = frames.walk(data, 0, len(data))
    headers = [HEADER.unpack_from(data, at) for at in walk.offsets]
    assert appended_run(data, walk.offsets, headers) == fact


def test_one_record_becomes_a_run_of_one() -> None:
    data, _ = encode_append(10, 5, TS, RecordBatch(DATAS), durable=True)
    second = frames.walk(data, 0, len(data)).offsets[1]
    fact = found(data, second).fact(data)
    assert isinstance(fact, Appended)
    assert (fact.first_seq, fact.count, list(fact.offsets)) == (6, 1, [second])


# Intact bytes that are not ours to read


@pytest.mark.parametrize("kind", [0, 19, 255])
def test_an_unknown_type_is_foreign(kind: int) -> None:
    assert "unknown frame type" in why_foreign(forged(kind))


@pytest.mark.parametrize(
    "data",
    [
        forged(FrameType.APPEND, b""),
        forged(FrameType.APPEND, b"\0\0\0"),
        forged(FrameType.APPEND, struct.pack("<I", 2) + b"1"),
        forged(FrameType.APPEND, blob(b"1"), data_len=4),
        forged(FrameType.APPEND, blob(b"1"), data_len=6),
        forged(FrameType.APPEND, blob(b"1"), names=b"t", tag_len=1),
        forged(FrameType.APPEND, blob(b"1"), names=b"n", node_len=1),
        forged(FrameType.APPEND, blob(b"1"), names=b"n", node_len=1, flags=FLAG_TAG),
        forged(FrameType.APPEND, blob(b"1"), names=b"\xff", tag_len=1, flags=FLAG_TAG),
        forged(FrameType.APPEND, blob(b"1"), names=b"\xff", node_len=1, flags=FLAG_NODE),
        forged(FrameType.APPEND, blob(b"1"), names=b"x" * 4097, tag_len=4097, flags=FLAG_TAG),
        forged(FrameType.APPEND, blob(b"1"), names=b"x" * 4097, node_len=4097, flags=FLAG_NODE),
    ],
)
def test_a_record_that_does_not_add_up_is_foreign(data: bytes) -> None:
    assert why_foreign(data)


EVICT = struct.pack("<QQQ", 1, 2, 3)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (forged(7, EVICT + b"\0"), "bytes left"),
        (forged(7, EVICT[:-1]), "too early"),
        (forged(7, EVICT, seq=1), "seq is 1"),
        (forged(7, EVICT, flags=FLAG_TAG), "flags"),
        (forged(7, EVICT, flags=FLAG_NODE), "flags"),
        (forged(7, EVICT, flags=0x10), "flags"),
        (forged(7, EVICT, names=b"t", tag_len=1, flags=FLAG_TAG), "add up"),
        (forged(7, EVICT, data_len=23), "add up"),
        (forged(8, b"\3", topic_id=0), "unknown checkpoint mark"),
        (forged(8, struct.pack("<BQQ", 0, 1, 2), topic_id=1), "topic id is 1"),
        (forged(8, struct.pack("<BI", 2, 0), topic_id=0, seq=1), "seq is 1"),
        (forged(8, struct.pack("<BQI", 1, 1, 10_001), topic_id=0), "10001"),
        (forged(8, struct.pack("<BQI", 1, 1, 10_000), topic_id=0), "too early"),
        (forged(3, struct.pack("<I", 1) + b"\xff" + bytes(8)), "UTF-8"),
        (forged(3, struct.pack("<I", (1 << 32) - 1) + b"x"), "too early"),
        (forged(2, struct.pack("<I", 0) + struct.pack("<I", 1) + b"\xff" + bytes(16)), "UTF-8"),
        (forged(5, struct.pack("<I", 0) + bytes(16), topic_id=3), "topic id is 3"),
        (forged(6, b"\2"), "neither true nor false"),
        (forged(6, b"\0\1\2"), "neither true nor false"),
        (forged(6, b"\0\0" + struct.pack("<I", 1 << 31) + b"\0"), "too early"),
        (forged(10, struct.pack("<BQQQI", 4, 1, 2, 3, 0), seq=1), "lease event"),
        (forged(13, struct.pack("<QBQQQQ", 1, 2, 3, 4, 5, 6)), "tier"),
        (forged(14, struct.pack("<QQB", 1, 2, 0)), "kind 0"),
        (forged(14, struct.pack("<QQB", 1, 2, 4)), "kind 4"),
        (forged(15, struct.pack("<IQB", 0, 1, 2)), "neither true nor false"),
        (forged(16, struct.pack("<IQBQQQI", 0, 1, 32, 1, 1, 1, 0)), "knobs"),
        (forged(16, struct.pack("<IQBQQQIQIB", 0, 1, 0, 1, 1, 1, 1, 1, 1, 2)), "neither"),
        (forged(17, struct.pack("<IQII", 0, 1, 0, 0) + struct.pack("<I", 0), topic_id=1), "topic"),
    ],
)
def test_contents_no_fact_of_ours_has_are_foreign(data: bytes, why: str) -> None:
    assert why in why_foreign(data)


# Records whose place is known


def test_a_record_is_verified_only_where_and_as_what_it_was_written() -> None:
    data, fact = encode_append(10, 5, TS, RecordBatch(DATAS), durable=True)
    at, size = fact.offsets[1], fact.lengths[1]
    assert verify(data, at, size)
    assert verify(data, at, size, topic_id=10, seq=6)
    assert not verify(data, at, size, topic_id=11)
    assert not verify(data, at, size, seq=7)
    assert not verify(data, at, size - 1)
    assert not verify(data, at, size + 1)
    assert not verify(data, at + 1, size)
    assert not verify(data, -1, size)
    assert not verify(data, len(data), size)
    assert not verify(data[:-1], fact.offsets[2], fact.lengths[2])
    assert not verify(data, at, 0)


def test_a_record_with_one_changed_byte_is_not_verified() -> None:
    data, fact = encode_append(10, 5, TS, RecordBatch([b'{"a":1}']), durable=True)
    for i in range(len(data)):
        damaged = data[:i] + bytes((data[i] ^ 4,)) + data[i + 1 :]
        assert not verify(damaged, 0, fact.lengths[0])


def test_a_frame_of_another_type_is_no_record() -> None:
    data = frames.encode(Evicted(10, TS, 1, 2, 3))
    assert not verify(data, 0, len(data))
