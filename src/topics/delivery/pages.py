"""Pages read and rendered once for every stream that stands at the same place.

Streams of one topic mostly stand at its head and ask for the same. The first of them reads and
renders, the others take what it got: while the read is still under way, or from a small cache as
long as nothing changed in the topic. So a publish to five hundred watchers costs one read.
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
from topics.errors import TopicsError
from topics.values import Page, Tombstone
from topics.wire.rendering import DEFAULT, Include, render_records, rows_of

T = TypeVar("T")

CACHE_BYTES = 16 << 20
CACHE_PAGES = 512


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


class Frames(NamedTuple):
    """What a read says to one kind of reader, ready to go out."""

    pieces: tuple[bytes, ...]
    total: int
    """How many frames that are."""


class Rendered:
    """What one read gave, ready to be framed."""

    __slots__ = (
        "caught_up",
        "count",
        "head",
        "is_silent",
        "next",
        "records",
        "spelled",
        "tombstone",
    )

    def __init__(self, page: Page, include: Include) -> None:
        self.tombstone = page.tombstone
        self.count = len(page.records)
        self.records = render_records(rows_of(page.records), include) if self.count else b"[]"
        self.next = page.next_from_seq
        self.head = page.head_seq
        self.caught_up = page.caught_up
        self.is_silent = self.tombstone is None and not self.count
        """Whether the read only passed over records the reader does not want."""
        self.spelled: dict[str, tuple[object, Frames]] = {}
        """Per kind of sink the last frames made of it, and for whom they fit."""

    @property
    def resume(self) -> int:
        """The cursor behind the tombstone, before any record."""
        lost = self.tombstone
        assert lost is not None
        # After a recreation the gap ends at the new head, which nobody has read yet.
        return lost.earliest_seq - 1 if lost.reason == "recreated" else lost.gap_to


Done: TypeAlias = Callable[[Rendered | None, TopicsError | None], None]
"""Gets the page, or the error. Neither: nothing may be shown before the next sync."""


class _Entry:
    """One page, there or under way."""

    __slots__ = ("page", "size", "stamp", "waiting")

    def __init__(self, stamp: tuple[object, ...], *waiting: Done) -> None:
        self.stamp = stamp
        self.waiting = list(waiting)
        self.page: Rendered | None = None
        self.size = 0


class Passing(NamedTuple):
    """The page that goes from feed to feed, and where they have to stand for it."""

    topic: Topic
    epoch: int
    after: int
    options: Options
    stamp: tuple[object, ...]
    page: Rendered


class SharedPages:
    def __init__(self, engine: Engine, runner: Runner, max_bytes: int = CACHE_BYTES) -> None:
        self._engine = engine
        self._runner = runner
        self._max_bytes = max_bytes
        self._entries: OrderedDict[object, _Entry] = OrderedDict()
        self._bytes = 0
        self._passing: Passing | None = None
        self.reads = 0

    def find(
        self, topic: Topic, after: int, options: Options, synced_head: int | None
    ) -> Rendered | None:
        """A page that need not be waited for: it is there and still right, or read in no time."""
        key, stamp = (topic.id, after, options, synced_head), _stamp(topic)
        entry = self._entries.get(key)
        if entry is not None and entry.stamp == stamp:
            return None if self._loss_is_due(topic) else entry.page
        if synced_head is not None:
            return None
        page = self._engine.newest(topic, _query(after, options))
        if page is None:
            return None
        self.reads += 1
        self._forget(key)
        entry = self._entries[key] = _Entry(stamp)
        shown = Rendered(page, options.include)
        self._keep(key, entry, shown)
        return shown

    def pass_on(self, topic: Topic, after: int, options: Options, page: Rendered) -> None:
        """Let feeds at the same place have this page too, in the same slice of turns."""
        if page.caught_up and not page.is_silent and not options.strong:
            self._passing = Passing(topic, topic.epoch, after, options, _stamp(topic), page)

    def stop_passing(self) -> None:
        """The slice is over: who comes later has to look again whether anything holds it up."""
        self._passing = None

    def passing(self, topic: Topic, options: Options) -> Passing | None:
        """The page that was just given to another feed, if it is still what one would get."""
        found = self._passing
        if (
            found is None
            or found.topic is not topic
            or (found.options is not options and found.options != options)
            or found.stamp != _stamp(topic)
        ):
            return None
        return found

    def read(self, ask: Ask, done: Done) -> None:
        """One page of a topic that exists; `done` is called once, perhaps before this returns."""
        topic = ask.topic
        key = (topic.id, ask.after, ask.options, ask.synced_head)
        stamp = _stamp(topic)
        entry = self._entries.get(key)
        if entry is not None and entry.page is None and entry.stamp == stamp:
            entry.waiting.append(done)
            return
        self._forget(key)
        entry = self._entries[key] = _Entry(stamp, done)
        self._start(ask, key, entry)

    def _loss_is_due(self, topic: Topic) -> bool:
        return self._engine.kernel.may_have_expired(topic)

    def _start(self, ask: Ask, key: object, entry: _Entry) -> None:
        options = ask.options

        def finish(page: Page | None, error: TopicsError | None) -> None:
            if page is not None and ask.synced_head is not None:
                page = cut(page, ask.synced_head)
            shown = None if page is None else Rendered(page, options.include)
            self._keep(key, entry, shown)
            waiting, entry.waiting = entry.waiting, []
            for done in waiting:
                done(shown, error)

        self.reads += 1
        query = _query(ask.after, options)
        self._runner.start(self._engine.read(ask.topic.name, query), finish)

    def _keep(self, key: object, entry: _Entry, page: Rendered | None) -> None:
        if self._entries.get(key) is not entry:
            return  # replaced by a newer read of the same place
        if page is None or 2 * len(page.records) > self._max_bytes // 4:
            del self._entries[key]
            return
        entry.page = page
        entry.size = 2 * len(page.records)  # rendered, and once more inside a frame
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
    """Changes whenever a read of the topic could give something else."""
    return (
        topic.head,
        topic.count,
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
