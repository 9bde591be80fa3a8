"""Append frames: a write as bytes, and bytes as records. `frames.header` has the format.

This codec runs once per record, so its loops are written out to save function calls.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, count
from operator import add
from typing import TypeAlias

from topics.batch import RecordBatch
from topics.core.facts import Appended
from topics.storage.checksum import h64
from topics.storage.frames.header import (
    APPEND,
    BODY,
    CHECKSUM_SIZE,
    DATA_START,
    FLAG_CONT,
    FLAG_DURABLE,
    FLAG_NODE,
    FLAG_TAG,
    HEADER,
    HOPS_SHIFT,
    JSON_LEN_SIZE,
    LENGTH_SIZE,
    LINK,
    MAX_FRAME,
    MAX_HOPS,
    MAX_NAME,
    MIN_FRAME_LEN,
    NAMED,
    OVERHEAD,
    U32,
    U64,
    ForeignFrame,
    Header,
)
from topics.storage.frames.payloads import BadPayload, decode_text

# BODY and the json_len of a record without names: whole, and in parts of which a write shares two.
_pack_plain = struct.Struct("<BBQQQHHII").pack
_LEAD = struct.Struct("<BBQ")
_MIDDLE = struct.Struct("<QHH")
_COMMON = struct.Struct(f"<{_LEAD.size}sQ{_MIDDLE.size}sII")
_pack_u32, _pack_u64 = U32.pack, U64.pack
_MAX_PLAIN = MAX_FRAME - OVERHEAD - JSON_LEN_SIZE
PLAIN_FRAME_LEN = MIN_FRAME_LEN + JSON_LEN_SIZE  # frame_len of a record without data
_IDENTITY = struct.Struct("<IBxQQ")  # of HEADER: frame_len, type, topic_id, seq
_BYTES = [bytes((value,)) for value in range(256)]
_NO_OFFSET = array("I", (0,))
NO_LEADS: Mapping[int, bytes] = {}
_NO_NAMES = array("H", (0,))
_FLAGS = [array("B", (value,)) for value in range(256)]

Record: TypeAlias = tuple[str | None, str | None, bytes, bytes]
"""node, tag, data JSON, meta JSON (empty when there is none)."""


def encode_append(
    topic_id: int,
    first_seq: int,
    ts: int,
    batch: RecordBatch,
    *,
    durable: bool,
    hops: int = 0,
    cont_last: bool = False,
    ends: Sequence[int] = (),
    leads: Mapping[int, bytes] = NO_LEADS,
) -> tuple[bytes, Appended]:
    """All frames of one write, and the fact that says where each lies in them.

    `cont_last` is for a write that is followed by more frames of the same submission. `ends` is for
    a batch of several writes: after how many records each of them ends, the last one included.
    `leads` are frames that go before some of the records, by the place of the record in the batch.
    The batch must not be empty.
    """
    records = len(batch.datas)
    last = (hops if hops < MAX_HOPS else MAX_HOPS) << HOPS_SHIFT
    if durable:
        last |= FLAG_DURABLE
    if cont_last:
        last |= FLAG_CONT
    is_plain = batch.tags is None and batch.nodes is None and batch.metas is None
    if is_plain and records == 1:
        return _encode_single(topic_id, first_seq, ts, batch.datas[0], flags=last, leads=leads)
    flags = _BYTES[last | FLAG_CONT] * (records - 1) + _BYTES[last]
    if ends:
        flags = _ended(flags, ends)
    if is_plain:
        frames, lengths = _encode_plain(
            topic_id, first_seq, ts, batch.datas, flags=flags, ends=ends or (records,), leads=leads
        )
        name_lengths = array("H", bytes(2 * records))
    else:
        names, named_flags = _encode_names(batch, flags)
        name_lengths = array("H", [len(node) + len(tag) for node, tag in names])
        flags = bytes(named_flags)
        frames, lengths = _encode_full(
            topic_id, first_seq, ts, batch, names=names, flags=flags, leads=leads
        )
    times = array("Q", (ts,)) * records
    return frames, Appended(
        topic_id,
        first_seq,
        _offsets(lengths, leads),
        lengths,
        times,
        name_lengths,
        array("B", flags),
        batch.tags,
    )


def _encode_single(
    topic_id: int, seq: int, ts: int, data: bytes, *, flags: int, leads: Mapping[int, bytes]
) -> tuple[bytes, Appended]:
    """The write of one record with data only, where each avoided list is felt."""
    size = len(data)
    if size > _MAX_PLAIN:
        _insist_on_fit(size)
    body = _pack_plain(APPEND, flags, topic_id, seq, ts, 0, 0, size + JSON_LEN_SIZE, size) + data
    frame = b"".join((_pack_u32(size + PLAIN_FRAME_LEN), body, _pack_u64(h64(body))))
    lengths = array("I", (len(frame),))
    offsets = _NO_OFFSET
    if leads:
        frame, offsets = leads[0] + frame, _offsets(lengths, leads)
    return frame, Appended(
        topic_id,
        seq,
        offsets,
        lengths,
        array("Q", (ts,)),
        _NO_NAMES,
        _FLAGS[flags],
    )


def _offsets(lengths: array[int], leads: Mapping[int, bytes]) -> array[int]:
    """Where each frame begins, behind those before it and all that was put between them."""
    steps = array("I", (0,)) + lengths[:-1]
    for at, lead in leads.items():
        steps[at] += len(lead)
    return array("I", accumulate(steps))


def _ended(flags: bytes, ends: Sequence[int]) -> bytes:
    """The flags of several writes, from those of one."""
    column = bytearray(flags)
    for end in ends:
        column[end - 1] = flags[-1]
    return bytes(column)


def _encode_plain(
    topic_id: int,
    seq: int,
    ts: int,
    datas: list[bytes],
    *,
    flags: bytes,
    ends: Sequence[int],
    leads: Mapping[int, bytes],
) -> tuple[bytes, array[int]]:
    """Frames and their lengths, for records with data only."""
    sizes = [*map(len, datas)]
    _insist_on_fit(max(sizes))
    # What the bodies of a write have in common is packed once; only the last flag differs.
    lead, middle = _LEAD.pack(APPEND, flags[-1] | FLAG_CONT, topic_id), _MIDDLE.pack(ts, 0, 0)
    pack = _COMMON.pack
    bodies = [
        pack(lead, seq, middle, size + JSON_LEN_SIZE, size) + data
        for seq, size, data in zip(count(seq), sizes, datas)
    ]
    lead = _LEAD.pack(APPEND, flags[-1], topic_id)
    for end in ends:
        bodies[end - 1] = lead + bodies[end - 1][len(lead) :]
    checksums = [0, *map(h64, bodies)]
    last = checksums.pop()
    parts: list[bytes] = [b""] * (2 * len(bodies))
    parts[::2] = map(LINK.pack, checksums, [size + PLAIN_FRAME_LEN for size in sizes])
    parts[1::2] = bodies
    lengths = array("I", [size + OVERHEAD + JSON_LEN_SIZE for size in sizes])
    return _linked(parts, last, leads), lengths


def _linked(parts: list[bytes], last: int, leads: Mapping[int, bytes]) -> bytes:
    """Frames one after the other, from a link and a body of each and the last one's checksum."""
    for at, lead in leads.items():
        link = parts[2 * at]
        parts[2 * at] = link[:CHECKSUM_SIZE] + lead + link[CHECKSUM_SIZE:]
    parts[0] = parts[0][CHECKSUM_SIZE:]  # no frame before the first
    parts.append(_pack_u64(last))
    return b"".join(parts)


