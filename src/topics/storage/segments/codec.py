"""The two files of a segment, version 2: records in `.data`, one entry per seq in `.idx`.

`.data` holds records back to back: the Append frame exactly as it was logged (see `frames.header`),
then one delete byte, 0xD5 for deleted, anything else for live. The byte lies outside the frame and
its checksum, so that a delete is a write of one byte and leaves the record verifiable.

`.idx` has 20 bytes for each seq, little-endian; entry i is of seq `first_seq + i`.

    offset  size  field
         0     4  offset    where the frame begins in .data
         4     4  length    bytes of the frame; its delete byte is at offset + length
         8     8  ts        the frame's, for the search by age
        16     1  flags     1 has tag, 2 has node, 0x80 hole
        17     1  dead      copy of the delete byte
        18     2  name_len  node and tag bytes

The JSON of a record lies at `[offset + 42 + name_len, offset + length - 8)`. A hole is a seq that
was dead before it came here: length 0, dead 0xD5, offset of the next record, ts of the one before.

`.data` says everything, so `.idx` can be rebuilt from it. The hash of a sealed `.idx` is taken with
every delete byte zeroed, because that is all that may still change.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from topics.storage.checksum import h64
from topics.storage.frames.append import verify
from topics.storage.frames.header import (
    APPEND,
    DATA_START,
    FLAG_NODE,
    FLAG_TAG,
    HEADER,
    JSON_LEN_SIZE,
    LENGTH_SIZE,
    OVERHEAD,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEAD: Final = 0xD5
LIVE: Final = 0
FLAG_HOLE: Final = 0x80

ENTRY = struct.Struct("<IIQBBH")
ENTRY_SIZE: Final = 20
FLAGS_AT: Final = 16
DEAD_AT: Final = 17
"""Where the delete byte lies in an entry: `i * ENTRY_SIZE + DEAD_AT` in `.idx`."""

_TS = struct.Struct("<Q")
_TS_AT: Final = 8
_U32 = struct.Struct("<I")
_NAMES: Final = FLAG_TAG | FLAG_NODE
_KEPT_FLAGS: Final = bytes(flags & _NAMES for flags in range(256))
_COLUMNS: Final = [
    ("offset", "<u4"),
    ("length", "<u4"),
    ("ts", "<u8"),
    ("flags", "u1"),
    ("dead", "u1"),
    ("name_len", "<u2"),
]
_UNCOUNTED: Final = OVERHEAD + JSON_LEN_SIZE  # of a frame's length, beside the names
_TOPIC_ID_AT: Final = 6  # in a frame; see `frames.header`

assert ENTRY.size == ENTRY_SIZE

Entry: TypeAlias = tuple[int, int, int, int, int, int]
"""offset, length, ts, flags, dead, name_len."""


class BadSegmentData(ValueError):
    """`.data` cannot be indexed: it is damaged and nothing says how many seqs it should hold."""


class Usage(NamedTuple):
    """Live records of a range and their accounted bytes."""

    records: int
    nbytes: int


class Idx:
    """The entries of one segment, in memory as on disk; positions count from its first seq.

    `raw` is shared with `columns`; its delete bytes change with `mark_dead`, nothing else does.
    """

    def __init__(self, raw: bytes | bytearray) -> None:
        if len(raw) % ENTRY_SIZE:
            raise ValueError(f"{len(raw)} bytes are not a whole number of index entries")
        self.raw = bytearray(raw)
        self.count = len(raw) // ENTRY_SIZE

    def __len__(self) -> int:
        return self.count

    def entry(self, i: int) -> Entry:
        return ENTRY.unpack_from(self.raw, i * ENTRY_SIZE)

    def entries(self, i: int, j: int) -> Iterator[Entry]:
        """Entries `i` to `j - 1`.

        Of a copy: should an interrupt leave the loop over them, the interpreter may crash when it
        collects such an iterator together with a memoryview that it reads from.
        """
        return ENTRY.iter_unpack(self.raw[i * ENTRY_SIZE : j * ENTRY_SIZE])

    def offset(self, i: int) -> int:
        value: int = _U32.unpack_from(self.raw, i * ENTRY_SIZE)[0]
        return value

    def length(self, i: int) -> int:
        value: int = _U32.unpack_from(self.raw, i * ENTRY_SIZE + 4)[0]
        return value

    def ts(self, i: int) -> int:
        value: int = _TS.unpack_from(self.raw, i * ENTRY_SIZE + _TS_AT)[0]
        return value

    def is_dead(self, i: int) -> bool:
        """Whether the record was deleted, or never came here."""
        return self.raw[i * ENTRY_SIZE + DEAD_AT] == DEAD

    def is_hole(self, i: int) -> bool:
        return self.raw[i * ENTRY_SIZE + FLAGS_AT] & FLAG_HOLE != 0

    def live_between(self, i: int, j: int) -> Usage:
        """How many of records `i` to `j - 1` are not deleted, and their bytes."""
        if "columns" in self.__dict__:  # numpy is there already: no step for each record
            some = self.columns[i:j]
            live = some[some["dead"] != DEAD]
            beside = int(live["name_len"].sum()) + _UNCOUNTED * len(live)
            return Usage(len(live), int(live["length"].sum()) - beside)
        sizes = [
            length - _UNCOUNTED - name_len
            for _, length, _, _, dead, name_len in self.entries(i, j)
            if dead != DEAD
        ]
        return Usage(len(sizes), sum(sizes))

    def has_dead(self, i: int, j: int) -> bool:
        """Whether any of entries `i` to `j - 1` is deleted or a hole."""
        return DEAD in self.raw[i * ENTRY_SIZE + DEAD_AT : j * ENTRY_SIZE : ENTRY_SIZE]

    def mark_dead(self, i: int) -> None:
        """Note a delete, here as in the file."""
        self.raw[i * ENTRY_SIZE + DEAD_AT] = DEAD

    def first_at_or_after_ts(self, ts: int, *, start: int = 0) -> int:
        """First position from `start` on whose record is not older than `ts`; `count` if none."""
        return bisect_left(range(self.count), ts, lo=min(start, self.count), key=self.ts)

    @cached_property
    def columns(self) -> NDArray[np.void]:
        """The entries as a numpy array over the same memory, for work on many at once."""
        import numpy as np  # noqa: PLC0415 - a quarter second that most programs never need

        return np.frombuffer(self.raw, np.dtype(_COLUMNS))


def idx_hash(idx: Idx) -> int:
    """What the registry keeps of a sealed index: its hash as if nothing were deleted."""
    raw = bytearray(idx.raw)
    raw[DEAD_AT::ENTRY_SIZE] = bytes(idx.count)
    return h64(raw)


def is_sound(idx: Idx, data_len: int) -> bool:
    """Whether the entries can describe a `.data` of this length.

    Each frame lies behind the last one, no time is before the one above it, and names are as long
    as the flags allow: all that can be told without the frames themselves.
    """
    position = last_ts = 0
    for offset, length, ts, flags, dead, name_len in idx.entries(0, idx.count):
        if offset != position or ts < last_ts:
            return False
        last_ts = ts
        if flags & FLAG_HOLE:
            if length or name_len or flags != FLAG_HOLE or dead != DEAD:
                return False
        elif length < _UNCOUNTED + name_len or flags & ~_NAMES or (name_len and not flags):
            return False
        else:
            position += length + 1
    return position == data_len


def pack_records(frames: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """Frames as `.data` holds them, all live; an empty frame (a hole) leaves no trace."""
    present = [frame for frame in frames if frame]
    return b"\0".join(present) + b"\0" if present else b""


def build_idx(
    *,
    data_offset: int,
    lengths: Sequence[int],
    times: Sequence[int],
    name_lengths: Sequence[int],
    flags: Sequence[int],
    previous_ts: int = 0,
) -> bytes:
    """Entries for records written at `data_offset` by `pack_records`; length 0 makes a hole.

    `previous_ts` is the time of the entry before, for a hole that comes first. `flags` may be
    those of the frames: only what an index keeps is taken.
    """
    pack = ENTRY.pack
    if 0 not in lengths:
        offsets = accumulate([length + 1 for length in lengths], initial=data_offset)
        kept = bytes(flags).translate(_KEPT_FLAGS)
        # `map` stops at the shortest: there is one offset more than there are records.
        return b"".join(map(pack, offsets, lengths, times, kept, repeat(LIVE), name_lengths))
    parts: list[bytes] = []
    for i, length in enumerate(lengths):
        if length:
            previous_ts = times[i]
            parts.append(
                pack(data_offset, length, previous_ts, flags[i] & _NAMES, LIVE, name_lengths[i])
            )
            data_offset += length + 1
        else:
            parts.append(pack(data_offset, 0, previous_ts, FLAG_HOLE, DEAD, 0))
    return b"".join(parts)


# Rebuilding


def rebuild_idx(data: bytes, *, topic_id: int, first_seq: int, count: int | None = None) -> Idx:
    """The index of `.data`, from its frames alone.

    Seqs that are passed over become holes. A damaged range must not: its seqs get live entries
    over the damaged bytes. Their checksums fail, so a reader reports each as lost and does not take
    it for deleted. Without `count` the end of such a range may be unknown: `BadSegmentData`.
    """
    end_seq = None if count is None else first_seq + count
    parts: list[bytes] = []
    position, seq, ts = 0, first_seq, 0
    while position < len(data):
        found = _record_from(data, position, topic_id=topic_id, seq=seq, end_seq=end_seq)
        if found is None:
            break
        entry, found_seq = found
        passed_over = found_seq - seq
        offset, length, found_ts, *_ = entry
        parts.append(_gap_entry(position, offset, ts) * passed_over)
        parts.append(ENTRY.pack(*entry))
        position, seq, ts = offset + length + 1, found_seq + 1, found_ts
    if end_seq is not None:
        parts.append(_gap_entry(position, len(data), ts) * (end_seq - seq))
    elif position < len(data):
        raise BadSegmentData(f"no record can be read from offset {position} on")
    return Idx(b"".join(parts))


def _gap_entry(start: int, end: int, ts: int) -> bytes:
    """A seq without a readable record: a hole, or one of those that were in `data[start:end]`."""
    if start == end:
        return ENTRY.pack(start, 0, ts, FLAG_HOLE, DEAD, 0)
    return ENTRY.pack(start, max(end - start - 1, _UNCOUNTED), ts, 0, LIVE, 0)


def _record_from(
    data: bytes, position: int, *, topic_id: int, seq: int, end_seq: int | None
) -> tuple[Entry, int] | None:
    """Entry and seq of the first intact record at or behind `position` that may come next.

    Behind damage a record is found by the topic id in its header, because the length field that
    would lead to it may be damaged, too.
    """
    mark = topic_id.to_bytes(8, "little")
    while position >= 0:
        found = _record_at(data, position, topic_id=topic_id)
        if found is not None:
            _, found_seq = found
            if found_seq >= seq and (end_seq is None or found_seq < end_seq):
                return found
        position = data.find(mark, position + 1 + _TOPIC_ID_AT) - _TOPIC_ID_AT
    return None


def _record_at(data: bytes, position: int, *, topic_id: int) -> tuple[Entry, int] | None:
    if position + OVERHEAD > len(data):
        return None
    header = HEADER.unpack_from(data, position)
    frame_len, kind, flags, _, seq, ts, node_len, tag_len, data_len = header
    length = LENGTH_SIZE + frame_len
    if kind != APPEND or not verify(data, position, length, topic_id=topic_id):
        return None
    names = node_len + tag_len
    if length != OVERHEAD + names + data_len or data_len < JSON_LEN_SIZE:
        return None
    # A delete byte cut off with the end of the file was never written: the record is live.
    mark = data[position + length : position + length + 1]
    dead = DEAD if mark == bytes((DEAD,)) else LIVE
    return (position, length, ts, flags & _NAMES, dead, names), seq


assert DATA_START + JSON_LEN_SIZE + 8 == _UNCOUNTED
