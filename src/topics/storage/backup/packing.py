"""A segment's bytes without what changes in them, and back.

The only bytes of a segment that change are the delete bytes. `pack` zeroes them, so that the same
records are the same bytes at any time; `unpack` writes the deletes of the moment that is restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from topics.storage.checksum import h64
from topics.storage.segments.codec import DEAD, DEAD_AT, ENTRY_SIZE, FLAG_HOLE, Idx

PIECE_BYTES = 32 << 20


class Cut(NamedTuple):
    """Where a piece of a segment ends: bytes of `.data`, bytes of `.idx`."""

    data_len: int
    idx_len: int


def pack_idx(raw: bytes) -> bytearray:
    """Entries with every delete byte zero; their H64 is what a sealed segment is known by."""
    packed = bytearray(raw)
    packed[DEAD_AT::ENTRY_SIZE] = bytes(len(packed) // ENTRY_SIZE)
    return packed


def hash_of(packed: bytearray) -> str:
    return f"{h64(packed):016x}"


def pack_data(data: bytes, packed: bytearray, *, start: int) -> bytearray:
    """Records with every delete byte zero; `data` begins at offset `start` of `.data`."""
    result = bytearray(data)
    columns = Idx(packed).columns
    records = columns[(columns["flags"] & FLAG_HOLE) == 0]
    places = records["offset"].astype(np.int64) + records["length"] - start
    np.frombuffer(result, dtype=np.uint8)[places] = 0
    return result


def cuts(packed: bytearray, data_len: int) -> Iterator[Cut]:
    """Ends of the pieces of a segment, between records, the last one its own end."""
    columns = Idx(packed).columns
    ends = columns["offset"].astype(np.int64) + np.where(
        columns["length"] > 0, columns["length"].astype(np.int64) + 1, 0
    )
    done, limit = 0, PIECE_BYTES
    while done < len(columns) and int(ends[-1]) > limit:
        done = max(done + 1, int(np.searchsorted(ends, limit, side="right")))
        end = int(ends[done - 1])
        if done < len(columns):
            yield Cut(end, done * ENTRY_SIZE)
        limit = end + PIECE_BYTES
    yield Cut(data_len, len(packed))


def unpack(
    data: bytearray, packed: bytearray, first: int, dead: Iterable[tuple[int, int]]
) -> tuple[bytearray, bytearray]:
    """Both files of a segment in which exactly the seqs in these ranges are deleted."""
    columns = np.frombuffer(packed, dtype=Idx(b"").columns.dtype).copy()
    is_hole = (columns["flags"] & FLAG_HOLE) != 0
    is_dead = is_hole.copy()
    for lo, hi in dead:
        is_dead[max(0, lo - first) : max(0, hi - first + 1)] = True
    columns["dead"] = np.where(is_dead, DEAD, 0)
    marked = columns[is_dead & ~is_hole]
    places = marked["offset"].astype(np.int64) + marked["length"]
    np.frombuffer(data, dtype=np.uint8)[places] = DEAD
    return data, bytearray(columns.tobytes())


def dead_runs(raw: bytes, first: int) -> list[tuple[int, int]]:
    """The deleted seqs of a segment by its delete bytes."""
    dead = Idx(raw).columns["dead"] == DEAD
    edges = np.flatnonzero(np.diff(np.concatenate(([False], dead, [False])).astype(np.int8)))
    pairs = edges.reshape(-1, 2)
    return [(first + int(lo), first + int(hi) - 1) for lo, hi in pairs]


def bad_frame(data: bytearray, packed: bytearray, *, start: int) -> int | None:
    """The position of the first record whose checksum does not match, counted in `packed`."""
    view = memoryview(data)
    for position, (offset, length, _, flags, _, _) in enumerate(
        Idx(packed).entries(0, len(packed) // ENTRY_SIZE)
    ):
        at = offset - start
        if not flags & FLAG_HOLE and h64(view[at + 4 : at + length - 8]) != int.from_bytes(
            view[at + length - 8 : at + length], "little"
        ):
            return position
    return None