def _insist_on_fit(size: int) -> None:
    """Readers refuse a frame longer than this, so it would be lost data. Limits prevent it."""
    if size > _MAX_PLAIN:
        raise ValueError(f"a record of {size} bytes does not fit a frame")


def _encode_names(batch: RecordBatch, flags: bytes) -> tuple[list[tuple[bytes, bytes]], bytearray]:
    """Node and tag of each record as bytes, and the flags that announce them."""
    absent: list[str | None] = [None] * len(flags)
    nodes, tags = batch.nodes or absent, batch.tags or absent
    names: list[tuple[bytes, bytes]] = []
    named_flags = bytearray(flags)
    for i, node in enumerate(nodes):
        tag = tags[i]
        raw_node = raw_tag = b""
        if node is not None:
            raw_node = node.encode()
            named_flags[i] |= FLAG_NODE
        if tag is not None:
            raw_tag = tag.encode()
            named_flags[i] |= FLAG_TAG
        if len(raw_node) > MAX_NAME or len(raw_tag) > MAX_NAME:
            raise ValueError(f"a node or tag is longer than {MAX_NAME} bytes")
        names.append((raw_node, raw_tag))
    return names, named_flags


def _encode_full(
    topic_id: int,
    seq: int,
    ts: int,
    batch: RecordBatch,
    *,
    names: list[tuple[bytes, bytes]],
    flags: bytes,
    leads: Mapping[int, bytes],
) -> tuple[bytes, array[int]]:
    """Frames and their lengths, for records of which some have a node, a tag or meta."""
    metas = batch.metas or [b""] * len(names)
    pack_link, pack_body, pack_u32 = LINK.pack, BODY.pack, U32.pack
    parts: list[bytes] = []
    lengths = array("I")
    checksum = 0
    for i, data in enumerate(batch.datas):
        (node, tag), meta = names[i], metas[i]
        size = JSON_LEN_SIZE + len(data) + len(meta)
        head = pack_body(APPEND, flags[i], topic_id, seq, ts, len(node), len(tag), size)
        body = b"".join((head, node, tag, pack_u32(len(data)), data, meta))
        length = LENGTH_SIZE + len(body) + CHECKSUM_SIZE
        _insist_on_fit(length - OVERHEAD - JSON_LEN_SIZE)
        parts += (pack_link(checksum, length - LENGTH_SIZE), body)
        checksum = h64(body)
        lengths.append(length)
        seq += 1
    return _linked(parts, checksum, leads), lengths


