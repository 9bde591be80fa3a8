"""Reading frame payloads back into facts; the formats are described in `frames.payloads`.

Everything here runs on bytes whose checksum is good. What still does not parse is therefore no
damage but something another version meant, and is reported as `BadPayload`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from topics.core.facts import (
    Beacon,
    CheckpointEntry,
    CheckpointMarked,
    ClosedCleanly,
    ConfigUpdated,
    CursorMoved,
    Deleted,
    Evicted,
    Fact,
    FileHeader,
    Forwarded,
    HeadReserved,
    KeyRemembered,
    LeaseChanged,
    Match,
    RouterCreated,
    RouterDropped,
    SeqSkipped,
    StageCommitted,
    TierFlipped,
    TopicCreated,
    TopicDropped,
)
from topics.storage.frames import payloads as layout
from topics.storage.frames.payloads import FrameType


class BadPayload(ValueError):
    """Intact bytes that no fact of this version looks like."""


class Reader:
    """Takes a payload apart from front to back; anything missing or left over is `BadPayload`."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Checked before slicing, so a wild length costs nothing."""
        end = self._position + size
        if end > len(self._data):
            raise BadPayload(f"payload ends {end - len(self._data)} bytes too early")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def rows(self, layout: struct.Struct, count: int) -> Iterator[tuple[int, ...]]:
        return layout.iter_unpack(bytes(self.take(layout.size * count)))  # see `Idx.entries`

    def numbers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self.take(8 * count))

    def u8(self) -> int:
        return self.take(1)[0]

    def u32(self) -> int:
        value: int = layout.U32.unpack(self.take(4))[0]
        return value

    def u64(self) -> int:
        value: int = layout.U64.unpack(self.take(8))[0]
        return value

    def flag(self) -> bool:
        return boolean(self.u8())

    def text(self) -> str:
        return decode_text(self.take(self.u32()))

    def json(self) -> bytes:
        """JSON is kept as bytes; only its encoding is judged here."""
        data = self.take(self.u32())
        decode_text(data)
        return data

    def optional_u64(self) -> int | None:
        return self.u64() if self.flag() else None

    def match(self) -> Match | None:
        if not self.flag():
            return None
        is_prefix = self.flag()
        return Match(self.text(), is_prefix)

    @property
    def has_more(self) -> bool:
        """Whether the payload goes on: for what earlier versions did not write."""
        return self._position < len(self._data)

    def finish(self) -> None:
        """Insist that nothing is left."""
        if self._position != len(self._data):
            raise BadPayload(f"{len(self._data) - self._position} bytes left after the payload")


def boolean(value: int) -> bool:
    """0 or 1 as a bool; a third value would be a meaning we do not know."""
    if value > 1:
        raise BadPayload(f"{value} is neither true nor false")
    return value == 1


