"""Pages of records that were rendered before, for the next reader who asks for the same.

Readers of one topic tend to walk through the same pages. Records never change, so a rendered page
stays right while the topic grows; what can take records away from it (floors, deletes) is in its
stamp, and a page that reached the head is right only while that is the head. Only plain reads are
kept: a filter is somebody's own.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from topics.core.topic import Topic
from topics.engine.kernel import Kernel
from topics.engine.reads.reading import DEFAULT_LIMIT
from topics.values import Page
from topics.wire.requests import DiffBody

CACHE_BYTES = 16 << 20
LARGEST = CACHE_BYTES // 8

Key = tuple[int, int, int, int, int, bool, bool]


class KnownPage(NamedTuple):
    """A rendered page, and what has to be unchanged for it to be right."""

    records: bytes
    next_from_seq: int
    records_scanned: int
    caught_up: bool
    stamp: tuple[int, ...]


class KnownPages:
    """The pages read last, within a bound of bytes."""

    def __init__(self, kernel: Kernel, max_bytes: int = CACHE_BYTES) -> None:
        self._kernel = kernel
        self._max_bytes = max_bytes
        self._pages: OrderedDict[Key, KnownPage] = OrderedDict()
        self._bytes = 0

    def find(self, name: str, asked: DiffBody) -> tuple[Topic, KnownPage] | None:
        """The page this read would give, if it is known, with its topic."""
        topic = self._topic(name, asked)
        if topic is None:
            return None
        key = _key(topic, asked)
        known = self._pages.get(key)
        if known is None:
            return None
        if known.stamp != _stamp(topic, caught_up=known.caught_up):
            self._forget(key)
            return None
        kernel = self._kernel
        if topic.config.ttl_ms and kernel.may_have_expired(topic):
            return None
        topic.last_read_ts = topic.last_consumed = kernel.clock.now_ms()
        return topic, known

    def keep(self, name: str, asked: DiffBody, page: Page, rendered: bytes) -> None:
        """Remember a page that was just read, if it is worth it."""
        topic = self._topic(name, asked)
        if topic is None or page.tombstone is not None or len(rendered) > LARGEST:
            return
        limit = min(asked.limit or DEFAULT_LIMIT, self._kernel.settings.max_limit)
        count = len(page.records)
        # A page that is neither full nor at the head ended at something that may change.
        is_whole = count == limit or (page.caught_up and count > 0)
        if not is_whole or page.cold_segments_read:
            return
        key = _key(topic, asked)
        self._forget(key)
        self._pages[key] = KnownPage(
            rendered,
            page.next_from_seq,
            page.records_scanned,
            page.caught_up,
            _stamp(topic, caught_up=page.caught_up),
        )
        self._bytes += len(rendered)
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._pages)))

    def _topic(self, name: str, asked: DiffBody) -> Topic | None:
        """The topic of a plain read; None for any other."""
        if asked.node is not None or asked.match is not None or asked.from_ts is not None:
            return None
        catalog = self._kernel.catalog
        topic = catalog.by_name.get(name)
        if topic is None or (catalog.routers.by_name and catalog.routers.into(topic.id)):
            return None  # what routers bring has to be brought first
        return topic

    def _forget(self, key: Key) -> None:
        known = self._pages.pop(key, None)
        if known is not None:
            self._bytes -= len(known.records)


def _key(topic: Topic, asked: DiffBody) -> Key:
    return (
        topic.id,
        topic.epoch,
        asked.cursor,
        asked.limit,
        asked.max_batch_bytes,
        asked.include_tags,
        asked.include_meta,
    )


def _stamp(topic: Topic, *, caught_up: bool) -> tuple[int, ...]:
    head = topic.head if caught_up else 0
    return (topic.cap_hi, topic.ttl_hi, topic.delete_version, head)
