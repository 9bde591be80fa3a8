"""Cutting a run of stored bytes into frames, and believing only the good ones.

Every record served from a segment passes here. A frame is believed when its checksum holds and it
says of itself that it is an Append of this topic with this seq: the checksum exposes rot, the
topic and seq expose a misplaced file or a stale index.

No recorded hash covers the index of a segment that still grows, and arithmetic sees offsets and
lengths only: a changed time would expire a record, a changed flag would hide its tag. So `agrees`
holds the rest of such an index against the headers of the records. Where records are small the file
is read in long ranges, where they are large each header is read by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from topics.storage.checksum import h64
from topics.storage.frames.header import (
    APPEND,
    CHECKSUM_SIZE,
    FLAG_NODE,
    FLAG_TAG,
    HEADER,
    LENGTH_SIZE,
    OVERHEAD,
    U64,
    Header,
)
from topics.storage.segments.codec import Entry, Idx

HOLE = b""
"""Stands for a seq that has no bytes: it was dead before it reached the segment."""

WINDOW = 1 << 20
SPARSE = 4096
"""From so many bytes a record on, headers are read one by one."""

_NAMES = FLAG_TAG | FLAG_NODE
_HEAD = struct.Struct("<IBxQQ")  # frame_len, type, topic_id, seq


def intact_frames(
    buf: bytes, entries: Iterable[Entry], *, base: int, topic_id: int, first: int
) -> list[bytes | None]:
    """The frames of index entries for seqs `first ..`, from the bytes of `.data` at `base`.

    `HOLE` where the length is 0, `None` for a frame that is not to be believed or that lies past
    the end of a buffer cut short. No entry may lie before `base`. The loop is the cost of a read:
    a call less is seen in it.
    """
    unpack_head, unpack_checksum, checksum = _HEAD.unpack_from, U64.unpack_from, h64
    size = len(buf)
    seq = first
    frames: list[bytes | None] = []
    append = frames.append
    for offset, length, _, _, _, _ in entries:
        start = offset - base
        end = start + length
        if length >= OVERHEAD and end <= size:
            frame = buf[start:end]
            frame_len, kind, found_topic, found_seq = unpack_head(frame)
            if (
                found_seq == seq
                and found_topic == topic_id
                and kind == APPEND
                and LENGTH_SIZE + frame_len == length
                and checksum(frame[LENGTH_SIZE:-CHECKSUM_SIZE])
                == unpack_checksum(frame, length - CHECKSUM_SIZE)[0]
            ):
                append(frame)
            else:
                append(None)
        elif not length:
            append(HOLE)
        else:
            append(None)
        seq += 1
    return frames


def describes(entry: Entry, header: Header) -> bool:
    """Whether an index entry says of a record what its header says: time, names, their length."""
    _, _, ts, flags, _, name_len = entry
    _, _, frame_flags, _, _, frame_ts, node_len, tag_len, _ = header
    return (frame_ts, frame_flags & _NAMES, node_len + tag_len) == (ts, flags, name_len)


def agrees(
    idx: Idx,
    read: Callable[[int, int], bytes],
    *,
    topic_id: int,
    first: int,
    data_len: int,
) -> bool:
    """Whether no intact record contradicts an index whose offsets and lengths add up.

    `read` gives the bytes of `.data` from an offset on, so many of them. Of an entry and a header
    that differ, the header is wrong if its record fails the checksum: then the index stays.
    """
    window = WINDOW if data_len < idx.count * SPARSE else HEADER.size
    buf, base, last_ts = b"", 0, 0
    for i, entry in enumerate(idx.entries(0, idx.count)):
        offset, length, ts, _, _, _ = entry
        if not length:
            if ts != last_ts:  # a hole has the time of the entry before it
                return False
            continue
        last_ts = ts
        if offset + HEADER.size > base + len(buf):
            buf, base = read(offset, min(window, data_len - offset)), offset
        if describes(entry, HEADER.unpack_from(buf, offset - base)):
            continue
        frame = read(offset, length)
        if intact_frames(frame, [entry], base=offset, topic_id=topic_id, first=first + i) != [None]:
            return False
    return True
