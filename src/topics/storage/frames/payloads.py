"""What each frame type carries: the `data` section of every frame but Append.

Integers are little-endian. `LP` is a u32 length and that many bytes; text is UTF-8.

    type  frame           fact              payload
       2  TopicCreate     TopicCreated      LP name, LP config JSON, epoch u64, seq_base u64
       3  TopicDelete     TopicDeleted      LP name, epoch u64
       4  RouterCreate    RouterCreated     LP name, LP source, LP dest, source_id u64,
                                            dest_id u64, KNOBS, MATCH, initial_cursor u64,
                                            initial_dest_base u64
       5  RouterDelete    RouterDeleted     LP name, source_id u64, dest_id u64
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

`_LAYOUTS` says the same as this table; encoding and decoding are both derived from it. Decoding
accepts exactly what encoding can produce: a value outside its range, a byte left over or a header
field the fact has no place for is meaning this version does not know, never a detail to ignore.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

from topics.core import facts
from topics.core.facts import Fact, Match


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
OWNER_BYTES: Final = 16
ID_BYTES: Final = 16

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
LEASE = struct.Struct("<BQQQ")


class BadPayload(ValueError):
    """Intact bytes that no fact of this version looks like, or a fact that no bytes stand for."""


def decode_text(data: bytes) -> str:
    """UTF-8 text, or `BadPayload`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadPayload("text is not UTF-8") from error


def _boolean(value: int) -> bool:
    if value > 1:
        raise BadPayload(f"{value} is neither true nor false")
    return value == 1


class PayloadReader:
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

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def rows(self, layout: struct.Struct, count: int) -> Iterator[tuple[Any, ...]]:
        return layout.iter_unpack(bytes(self.take(layout.size * count)))  # see `Idx.entries`

    def u32(self) -> int:
        value: int = U32.unpack(self.take(4))[0]
        return value

    def flag(self) -> bool:
        return _boolean(self.take(1)[0])

    def text(self) -> str:
        return decode_text(self.take(self.u32()))

    @property
    def has_more(self) -> bool:
        """Whether the payload goes on: for what earlier versions did not write."""
        return self._position < len(self._data)

    def finish(self) -> None:
        """Insist that nothing is left."""
        if self.has_more:
            raise BadPayload(f"{len(self._data) - self._position} bytes left after the payload")


# The parts of a payload


class _Part(NamedTuple):
    """Some consecutive fields of a fact: how many, how they become bytes and how they come back."""

    fields: int
    encode: Callable[..., bytes]
    decode: Callable[[PayloadReader], tuple[Any, ...]]


def _numbers(layout: struct.Struct) -> _Part:
    return _Part(
        len(layout.unpack(bytes(layout.size))), layout.pack, lambda reader: reader.fields(layout)
    )


def _rows(
    layout: struct.Struct,
    row: Callable[..., Any] = lambda *values: values,
    values: Callable[[Any], tuple[Any, ...]] = lambda row: row,
    check: Callable[[int], None] = lambda count: None,
) -> _Part:
    """A number of rows and the rows; `row` makes one of its values, `values` takes it apart."""

    def encode(rows: tuple[Any, ...]) -> bytes:
        check(len(rows))
        return U32.pack(len(rows)) + b"".join([layout.pack(*values(each)) for each in rows])

    def decode(reader: PayloadReader) -> tuple[Any, ...]:
        count = reader.u32()
        check(count)
        return (tuple([row(*found) for found in reader.rows(layout, count)]),)

    return _Part(1, encode, decode)


