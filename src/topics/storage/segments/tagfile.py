"""The `.tag` file of a sealed segment, part of segment format version 2: which seqs have which tag.

Integers are little-endian.

    size  field
       4  magic      "TAG2"
       4  tag_count  n
     6*n  directory  per tag: bytes of the tag u16, number of seqs u32
          tags       UTF-8, back to back
          seqs       u64 each, ascending per tag, in the order of the tags
       8  H64        of everything before

Tags are sorted by their bytes, which for UTF-8 is also the order of Python strings, so the tags
with a common prefix lie together. Deleted seqs stay listed: the index knows who is dead. All of it
can be had from `.data` again, so damage is an answer to rebuild from, never a loss.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from topics.storage.checksum import h64
from topics.storage.frames.header import DATA_START, FLAG_TAG
from topics.storage.segments.codec import ENTRY_SIZE, FLAGS_AT, Idx

if TYPE_CHECKING:
    Seqs: TypeAlias = array[int]
else:
    Seqs = array  # not subscriptable before Python 3.12

_MAGIC: Final = b"TAG2"
_HEAD = struct.Struct("<4sI")
_DIRECTORY = struct.Struct("<HI")
_U64 = struct.Struct("<Q")


class BadTagFile(ValueError):
    """The file is damaged or not a tag file; rebuild it from `.data`."""


class TagFile(Mapping[str, Seqs]):
    """A tag file in memory. Only the tags are objects; seqs are copied out when asked for."""

    def __init__(self, tags: list[str], starts: list[int], seqs: memoryview) -> None:
        """`tags` are sorted; the seqs of `tags[i]` are `seqs[starts[i]:starts[i + 1]]` in bytes."""
        self._tags = tags
        self._starts = starts
        self._seqs = seqs

    def __len__(self) -> int:
        return len(self._tags)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tags)

    def __getitem__(self, tag: str) -> Seqs:
        i = bisect_left(self._tags, tag)
        if i == len(self._tags) or self._tags[i] != tag:
            raise KeyError(tag)
        seqs = array("Q", self._seqs[self._starts[i] : self._starts[i + 1]].tobytes())
        return _little_endian(seqs)


def encode(postings: Mapping[str, Seqs]) -> bytes:
    """The file for these seqs by tag."""
    tags = sorted(postings)
    names = [tag.encode() for tag in tags]
    body = b"".join(
        (
            _HEAD.pack(_MAGIC, len(tags)),
            *(_DIRECTORY.pack(len(n), len(postings[t])) for t, n in zip(tags, names, strict=True)),
            *names,
            *(_little_endian(postings[tag]).tobytes() for tag in tags),
        )
    )
    return body + _U64.pack(h64(body))


def decode(data: bytes) -> TagFile:
    """The contents of a tag file; `BadTagFile` when it cannot be believed."""
    end = len(data) - _U64.size
    if end < _HEAD.size or h64(data[:end]) != _U64.unpack_from(data, end)[0]:
        raise BadTagFile("the checksum does not match")
    magic, count = _HEAD.unpack_from(data)
    names_at = _HEAD.size + count * _DIRECTORY.size
    if magic != _MAGIC or names_at > end:
        raise BadTagFile("not a tag file")
    rows = list(_DIRECTORY.iter_unpack(data[_HEAD.size : names_at]))
    names, seqs_at = _cut_names(data, names_at, [size for size, _ in rows])
    starts = [0]
    for _, seq_count in rows:
        starts.append(starts[-1] + seq_count * _U64.size)
    if seqs_at + starts[-1] != end:
        raise BadTagFile("lengths do not add up")
    return TagFile(names, starts, memoryview(data)[seqs_at:end])


def _cut_names(data: bytes, position: int, sizes: list[int]) -> tuple[list[str], int]:
    """The tags, and where they end."""
    names: list[str] = []
    try:
        for size in sizes:
            names.append(data[position : position + size].decode())
            position += size
    except UnicodeDecodeError as error:
        raise BadTagFile("a tag is not UTF-8") from error
    if any(left >= right for left, right in pairwise(names)):
        raise BadTagFile("tags are not sorted")
    return names, position


def _little_endian(numbers: Seqs) -> Seqs:
    """The numbers as the file has them, or back: a copy where the machine differs."""
    if sys.byteorder == "little":
        return numbers
    swapped = numbers[:]
    swapped.byteswap()
    return swapped


# From the records themselves

STEP_RECORDS = 512
STEP_BYTES = 1 << 20

_NAME_LENGTHS = struct.Struct("<HH")  # node_len, tag_len
_NAME_LENGTHS_AT = 30  # in a frame
EMPTY = decode(encode({}))


def tagged_positions(idx: Idx) -> list[int]:
    """Which entries are of records with a tag."""
    return [i for i, flags in enumerate(idx.raw[FLAGS_AT::ENTRY_SIZE]) if flags & FLAG_TAG]


def collect(
    read_frames: Callable[[int, int], list[bytes | None]],
    idx: Idx,
    wanted: list[int],
    *,
    first: int,
) -> Generator[None, None, bytes]:
    """A tag file of the entries at the `wanted` positions; yields after each bounded step.

    `read_frames(i, j)` gives verified frames. A rotten one is left out: its tag cannot be
    believed, and no reader will be shown the record either.
    """
    postings: dict[str, Seqs] = {}
    for step in _steps(idx, wanted):
        start = step[0]
        frames = read_frames(start, step[-1] + 1)
        for i in step:
            frame = frames[i - start]
            if frame:
                postings.setdefault(tag_of(frame), array("Q")).append(first + i)
        yield
    return encode(postings)


def is_of(tags: TagFile, first: int, wanted: list[int]) -> bool:
    """Whether the postings are of just these entries: a file left by another segment is not."""
    named = [seq - first for seqs in tags.values() for seq in seqs]
    named.sort()
    return named == wanted


def tag_of(frame: bytes) -> str:
    """The tag of an Append frame whose flags say that it has one."""
    node_len, tag_len = _NAME_LENGTHS.unpack_from(frame, _NAME_LENGTHS_AT)
    start = DATA_START + node_len
    return frame[start : start + tag_len].decode()


def _steps(idx: Idx, wanted: list[int]) -> list[list[int]]:
    """Positions in groups that span a bounded number of entries and bytes."""
    steps: list[list[int]] = []
    last_position = last_byte = -1
    for i in wanted:
        if i >= last_position or idx.offset(i) >= last_byte:
            steps.append([])
            last_position = i + STEP_RECORDS
            last_byte = idx.offset(i) + STEP_BYTES
        steps[-1].append(i)
    return steps
