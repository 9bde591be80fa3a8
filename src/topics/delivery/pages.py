"""The page cache: a page is read and rendered once for all readers at the same place.

Readers of one topic ask for the same pages: streams for the newest records, readers of history one
page after the other. The first of them reads and renders; the others take its page, while the read
is still under way or from the cache. So a publish to five hundred watchers costs one read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from topics.core.facts import Match
from topics.core.topic import Topic
from topics.engine.effects import Op
from topics.engine.engine import Engine
from topics.engine.reads.reading import DEFAULT_BUDGET, DEFAULT_LIMIT, MAX_BUDGET, Query
from topics.engine.retention import may_have_expired
from topics.errors import TopicsError
from topics.values import Page, Tombstone
from topics.wire.rendering import DEFAULT, Include, render_records, rows_of

T = TypeVar("T")

CACHE_BYTES = 32 << 20
CACHE_PAGES = 1024
ENTRY_BYTES = 512
"""What a page takes beside its records."""


class Runner(Protocol):
    """Runs engine operations to their end; `done` gets the answer or the error."""

    def start(self, op: Op[T], done: Callable[[T | None, TopicsError | None], None]) -> None: ...


class Options(msgspec.Struct, frozen=True, cache_hash=True):
    """How a stream wants a topic. Equal options at an equal place share their pages."""

    limit: int = DEFAULT_LIMIT
    budget: int = DEFAULT_BUDGET
    nodes: frozenset[str] = frozenset()
    match: Match | None = None
    include: Include = DEFAULT
    strong: bool = False
    """Deliver only what a sync of the log has covered."""

    @classmethod
    def clamped(
        cls,
        *,
        limit: int,
        budget: int,
        max_limit: int,
        nodes: tuple[str, ...] = (),
        match: Match | None = None,
        include: Include = DEFAULT,
        strong: bool = False,
    ) -> Options:
        """Options with sizes brought into their ranges; 0 stands for the default."""
        return cls(
            min(limit or DEFAULT_LIMIT, max_limit),
            min(budget or DEFAULT_BUDGET, MAX_BUDGET),
            frozenset(nodes),
            match,
            include,
            strong,
        )


class Ask(NamedTuple):
    """One read of a topic: after which seq, how, and for `strong` readers up to where."""

    topic: Topic
    after: int
    options: Options
    synced_head: int | None = None


class PageFrames(NamedTuple):
    """What a read says to one kind of reader, ready to go out."""

    pieces: tuple[bytes, ...]
    total: int
    """How many frames that are."""


class Rendered:
    """What one read gave, ready to be framed or put into an answer."""

    __slots__ = (
        "caught_up",
        "count",
        "frames",
        "head",
        "is_full",
        "is_silent",
        "next",
        "records",
        "scanned",
        "tombstone",
    )

    def __init__(self, page: Page, include: Include, limit: int) -> None:
        self.tombstone = page.tombstone
        self.count = len(page.records)
        self.records = render_records(rows_of(page.records), include) if self.count else b"[]"
        self.next = page.next_from_seq
        self.head = page.head_seq
        self.caught_up = page.caught_up
        self.scanned = page.records_scanned
        self.is_full = self.count == limit and self.tombstone is None
        self.is_silent = self.tombstone is None and not self.count
        """Whether the read only passed over records the reader does not want."""
        self.frames: dict[str, tuple[object, PageFrames]] = {}
        """Per kind of sink the last frames made of it, and for which readers they fit."""

    @property
    def resume(self) -> int:
        """The cursor behind the tombstone, before any record."""
        lost = self.tombstone
        assert lost is not None
        # After a recreation the gap ends at the new head, but no record up to it was read.
        return lost.earliest_seq - 1 if lost.reason == "recreated" else lost.gap_to


Done: TypeAlias = Callable[[Rendered | None, TopicsError | None], None]
"""Gets the page, or the error. Neither: nothing may be shown before the next sync."""


class _CachedPage:
    """One page, there or being read, and the state of the topic when the read began."""

    __slots__ = ("head", "page", "size", "stamp", "waiting")

    def __init__(self, topic: Topic, *waiting: Done) -> None:
        self.stamp = _stamp(topic)
        self.head = topic.head
        self.waiting = list(waiting)
        self.page: Rendered | None = None
        self.size = 0

    def fits(self, topic: Topic) -> bool:
        """Whether a read of the topic would give the same page now."""
        return self.stamp == _stamp(topic) and (self.head == topic.head or self._grow(topic.head))

    def _grow(self, head: int) -> bool:
        """A full page stays right while its topic grows; only the head it tells is another one."""
        page = self.page
        if page is None or not page.is_full:
            return False
        self.head = page.head = head
        page.caught_up = page.next == head
        page.frames.clear()
        return True


class PageCache:
    """Rendered pages by topic, place and options, within a bound of bytes and of pages.

    Readers of one topic walk through the same pages, streams at its head most of all. Records
    never change, so a full page stays right while the topic grows. What can take records out of a
    page (floors, deletes), or change which of them a reader gets, is in its stamp; so is the head,
    for a page that was not full. A page found with another stamp is read again.
    """

    def __init__(self, engine: Engine, runner: Runner, max_bytes: int = CACHE_BYTES) -> None:
        self._engine = engine
        self._runner = runner
        self._max_bytes = max_bytes
        self._entries: OrderedDict[object, _CachedPage] = OrderedDict()
        self._bytes = 0
        self.reads = 0

    def find(
        self, topic: Topic, after: int, options: Options, synced_head: int | None
    ) -> Rendered | None:
        """A page that need not be waited for: it is known, or all of it is in memory."""
        key = (topic.id, after, options, synced_head)
        entry = self._entries.get(key)
        if entry is not None and entry.fits(topic):
            return None if may_have_expired(self._engine.kernel, topic) else entry.page
        if synced_head is not None:
            return None
        page = self._engine.newest(topic, _query(after, options))
        if page is None:
            return None
        self.reads += 1
        shown = Rendered(page, options.include, options.limit)
        self._put(key, _CachedPage(topic), shown)
        return shown

    def known(self, topic: Topic, after: int, options: Options) -> Rendered | None:
        """A page that is known, holds records and announces no loss; nothing is read for it.

        A page that is neither full nor at the head ended at something that may change.
        """
        entry = self._entries.get((topic.id, after, options, None))
        if entry is None or not entry.fits(topic):
            return None
        page = entry.page
        if page is None or page.tombstone is not None or not page.count:
            return None
        if not (page.is_full or page.caught_up):
            return None
        return None if may_have_expired(self._engine.kernel, topic) else page

    def keep(self, topic: Topic, after: int, options: Options, page: Rendered) -> None:
        """Remember a page that was just read."""
        self._put((topic.id, after, options, None), _CachedPage(topic), page)

    def read(self, ask: Ask, done: Done) -> None:
        """One page of a topic that exists; `done` is called once, perhaps before this returns.

        Readers that ask for a page while it is being read wait for the same read.
        """
        topic = ask.topic
        key = (topic.id, ask.after, ask.options, ask.synced_head)
        entry = self._entries.get(key)
        if entry is not None and entry.page is None and entry.fits(topic):
            entry.waiting.append(done)
            return
        self._forget(key)
        entry = self._entries[key] = _CachedPage(topic, done)
        self._start(ask, key, entry)

    def _start(self, ask: Ask, key: object, entry: _CachedPage) -> None:
        options = ask.options

        def finish(page: Page | None, error: TopicsError | None) -> None:
            if page is not None and ask.synced_head is not None:
                page = cut(page, ask.synced_head)
            shown = None
            if page is not None:
                shown = Rendered(page, options.include, options.limit)
                shown.is_full &= ask.synced_head is None  # else it tells the synced head
            if self._entries.get(key) is entry:  # else a newer read of the same place began
                del self._entries[key]
                if shown is not None:
                    self._put(key, entry, shown)
            waiting, entry.waiting = entry.waiting, []
            for done in waiting:
                done(shown, error)

        self.reads += 1
        query = _query(ask.after, options)
        self._runner.start(self._engine.read(ask.topic.name, query), finish)

    def _put(self, key: object, entry: _CachedPage, page: Rendered) -> None:
        self._forget(key)
        entry.page = page
        entry.size = 2 * len(page.records) + ENTRY_BYTES  # rendered, and once more inside a frame
        if entry.size > self._max_bytes // 4:
            return
        self._entries[key] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes or len(self._entries) > CACHE_PAGES:
            self._forget(next(iter(self._entries)))

    def _forget(self, key: object) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


def _query(after: int, options: Options) -> Query:
    return Query(after, options.limit, options.budget, options.nodes, options.match)


def _stamp(topic: Topic) -> tuple[object, ...]:
    """What can take a record out of a page, or change which records a reader gets."""
    return (
        topic.epoch,
        topic.cap_hi,
        topic.ttl_hi,
        topic.delete_version,
        topic.config.dedupe_node,
    )


def cut(page: Page, synced_head: int) -> Page | None:
    """The part of a page the log has synced; None when its notice of loss reaches beyond."""
    if page.head_seq <= synced_head:
        return page
    lost = page.tombstone
    if lost is not None:
        if lost.earliest_seq - 1 > synced_head:
            return None
        lost = Tombstone(
            lost.gap_from,
            min(lost.gap_to, synced_head),
            lost.reason,
            lost.earliest_seq,
            synced_head,
        )
    reached = min(page.next_from_seq, synced_head)
    records = [record for record in page.records if record.seq <= synced_head]
    return Page(
        page.topic,
        records,
        reached,
        synced_head,
        page.earliest_seq,
        reached == synced_head,
        lost,
        synced_head - reached,
        page.records_scanned,
    )
