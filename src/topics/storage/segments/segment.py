"""What the metadata says about a segment: values, no I/O.

A topic's records on disk are a list of sealed `Segment`s and at most one `ActiveSegment` behind
them. Both are immutable: writing produces a new value, and the old one stays true until the
caller publishes the new one. That is what makes an abandoned checkpoint free of clean-up: bytes
past the recorded lengths simply do not exist.
"""

from typing import TypeAlias

import msgspec

HOT = 0
COLD = 1


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sealed run of one topic's records; in JSON the list of its fields, in this order.

    `idx_h` is the hash of the `.idx` bytes with every delete byte zeroed, so that deletes, the
    only change a sealed file sees, leave it valid. `tier` is where the last relocation put the
    files; while two copies exist they are identical and the hot one is read.
    """

    first: int
    last: int
    data_len: int
    idx_len: int
    idx_h: int
    tier: int
    min_ts: int
    max_ts: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


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
            tier=HOT,
            min_ts=self.min_ts,
            max_ts=self.max_ts,
        )


AnySegment: TypeAlias = Segment | ActiveSegment


class SegmentSettings(msgspec.Struct, frozen=True):
    """When the active segment is sealed; an age of 0 means never for its age."""

    max_records: int = 10_000
    max_bytes: int = 64 << 20
    max_age_ms: int = 3_600_000
