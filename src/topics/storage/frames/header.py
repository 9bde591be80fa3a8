"""The frame: one checksummed unit, the same bytes in the log and in segments.

Integers are little-endian; H64 is `checksum.h64`.

    offset  size  field
         0     4  frame_len   bytes after this field; 42 .. 16 MiB
         4     1  type        FrameType
         5     1  flags       1 has tag, 2 has node, 4 durable, 8 cont; upper half: hops
         6     8  topic_id    0 = belongs to no topic
        14     8  seq         Append and Lease: the record's; beacon: the store mark; else 0
        22     8  ts          commit time in ms, non-decreasing per topic
        30     2  node_len    at most 4096; 0 without the flag
        32     2  tag_len     at most 4096; 0 without the flag
        34     4  data_len
        38        node, tag, data
     end-8     8  H64 of everything between frame_len and here

The data of an Append is `json_len u32, data JSON, meta JSON`, the bytes the client sent; its
accounted size is `data_len - 4`. The data of every other type is in `frames.payloads`; those types
have no node, no tag and no hops. Hops count the routers a copy has passed and stop at 15.

`cont` is set on every frame of a submission but the last. A log that ends inside such a run has
lost part of a write, so readers drop all of it.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

FLAG_TAG: Final = 1
FLAG_NODE: Final = 2
FLAG_DURABLE: Final = 4
FLAG_CONT: Final = 8
HOPS_SHIFT: Final = 4
MAX_HOPS: Final = 15
NAMED: Final = FLAG_TAG | FLAG_NODE

HEADER = struct.Struct("<IBBQQQHHI")
LENGTH_SIZE: Final = 4
"""Bytes of frame_len, which does not count itself."""
OVERHEAD: Final = 46
"""Bytes of a frame beside node, tag and data."""
MIN_FRAME_LEN: Final = OVERHEAD - LENGTH_SIZE
MAX_FRAME_LEN: Final = 16 << 20
MAX_FRAME: Final = MAX_FRAME_LEN + LENGTH_SIZE
MAX_NAME: Final = 4096
"""Longest node or tag in bytes, whatever the configured limit."""

BODY = struct.Struct("<BBQQQHHI")  # HEADER without frame_len: where the checksum begins
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
LINK = struct.Struct("<QI")  # checksum of one frame and frame_len of the next
FLAGS_AT: Final = 5
DATA_START: Final = 38
CHECKSUM_SIZE: Final = 8
JSON_LEN_SIZE: Final = 4
APPEND: Final = 1  # FrameType.APPEND as a plain int: an enum lookup per record is felt

assert HEADER.size == DATA_START == LENGTH_SIZE + BODY.size
assert OVERHEAD == DATA_START + CHECKSUM_SIZE

Header: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""frame_len, type, flags, topic_id, seq, ts, node_len, tag_len, data_len."""


class ForeignFrame(Exception):
    """Intact bytes at `offset` whose meaning this version does not know."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"frame at {offset}: {why}")
        self.offset = offset
        self.why = why
