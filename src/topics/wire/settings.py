"""A topic's settings as Python callers of either door give them, by keyword or as a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topics.errors import InvalidRequest

NAMES = (
    "type",
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "discard",
    "durable",
    "durability",
    "priority",
    "auto_priority",
    "auto_create",
    "idempotency_window_ms",
    "dedupe_node",
    "lease_ms",
    "claim_jitter_ms",
    "max_deliveries",
    "dead_letter",
    "leases_durable",
)


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
