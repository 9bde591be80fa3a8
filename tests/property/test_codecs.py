"""Every codec gives back what it was given, and meets any other bytes with a documented answer."""

from __future__ import annotations

import struct
from array import array
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from topics.batch import RecordBatch
from topics.core.facts import (
    Beacon,
    CheckpointEntry,
    CheckpointMarked,
    ClosedCleanly,
    ConfigUpdated,
    CursorMoved,
    Deleted,
    Evicted,
    Fact,
    FileHeader,
    Forwarded,
    HeadReserved,
    KeyRemembered,
    LeaseChanged,
    Match,
    RouterCreated,
    RouterDeleted,
    SeqSkipped,
    StageCommitted,
    TierFlipped,
    TopicCreated,
    TopicDeleted,
)
from topics.errors import RefusedToOpen
from topics.storage import identity
from topics.storage.checksum import h64
from topics.storage.frames import buffer as frames
from topics.storage.frames.append import appended_run, encode_append, record_at, verify
from topics.storage.frames.buffer import CleanEnd, Frame, Unreadable
from topics.storage.frames.header import HEADER, ForeignFrame
from topics.storage.segments import codec, tagfile
from topics.storage.segments.codec import BadSegmentData
from topics.storage.segments.tagfile import BadTagFile

U8 = st.integers(0, (1 << 8) - 1)
U16 = st.integers(0, (1 << 16) - 1)
U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
JSON = st.sampled_from([b"{}", b'{"a":"\xc3\xa4"}', b""])
BOOL = st.booleans()
MATCH = st.none() | st.builds(Match, TEXT, BOOL)
ID16 = st.binary(min_size=16, max_size=16)


