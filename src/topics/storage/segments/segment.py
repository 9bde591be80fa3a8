"""What the metadata says about a segment: values, no I/O.

A topic's records on disk are a list of sealed `Segment`s and at most one `ActiveSegment` behind
them. Both are immutable: writing produces a new value, and the old one stays true until the
caller publishes the new one. That is what makes an abandoned checkpoint free of clean-up: bytes
past the recorded lengths simply do not exist.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

HOT = 0
COLD = 1

_FIRST_BITS = 64


def label_of(first: int, version: int) -> int:
    """First seq and version of a segment as one number: the first seq alone for version 0."""
    return version << _FIRST_BITS | first


def parts_of_label(label: int) -> tuple[int, int]:
    """First seq and version."""
    return label & (1 << _FIRST_BITS) - 1, label >> _FIRST_BITS


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sealed run of one topic's records; in JSON the list of its fields, in this order.

    `idx_h` is the hash of the `.idx` bytes with every delete byte zeroed, so that deletes, the
    only change a sealed file sees, leave it valid. `place` says where the last relocation put the
    files, and how often an erasure has written them anew: twice that, and 1 if they are cold. While
    two copies exist they are identical and the hot one is read.
    """

    first: int
    last: int
    data_len: int
    idx_len: int
    idx_h: int
    place: int
    min_ts: int
    max_ts: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def tier(self) -> int:
        """Where the files are."""
        return self.place & 1

    @property
    def version(self) -> int:
        """How often the segment was written anew."""
        return self.place >> 1

    @property
    def label(self) -> int:
        """What tells its files from those of all other segments of the topic."""
        return label_of(self.first, self.version)

    def in_tier(self, tier: int) -> Segment:
        """The same segment with its files in that tier."""
        return msgspec.structs.replace(self, place=self.version << 1 | tier)

    def rewritten(self, *, data_len: int, idx_h: int) -> Segment:
        """What stands for the same seqs once they were written anew, with other bytes."""
        return msgspec.structs.replace(
            self, data_len=data_len, idx_h=idx_h, place=self.place + (1 << 1)
        )


class ActiveSegment(msgspec.Struct, frozen=True, gc=False):
    """The one segment of a topic that still grows; always hot.

    Only the first four fields are kept in a snapshot. `SegmentStore.restore_active` finds the
    others again. `idx_h` is what a sealed segment has under that name.
    """

    first: int
    last: int
    data_len: int
    idx_len: int
    min_ts: int
    max_ts: int
    created_ms: int  # for the age limit
    idx_h: int | None = None  # None: not known yet

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def label(self) -> int:
        """As of a sealed segment; one that grows was never written anew."""
        return self.first

    def recorded(self) -> tuple[int, int, int, int]:
        """What a snapshot keeps."""
        return self.first, self.last, self.data_len, self.idx_len

    def sealed(self, idx_h: int) -> Segment:
        """The same files as an immutable segment."""
        return Segment(
            first=self.first,
            last=self.last,
            data_len=self.data_len,
            idx_len=self.idx_len,
            idx_h=idx_h,
            place=HOT,
            min_ts=self.min_ts,
            max_ts=self.max_ts,
        )


AnySegment: TypeAlias = Segment | ActiveSegment


class SegmentSettings(msgspec.Struct, frozen=True):
    """When the active segment is sealed; an age of 0 means never for its age."""

    max_records: int = 10_000
    max_bytes: int = 64 << 20
    max_age_ms: int = 3_600_000
