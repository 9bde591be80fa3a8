"""A topic's settings as Python callers of either door give them, by keyword or as a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from topics.errors import InvalidRequest
from topics.wire.words import Discard, Durability, TopicType


class TopicSettings(TypedDict, total=False):
    """The settings of a topic; what is left out of a new topic has its default."""

    type: TopicType
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Discard
    durable: bool
    durability: Durability | None
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool


NAMES = tuple(TopicSettings.__annotations__)


def known_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they were given, if a topic has all of them.

    The HTTP API ignores members it does not know. Here a misspelt `durability` would quietly make a
    topic that promises less than its owner believes.
    """
    for name in given:
        if name not in NAMES:
            from difflib import get_close_matches  # noqa: PLC0415 - slow to import, rarely needed

            near = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(NAMES)}"
            raise InvalidRequest(f"a topic has no setting {name!r}; {hint}")
    return dict(given)