def rows(*columns: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(st.tuples(*columns), max_size=5).map(tuple)


KNOBS = {
    "preserve_node": BOOL,
    "preserve_tag": BOOL,
    "create_dest": BOOL,
    "allow_cycle": BOOL,
    "exactly_once": BOOL,
}
FACTS: st.SearchStrategy[Fact] = st.one_of(
    st.builds(TopicCreated, U64, U64, TEXT, JSON, U64, U64),
    st.builds(ConfigUpdated, U64, U64, TEXT, JSON, U64, U64),
    st.builds(TopicDeleted, U64, U64, TEXT, U64),
    st.builds(
        RouterCreated,
        ts=U64,
        name=TEXT,
        source=TEXT,
        dest=TEXT,
        source_id=U64,
        dest_id=U64,
        match=MATCH,
        initial_cursor=U64,
        initial_dest_base=U64,
        **KNOBS,
    ),
    st.builds(RouterDeleted, U64, TEXT, U64, U64),
    st.builds(
        Deleted,
        U64,
        U64,
        st.none() | U64,
        MATCH,
        st.lists(U64, max_size=5).map(tuple),
        st.none() | U64,
    ),
    st.builds(Evicted, U64, U64, U64, U64, U64),
    st.builds(Beacon, U64, U64, U64, U64),
    st.builds(
        CheckpointMarked,
        U64,
        U64,
        st.lists(
            st.builds(CheckpointEntry, U64, U64, U64, U64, U64, U64, U32, U32), max_size=5
        ).map(tuple),
    ),
    st.builds(ClosedCleanly, U64, rows(U64, U64)),
    st.builds(LeaseChanged, U64, U64, U64, st.integers(0, 3), U64, U64, U64, TEXT),
    st.builds(HeadReserved, U64, U64, U64),
    st.builds(FileHeader, U64, U32, U16, U16, U64, U64, U64, U64, ID16, ID16),
    st.builds(TierFlipped, U64, U64, U64, st.integers(0, 1), U64, U64, U64, U64),
    st.builds(SeqSkipped, U64, U64, U64, U64, st.integers(1, 3)),
    st.builds(CursorMoved, U64, U64, TEXT, U64, BOOL),
    st.builds(
        Forwarded,
        topic_id=U64,
        ts=U64,
        router=TEXT,
        source_id=U64,
        dest_first=U64,
        cursor=U64,
        forwarded_total=U64,
        runs=rows(U64, U32, BOOL),
        **KNOBS,
    ),
    st.builds(
        StageCommitted,
        U64,
        TEXT,
        U64,
        rows(U64, U64),
        rows(U64, U64, U32),
        JSON,
        st.just(b"") | st.binary(min_size=16, max_size=16),
    ),
    st.builds(KeyRemembered, U64, U64, TEXT, U64, U32, U64),
)


@st.composite
def batches(draw: st.DrawFn) -> RecordBatch:
    count = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.none() | st.lists(values, min_size=count, max_size=count)

    datas = draw(st.lists(st.binary(max_size=40), min_size=count, max_size=count))
    names = st.none() | TEXT
    return RecordBatch(
        datas,
        draw(column(st.binary(max_size=10))),  # type: ignore[arg-type]  # lists of the drawn type
        draw(column(names)),  # type: ignore[arg-type]  # as above
        draw(column(names)),  # type: ignore[arg-type]  # as above
    )


@given(fact=FACTS, durable=BOOL, cont=BOOL)
def test_every_fact_comes_back_from_its_frame(fact: Fact, durable: bool, cont: bool) -> None:
    data = frames.encode(fact, durable=durable, cont=cont)
    frame = frames.decode_at(data, 0, len(data))
    assert isinstance(frame, Frame)
    assert (frame.is_durable, frame.is_continued, frame.end) == (durable, cont, len(data))
    assert frame.fact(data) == fact


@given(fact=FACTS, data=st.data())
def test_one_other_payload_byte_is_another_fact_or_foreign(fact: Fact, data: st.DataObject) -> None:
    """With its checksum made good: so nothing in a payload is ever ignored."""
    frame = frames.encode(fact)
    at = data.draw(st.integers(6, len(frame) - 9))
    body = bytearray(frame[4:-8])
    body[at - 4] ^= data.draw(st.integers(1, 255))
    forged = frame[:4] + body + struct.pack("<Q", h64(bytes(body)))
    found = frames.decode_at(forged, 0, len(forged))
    assert isinstance(found, Frame)
    try:
        other = found.fact(forged)
    except ForeignFrame:
        return
    assert other != fact
    assert frames.encode(other) == forged


@given(batch=batches(), topic_id=U64, seq=st.integers(0, 1 << 60), ts=U64, durable=BOOL, hops=U8)
def test_every_write_comes_back_from_its_frames(
    batch: RecordBatch, *, topic_id: int, seq: int, ts: int, durable: bool, hops: int
) -> None:
    data, fact = encode_append(topic_id, seq, ts, batch, durable=durable, hops=hops)
    walk = frames.walk(data, 0, len(data))
    assert walk.end == CleanEnd(len(data))
    headers = [HEADER.unpack_from(data, at) for at in walk.offsets]
    again = appended_run(data, walk.offsets, headers)
    tags = batch.tags or [None] * len(batch)
    assert again.tags == (batch.tags if any(tag is not None for tag in tags) else None)
    again.tags = fact.tags
    assert again == fact
    nodes, metas = batch.nodes or [None] * len(batch), batch.metas or [b""] * len(batch)
    for i, offset in enumerate(fact.offsets):
        assert verify(data, offset, fact.lengths[i], topic_id=topic_id, seq=seq + i)
        assert record_at(data, offset) == (nodes[i], tags[i], batch.datas[i], metas[i])


@given(facts=st.lists(FACTS, max_size=5), rest=st.binary(max_size=80))
def test_a_walk_and_single_steps_see_the_same_frames(facts: list[Fact], rest: bytes) -> None:
    data = b"".join(frames.encode(fact) for fact in facts) + rest
    walk = frames.walk(data, 0, len(data))
    position = 0
    for offset in walk.offsets:
        frame = frames.decode_at(data, position, len(data))
        assert frame == frames.frame_of(offset, HEADER.unpack_from(data, offset))
        assert isinstance(frame, Frame)
        position = frame.end
    assert walk.stop == position
    assert walk.end == frames.decode_at(data, position, len(data))
    assert len(walk.offsets) >= len(facts)


@given(data=st.binary(max_size=200), offset=st.integers(0, 210), limit=st.integers(0, 400))
def test_any_bytes_are_a_frame_unreadable_or_an_end(data: bytes, offset: int, limit: int) -> None:
    found = frames.decode_at(data, offset, limit)
    assert isinstance(found, Frame | Unreadable | CleanEnd)
    assert frames.walk(data, offset, limit).stop >= offset
    verify(data, offset, limit)


@given(
    kind=st.integers(0, 20),
    flags=U8,
    topic_id=st.integers(0, 1),
    seq=st.integers(0, 1),
    lengths=st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 60)),
    body=st.binary(max_size=60),
)
@settings(max_examples=400)
def test_any_intact_bytes_are_a_fact_or_foreign(
    kind: int, *, flags: int, topic_id: int, seq: int, lengths: tuple[int, int, int], body: bytes
) -> None:
    node_len, tag_len, data_len = lengths
    head = struct.pack("<BBQQQHHI", kind, flags, topic_id, seq, 0, node_len, tag_len, data_len)
    for text in (body, body[: sum(lengths)].ljust(sum(lengths), b"\0")):
        frame = head + text
        data = struct.pack("<I", len(frame) + 8) + frame + struct.pack("<Q", h64(frame))
        found = frames.decode_at(data, 0, len(data))
        assert isinstance(found, Frame)
        with suppress(ForeignFrame):
            found.fact(data)


