"""Finding frames again behind damage.

`intact_frames` looks for frames at any offset. What it finds may be text inside a record that
imitates a frame, so it serves to count and to report, never to restore.

`resync` is for an operator who asked for salvage. A frame is believed only if decoding runs from
that frame without a break to a beacon of this store, whose mark no client knows, or to the clean
end of the file, where no record is cut.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final

from topics.core.facts import Beacon
from topics.storage.frames.buffer import CleanEnd, Frame, decode_at
from topics.storage.frames.header import (
    LENGTH_SIZE,
    ForeignFrame,
)
from topics.storage.frames.payloads import FrameType
from topics.storage.wal.files import BEACON_SIZE

_BEACON_START: Final = struct.pack("<IB", BEACON_SIZE - LENGTH_SIZE, FrameType.CHECKPOINT_MARK)
"""How every beacon begins: its length and its type."""

# A length of at most 16 MiB, then a type that exists. The look-ahead lets candidates overlap.
_CANDIDATE = re.compile(rb"(?=[\0-\xff]{3}[\0\1][\x01-\x12])", re.DOTALL)


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


def beacons_after(buf: bytes, offset: int, limit: int) -> Iterator[Frame]:
    """Intact frames of a beacon's shape at any offset; their claims are the caller's to judge."""
    while (offset := buf.find(_BEACON_START, offset, limit)) >= 0:
        found = decode_at(buf, offset, limit)
        if isinstance(found, Frame):
            yield found
        offset += 1


def resync(buf: bytes, offset: int, limit: int, *, store_mark: int) -> int | None:
    """The first offset behind `offset` from which frames can be believed; None if there is none."""
    rejected: set[int] = set()
    for found in _CANDIDATE.finditer(buf, offset + 1, limit):
        start = found.start()
        if start not in rejected and _is_sound(buf, start, limit, store_mark, rejected):
            return start
    return None


def _is_sound(buf: bytes, start: int, limit: int, store_mark: int, rejected: set[int]) -> bool:
    """Follow frames from `start`; those of a failed attempt need no second one."""
    passed: list[int] = []
    at = start
    while at not in rejected:
        found = decode_at(buf, at, limit)
        if isinstance(found, CleanEnd):
            return at > start
        if not isinstance(found, Frame):
            break
        if stated_position(buf, found, store_mark=store_mark) is not None:
            return True
        passed.append(at)
        at = found.end
    rejected.update(passed)
    return False


def stated_position(buf: bytes, frame: Frame, *, store_mark: int) -> tuple[int, int] | None:
    """File and offset below which a beacon of this store says everything is durable."""
    if (
        frame.type != FrameType.CHECKPOINT_MARK
        or frame.length != BEACON_SIZE
        or frame.seq != store_mark
    ):
        return None
    try:
        fact = frame.fact(buf)
    except ForeignFrame:
        return None
    return (fact.file_lfn, fact.offset) if isinstance(fact, Beacon) else None


def proven_behind(buf: bytes, offset: int, *, file_lfn: int, store_mark: int) -> int:
    """The highest offset of this file that a beacon at or behind `offset` calls durable, or 0."""
    stated = [
        stated_position(buf, frame, store_mark=store_mark)
        for frame in beacons_after(buf, offset, len(buf))
    ]
    return max([known[1] for known in stated if known and known[0] == file_lfn], default=0)