def appended_run(buf: bytes, offsets: Sequence[int], headers: Sequence[Header]) -> Appended:
    """Intact Append frames of one topic with consecutive seqs, as one fact.

    `offsets` are those in `buf`. `ForeignFrame` when a frame is no sound Append; that topic and
    seqs belong together is for the caller to see to.
    """
    unpack_u32 = U32.unpack_from
    tags: list[str | None] | None = None
    for i, (size, kind, flags, _, _, _, node_len, tag_len, data_len) in enumerate(headers):
        offset = offsets[i]
        names = node_len + tag_len
        if kind != APPEND or data_len < JSON_LEN_SIZE or names + data_len + MIN_FRAME_LEN != size:
            raise ForeignFrame(offset, "not an Append frame whose lengths add up")
        if unpack_u32(buf, offset + DATA_START + names)[0] > data_len - JSON_LEN_SIZE:
            raise ForeignFrame(offset, "the data JSON is longer than what holds it")
        if names or flags & NAMED:
            tag = _checked_tag(buf, offset, headers[i])
            if tag is not None:
                if tags is None:
                    tags = [None] * len(headers)
                tags[i] = tag
    sizes, _, flag_column, topics, seqs, times, node_lens, tag_lens, _ = zip(*headers, strict=True)
    return Appended(
        topics[0],
        seqs[0],
        array("I", offsets),
        array("I", [LENGTH_SIZE + size for size in sizes]),
        array("Q", times),
        array("H", map(add, node_lens, tag_lens)),
        array("B", flag_column),
        tags,
    )


def _checked_tag(buf: bytes, offset: int, header: Header) -> str | None:
    """The tag of an Append, once its flags, lengths and text are found in order."""
    _, _, flags, _, _, _, node_len, tag_len, _ = header
    if node_len > MAX_NAME or tag_len > MAX_NAME:
        raise ForeignFrame(offset, f"a node or tag is longer than {MAX_NAME} bytes")
    if (node_len and not flags & FLAG_NODE) or (tag_len and not flags & FLAG_TAG):
        raise ForeignFrame(offset, "a node or tag that the flags deny")
    tag_at = offset + DATA_START + node_len
    try:
        decode_text(buf[offset + DATA_START : tag_at])
        tag = decode_text(buf[tag_at : tag_at + tag_len])
    except BadPayload as error:
        raise ForeignFrame(offset, f"node or tag: {error}") from error
    return tag if flags & FLAG_TAG else None


# Reading records whose place is already known


def verify(
    buf: bytes, offset: int, length: int, *, topic_id: int | None = None, seq: int | None = None
) -> bool:
    """Whether `buf` holds at `offset` an intact Append frame of exactly `length` bytes.

    Naming the topic and seq it must be of exposes a misplaced file or a misdirected write.
    """
    if length < OVERHEAD + JSON_LEN_SIZE or offset < 0 or offset + length > len(buf):
        return False
    frame_len, kind, found_topic, found_seq = _IDENTITY.unpack_from(buf, offset)
    if LENGTH_SIZE + frame_len != length or kind != APPEND:
        return False
    if (topic_id is not None and topic_id != found_topic) or (seq is not None and seq != found_seq):
        return False
    checksum_at = offset + length - CHECKSUM_SIZE
    stored: int = U64.unpack_from(buf, checksum_at)[0]
    return h64(buf[offset + LENGTH_SIZE : checksum_at]) == stored


def record_at(buf: bytes, offset: int) -> Record:
    """The parts of an Append frame that was verified before, or never left memory."""
    _, _, flags, _, _, _, node_len, tag_len, data_len = HEADER.unpack_from(buf, offset)
    tag_at = offset + DATA_START + node_len
    json_at = tag_at + tag_len + JSON_LEN_SIZE
    meta_at = json_at + U32.unpack_from(buf, json_at - JSON_LEN_SIZE)[0]
    return (
        buf[tag_at - node_len : tag_at].decode() if flags & FLAG_NODE else None,
        buf[tag_at : tag_at + tag_len].decode() if flags & FLAG_TAG else None,
        buf[json_at:meta_at],
        buf[meta_at : json_at + data_len - JSON_LEN_SIZE],
    )
