"""What `create` and `configure` do, without I/O, for all three logs.

A function here is a generator. It yields a call of the log, gets the answer, and returns the
outcome; the blocking and the asyncio log only carry the calls out. A server is asked for the
topic's state first and told the whole configuration afterwards, because `PUT` replaces all of it.
Two clients that configure one topic at the same moment can therefore undo each other: the last
`PUT` counts. A log in this process holds its lock from the first call to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from topics.errors import TopicExists, TopicExistsIncompatible, TopicNotFound
from topics.topic_settings import known_settings
from topics.values import (
    Change,
    Config,
    Configured,
    Created,
    Eviction,
)

T = TypeVar("T")
Steps = Generator[Callable[[Any], Any], Any, T]
"""Calls of a log, one after the other; each is given the log, and its answer is sent back."""

COARSE_BYTES, FINE_BYTES = 64 << 20, 64 << 10
"""Sizes of the ranges in which the first record that stays is looked for."""
PAGE_RECORDS = 1000


def creating(topic: str, settings: Mapping[str, Any]) -> Steps[Created]:
    """Create a topic. One that exists is left alone, and must have the settings that are named."""
    asked = known_settings(settings)
    try:
        state = yield lambda log: log.state(topic, touch=False)
    except TopicNotFound:
        made: Created = yield lambda log: log._put(topic, asked)
        return made
    different = changes(topic, state.config, asked)
    if different:
        raise TopicExists(topic, different)
    return Created(topic, False, state.config)


def configuring(topic: str, settings: Mapping[str, Any], *, dry_run: bool) -> Steps[Configured]:
    """Change the named settings of a topic; a dry run only says what that would do."""
    asked = known_settings(settings)
    state = yield lambda log: log.state(topic, touch=False)
    different = changes(topic, state.config, asked)
    if "type" in different:
        was, now = different["type"]
        raise TopicExistsIncompatible.type_change(topic, existing_type=was, requested_type=now)
    if not different:
        return Configured(topic, state.config, {}, Eviction(0, 0), dry_run)
    config = {**state.config, **{name: now for name, (_, now) in different.items()}}
    config["durable"] = config["durability"] == "fsync"
    tried: Created = yield lambda log: log._put(topic, config, dry_run=True)
    evicted = tried.evicted or Eviction(0, 0)
    if not dry_run:
        config = (yield lambda log: log._put(topic, config)).config
    return Configured(topic, config, different, evicted, dry_run)


def changes(topic: str, config: Config, asked: Mapping[str, Any]) -> dict[str, Change]:
    """The named settings that differ from a configuration, as they are and as they would be.

    Judged like the log would: out of range is an error, too long a lease is a shorter one, and
    `durable` is another word for a durability.
    """
    from topics.core.config import parse  # noqa: PLC0415 - few programs configure, many import

    meant = parse({"type": config["type"], **asked}, topic=topic).to_dict()
    named = [name for name in asked if name not in ("durable", "durability")]
    if asked.get("durability") is not None or "durable" in asked:
        named.append("durability")
    return {
        name: Change(config[name], meant[name]) for name in named if config[name] != meant[name]
    }
