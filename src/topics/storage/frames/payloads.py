"""What each frame type carries: the `data` section of every frame but Append.

Integers are little-endian. `LP` is a u32 length and that many bytes; text is UTF-8.

    type  frame           fact              payload
       2  TopicCreate     TopicCreated      LP name, LP config JSON, epoch u64, seq_base u64
       3  TopicDelete     TopicDropped      LP name, epoch u64
       4  RouterCreate    RouterCreated     LP name, LP source, LP dest, source_id u64,
                                            dest_id u64, KNOBS, MATCH, initial_cursor u64,
                                            initial_dest_base u64
       5  RouterDelete    RouterDropped     LP name, source_id u64, dest_id u64
       6  Delete          Deleted           OPTIONAL before, MATCH, n u32, n x seq u64,
                                            OPTIONAL bound
       7  EvictWatermark  Evicted           cap_hi u64, earliest u64, ttl_hi u64
       8  CheckpointMark  Beacon            0 u8, file_lfn u64, offset u64; the header's seq holds
                                            the store mark, which no user text can imitate
                          CheckpointMarked  1 u8, checkpoint_id u64, n u32, n x (topic_id,
                                            last_seq, cap_hi, ttl_hi, earliest, seg_first u64,
                                            data_len, idx_len u32); at most 10 000 a frame
                          ClosedCleanly     2 u8, n u32, n x (topic_id, head u64)
       9  ConfigUpdate    ConfigUpdated     as TopicCreate
      10  Lease           LeaseChanged      event u8, lease_id u64, deadline_ms u64,
                                            deliveries u64, LP node; the header's seq is the job's
      11  HeadWatermark   HeadReserved      ceiling u64
      12  FileHeader      FileHeader        format u32, shard u16, shards u16, generation u64,
                                            first_lfn u64, prev_first_lfn u64, prev_len u64,
                                            store_id 16 bytes, boot_id 16 bytes
      13  TierFlip        TierFlipped       first_seq u64, tier u8, data_len u64, idx_len u64,
                                            data_h u64, idx_h u64
      14  SeqSkip         SeqSkipped        lo u64, hi u64, kind u8
      15  Cursor          CursorMoved       LP name, seq u64, present u8
      16  Forward         Forwarded         LP router, source_id u64, KNOBS, dest_first u64,
                                            cursor u64, forwarded_total u64, n u32,
                                            n x (source_first u64, count u32, lost u8)
      17  StageCommit     StageCommitted    LP app, epoch u64, m u32, m x (part, attempt u64),
                                            n u32, n x (topic_id, first_seq u64, count u32),
                                            LP result JSON, then 16 bytes owner if it has one
      18  Key             KeyRemembered     LP key, first_seq u64, count u32, head u64

    KNOBS     u8: 1 preserve_node, 2 preserve_tag, 4 create_dest, 8 allow_cycle, 16 exactly_once
    MATCH     present u8; if 1: op u8 (0 exact tag, 1 prefix), LP value
    OPTIONAL  present u8; if 1: u64

Encoding lives here, decoding in `parsing`. It accepts exactly what encoding can produce: a
value outside its range, a byte left over or a header field the fact has no place for is meaning
this version does not know, never a detail to ignore. So the two are inverse in both directions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from itertools import chain
from typing import Any, Final, NamedTuple

from topics.core.facts import (
    Beacon,
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


class FrameType(IntEnum):
    """The type byte of a frame."""

    APPEND = 1
    TOPIC_CREATE = 2
    TOPIC_DELETE = 3
    ROUTER_CREATE = 4
    ROUTER_DELETE = 5
    DELETE = 6
    EVICT_WATERMARK = 7
    CHECKPOINT_MARK = 8
    CONFIG_UPDATE = 9
    LEASE = 10
    HEAD_WATERMARK = 11
    FILE_HEADER = 12
    TIER_FLIP = 13
    SEQ_SKIP = 14
    CURSOR = 15
    FORWARD = 16
    STAGE_COMMIT = 17
    KEY = 18


CHECKPOINT_ENTRIES_PER_FRAME: Final = 10_000

# The first payload byte of a CheckpointMark says which of three it is.
KIND_BEACON: Final = 0
KIND_CHECKPOINT: Final = 1
KIND_CLOSED: Final = 2

U8 = struct.Struct("<B")
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
TWO_U64 = struct.Struct("<QQ")
EVICT = struct.Struct("<QQQ")
BEACON_BODY = struct.Struct("<BQQ")
CHECKPOINT_HEAD = struct.Struct("<BQI")
CHECKPOINT_ENTRY = struct.Struct("<QQQQQQII")
CLOSED_HEAD = struct.Struct("<BI")
LEASE = struct.Struct("<BQQQ")
FILE_HEADER = struct.Struct("<IHHQQQQ16s16s")
TIER_FLIP = struct.Struct("<QBQQQQ")
SEQ_SKIP = struct.Struct("<QQB")
CURSOR = struct.Struct("<QB")
FORWARD = struct.Struct("<QBQQQI")
FORWARD_RUN = struct.Struct("<QIB")
OWNER_BYTES: Final = 16
STAGE_TOPIC = struct.Struct("<QQI")
KEY = struct.Struct("<QIQ")


class Content(NamedTuple):
    """A fact as a frame carries it: the header fields that vary by type, and the payload."""

    type: FrameType
    topic_id: int
    seq: int
    payload: bytes


def _lp(data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return U32.pack(len(raw)) + raw


def _optional_u64(value: int | None) -> bytes:
    return b"\0" if value is None else b"\1" + U64.pack(value)


def _match(match: Match | None) -> bytes:
    if match is None:
        return b"\0"
    return (b"\1\1" if match.is_prefix else b"\1\0") + _lp(match.value)


def _numbers(values: tuple[int, ...]) -> bytes:
    return U32.pack(len(values)) + struct.pack(f"<{len(values)}Q", *values)


def _knobs(fact: RouterCreated | Forwarded) -> int:
    return (
        fact.preserve_node
        | fact.preserve_tag << 1
        | fact.create_dest << 2
        | fact.allow_cycle << 3
        | fact.exactly_once << 4
    )


# Encoding: one function per fact


def _encode_topic(fact: TopicCreated | ConfigUpdated) -> Content:
    kind = FrameType.TOPIC_CREATE if type(fact) is TopicCreated else FrameType.CONFIG_UPDATE
    numbers = TWO_U64.pack(fact.epoch, fact.seq_base)
    return Content(kind, fact.topic_id, 0, _lp(fact.name) + _lp(fact.config) + numbers)


def _encode_topic_dropped(fact: TopicDropped) -> Content:
    payload = _lp(fact.name) + U64.pack(fact.epoch)
    return Content(FrameType.TOPIC_DELETE, fact.topic_id, 0, payload)


def _encode_router_created(fact: RouterCreated) -> Content:
    payload = b"".join(
        (
            _lp(fact.name),
            _lp(fact.source),
            _lp(fact.dest),
            TWO_U64.pack(fact.source_id, fact.dest_id),
            U8.pack(_knobs(fact)),
            _match(fact.match),
            TWO_U64.pack(fact.initial_cursor, fact.initial_dest_base),
        )
    )
    return Content(FrameType.ROUTER_CREATE, 0, 0, payload)


def _encode_router_dropped(fact: RouterDropped) -> Content:
    payload = _lp(fact.name) + TWO_U64.pack(fact.source_id, fact.dest_id)
    return Content(FrameType.ROUTER_DELETE, 0, 0, payload)


def _encode_deleted(fact: Deleted) -> Content:
    seqs = fact.seqs
    if seqs and fact.before is None and fact.match is None and fact.bound is None:
        # What an ack writes, in one step; the same bytes as below.
        payload = struct.pack(f"<HI{len(seqs)}QB", 0, len(seqs), *seqs, 0)
        return Content(FrameType.DELETE, fact.topic_id, 0, payload)
    payload = b"".join(
        (
            _optional_u64(fact.before),
            _match(fact.match),
            _numbers(fact.seqs),
            _optional_u64(fact.bound),
        )
    )
    return Content(FrameType.DELETE, fact.topic_id, 0, payload)


def _encode_evicted(fact: Evicted) -> Content:
    payload = EVICT.pack(fact.cap_hi, fact.earliest, fact.ttl_hi)
    return Content(FrameType.EVICT_WATERMARK, fact.topic_id, 0, payload)


def _encode_beacon(fact: Beacon) -> Content:
    payload = BEACON_BODY.pack(KIND_BEACON, fact.file_lfn, fact.offset)
    return Content(FrameType.CHECKPOINT_MARK, 0, fact.store_mark, payload)


def _encode_checkpoint(fact: CheckpointMarked) -> Content:
    if len(fact.entries) > CHECKPOINT_ENTRIES_PER_FRAME:
        raise ValueError(f"{len(fact.entries)} checkpoint entries do not fit one frame")
    rows = (
        CHECKPOINT_ENTRY.pack(
            e.topic_id,
            e.last_seq,
            e.cap_hi,
            e.ttl_hi,
            e.earliest,
            e.seg_first,
            e.data_len,
            e.idx_len,
        )
        for e in fact.entries
    )
    head = CHECKPOINT_HEAD.pack(KIND_CHECKPOINT, fact.checkpoint_id, len(fact.entries))
    return Content(FrameType.CHECKPOINT_MARK, 0, 0, head + b"".join(rows))


def _encode_closed(fact: ClosedCleanly) -> Content:
    rows = struct.pack(f"<{2 * len(fact.heads)}Q", *chain.from_iterable(fact.heads))
    payload = CLOSED_HEAD.pack(KIND_CLOSED, len(fact.heads)) + rows
    return Content(FrameType.CHECKPOINT_MARK, 0, 0, payload)


def _encode_lease(fact: LeaseChanged) -> Content:
    if not LeaseChanged.CLAIMED <= fact.event <= LeaseChanged.ACKED:
        raise ValueError(f"unknown lease event {fact.event}")
    numbers = LEASE.pack(fact.event, fact.lease_id, fact.deadline_ms, fact.deliveries)
    return Content(FrameType.LEASE, fact.topic_id, fact.seq, numbers + _lp(fact.node))


def _encode_head(fact: HeadReserved) -> Content:
    return Content(FrameType.HEAD_WATERMARK, fact.topic_id, 0, U64.pack(fact.ceiling))


def _encode_file_header(fact: FileHeader) -> Content:
    if len(fact.store_id) != 16 or len(fact.boot_id) != 16:
        raise ValueError("store and boot ids are 16 bytes each")
    payload = FILE_HEADER.pack(
        fact.format,
        fact.shard,
        fact.shards,
        fact.generation,
        fact.first_lfn,
        fact.prev_first_lfn,
        fact.prev_len,
        fact.store_id,
        fact.boot_id,
    )
    return Content(FrameType.FILE_HEADER, 0, 0, payload)


def _encode_tier_flip(fact: TierFlipped) -> Content:
    if fact.tier not in (TierFlipped.HOT, TierFlipped.COLD):
        raise ValueError(f"unknown tier {fact.tier}")
    payload = TIER_FLIP.pack(
        fact.first_seq, fact.tier, fact.data_len, fact.idx_len, fact.data_h, fact.idx_h
    )
    return Content(FrameType.TIER_FLIP, fact.topic_id, 0, payload)


def _encode_seq_skip(fact: SeqSkipped) -> Content:
    if not SeqSkipped.UNASSIGNED <= fact.kind <= SeqSkipped.REPAIR:
        raise ValueError(f"a skip of kind {fact.kind} is never logged")
    payload = SEQ_SKIP.pack(fact.lo, fact.hi, fact.kind)
    return Content(FrameType.SEQ_SKIP, fact.topic_id, 0, payload)


def _encode_cursor(fact: CursorMoved) -> Content:
    payload = _lp(fact.name) + CURSOR.pack(fact.seq, fact.present)
    return Content(FrameType.CURSOR, fact.topic_id, 0, payload)


def _encode_forwarded(fact: Forwarded) -> Content:
    numbers = FORWARD.pack(
        fact.source_id,
        _knobs(fact),
        fact.dest_first,
        fact.cursor,
        fact.forwarded_total,
        len(fact.runs),
    )
    rows = b"".join(FORWARD_RUN.pack(*run) for run in fact.runs)
    return Content(FrameType.FORWARD, fact.topic_id, 0, _lp(fact.router) + numbers + rows)


def _encode_stage(fact: StageCommitted) -> Content:
    payload = b"".join(
        (
            _lp(fact.app),
            U64.pack(fact.epoch),
            U32.pack(len(fact.parts)),
            *(TWO_U64.pack(*part) for part in fact.parts),
            U32.pack(len(fact.topics)),
            *(STAGE_TOPIC.pack(*topic) for topic in fact.topics),
            _lp(fact.result),
            fact.owner,
        )
    )
    return Content(FrameType.STAGE_COMMIT, 0, 0, payload)


def _encode_key(fact: KeyRemembered) -> Content:
    payload = _lp(fact.key) + KEY.pack(fact.first_seq, fact.count, fact.head)
    return Content(FrameType.KEY, fact.topic_id, 0, payload)


_ENCODERS: Mapping[type, Callable[[Any], Content]] = {
    TopicCreated: _encode_topic,
    ConfigUpdated: _encode_topic,
    TopicDropped: _encode_topic_dropped,
    RouterCreated: _encode_router_created,
    RouterDropped: _encode_router_dropped,
    Deleted: _encode_deleted,
    Evicted: _encode_evicted,
    Beacon: _encode_beacon,
    CheckpointMarked: _encode_checkpoint,
    ClosedCleanly: _encode_closed,
    LeaseChanged: _encode_lease,
    HeadReserved: _encode_head,
    FileHeader: _encode_file_header,
    TierFlipped: _encode_tier_flip,
    SeqSkipped: _encode_seq_skip,
    CursorMoved: _encode_cursor,
    Forwarded: _encode_forwarded,
    StageCommitted: _encode_stage,
    KeyRemembered: _encode_key,
}


def content_of(fact: Fact) -> Content:
    """The type, topic, seq and payload of the one frame that holds `fact`."""
    return _ENCODERS[type(fact)](fact)
