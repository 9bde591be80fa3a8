"""Which seqs carry which tag, read from the frames themselves."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Generator

from topics.storage.frames.header import DATA_START, FLAG_TAG
from topics.storage.segments import tagfile
from topics.storage.segments.codec import ENTRY_SIZE, Idx
from topics.storage.segments.tagfile import TagFile

EMPTY = tagfile.decode(tagfile.encode({}))

STEP_RECORDS = 512
STEP_BYTES = 1 << 20

_FLAGS_AT = 16  # in an index entry
_NAME_LENGTHS = struct.Struct("<HH")  # node_len, tag_len
_NAME_LENGTHS_AT = 30  # in a frame


def tagged_positions(idx: Idx) -> list[int]:
    """Which entries are of records with a tag."""
    return [i for i, flags in enumerate(idx.raw[_FLAGS_AT::ENTRY_SIZE]) if flags & FLAG_TAG]


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
    postings: dict[str, tagfile.Seqs] = {}
    for step in _steps(idx, wanted):
        start = step[0]
        frames = read_frames(start, step[-1] + 1)
        for i in step:
            frame = frames[i - start]
            if frame:
                postings.setdefault(tag_of(frame), array("Q")).append(first + i)
        yield
    return tagfile.encode(postings)


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