@given(
    seqs=st.lists(st.integers(1, 12), unique=True, min_size=1).map(sorted),
    dead=st.sets(st.integers(1, 12)),
    sizes=st.lists(st.integers(0, 30), min_size=12, max_size=12),
)
def test_an_index_rebuilt_is_the_index_built(
    seqs: list[int], dead: set[int], sizes: list[int]
) -> None:
    first, last = seqs[0], seqs[-1]
    records = [
        encode_append(9, seq, seq * 10, RecordBatch([b"1" * sizes[seq - 1]]), durable=True)[0]
        if seq in seqs
        else b""
        for seq in range(first, last + 1)
    ]
    data = bytearray(codec.pack_records(records))
    raw = codec.build_idx(
        data_offset=0,
        lengths=[len(record) for record in records],
        times=[seq * 10 for seq in range(first, last + 1)],
        name_lengths=[0] * len(records),
        flags=[4] * len(records),
    )
    idx = codec.Idx(raw)
    for seq in dead & set(seqs):
        data[idx.offset(seq - first) + idx.length(seq - first)] = codec.DEAD
        idx.mark_dead(seq - first)
    assert codec.rebuild_idx(bytes(data), topic_id=9, first_seq=first).raw == idx.raw
    assert codec.is_sound(idx, len(data))
    live = [seq for seq in seqs if seq not in dead]
    account = (len(live), sum(sizes[seq - 1] for seq in live))
    assert idx.live_between(0, idx.count) == account
    assert len(idx.columns) == idx.count
    assert idx.live_between(0, idx.count) == account


@given(
    count=st.integers(1, 6),
    at=st.integers(0, 400),
    noise=st.binary(min_size=1, max_size=30),
)
def test_an_index_of_damaged_data_never_misleads(count: int, at: int, noise: bytes) -> None:
    whole, fact = encode_append(9, 1, 5, RecordBatch([b"123"] * count), durable=True)
    starts = fact.offsets
    records = [whole[a : a + n] for a, n in zip(starts, fact.lengths, strict=True)]
    data = codec.pack_records(records)
    at %= len(data)
    damaged = (data[:at] + noise + data[at + len(noise) :])[: len(data)]
    idx = codec.rebuild_idx(damaged, topic_id=9, first_seq=1, count=count)
    assert idx.count == count
    for i, (offset, length, _, _, dead, _) in enumerate(idx.entries(0, count)):
        if verify(damaged, offset, length, topic_id=9, seq=i + 1):
            assert damaged[offset : offset + length] == records[i]
        else:
            assert dead != codec.DEAD


@given(data=st.binary(max_size=200), count=st.none() | st.integers(0, 5))
def test_any_bytes_are_indexed_or_refused(data: bytes, count: int | None) -> None:
    try:
        idx = codec.rebuild_idx(data, topic_id=9, first_seq=1, count=count)
    except BadSegmentData:
        return
    assert count is None or idx.count == count
    codec.is_sound(idx, len(data))


@given(raw=st.binary(max_size=100))
def test_any_entries_can_be_judged(raw: bytes) -> None:
    idx = codec.Idx(raw[: len(raw) // codec.ENTRY_SIZE * codec.ENTRY_SIZE])
    codec.is_sound(idx, 100)
    codec.idx_hash(idx)
    assert 0 <= idx.first_at_or_after_ts(5) <= idx.count


@given(postings=st.dictionaries(TEXT, st.lists(U64).map(lambda seqs: array("Q", sorted(seqs)))))
def test_tags_come_back_from_their_file(postings: dict[str, array[int]]) -> None:
    tags = tagfile.decode(tagfile.encode(postings))
    assert dict(tags) == postings


@given(body=st.binary(max_size=100), count=st.integers(0, 8), signed=BOOL)
def test_any_bytes_are_a_tag_file_or_refused(body: bytes, count: int, signed: bool) -> None:
    data = b"TAG2" + struct.pack("<I", count) + body if signed else body
    if signed:
        data += struct.pack("<Q", h64(data))
    try:
        tags = tagfile.decode(data)
    except BadTagFile:
        return
    assert all(isinstance(seqs, array) for seqs in tags.values())


@given(data=st.binary(max_size=100), signed=BOOL)
def test_any_bytes_in_a_small_file_meet_the_documented_answer(data: bytes, signed: bool) -> None:
    line = data + b"\n%016x" % h64(data) if signed else data
    with suppress(RefusedToOpen):
        identity.decode_format(line, file="FORMAT")
    identity.decode_current(data)
    identity.decode_lock(data)
    identity.decode_cold_marker(data)


@given(first_lfn=U64, generation=U64)
def test_current_comes_back_from_its_text(first_lfn: int, generation: int) -> None:
    text = identity.encode_current(first_lfn, generation)
    assert identity.decode_current(text) == (first_lfn, generation)
