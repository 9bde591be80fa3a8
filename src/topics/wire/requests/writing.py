"""Appending records: the body of a write, and the same inside a WebSocket publish.

Records come out as columns, because no later step looks at one record as an object. `BodyDecoder`
judges the text, the types and the names of a body. A *plain* body needs only the types: if the
fields that were decoded account for every byte of the compact text, then no field is repeated,
unknown, null or escaped, and only payloads can nest. Adding up sizes replaces a look at each
record. Most plain bodies are *bare*: records with data alone, and perhaps a key; they come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from topics.batch import RecordBatch
from topics.wire.decoding import BodyDecoder
from topics.wire.jsonbytes import MAX_DEPTH, is_deeper
from topics.wire.numbers import U64, Body
from topics.wire.requests.topics import ConfigBody

V = TypeVar("V")

_PAYLOAD_DEPTH = MAX_DEPTH - 3
"""Levels left to a payload inside the body, its list of records and the record."""
_SHALLOW_BYTES = 2 * _PAYLOAD_DEPTH
"""A shorter payload has no room to open and close more levels."""

REFUSED_RECORDS = 100_000
"""What no setting allows in one write: more are refused for their number, and not looked at."""


class RecordBody(msgspec.Struct, gc=False, omit_defaults=True, kw_only=True):
    """One record to append. `data` and `meta` stay text."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw | UnsetType = UNSET


class WriteBody(Body):
    """Records to append, as sent."""

    records: list[RecordBody]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool = False
    expect_head: U64 | None = None


class _BareRecord(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    data: Raw


class _BareWrite(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The part of `WriteBody` that most writes consist of; half as long to parse."""

    records: list[_BareRecord]
    idempotency_key: str | None = None


class WriteRequest(msgspec.Struct, gc=False):
    """Records to append, understood. Limits on their number and size are judged elsewhere.

    A record without a node of its own has that of its write.
    """

    drafts: RecordBatch
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool = False
    expect_head: int | None = None


_write = BodyDecoder(WriteBody)
_parse_bare = msgspec.json.Decoder(_BareWrite).decode
_OPENING, _BORDER, _END = b'{"records":[{"data":', b'},{"data":', b"}]}"
_KEYED_END = b'}],"idempotency_key":"%b"}'


def decode_write(body: bytes) -> WriteRequest:
    plain = _decode_plain(body)
    if plain is not None:
        return plain
    sent = _write.decode(body)
    return understood(sent, drafts_of(sent.records, node=sent.node))


def understood(sent: WriteBody, drafts: RecordBatch) -> WriteRequest:
    """The write `sent` asks for, with its records already taken apart."""
    return WriteRequest(
        drafts,
        sent.idempotency_key,
        sent.create,
        sent.config,
        sent.disable_backpressure,
        sent.expect_head,
    )


def drafts_of(records: Sequence[RecordBody], *, node: str | None = None) -> RecordBatch:
    """Columns of decoded records; `node` stands in where a record has none."""
    metas = [record.meta for record in records]
    return RecordBatch(
        [bytes(record.data) for record in records],
        _used([_present(meta) for meta in metas], b"") if any(metas) else None,
        _used([record.tag for record in records], None),
        _nodes([record.node for record in records], default=node),
    )


def _nodes(own: list[str | None], *, default: str | None) -> list[str | None] | None:
    if own.count(None) == len(own):
        return None if default is None else [default] * len(own)
    return [default if node is None else node for node in own]


def _used(column: list[V], absent: V) -> list[V] | None:
    return None if column.count(absent) == len(column) else column


def _present(meta: Raw | UnsetType) -> bytes:
    stored = b"" if meta is UNSET else bytes(meta)
    return b"" if stored == b"null" else stored


def _decode_plain(body: bytes) -> WriteRequest | None:
    """The write if the body is plain; None sends it through every step, for errors too."""
    try:
        if not body.isascii():
            body.decode()
        if _has_whitespace(body):
            body = msgspec.json.format(body, indent=-1)
        bare = _decode_bare(body)
        if bare is not None:
            return bare
        sent = _write.parse(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if len(sent.records) > REFUSED_RECORDS:
        return WriteRequest(RecordBatch([b""] * len(sent.records)))
    if sent.config is not None:
        return None
    drafts = drafts_of(sent.records, node=sent.node)
    if len(body) != _plain_size(sent, drafts):
        return None
    payloads = drafts.datas if drafts.metas is None else drafts.datas + drafts.metas
    shallow = _are_shallow(payloads, largest=max(map(len, payloads), default=0))
    return understood(sent, drafts) if shallow else None


def _decode_bare(body: bytes) -> WriteRequest | None:
    """The write if data, and perhaps a key behind it, is all that the compact body holds."""
    if not body.startswith(_OPENING):
        return None
    try:
        sent = _parse_bare(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    records, key = sent.records, sent.idempotency_key
    if len(records) > REFUSED_RECORDS:
        return None
    end = _END if key is None else _KEYED_END % key.encode()
    sizes = [len(record.data) for record in records]
    around = len(_OPENING) + len(end) + len(_BORDER) * (len(sizes) - 1)
    if around + sum(sizes) != len(body) or not body.endswith(end):
        return None
    # The border stands between the records. If payloads have it, too, the count does not fit.
    datas = body[len(_OPENING) : -len(end)].split(_BORDER)
    if len(datas) != len(records):
        datas = [bytes(record.data) for record in records]
    if (largest := max(sizes)) > _SHALLOW_BYTES and not _are_shallow(datas, largest=largest):
        return None
    return WriteRequest(RecordBatch(datas), key)


def _has_whitespace(body: bytes) -> bool:
    # `in` would first try its operand as an integer.
    find = body.find
    return find(b" ") >= 0 or find(b"\n") >= 0 or find(b"\r") >= 0 or find(b"\t") >= 0


def _plain_size(sent: WriteBody, drafts: RecordBatch) -> int:
    """The size of the compact body if every field it has comes once and without escapes."""
    size = len(b'{"records":[]}') + len(b'{"data":},') * len(drafts) - bool(drafts.datas)
    size += sum(map(len, drafts.datas))
    if drafts.metas is not None:
        used = len(drafts) - drafts.metas.count(b"")
        size += len(b',"meta":') * used + sum(map(len, drafts.metas))
    if drafts.tags is not None:
        size += _names_size(b',"tag":""', drafts.tags)
    if drafts.nodes is not None:
        size += _names_size(b',"node":""', [record.node for record in sent.records])
    if sent.node is not None:
        size += _names_size(b',"node":""', [sent.node])
    if sent.idempotency_key is not None:
        size += _names_size(b',"idempotency_key":""', [sent.idempotency_key])
    if sent.create is not None:
        size += len(b',"create":true') + (not sent.create)
    if sent.disable_backpressure:
        size += len(b',"disable_backpressure":true')
    if sent.expect_head is not None:
        size += len(b',"expect_head":%d' % sent.expect_head)
    return size


def _names_size(around: bytes, names: list[str | None]) -> int:
    given = [name for name in names if name is not None]
    return len(around) * len(given) + len("".join(given).encode())


def _are_shallow(payloads: list[bytes], *, largest: int) -> bool:
    """Whether no payload, known to be valid, nests too deep; short ones have no room for it."""
    return largest <= _SHALLOW_BYTES or not any(
        len(payload) > _SHALLOW_BYTES and is_deeper(payload, _PAYLOAD_DEPTH) for payload in payloads
    )
