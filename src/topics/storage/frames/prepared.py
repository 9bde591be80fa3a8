"""The frames of a long write, laid out before their seqs are known.

Making 64 MiB of frames takes too long for one step of the event loop, and once a write has its
seqs no other write may reach the log before it. So the frames are made earlier, in steps, without a
topic and a seq. Both are filled in at the end, together with new checksums, in place: no byte of
the data is copied again. `frames.header` has the format.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Generator, Mapping
from itertools import accumulate

from topics.batch import RecordBatch
from topics.core.facts import Appended
from topics.storage.checksum import h64
from topics.storage.frames.append import NO_LEADS, encode_append
from topics.storage.frames.header import (
    CHECKSUM_SIZE,
    FLAG_CONT,
    FLAG_DURABLE,
    FLAG_NODE,
    FLAG_TAG,
    LENGTH_SIZE,
    U64,
)

STEP_BYTES = 1 << 18
STEP_RECORDS = 512
"""What is laid out between two pauses, unless a single record is longer."""
_HEADROOM = 4096
"""Room before the first frame for the frames that lead it, which are shorter than this."""
_WHOSE = struct.Struct("<BQQQ")  # of HEADER: flags, topic_id, seq, ts
_WHOSE_AT = 5


class PreparedAppend:
    """Frames of a batch that only lack their seqs."""

    __slots__ = ("_buffer", "_flags", "_lengths", "_name_lengths", "_tags")

    def __init__(self, tags: list[str | None] | None) -> None:
        self._buffer = bytearray(_HEADROOM)
        self._lengths = array("I")
        self._name_lengths = array("H")
        self._flags = array("B")
        self._tags = tags

    def add(self, part: RecordBatch) -> None:
        """Lay out some records more."""
        frames, run = encode_append(0, 0, 0, part, durable=False)
        self._buffer += frames
        self._lengths += run.lengths
        self._name_lengths += run.name_lengths
        self._flags += run.flags

    def finish(
        self,
        topic_id: int,
        first_seq: int,
        ts: int,
        *,
        durable: bool,
        leads: Mapping[int, bytes] = NO_LEADS,
    ) -> tuple[memoryview, Appended]:
        """What `encode_append` returns for the whole batch; `leads` are for its first record only.

        To be called once: the frames stay where they are.
        """
        lead = leads.get(0, b"")
        assert len(leads) == bool(lead), "one write has nothing between its records"
        self._buffer[:_HEADROOM] = lead  # moves nothing: what becomes shorter in front begins later
        frames = memoryview(self._buffer)
        offsets = array("I", accumulate(self._lengths[:-1], initial=len(lead)))
        flags = self._final_flags(FLAG_DURABLE if durable else 0)
        fill, seal = _WHOSE.pack_into, U64.pack_into
        columns = zip(offsets, self._lengths, flags, strict=True)
        for seq, (offset, length, flag) in enumerate(columns, first_seq):
            fill(frames, offset + _WHOSE_AT, flag, topic_id, seq, ts)
            end = offset + length - CHECKSUM_SIZE
            seal(frames, end, h64(frames[offset + LENGTH_SIZE : end]))
        return frames, Appended(
            topic_id,
            first_seq,
            offsets,
            self._lengths,
            array("Q", (ts,)) * len(offsets),
            self._name_lengths,
            flags,
            self._tags,
        )

    def _final_flags(self, durable: int) -> array[int]:
        """Flags with the durability of the write, and `cont` on every frame but the last."""
        names = FLAG_TAG | FLAG_NODE
        flags = array("B", [flag & names | durable | FLAG_CONT for flag in self._flags])
        flags[-1] &= ~FLAG_CONT
        return flags


def prepare_append(batch: RecordBatch) -> Generator[None, None, PreparedAppend]:
    """Lay out the frames of a batch in steps; it must not be empty."""
    prepared = PreparedAppend(batch.tags)
    first = size = 0
    for end, data in enumerate(batch.datas, 1):
        size += len(data)
        if size >= STEP_BYTES or end - first == STEP_RECORDS:
            prepared.add(batch.part(first, end))
            first, size = end, 0
            yield
    if first < len(batch):
        prepared.add(batch.part(first, len(batch)))
    return prepared