def decode_text(data: bytes) -> str:
    """UTF-8 text, or `BadPayload`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadPayload("text is not UTF-8") from error


class _Knobs(NamedTuple):
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    allow_cycle: bool
    exactly_once: bool


def _read_knobs(value: int) -> _Knobs:
    if value >= 1 << len(_Knobs._fields):
        raise BadPayload(f"unknown router knobs {value:#04x}")
    return _Knobs(*(bool(value >> bit & 1) for bit in range(len(_Knobs._fields))))


# Decoding: one function per frame type


def _decode_topic_created(topic_id: int, ts: int, body: Reader) -> TopicCreated:
    name, config = body.text(), body.json()
    return TopicCreated(topic_id, ts, name, config, body.u64(), body.u64())


def _decode_config_updated(topic_id: int, ts: int, body: Reader) -> ConfigUpdated:
    name, config = body.text(), body.json()
    return ConfigUpdated(topic_id, ts, name, config, body.u64(), body.u64())


def _decode_topic_dropped(topic_id: int, ts: int, body: Reader) -> TopicDropped:
    return TopicDropped(topic_id, ts, body.text(), body.u64())


def _decode_router_created(_: int, ts: int, body: Reader) -> RouterCreated:
    name, source, dest = body.text(), body.text(), body.text()
    source_id, dest_id = body.u64(), body.u64()
    knobs = _read_knobs(body.u8())
    return RouterCreated(
        ts,
        name,
        source,
        dest,
        source_id,
        dest_id,
        *knobs,
        match=body.match(),
        initial_cursor=body.u64(),
        initial_dest_base=body.u64(),
    )


def _decode_router_dropped(_: int, ts: int, body: Reader) -> RouterDropped:
    return RouterDropped(ts, body.text(), body.u64(), body.u64())


def _decode_deleted(topic_id: int, ts: int, body: Reader) -> Deleted:
    before, match = body.optional_u64(), body.match()
    seqs = body.numbers(body.u32())
    return Deleted(topic_id, ts, before, match, seqs, body.optional_u64())


def _decode_evicted(topic_id: int, ts: int, body: Reader) -> Evicted:
    return Evicted(topic_id, ts, *body.fields(layout.EVICT))


def _decode_checkpoint(ts: int, body: Reader) -> CheckpointMarked:
    checkpoint_id, count = body.u64(), body.u32()
    if count > layout.CHECKPOINT_ENTRIES_PER_FRAME:
        raise BadPayload(f"{count} checkpoint entries in one frame")
    rows = body.rows(layout.CHECKPOINT_ENTRY, count)
    return CheckpointMarked(ts, checkpoint_id, tuple(CheckpointEntry(*row) for row in rows))


def _decode_closed(ts: int, body: Reader) -> ClosedCleanly:
    rows = body.rows(layout.TWO_U64, body.u32())
    return ClosedCleanly(ts, tuple((topic_id, head) for topic_id, head in rows))


def _decode_mark(seq: int, ts: int, body: Reader) -> Fact:
    kind = body.u8()
    if kind == layout.KIND_BEACON:
        return Beacon(ts, seq, body.u64(), body.u64())
    _insist_on_zero("seq", seq)
    if kind == layout.KIND_CHECKPOINT:
        return _decode_checkpoint(ts, body)
    if kind == layout.KIND_CLOSED:
        return _decode_closed(ts, body)
    raise BadPayload(f"unknown checkpoint mark {kind}")


def _decode_lease(topic_id: int, seq: int, ts: int, body: Reader) -> LeaseChanged:
    event, lease_id, deadline_ms, deliveries = body.fields(layout.LEASE)
    if event > LeaseChanged.ACKED:
        raise BadPayload(f"unknown lease event {event}")
    return LeaseChanged(topic_id, seq, ts, event, lease_id, deadline_ms, deliveries, body.text())


def _decode_head(topic_id: int, ts: int, body: Reader) -> HeadReserved:
    return HeadReserved(topic_id, ts, body.u64())


def _decode_file_header(_: int, ts: int, body: Reader) -> FileHeader:
    return FileHeader(ts, *layout.FILE_HEADER.unpack(body.take(layout.FILE_HEADER.size)))


def _decode_tier_flip(topic_id: int, ts: int, body: Reader) -> TierFlipped:
    first_seq, tier, *rest = body.fields(layout.TIER_FLIP)
    if tier > TierFlipped.COLD:
        raise BadPayload(f"unknown tier {tier}")
    return TierFlipped(topic_id, ts, first_seq, tier, *rest)


def _decode_seq_skip(topic_id: int, ts: int, body: Reader) -> SeqSkipped:
    lo, hi, kind = body.fields(layout.SEQ_SKIP)
    if not SeqSkipped.UNASSIGNED <= kind <= SeqSkipped.REPAIR:
        raise BadPayload(f"unknown kind {kind} of skipped seqs")
    return SeqSkipped(topic_id, ts, lo, hi, kind)


def _decode_cursor(topic_id: int, ts: int, body: Reader) -> CursorMoved:
    return CursorMoved(topic_id, ts, body.text(), body.u64(), body.flag())


def _decode_forwarded(topic_id: int, ts: int, body: Reader) -> Forwarded:
    router = body.text()
    source_id, knobs, dest_first, cursor, total, count = body.fields(layout.FORWARD)
    rows = body.rows(layout.FORWARD_RUN, count)
    return Forwarded(
        topic_id,
        ts,
        router,
        source_id,
        *_read_knobs(knobs),
        dest_first=dest_first,
        cursor=cursor,
        forwarded_total=total,
        runs=tuple((first, size, boolean(lost)) for first, size, lost in rows),
    )


def _decode_stage(_: int, ts: int, body: Reader) -> StageCommitted:
    app, epoch = body.text(), body.u64()
    parts = tuple((part, attempt) for part, attempt in body.rows(layout.TWO_U64, body.u32()))
    topics = tuple((a, b, c) for a, b, c in body.rows(layout.STAGE_TOPIC, body.u32()))
    result = body.json()
    owner = body.take(layout.OWNER_BYTES) if body.has_more else b""
    return StageCommitted(ts, app, epoch, parts, topics, result, owner)


def _decode_key(topic_id: int, ts: int, body: Reader) -> KeyRemembered:
    return KeyRemembered(topic_id, ts, body.text(), *body.fields(layout.KEY))


_Decoder: TypeAlias = Callable[[int, int, Reader], Fact]

_OF_A_TOPIC: Mapping[int, _Decoder] = {
    FrameType.TOPIC_CREATE: _decode_topic_created,
    FrameType.TOPIC_DELETE: _decode_topic_dropped,
    FrameType.DELETE: _decode_deleted,
    FrameType.EVICT_WATERMARK: _decode_evicted,
    FrameType.CONFIG_UPDATE: _decode_config_updated,
    FrameType.HEAD_WATERMARK: _decode_head,
    FrameType.TIER_FLIP: _decode_tier_flip,
    FrameType.SEQ_SKIP: _decode_seq_skip,
    FrameType.CURSOR: _decode_cursor,
    FrameType.FORWARD: _decode_forwarded,
    FrameType.KEY: _decode_key,
}

_OF_NO_TOPIC: Mapping[int, _Decoder] = {
    FrameType.ROUTER_CREATE: _decode_router_created,
    FrameType.ROUTER_DELETE: _decode_router_dropped,
    FrameType.FILE_HEADER: _decode_file_header,
    FrameType.STAGE_COMMIT: _decode_stage,
}


def _insist_on_zero(field: str, value: int) -> None:
    if value:
        raise BadPayload(f"{field} is {value} where this frame type has none")


def _decode(kind: int, topic_id: int, seq: int, ts: int, body: Reader) -> Fact:
    if kind == FrameType.LEASE:
        return _decode_lease(topic_id, seq, ts, body)
    if kind == FrameType.CHECKPOINT_MARK:
        _insist_on_zero("topic id", topic_id)
        return _decode_mark(seq, ts, body)
    _insist_on_zero("seq", seq)
    decoder = _OF_A_TOPIC.get(kind)
    if decoder is None:
        decoder = _OF_NO_TOPIC.get(kind)
        if decoder is None:
            raise BadPayload(f"unknown frame type {kind}")
        _insist_on_zero("topic id", topic_id)
    return decoder(topic_id, ts, body)


def fact_of(kind: int, *, topic_id: int, seq: int, ts: int, payload: bytes) -> Fact:
    """The fact a frame of any type but Append stands for; `BadPayload` if there is none."""
    body = Reader(payload)
    fact = _decode(kind, topic_id, seq, ts, body)
    body.finish()
    return fact
