"""Records of a page as they lie in their frames, decoded when they are first used."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import overload

from topics.storage.frames.header import FLAG_NODE, FLAG_TAG, HEADER
from topics.values import Record

_DATA_START = 38
_JOB = struct.Struct("<5xB16xQHHII")
"""Flags, time, lengths of node, tag and blob; and if there are no names, the length of the data."""
PLAIN_JOB = struct.Struct("<5xB16xQIII")
"""Flags, time, the lengths of both names as one number, of the blob, and of the data.

The last means something only for a record without names: with meta its blob is longer than its data
and the length before it.
"""
PLAIN_JOB_START = _DATA_START + 4
"""Where the data of a record without names begins in its frame."""


class FrameRecords(Sequence[Record]):
    """A sequence of records over buffers of stored frames: two references a record, no copies."""

    __slots__ = ("bufs", "offsets")

    def __init__(self) -> None:
        self.bufs: list[bytes] = []
        self.offsets: list[int] = []

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return list(map(decode, self.bufs[index], self.offsets[index]))
        return decode(self.bufs[index], self.offsets[index])

    def __iter__(self) -> Iterator[Record]:
        return map(decode, self.bufs, self.offsets)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of any other list

    def __repr__(self) -> str:
        return repr(list(self))

    def stored(self) -> Iterator[memoryview]:
        """The frames as they are stored."""
        for buf, offset in zip(self.bufs, self.offsets, strict=True):
            yield memoryview(buf)[offset : _end_of(buf, offset)]

    def extend(self, bufs: list[bytes], offsets: list[int]) -> None:
        self.bufs += bufs
        self.offsets += offsets


def frame_alone(buf: bytes, offset: int) -> bytes:
    """A trusted frame without the bytes around it."""
    return buf[offset : _end_of(buf, offset)]


def _end_of(buf: bytes, offset: int) -> int:
    return offset + 4 + int.from_bytes(buf[offset : offset + 4], "little")


def decode(buf: bytes, offset: int) -> Record:
    """The record whose trusted frame begins at `offset`."""
    _, _, flags, _, seq, ts, node_len, tag_len, data_len = HEADER.unpack_from(buf, offset)
    at = offset + _DATA_START
    node = buf[at : at + node_len].decode() if flags & FLAG_NODE else None
    at += node_len
    tag = buf[at : at + tag_len].decode() if flags & FLAG_TAG else None
    at += tag_len
    end = at + data_len
    at += 4
    meta_at = at + int.from_bytes(buf[at - 4 : at], "little")
    return Record(seq, ts, node, tag, buf[at:meta_at], buf[meta_at:end] or None)


def job_fields(buf: bytes, offset: int) -> tuple[int, bytes, str | None, bytes | None]:
    """Time, data, tag and meta of the record whose trusted frame begins at `offset`."""
    flags, ts, node_len, tag_len, blob_len, data_len = _JOB.unpack_from(buf, offset)
    at, tag = offset + _DATA_START, "" if flags & FLAG_TAG else None
    if node_len or tag_len:
        tag_at = at + node_len
        at = tag_at + tag_len
        tag = buf[tag_at:at].decode() if flags & FLAG_TAG else None
        data_len = int.from_bytes(buf[at : at + 4], "little")
    start, end = at + 4, at + blob_len
    meta_at = start + data_len
    return ts, buf[start:meta_at], tag, buf[meta_at:end] if meta_at < end else None


def names_at(buf: bytes, offset: int) -> tuple[str | None, str | None]:
    """Node and tag of a trusted frame."""
    _, _, flags, _, _, _, node_len, tag_len, _ = HEADER.unpack_from(buf, offset)
    at = offset + _DATA_START
    node = buf[at : at + node_len].decode() if flags & FLAG_NODE else None
    tag_at = at + node_len
    return node, buf[tag_at : tag_at + tag_len].decode() if flags & FLAG_TAG else None