def _lp(data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return U32.pack(len(raw)) + raw


def _read_json(reader: PayloadReader) -> tuple[bytes]:
    """JSON is kept as bytes; only its encoding is judged here."""
    data = reader.take(reader.u32())
    decode_text(data)
    return (data,)


def _optional(value: int | None) -> bytes:
    return b"\0" if value is None else b"\1" + U64.pack(value)


def _read_optional(reader: PayloadReader) -> int | None:
    return reader.fields(U64)[0] if reader.flag() else None


def _match(match: Match | None) -> bytes:
    if match is None:
        return b"\0"
    return (b"\1\1" if match.is_prefix else b"\1\0") + _lp(match.value)


def _read_match(reader: PayloadReader) -> Match | None:
    if not reader.flag():
        return None
    is_prefix = reader.flag()
    return Match(reader.text(), is_prefix)


def _knobs(*knobs: bool) -> bytes:
    return bytes((sum(knob << bit for bit, knob in enumerate(knobs)),))


def _read_knobs(reader: PayloadReader) -> tuple[bool, ...]:
    value = reader.take(1)[0]
    if value >= 1 << _KNOBS.fields:
        raise BadPayload(f"unknown router knobs {value:#04x}")
    return tuple([bool(value >> bit & 1) for bit in range(_KNOBS.fields)])


def _delete(
    before: int | None, match: Match | None, seqs: tuple[int, ...], bound: int | None
) -> bytes:
    count = len(seqs)
    if before is None and match is None and bound is None:  # an ack, in one step
        return struct.pack(f"<HI{count}QB", 0, count, *seqs, 0)
    listed = struct.pack(f"<I{count}Q", count, *seqs)
    return b"".join((_optional(before), _match(match), listed, _optional(bound)))


def _read_delete(reader: PayloadReader) -> tuple[Any, ...]:
    before, match, count = _read_optional(reader), _read_match(reader), reader.u32()
    seqs = struct.unpack(f"<{count}Q", reader.take(8 * count))
    return before, match, seqs, _read_optional(reader)


def _check_entries(count: int) -> None:
    if count > CHECKPOINT_ENTRIES_PER_FRAME:
        raise BadPayload(f"{count} checkpoint entries do not fit one frame")


_U64 = _numbers(U64)
_TWO_U64 = struct.Struct("<QQ")
_TEXT = _Part(1, _lp, lambda reader: (reader.text(),))
_JSON = _Part(1, _lp, _read_json)
_FLAG = _Part(1, lambda flag: b"\1" if flag else b"\0", lambda reader: (reader.flag(),))
_MATCH = _Part(1, _match, lambda reader: (_read_match(reader),))
_DELETE = _Part(4, _delete, _read_delete)
_KNOBS = _Part(5, _knobs, _read_knobs)
_OWNER = _Part(1, bytes, lambda reader: (reader.take(OWNER_BYTES) if reader.has_more else b"",))
_CHECKPOINT_ENTRIES = _rows(
    struct.Struct("<QQQQQQII"), facts.CheckpointEntry, msgspec.structs.astuple, _check_entries
)
_FORWARDED_RUNS = _rows(
    struct.Struct("<QIB"), lambda first, count, lost: (first, count, _boolean(lost))
)


# What a fact may say: judged before it is written and after it was read


def check_lease(fact: facts.LeaseChanged) -> None:
    if not fact.CLAIMED <= fact.event <= fact.ACKED:
        raise BadPayload(f"unknown lease event {fact.event}")


def _check_file_header(fact: facts.FileHeader) -> None:
    if len(fact.store_id) != ID_BYTES or len(fact.boot_id) != ID_BYTES:
        raise BadPayload(f"store and boot ids are {ID_BYTES} bytes each")


def _check_tier(fact: facts.TierFlipped) -> None:
    if fact.tier not in (fact.HOT, fact.COLD):
        raise BadPayload(f"unknown tier {fact.tier}")


def _check_skip(fact: facts.SeqSkipped) -> None:
    if not fact.UNASSIGNED <= fact.kind <= fact.REPAIR:
        raise BadPayload(f"unknown kind {fact.kind} of skipped seqs: it is never logged")


# The layouts

_TOPIC = ("topic_id", "ts")
_NO_TOPIC = ("ts",)


class _Layout(NamedTuple):
    """One kind of frame.

    `header` names the first fields of the fact, which the frame's header holds; a number of the
    header that is not among them is 0. `mark` begins the payload of a CheckpointMark, to tell three
    kinds apart.
    """

    type: FrameType
    fact: Callable[..., Any]
    header: tuple[str, ...]
    parts: tuple[_Part, ...]
    check: Callable[[Any], None] | None = None
    mark: bytes = b""


_CONFIG = (_TEXT, _JSON, _numbers(_TWO_U64))
_LAYOUTS: Final = [
    _Layout(FrameType.TOPIC_CREATE, facts.TopicCreated, _TOPIC, _CONFIG),
    _Layout(FrameType.TOPIC_DELETE, facts.TopicDeleted, _TOPIC, (_TEXT, _U64)),
    _Layout(
        FrameType.ROUTER_CREATE,
        facts.RouterCreated,
        _NO_TOPIC,
        (_TEXT, _TEXT, _TEXT, _numbers(_TWO_U64), _KNOBS, _MATCH, _numbers(_TWO_U64)),
    ),
    _Layout(FrameType.ROUTER_DELETE, facts.RouterDeleted, _NO_TOPIC, (_TEXT, _numbers(_TWO_U64))),
    _Layout(FrameType.DELETE, facts.Deleted, _TOPIC, (_DELETE,)),
    _Layout(FrameType.EVICT_WATERMARK, facts.Evicted, _TOPIC, (_numbers(struct.Struct("<QQQ")),)),
    _Layout(
        FrameType.CHECKPOINT_MARK,
        facts.Beacon,
        ("ts", "seq"),
        (_numbers(_TWO_U64),),
        mark=b"\0",
    ),
    _Layout(
        FrameType.CHECKPOINT_MARK,
        facts.CheckpointMarked,
        _NO_TOPIC,
        (_U64, _CHECKPOINT_ENTRIES),
        mark=b"\1",
    ),
    _Layout(
        FrameType.CHECKPOINT_MARK, facts.ClosedCleanly, _NO_TOPIC, (_rows(_TWO_U64),), mark=b"\2"
    ),
    _Layout(FrameType.CONFIG_UPDATE, facts.ConfigUpdated, _TOPIC, _CONFIG),
    _Layout(
        FrameType.LEASE,
        facts.LeaseChanged,
        ("topic_id", "seq", "ts"),
        (_numbers(LEASE), _TEXT),
        check_lease,
    ),
    _Layout(FrameType.HEAD_WATERMARK, facts.HeadReserved, _TOPIC, (_U64,)),
    _Layout(
        FrameType.FILE_HEADER,
        facts.FileHeader,
        _NO_TOPIC,
        (_numbers(struct.Struct("<IHHQQQQ16s16s")),),
        _check_file_header,
    ),
    _Layout(
        FrameType.TIER_FLIP,
        facts.TierFlipped,
        _TOPIC,
        (_numbers(struct.Struct("<QBQQQQ")),),
        _check_tier,
    ),
    _Layout(
        FrameType.SEQ_SKIP,
        facts.SeqSkipped,
        _TOPIC,
        (_numbers(struct.Struct("<QQB")),),
        _check_skip,
    ),
    _Layout(FrameType.CURSOR, facts.CursorMoved, _TOPIC, (_TEXT, _U64, _FLAG)),
    _Layout(
        FrameType.FORWARD,
        facts.Forwarded,
        _TOPIC,
        (_TEXT, _U64, _KNOBS, _numbers(struct.Struct("<QQQ")), _FORWARDED_RUNS),
    ),
    _Layout(
        FrameType.STAGE_COMMIT,
        facts.StageCommitted,
        _NO_TOPIC,
        (_TEXT, _U64, _rows(_TWO_U64), _rows(struct.Struct("<QQI")), _JSON, _OWNER),
    ),
    _Layout(FrameType.KEY, facts.KeyRemembered, _TOPIC, (_TEXT, _numbers(struct.Struct("<QIQ")))),
]
_BY_FACT: Final = {layout.fact: layout for layout in _LAYOUTS}
_BY_TYPE: Final = {(int(layout.type), layout.mark): layout for layout in _LAYOUTS}


def content_of(fact: Fact) -> tuple[int, int, int, bytes]:
    """The type, topic id, seq and payload of the one frame that holds `fact`; not for `Appended`.

    `BadPayload` if the fact could not be read back.
    """
    kind, _, header, parts, check, payload = _BY_FACT[type(fact)]
    if check is not None:
        check(fact)
    values = msgspec.structs.astuple(fact)
    at = len(header)
    for fields, encode, _ in parts:
        payload += encode(*values[at : at + fields])
        at += fields
    topic_id = values[0] if header[0] == "topic_id" else 0
    return kind, topic_id, values[1] if header[1:2] == ("seq",) else 0, payload


def fact_of(kind: int, *, topic_id: int, seq: int, ts: int, payload: bytes) -> Fact:
    """The fact a frame of any type but Append stands for; `BadPayload` if there is none."""
    reader = PayloadReader(payload)
    mark = reader.take(1) if kind == FrameType.CHECKPOINT_MARK else b""
    layout = _BY_TYPE.get((kind, mark))
    if layout is None:
        what = f"checkpoint mark {mark[0]}" if mark else f"frame type {kind}"
        raise BadPayload(f"unknown {what}")
    _, make, header, parts, check, _ = layout
    if topic_id and "topic_id" not in header:
        raise BadPayload(f"topic id is {topic_id} where this frame type has none")
    if seq and "seq" not in header:
        raise BadPayload(f"seq is {seq} where this frame type has none")
    numbers = {"topic_id": topic_id, "seq": seq, "ts": ts}
    values = [numbers[name] for name in header]
    for part in parts:
        values += part.decode(reader)
    reader.finish()
    fact: Fact = make(*values)
    if check is not None:
        check(fact)
    return fact
