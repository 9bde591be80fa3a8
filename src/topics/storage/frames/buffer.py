"""Frames in a buffer: writing one, finding one, walking over many.

The format is in `frames.header`, Append frames are in `frames.append`, the contents of the other
types in `frames.payloads`.

Reading has three outcomes before meaning comes in. Bytes that do not hold a whole frame with a good
checksum are `Unreadable`: torn or rotten, which only the surroundings can tell. Zeros to the end
are a `CleanEnd`. Anything else is a `Frame`; if its contents then make no sense, `ForeignFrame` is
raised, because intact bytes that this version cannot read were written by a version that can:
cutting them off would destroy data. Lengths are checked before memory is allocated for them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from topics.core.facts import Appended, CheckpointMarked, Fact
from topics.storage.checksum import h64
from topics.storage.frames.append import appended_run
from topics.storage.frames.header import (
    APPEND,
    BODY,
    CHECKSUM_SIZE,
    DATA_START,
    FLAG_CONT,
    FLAG_DURABLE,
    HEADER,
    HOPS_SHIFT,
    LENGTH_SIZE,
    LINK,
    MAX_FRAME,
    MAX_FRAME_LEN,
    MIN_FRAME_LEN,
    OVERHEAD,
    U32,
    U64,
    ForeignFrame,
    Header,
)
from topics.storage.frames.payloads import (
    CHECKPOINT_ENTRIES_PER_FRAME,
    BadPayload,
    content_of,
    fact_of,
)

_ZEROS: Final = bytes(1 << 16)


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """No whole frame with a good checksum begins at `offset`."""

    offset: int
    why: str


class CleanEnd(msgspec.Struct, frozen=True, gc=False):
    """From `offset` on there is nothing but zeros, or nothing at all."""

    offset: int


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame found intact: its header and where it lies. The bytes stay in their buffer."""

    offset: int
    length: int
    type: int
    flags: int
    topic_id: int
    seq: int
    ts: int
    node_len: int
    tag_len: int
    data_len: int

    @property
    def end(self) -> int:
        return self.offset + self.length

    @property
    def is_continued(self) -> bool:
        """Whether the next frame belongs to the same submission."""
        return self.flags & FLAG_CONT != 0

    @property
    def is_durable(self) -> bool:
        return self.flags & FLAG_DURABLE != 0

    @property
    def hops(self) -> int:
        return self.flags >> HOPS_SHIFT

    def fact(self, buf: bytes) -> Fact:
        """What the frame says; `ForeignFrame` when this version cannot tell.

        An Append becomes an `Appended` of one record whose offset is that in `buf`.
        """
        if self.type == APPEND:
            return appended_run(buf, [self.offset], [HEADER.unpack_from(buf, self.offset)])
        if OVERHEAD + self.data_len != self.length or self.node_len or self.tag_len:
            raise ForeignFrame(self.offset, "lengths do not add up")
        if self.flags & ~(FLAG_DURABLE | FLAG_CONT):
            raise ForeignFrame(self.offset, f"flags {self.flags:#04x} on type {self.type}")
        start = self.offset + DATA_START
        try:
            return fact_of(
                self.type,
                topic_id=self.topic_id,
                seq=self.seq,
                ts=self.ts,
                payload=buf[start : start + self.data_len],
            )
        except BadPayload as error:
            raise ForeignFrame(self.offset, f"type {self.type}: {error}") from error


# Encoding


def encode(fact: Fact, *, durable: bool = False, cont: bool = False) -> bytes:
    """Any fact but `Appended` as a frame; `cont` when more frames of the submission follow.

    A checkpoint of very many topics becomes several frames (see `frame_count`).
    """
    flags = FLAG_DURABLE if durable else 0
    last = flags | FLAG_CONT if cont else flags
    if isinstance(fact, CheckpointMarked) and frame_count(fact) > 1:
        pieces = _split_checkpoint(fact)
        head = [_encode_one(piece, flags | FLAG_CONT) for piece in pieces[:-1]]
        return b"".join([*head, _encode_one(pieces[-1], last)])
    return _encode_one(fact, last)


