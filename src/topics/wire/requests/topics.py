"""Bodies about a topic as a whole: its config, a cursor, holes, a plan."""

import msgspec

from topics.wire.decoding import BodyDecoder
from topics.wire.numbers import I32, U64, Body
from topics.wire.words import Discard, Durability, TopicType


class ConfigBody(Body):
    """A topic's configuration as sent: a full replacement, unresolved and unclamped."""

    type: TopicType = "log"
    ttl_ms: U64 = 0
    cap_records: U64 = 0
    cap_bytes: U64 = 0
    discard: Discard = "old"
    durable: bool = False
    durability: Durability | None = None
    priority: I32 | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: U64 = 120_000
    dedupe_node: bool = True
    lease_ms: U64 = 30_000
    claim_jitter_ms: U64 = 0
    max_deliveries: U64 = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    def fields(self) -> dict[str, object]:
        """Every field by name, for whoever resolves the configuration."""
        return msgspec.structs.asdict(self)


class CursorBody(Body):
    """Where to put a named cursor."""

    seq: U64


class HolesBody(Body):
    """The range, ends included, whose dead runs are wanted."""

    from_seq: U64
    to_seq: U64


class PlanBody(HolesBody):
    """A range to cut for parallel readers, and how large each cut should be."""

    target_bytes: U64


_config = BodyDecoder(ConfigBody)
_cursor = BodyDecoder(CursorBody)
_holes = BodyDecoder(HolesBody)
_plan = BodyDecoder(PlanBody)


def decode_config(body: bytes) -> ConfigBody:
    """An empty body asks for the defaults, like `{}`."""
    return _config.decode(body or b"{}")


def decode_cursor(body: bytes) -> CursorBody:
    return _cursor.decode(body)


def decode_holes(body: bytes) -> HolesBody:
    return _holes.decode(body)


def decode_plan(body: bytes) -> PlanBody:
    return _plan.decode(body)
