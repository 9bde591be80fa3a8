"""What `create` and `configure` do, without I/O: one brain for all three logs.

A function here is a generator. It yields a call of the log, gets the answer, and returns the
outcome; the blocking and the asyncio log only carry the calls out. A server is asked for the
topic's state first and told the whole configuration afterwards, because `PUT` replaces all of it.
Two clients that configure one topic at the same moment can therefore undo each other: the last
`PUT` counts. A log in this process holds its lock from the first call to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from topics.errors import TopicExists, TopicExistsIncompatible, TopicNotFound
from topics.topic_settings import known_settings
from topics.values import (
    Change,
    Config,
    Configured,
    Created,
    Eviction,
    Page,
    PlannedRange,
    ReadPlan,
    TopicState,
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


def configuring(
    topic: str, settings: Mapping[str, Any], *, dry_run: bool, now_ms: int
) -> Steps[Configured]:
    """Change the named settings of a topic; a dry run only says what that would do.

    `now_ms` tells the age of records. A client has no better clock for it than its own.
    """
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
    evicted = yield from evicting(state, config, now_ms)
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


# What a configuration would evict


def evicting(state: TopicState, config: Config, now_ms: int) -> Steps[Eviction]:
    """The records that a tighter limit takes at once: the oldest ones, from a time or a cap."""
    kept_from = state.earliest_seq
    ttl = config["ttl_ms"]
    if ttl and state.count and (not state.config["ttl_ms"] or ttl < state.config["ttl_ms"]):
        kept_from = yield from _first_since(state, now_ms - ttl)
    total = yield from _weigh(state, kept_from - 1)
    if config["discard"] == "old":
        over = state.count - config["cap_records"] if config["cap_records"] else 0
        over_bytes = state.bytes - config["cap_bytes"] if config["cap_bytes"] else 0
        if over > total.records or over_bytes > total.bytes:
            total = yield from _oldest(state, over, over_bytes)
    return total


def _first_since(state: TopicState, ts: int) -> Steps[int]:
    """The first live seq that is no older; behind the head when all are."""
    page: Page = yield lambda log: log.read(state.topic, from_ts=max(ts, 0), limit=1)
    return page.records[0].seq if page.records else state.head_seq + 1


def _weigh(state: TopicState, through: int) -> Steps[Eviction]:
    """What is live up to a seq."""
    if through < state.earliest_seq:
        return Eviction(0, 0)
    ranges = yield from _ranges(state.topic, state.earliest_seq, through, COARSE_BYTES)
    return Eviction(sum(cut.records for cut in ranges), sum(cut.bytes for cut in ranges))


def _oldest(state: TopicState, records: int, size: int) -> Steps[Eviction]:
    """The oldest records that are at least so many and have at least so many bytes."""
    gone = _Taken(records, size)
    first, last = state.earliest_seq, state.head_seq
    for target in (COARSE_BYTES, FINE_BYTES):
        ranges = yield from _ranges(state.topic, first, last, target)
        for cut in ranges:
            if not gone.takes(cut.records, cut.bytes):
                first, last = cut.from_seq, cut.to_seq
                break
        else:
            return gone.total
    while first <= last:
        page: Page = yield partial(_read, topic=state.topic, after=first - 1)
        for record in page.records:
            if gone.is_enough or record.seq > last:
                return gone.total
            gone.add(1, len(record.raw) + len(record.raw_meta or b""))
        first = page.next_from_seq + 1
    return gone.total


def _read(log: Any, *, topic: str, after: int) -> Any:  # noqa: ANN401 - of either kind of log
    return log.read(topic, after=after, limit=PAGE_RECORDS)


class _Taken:
    """Records taken from the front until there are enough of them, in number and in size."""

    def __init__(self, records: int, size: int) -> None:
        self._wanted = Eviction(records, size)
        self.total = Eviction(0, 0)

    @property
    def is_enough(self) -> bool:
        total, wanted = self.total, self._wanted
        return total.records >= wanted.records and total.bytes >= wanted.bytes

    def add(self, records: int, size: int) -> None:
        self.total = Eviction(self.total.records + records, self.total.bytes + size)

    def takes(self, records: int, size: int) -> bool:
        """Take a range whole if all of it is needed, its last record included."""
        total, wanted = self.total, self._wanted
        if total.records + records <= wanted.records or total.bytes + size <= wanted.bytes:
            self.add(records, size)
            return True
        return False


def _ranges(topic: str, first: int, last: int, target: int) -> Steps[Sequence[PlannedRange]]:
    """The live records of a range of seqs, counted without reading them."""
    found: list[PlannedRange] = []
    while first <= last:
        plan: ReadPlan = yield partial(_plan, topic=topic, first=first, last=last, target=target)
        found += plan.ranges
        if plan.next_from_seq <= first:
            break
        first = plan.next_from_seq
    return found


def _plan(log: Any, *, topic: str, first: int, last: int, target: int) -> Any:  # noqa: ANN401
    return log.plan(topic, from_seq=first, to_seq=last, target_bytes=target)
