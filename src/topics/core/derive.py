"""What a router makes of a record: which records it copies, and what a copy consists of.

A copy keeps the data byte for byte, and node, tag and meta unless the router says otherwise. Live
passes and replay both come here, so that a copy rebuilt after a crash equals the one that was
lost. Payloads are never parsed. Only an `exactly_once` router opens `meta`, to sign the copy: the
signature names the source record, and a second copy of the same record is told by it.

The means to edit JSON belong to `wire`, which this layer does not know. They come as an argument,
a `JsonMembers`; the module `topics.wire.jsonbytes` is one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import msgspec

from topics.batch import RecordBatch
from topics.core.facts import Forwarded, Match
from topics.core.routers import Router

MAX_HOPS: Final = 8
"""A router that may be part of a cycle copies no record which made this many hops."""

SATURATED_HOPS: Final = 15
"""Hops are kept in four bits; counting ends here."""

MAX_META_MEMBERS: Final = 64
"""Meta with this many members takes no signature: it becomes one member of a new object."""

SIGNATURE: Final = "_topics_router"
ORIGINAL_META: Final = "_topics_original_meta"

_encode = msgspec.json.Encoder().encode
_QUOTED_SIGNATURE: Final = _encode(SIGNATURE)


class JsonMembers(Protocol):
    """Adds and drops members of a compact JSON object; all other bytes stay as they are."""

    def member_count(self, raw: bytes, /) -> int | None:
        """Number of members; None for JSON that is no object."""
        ...

    def drop_members(self, raw_meta: bytes, names: Collection[str], /) -> bytes:
        """The object without the members of these names."""
        ...

    def splice_members(self, raw_meta: bytes, extra: bytes, /) -> bytes:
        """The object with the members of another one at its end."""
        ...


class CopyRule(msgspec.Struct, frozen=True, gc=False):
    """What one router does to the records it copies."""

    router: str
    source: str
    source_id: int
    source_epoch: int
    preserve_node: bool = True
    preserve_tag: bool = True
    exactly_once: bool = False


class _Signature(msgspec.Struct, frozen=True, gc=False):
    idempotency_key: str
    router: str
    source_topic: str
    source_topic_id: int
    source_epoch: int
    source_seq: int


class _SignedMeta(msgspec.Struct, frozen=True, gc=False):
    signature: _Signature = msgspec.field(name=SIGNATURE)


class _KeyOnly(msgspec.Struct, frozen=True, gc=False):
    idempotency_key: str


class _KeyedMeta(msgspec.Struct, frozen=True, gc=False):
    signature: _KeyOnly = msgspec.field(name=SIGNATURE)


_decode_keyed = msgspec.json.Decoder(_KeyedMeta).decode


def rule_of(router: Router, *, source_epoch: int) -> CopyRule:
    """The rule of a router as it is now."""
    return CopyRule(
        router.name,
        router.source,
        router.source_id,
        source_epoch,
        preserve_node=router.preserve_node,
        preserve_tag=router.preserve_tag,
        exactly_once=router.exactly_once,
    )


def rule_of_pass(fact: Forwarded, *, source: str, source_epoch: int) -> CopyRule:
    """The rule a logged pass was made under, whatever became of its router since."""
    return CopyRule(
        fact.router,
        source,
        fact.source_id,
        source_epoch,
        preserve_node=fact.preserve_node,
        preserve_tag=fact.preserve_tag,
        exactly_once=fact.exactly_once,
    )


# Which records are copied


def accepts(match: Match | None, tag: str | None) -> bool:
    """Whether a router's filter lets a record pass; no untagged record passes a filter."""
    return match is None or match.accepts(tag)


def forwards(router: Router, *, tag: str | None, hops: int) -> bool:
    """Whether a live record goes to the destination; if not, the cursor just passes it."""
    if router.allow_cycle and hops >= MAX_HOPS:
        return False
    return accepts(router.match, tag)


# What a copy consists of


def next_hops(hops: int) -> int:
    """The hops of a copy of a record with `hops`."""
    return min(hops + 1, SATURATED_HOPS)


def derive(
    rule: CopyRule, seqs: Sequence[int], batch: RecordBatch, json: JsonMembers
) -> RecordBatch:
    """The copies of these source records, in order; `seqs` are their seqs at the source.

    Columns that do not change are shared with `batch`, not copied.
    """
    return RecordBatch(
        batch.datas,
        metas=_signed_metas(rule, seqs, batch, json) if rule.exactly_once else batch.metas,
        tags=batch.tags if rule.preserve_tag else None,
        nodes=batch.nodes if rule.preserve_node else None,
    )


def _signed_metas(
    rule: CopyRule, seqs: Sequence[int], batch: RecordBatch, json: JsonMembers
) -> list[bytes]:
    metas = batch.metas or [b""] * len(batch)
    return [sign(rule, seq, meta, json) for seq, meta in zip(seqs, metas, strict=True)]


def router_key(router: str, *, source_id: int, source_epoch: int, source_seq: int) -> str:
    """Names one copy: the same record through the same router has the same key, for ever."""
    return f"router:{router}:{source_id}:{source_epoch}:{source_seq}"


def key_for(rule: CopyRule, seq: int) -> str:
    """The key of this rule's copy of a source record."""
    return router_key(
        rule.router, source_id=rule.source_id, source_epoch=rule.source_epoch, source_seq=seq
    )


def sign(rule: CopyRule, seq: int, meta: bytes, json: JsonMembers) -> bytes:
    """The meta of an `exactly_once` copy: that of the source record, and who copied which record.

    An earlier signature makes room for the new one. Meta that cannot take a member, because it is
    no object or a full one, becomes a member itself.
    """
    signature = _Signature(
        key_for(rule, seq), rule.router, rule.source, rule.source_id, rule.source_epoch, seq
    )
    added = _encode(_SignedMeta(signature))
    if not meta:
        return added
    if meta.startswith(b"{"):
        kept = json.drop_members(meta, (SIGNATURE,))
        if (json.member_count(kept) or 0) < MAX_META_MEMBERS:
            return json.splice_members(kept, added)
    return json.splice_members(b'{"%b":%b}' % (ORIGINAL_META.encode(), meta), added)


def key_in(meta: bytes) -> str | None:
    """The key an `exactly_once` copy is signed with; None for meta without a usable signature."""
    if meta.find(_QUOTED_SIGNATURE) < 0:
        return None
    try:
        return _decode_keyed(meta).signature.idempotency_key
    except msgspec.DecodeError:
        return None
