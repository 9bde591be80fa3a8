"""A topic's configuration as the log resolves it. `topics.topic_settings` declares the settings.

`parse` takes what a caller sent (a mapping or a JSON object) and resolves it completely; what is
omitted returns to its default. The stored and the echoed form are the same JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from topics.core.durability import CLASSES
from topics.errors import InvalidRequest, shortened
from topics.topic_settings import DEFAULTS, U64_MAX, TopicConfig, known

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")
ROUTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}\Z")
CLAMPS: Final = {name: setting.clamp for name, setting in known().items() if setting.clamp}
MIN_LEASE_MS, MAX_LEASE_MS = CLAMPS["lease_ms"]


def parse(fields: Mapping[str, Any], *, topic: str | None = None) -> TopicConfig:
    """Resolve a configuration; raises `InvalidRequest` naming the field that is wrong."""
    sent = dict(fields)
    if sent.get("durability") is None:
        sent["durability"] = "fsync" if sent.get("durable") else DEFAULTS["durability"]
    try:
        config = msgspec.convert(sent, TopicConfig, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"bad topic configuration: {error}") from None
    changes: dict[str, Any] = {"durable": CLASSES[config.durability].needs_sync}
    for name, value in config.to_dict().items():
        if type(value) is int and value > U64_MAX:
            raise InvalidRequest(f"bad topic configuration: {name} must be at most {U64_MAX}")
        if name in CLAMPS:
            least, most = CLAMPS[name]
            changes[name] = min(max(value, least), most)
    _check_dead_letter(config, topic)
    return msgspec.structs.replace(config, **changes)


def parse_json(raw: bytes) -> TopicConfig:
    """Read a stored configuration back."""
    try:
        return msgspec.json.decode(raw, type=TopicConfig)
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"bad topic configuration: {error}") from None


def _check_dead_letter(sent: TopicConfig, topic: str | None) -> None:
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
