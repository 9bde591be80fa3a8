"""Cutting a run of stored bytes into frames, and believing only the good ones.

Every record served from a segment passes here. A frame is believed when its checksum holds and it
says of itself that it is an Append of this topic with this seq: the checksum exposes rot, the
topic and seq expose a misplaced file or a stale index.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from topics.storage.checksum import h64
from topics.storage.frames.header import APPEND, OVERHEAD, U64
from topics.storage.segments.codec import Entry

HOLE = b""
"""Stands for a seq that has no bytes: it was dead before it reached the segment."""

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
                and frame_len == length - 4
                and checksum(frame[4:-8]) == unpack_checksum(frame, length - 8)[0]
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
