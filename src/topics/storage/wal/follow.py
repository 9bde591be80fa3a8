"""Stepping from frame to frame through the bytes of a log file.

`follow` is the loop that recovery spends its time in: it verifies every checksum and notes nothing
but where frames begin. What the frames say is read afterwards, many at a time (`collect`).

After damage the thread is lost, and `intact_frames` looks for frames at any offset. What it finds
may be text inside a record that imitates a frame, so it counts and never restores; `salvage` says
what more it takes to believe one.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from topics.storage.checksum import h64
from topics.storage.frames.buffer import (
    FLAG_CONT,
    FLAG_DURABLE,
    MAX_FRAME_LEN,
    OVERHEAD,
    CleanEnd,
    Frame,
    Unreadable,
    decode_at,
)
from topics.storage.wal.files import BEACON_SIZE

_LINK = struct.Struct("<QI")  # checksum of one frame, length of the next
_U32 = struct.Struct("<I")
_FLAGS_AT: Final = 5
_MIN_LEN: Final = OVERHEAD - 4
BEACON_START: Final = struct.pack("<IB", BEACON_SIZE - 4, 8)
"""How every beacon begins: its length and its type."""

# A length of at most 16 MiB, then a type that exists. The look-ahead lets candidates overlap.
_CANDIDATE = re.compile(rb"(?=[\0-\xff]{3}[\0\1][\x01-\x12])", re.DOTALL)


class Stretch(NamedTuple):
    """Consecutive intact frames."""

    offsets: list[int]
    stop: int
    """Where the first byte that was not followed lies."""
    end: CleanEnd | Unreadable | None
    """What lies at `stop`; None when there is more to follow."""


def follow(buf: bytes, offset: int, limit: int, *, max_frames: int) -> Stretch:
    """Step over intact frames from `offset` to at most `limit`."""
    offsets: list[int] = []
    note = offsets.append
    link, check = _LINK.unpack_from, h64
    last_link = limit - _LINK.size  # the last place where a checksum and a next length fit
    if offset + OVERHEAD <= limit:
        (size,) = _U32.unpack_from(buf, offset)
        for _ in range(max_frames):
            checksum_at = offset + size - 4
            if size < _MIN_LEN or size > MAX_FRAME_LEN or checksum_at > last_link:
                break
            stored, size = link(buf, checksum_at)
            if check(buf[offset + 4 : checksum_at]) != stored:
                break
            note(offset)
            offset = checksum_at + 8
        else:
            return Stretch(offsets, offset, None)
    # The fast loop stops short of the last frame of a file without zeros behind it.
    found = decode_at(buf, offset, limit)
    if isinstance(found, Frame):
        note(offset)
        offset = found.end
        found = decode_at(buf, offset, limit)
        assert not isinstance(found, Frame)  # the loop would have stepped over the one before
    return Stretch(offsets, offset, found)


def whole_submissions(buf: bytes, offsets: list[int]) -> int:
    """How many of these frames, from the first on, make up whole submissions."""
    count = len(offsets)
    while count and buf[offsets[count - 1] + _FLAGS_AT] & FLAG_CONT:
        count -= 1
    return count


def is_durable(buf: bytes, offset: int) -> bool:
    """Whether the writer of the frame at `offset` waited for a sync."""
    return buf[offset + _FLAGS_AT] & FLAG_DURABLE != 0


def intact_frames(buf: bytes, offset: int, limit: int) -> Iterator[Frame]:
    """Every intact frame that begins at or after `offset`, none inside another."""
    while True:
        candidate = _CANDIDATE.search(buf, offset, limit)
        if candidate is None:
            return
        offset = candidate.start()
        found = decode_at(buf, offset, limit)
        if isinstance(found, Frame):
            yield found
            offset = found.end
        else:
            offset += 1


def candidates(buf: bytes, offset: int, limit: int) -> Iterator[int]:
    """Every offset from `offset` on where a frame could begin by the look of it."""
    for found in _CANDIDATE.finditer(buf, offset, limit):
        yield found.start()


def beacons_after(buf: bytes, offset: int, limit: int) -> Iterator[Frame]:
    """Intact frames of a beacon's shape at any offset; their claims are the caller's to judge."""
    while (offset := buf.find(BEACON_START, offset, limit)) >= 0:
        found = decode_at(buf, offset, limit)
        if isinstance(found, Frame):
            yield found
        offset += 1
