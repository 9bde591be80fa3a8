"""Whether the index of a segment that still grows says what its records say.

No recorded hash covers such an index, and arithmetic sees offsets and lengths only: a changed time
would expire a record, a changed flag would hide its tag. So the rest is held against the headers
of the records. Only headers are looked at. Where records are small the file is read in long
stretches, where they are large each header is read by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.storage.frames.header import FLAG_NODE, FLAG_TAG, HEADER
from topics.storage.segments.codec import Idx
from topics.storage.segments.intact import intact_frames

WINDOW = 1 << 20
SPARSE = 4096
"""From so many bytes a record on, headers are read one by one."""

_NAMES = FLAG_TAG | FLAG_NODE


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
        offset, length, ts, flags, _, name_len = entry
        if not length:
            if ts != last_ts:  # a hole has the time of the entry before it
                return False
            continue
        last_ts = ts
        if offset + HEADER.size > base + len(buf):
            buf, base = read(offset, min(window, data_len - offset)), offset
        header = HEADER.unpack_from(buf, offset - base)
        if (header[5], header[2] & _NAMES, header[6] + header[7]) == (ts, flags, name_len):
            continue
        frame = read(offset, length)
        if intact_frames(frame, [entry], base=offset, topic_id=topic_id, first=first + i) != [None]:
            return False
    return True
