"""A topic's configuration: the seventeen fields, their defaults, their clamps.

`parse` takes what a caller sent (a mapping or a JSON object) and resolves it completely; what is
omitted returns to its default. The stored and the echoed form are the same JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from topics.core.durability import Durability
from topics.errors import InvalidRequest, shortened

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")
ROUTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}\Z")
U64 = (1 << 64) - 1
MIN_LEASE_MS = 100
MAX_LEASE_MS = 86_400_000
MAX_JITTER_MS = 5000


class TopicConfig(msgspec.Struct, frozen=True, gc=False):
    """Resolved configuration, in the order it is echoed."""

    type: Literal["log", "queue"] = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Literal["old", "reject"] = "old"
    durable: bool = False
    durability: Durability = "disk"
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    @property
    def is_queue(self) -> bool:
        return self.type == "queue"

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    def to_dict(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class _Sent(msgspec.Struct):
    """What a caller may send: `durability` and friends may be null or absent."""

    type: Literal["log", "queue"] = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Literal["old", "reject"] = "old"
    durable: bool = False
    durability: Durability | None = None
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False


_UNSIGNED = (
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "idempotency_window_ms",
    "lease_ms",
    "claim_jitter_ms",
    "max_deliveries",
)
FIELDS = frozenset(_Sent.__struct_fields__)


def parse(fields: Mapping[str, Any], *, topic: str | None = None) -> TopicConfig:
    """Resolve a configuration; raises `InvalidRequest` naming the field that is wrong."""
    try:
        sent = msgspec.convert(dict(fields), _Sent, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"bad topic configuration: {error}") from None
    return resolve(sent, topic=topic)


def parse_json(raw: bytes) -> TopicConfig:
    """Read a stored configuration back."""
    try:
        return msgspec.json.decode(raw, type=TopicConfig)
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"bad topic configuration: {error}") from None


def resolve(sent: _Sent, *, topic: str | None = None) -> TopicConfig:
    for name in _UNSIGNED:
        if not 0 <= getattr(sent, name) <= U64:
            raise InvalidRequest(f"bad topic configuration: {name} must be 0 or more (64 bits)")
    if sent.priority is not None and not -(1 << 31) <= sent.priority < 1 << 31:
        raise InvalidRequest("bad topic configuration: priority must fit 32 bits")
    _check_dead_letter(sent, topic)
    durability = sent.durability or ("fsync" if sent.durable else "disk")
    return TopicConfig(
        type=sent.type,
        ttl_ms=sent.ttl_ms,
        cap_records=sent.cap_records,
        cap_bytes=sent.cap_bytes,
        discard=sent.discard,
        durable=durability == "fsync",
        durability=durability,
        priority=sent.priority,
        auto_priority=sent.auto_priority,
        auto_create=sent.auto_create,
        idempotency_window_ms=sent.idempotency_window_ms,
        dedupe_node=sent.dedupe_node,
        lease_ms=min(max(sent.lease_ms, MIN_LEASE_MS), MAX_LEASE_MS),
        claim_jitter_ms=min(sent.claim_jitter_ms, MAX_JITTER_MS),
        max_deliveries=sent.max_deliveries,
        dead_letter=sent.dead_letter,
        leases_durable=sent.leases_durable,
    )


def _check_dead_letter(sent: _Sent, topic: str | None) -> None:
    name = sent.dead_letter
    if name is None:
        return
    if not NAME.match(name):
        raise InvalidRequest(
            f"dead_letter {shortened(name)!r} is not a valid topic name", dead_letter=name
        )
    if sent.type == "queue" and name == topic:
        raise InvalidRequest("dead_letter must name another topic than the queue itself")


def check_topic_name(name: str, *, what: str = "topic") -> None:
    """Names are judged only where something is created; cursors are named like topics."""
    if not NAME.match(name):
        raise InvalidRequest(
            f"{shortened(name)!r} is not a valid {what} name: use 1 to 255 of A-Z a-z 0-9 . _ : - "
            "and start with a letter or digit"
        )