def frame_count(fact: Fact) -> int:
    if isinstance(fact, Appended):
        return fact.count
    if isinstance(fact, CheckpointMarked):
        return max(1, -(-len(fact.entries) // CHECKPOINT_ENTRIES_PER_FRAME))
    return 1


def _split_checkpoint(fact: CheckpointMarked) -> list[CheckpointMarked]:
    step = CHECKPOINT_ENTRIES_PER_FRAME
    return [
        CheckpointMarked(fact.ts, fact.checkpoint_id, fact.entries[start : start + step])
        for start in range(0, len(fact.entries), step)
    ]


def _encode_one(fact: Fact, flags: int) -> bytes:
    kind, topic_id, seq, payload = content_of(fact)
    size = len(payload)
    if size > MAX_FRAME - OVERHEAD:
        raise ValueError(f"{type(fact).__name__} of {size} bytes does not fit a frame")
    assert not isinstance(fact, Appended)  # content_of knows no such fact
    body = BODY.pack(kind, flags, topic_id, seq, fact.ts, 0, 0, size) + payload
    return b"".join((U32.pack(size + MIN_FRAME_LEN), body, U64.pack(h64(body))))


# Decoding


def decode_at(buf: bytes, offset: int, limit: int) -> Frame | Unreadable | CleanEnd:
    """What lies at `offset`, looking at nothing at or past `limit`."""
    header = _intact_header(buf, offset, min(limit, len(buf)))
    return frame_of(offset, header) if isinstance(header, tuple) else header


def frame_of(offset: int, header: Header) -> Frame:
    """The frame that a walk found at `offset`."""
    frame_len, *others = header
    return Frame(offset, LENGTH_SIZE + frame_len, *others)


def _intact_header(buf: bytes, offset: int, limit: int) -> Header | Unreadable | CleanEnd:
    left = limit - offset
    if left < LENGTH_SIZE:
        return _nothing_at(buf, offset, limit, "the file ends inside a length")
    (frame_len,) = U32.unpack_from(buf, offset)
    if not MIN_FRAME_LEN <= frame_len <= MAX_FRAME_LEN:
        return _nothing_at(buf, offset, limit, f"impossible length {frame_len}")
    length = LENGTH_SIZE + frame_len
    if length > left:
        return Unreadable(offset, f"{length - left} bytes of the frame are missing")
    checksum_at = offset + length - CHECKSUM_SIZE
    (stored,) = U64.unpack_from(buf, checksum_at)
    if h64(buf[offset + LENGTH_SIZE : checksum_at]) != stored:
        return Unreadable(offset, "the checksum does not match")
    return HEADER.unpack_from(buf, offset)


def _nothing_at(buf: bytes, offset: int, limit: int, why: str) -> Unreadable | CleanEnd:
    return CleanEnd(offset) if _is_zero(buf, offset, limit) else Unreadable(offset, why)


def _is_zero(buf: bytes, offset: int, limit: int) -> bool:
    """Whether `buf[offset:limit]` holds nothing but zeros."""
    step = len(_ZEROS)
    for start in range(offset, limit, step):
        piece = buf[start : min(start + step, limit)]
        if piece != _ZEROS and piece != _ZEROS[: len(piece)]:
            return False
    return True


class Walk(NamedTuple):
    """Consecutive intact frames."""

    offsets: list[int]
    stop: int
    """Where the first byte not walked over lies."""
    end: CleanEnd | Unreadable | None
    """What lies at `stop`; None when the walk was only paused there."""


def walk(buf: bytes, offset: int, limit: int, *, max_frames: int = 8192) -> Walk:
    """Step over intact frames, `max_frames` at most, so that memory stays bounded.

    This is the loop that recovery spends its time in: it verifies every checksum and notes only
    where frames begin. What the frames say is read afterwards, many at a time.
    """
    offsets: list[int] = []
    note = offsets.append
    link, check = LINK.unpack_from, h64
    limit = min(limit, len(buf))
    last_link = limit - LINK.size  # the last place where a checksum and a next length fit
    body_at, less = LENGTH_SIZE, CHECKSUM_SIZE - LENGTH_SIZE
    if offset + OVERHEAD <= limit:
        (size,) = U32.unpack_from(buf, offset)
        for _ in range(max_frames):
            checksum_at = offset + size - less
            if size < MIN_FRAME_LEN or size > MAX_FRAME_LEN or checksum_at > last_link:
                break
            stored, size = link(buf, checksum_at)
            if check(buf[offset + body_at : checksum_at]) != stored:
                break
            note(offset)
            offset = checksum_at + CHECKSUM_SIZE
        else:
            return Walk(offsets, offset, None)
    # The fast loop stops short of the last frame of a file without zeros behind it.
    found = decode_at(buf, offset, limit)
    if isinstance(found, Frame):
        note(offset)
        offset = found.end
        found = decode_at(buf, offset, limit)
        assert not isinstance(found, Frame)  # the loop would have stepped over the one before
    return Walk(offsets, offset, found)
