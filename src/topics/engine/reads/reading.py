"""Reading after a cursor.

A read is a plan over seqs (what is live, what is announced loss, what is silently gone) that
fetches bytes as it goes: from memory when they are there, else through an `Io`. Bytes that come
from a file are verified before they are used; a record whose bytes are rotten in every copy is
announced as a gap of exactly its seqs, and can be read again when the file is repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from topics.core.facts import Match
from topics.core.live import AnnouncedLoss
from topics.core.runs import runs_of
from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Op
from topics.engine.kernel import Kernel
from topics.engine.reads.frame_records import FrameRecords, decode, names_at
from topics.engine.reads.history import SegmentHistory
from topics.engine.reads.ranges import Fetched, LiveRange, next_range, without_dead
from topics.engine.reads.tail_frames import fetch_slots, view_slots
from topics.engine.retention import may_have_expired, retain
from topics.errors import Internal, InvalidRequest, TopicNotFound
from topics.values import Page, Record, Tombstone

DEFAULT_LIMIT = 256
DEFAULT_BUDGET = 1 << 20
MAX_BUDGET = 8 << 20
TRIES = 3
"""How often a read looks for its records before it says that they cannot be read."""
FILTERED_CHUNK = 512
FETCHES_BETWEEN_PAUSES = 64


class Query(msgspec.Struct, frozen=True):
    """What a reader wants. `after` is the last seq it has seen; `from_ts` replaces it."""

    after: int = 0
    limit: int = DEFAULT_LIMIT
    budget: int = DEFAULT_BUDGET
    nodes: frozenset[str] = frozenset()
    match: Match | None = None
    from_ts: int | None = None
    to_seq: int | None = None  # the last seq to look at

    def accepts_in(self, topic: Topic) -> Callable[[bytes, int], bool] | None:
        """The record filter, or None when every live record passes."""
        nodes = self.nodes_in(topic)
        match = self.match
        if not nodes and match is None:
            return None

        def passes(buf: bytes, offset: int) -> bool:
            node, tag = names_at(buf, offset)
            return node not in nodes and (match is None or match.accepts(tag))

        return passes

    def nodes_in(self, topic: Topic) -> frozenset[str]:
        """The nodes to leave out, which a topic may be configured not to do."""
        return self.nodes if topic.config.dedupe_node else frozenset()


class PageScan:
    """A read under way: what was found up to `cursor`; it goes no further than `stop`."""

    __slots__ = ("cold", "cursor", "damaged", "found", "full", "gap", "stop", "used")

    def __init__(self, cursor: int, stop: int, gap: AnnouncedLoss | None) -> None:
        self.cursor = cursor
        self.stop = stop
        self.gap = gap
        self.damaged = False  # it ends before a record that cannot be read
        self.found = FrameRecords()
        self.used = 0
        self.full = False
        self.cold: set[int] = set()  # segments that were read from the cold directory


CatchUp: TypeAlias = Callable[[Topic], Op[None]]
"""Brings a topic up to date with the routers that feed it."""


class Reader:
    def __init__(self, kernel: Kernel, catch_up: CatchUp) -> None:
        self._kernel = kernel
        self.catch_up = catch_up

    def read(self, name: str, query: Query) -> Op[Page]:
        """One page after the cursor, with at most one announcement of loss before its records."""
        kernel = self._kernel
        topic = kernel.topic(name)
        page = self.newest(topic, query)
        if page is not None:
            return page
        start = yield from self.start(topic, query)
        progress = begin(topic, start, query.to_seq)
        begun = progress.cursor
        yield from self.scan(topic, query, progress)
        return page_of(topic, progress, scanned=max(0, progress.cursor - begun))

    def start(self, topic: Topic, query: Query) -> Op[int]:
        """Bring a topic up to date and note that it is read; returns the cursor to read from."""
        kernel = self._kernel
        if kernel.catalog.routers.by_name:
            yield from self.catch_up(topic)
        if topic.config.ttl_ms:
            yield from retain(kernel, topic)
        if query.from_ts is not None and query.after:
            raise InvalidRequest("give a start by seq or by time, not both")
        start = query.after
        if query.from_ts is not None:
            start = yield from kernel.indexes.ask(topic, partial(topic.start_of, query.from_ts))
        topic.last_read_ts = topic.last_consumed = kernel.clock.now_ms()
        return start

    def newest(self, topic: Topic, query: Query) -> Page | None:
        """The page that `read` gives, if it is just the records after the cursor, all in memory.

        That is the usual case for a reader that follows a topic: nothing to plan, nothing to wait
        for. None in every other case.
        """
        kernel, head, after = self._kernel, topic.head, query.after
        count = head - after
        if (
            not 0 < count <= min(query.limit or DEFAULT_LIMIT, kernel.settings.max_limit)
            or after < topic.history.last
            or not topic.is_all_live(after + 1, head)
            or query.from_ts is not None
            or query.to_seq is not None
            or query.match is not None
            or (query.nodes and query.nodes_in(topic))
            or kernel.catalog.routers.by_name
            or (topic.config.ttl_ms and may_have_expired(kernel, topic))
        ):
            return None
        tail, room = topic.tail, min(query.budget or DEFAULT_BUDGET, MAX_BUDGET)
        at = after + 1 - tail.first
        if sum(tail.lengths[at : at + count]) > room:
            return None
        view = view_slots(kernel.sources, tail, after + 1, head, room)
        if view is None:
            return None
        topic.last_read_ts = topic.last_consumed = kernel.clock.now_ms()
        found = FrameRecords()
        found.extend(*view)
        return Page(topic.name, found, head, head, topic.earliest, True, None, 0, count)

    def records(self, topic: Topic, seqs: Sequence[int]) -> Op[dict[int, Record]]:
        """Records by seq, as far as they live and can be read; `seqs` ascend."""
        found = yield from self.frames(topic, seqs)
        return {seq: decode(buf, offset) for seq, (buf, offset) in found.items()}

    def frames_at_hand(
        self, topic: Topic, seqs: Sequence[int]
    ) -> tuple[list[bytes], list[int]] | None:
        """The frames of live records, buffers and offsets, if they are all in memory.

        `seqs` ascend.
        """
        if seqs[0] <= topic.history.last:
            return None
        sources, tail = self._kernel.sources, topic.tail
        if seqs[-1] - seqs[0] + 1 == len(seqs):
            return view_slots(sources, tail, seqs[0], seqs[-1], MAX_BUDGET)
        bufs: list[bytes] = []
        offsets: list[int] = []
        for lo, hi in runs_of(seqs):
            view = view_slots(sources, tail, lo, hi, MAX_BUDGET)
            if view is None:
                return None
            bufs += view[0]
            offsets += view[1]
        return bufs, offsets

    def frames(self, topic: Topic, seqs: Sequence[int]) -> Op[dict[int, tuple[bytes, int]]]:
        """Buffer and offset of records by seq, as far as they live and can be read.

        Some may die during a read of others, or of themselves: their bytes may be gone by then.
        """
        found: dict[int, tuple[bytes, int]] = {}
        for lo, hi in runs_of(seqs):
            at = lo
            while (extent := next(topic.extents(at, hi), None)) is not None:
                at, end = extent
                try:
                    fetched = yield from self._fetch(topic, LiveRange(at, end), MAX_BUDGET)
                except Internal:
                    if topic.is_live(at):
                        raise
                    at += 1
                    continue
                for seq, buf, offset in zip(
                    fetched.seqs, fetched.bufs, fetched.offsets, strict=True
                ):
                    if offset is not None:
                        found[seq] = buf, offset
                at = max(fetched.through, at) + 1
        return found

    def fetch(self, topic: Topic, lo: int, hi: int, room: int) -> Op[Fetched]:
        """Live records from `lo` on, at least one, not many more than `room` bytes."""
        return (yield from self._fetch(topic, LiveRange(lo, hi), room))

    def fetch_next(self, topic: Topic, lo: int, hi: int) -> Op[Fetched | None]:
        """The next live records of `lo..hi`; None when there are none."""
        live_range = next_range(topic, lo, hi, most=hi)
        return (
            None if live_range is None else (yield from self._fetch(topic, live_range, MAX_BUDGET))
        )

    def page(self, topic: Topic, after: int, limit: int) -> Op[Page]:
        """One page of a topic, for the engine's own use: it does not count as a read."""
        progress = begin(topic, after)
        begun = progress.cursor
        yield from self.scan(topic, Query(after=after, limit=limit), progress)
        return page_of(topic, progress, scanned=max(0, progress.cursor - begun))

    def scan(self, topic: Topic, query: Query, progress: PageScan) -> Op[None]:
        limit = min(query.limit or DEFAULT_LIMIT, self._kernel.settings.max_limit)
        budget = min(query.budget or DEFAULT_BUDGET, MAX_BUDGET)
        accepts, fetches = query.accepts_in(topic), 0
        while progress.cursor < progress.stop and len(progress.found) < limit:
            seq = progress.cursor + 1
            gap = _lost_meanwhile(topic, progress) or topic.gap_at(seq)
            if gap is not None:
                if not _announce(progress, gap):
                    return
                continue
            stop = min(progress.stop, topic.next_announced(seq) - 1)
            wanted = limit - len(progress.found)
            if accepts is not None:
                wanted = max(wanted, FILTERED_CHUNK)
            live_range = next_range(topic, seq, stop, wanted)
            if live_range is None:
                progress.cursor = stop
                continue
            room = MAX_BUDGET if accepts is not None else budget - progress.used
            try:
                fetched = yield from self._fetch(topic, live_range, max(room, 1))
            except Internal:
                if topic.is_live(live_range.lo):
                    raise
                continue  # removed during the wait, and a checkpoint let its bytes go
            if fetched.cold is not None:
                progress.cold.add(fetched.cold)
            _take(progress, fetched, accepts, limit=limit, budget=budget)
            if progress.full:
                return
            fetches += 1
            is_long = accepts is not None or fetches % FETCHES_BETWEEN_PAUSES == 0
            if is_long and progress.cursor < progress.stop:
                yield PAUSE  # millions of records may have to be passed over

    def _fetch(self, topic: Topic, live_range: LiveRange, room: int) -> Op[Fetched]:
        """Bytes of the records of a range, at least one, not many more than `room` bytes."""
        lo = live_range.lo
        for attempt in range(1, TRIES + 1):
            try:
                return (yield from self._fetch_once(topic, live_range, room))
            except (OSError, KeyError) as error:
                if self._kernel.catalog.by_id.get(topic.id) is not topic:
                    raise TopicNotFound(topic.name) from error  # dropped during the wait
                # A checkpoint may have moved the records and let their log file go meanwhile.
                if attempt == TRIES or not topic.earliest <= lo <= topic.head:
                    message = f"records of topic {topic.name!r} could not be read: {error}"
                    raise Internal(message) from error
        raise AssertionError("unreachable")

    def _fetch_once(self, topic: Topic, live_range: LiveRange, room: int) -> Op[Fetched]:
        history, (lo, hi, dead) = topic.history, live_range
        if lo <= history.last:
            assert isinstance(history, SegmentHistory)
            fetched = yield from history.fetch(lo, min(hi, history.last), room)
            return without_dead(fetched, live_range)
        sources, tail = self._kernel.sources, topic.tail
        slots = lo - tail.first, min(hi, tail.end - 1) - tail.first + 1
        assert 0 <= slots[0] < slots[1], f"seq {lo} of topic {topic.name} has no slot"
        return (yield from fetch_slots(sources, topic.id, tail, slots, room, dead=dead))


def begin(topic: Topic, start: int, to_seq: int | None = None) -> PageScan:
    """Where a read from `start` begins: behind what was lost to a floor, if anything was."""
    head, gap, cursor = topic.head, topic.gap_below(start), start
    if start > head:
        gap, cursor = AnnouncedLoss(1, head, "recreated"), topic.earliest - 1
    elif gap is not None:
        cursor = gap.hi
    if to_seq is None:
        return PageScan(cursor, head, gap)
    stop = min(head, to_seq if start > head else max(start, to_seq))
    return PageScan(min(cursor, stop), stop, gap)


def _lost_meanwhile(topic: Topic, progress: PageScan) -> AnnouncedLoss | None:
    """What a floor took of the rest of a page while the read waited."""
    gap = topic.gap_below(progress.cursor)
    return None if gap is None else AnnouncedLoss(gap.lo, min(gap.hi, progress.stop), gap.reason)


def _announce(progress: PageScan, gap: AnnouncedLoss) -> bool:
    """Report loss at the cursor, unless something else has to be delivered first."""
    if progress.gap is not None or len(progress.found):
        return False
    progress.gap = gap
    progress.cursor = min(gap.hi, progress.stop)
    return True


def _take(
    progress: PageScan,
    fetched: Fetched,
    accepts: Callable[[bytes, int], bool] | None,
    *,
    limit: int,
    budget: int,
) -> None:
    """Deliver the records that fit; stop before one that does not fit or cannot be read.

    The last record that is asked for ends the read: what the reader would skip after it counts as
    not looked at.
    """
    if accepts is None and None not in fetched.offsets:
        total = sum(fetched.sizes)
        if progress.used + total <= budget and len(progress.found) + len(fetched.sizes) <= limit:
            progress.found.extend(fetched.bufs, fetched.offsets)  # type: ignore[arg-type] # no None
            progress.used += total
            is_all = len(progress.found) >= limit
            progress.cursor = fetched.seqs[-1] if is_all else fetched.through
            return
    for at, seq in enumerate(fetched.seqs):
        offset = fetched.offsets[at]
        if offset is None:
            if not _announce(progress, _rotten(fetched, at)):
                progress.full = progress.damaged = True
                return
            continue
        if seq <= progress.cursor:
            continue  # inside the gap just announced
        if accepts is None or accepts(fetched.bufs[at], offset):
            if len(progress.found) and progress.used + fetched.sizes[at] > budget:
                progress.full = True
                progress.cursor = seq - 1
                return
            progress.found.extend([fetched.bufs[at]], [offset])
            progress.used += fetched.sizes[at]
        progress.cursor = seq
        if len(progress.found) >= limit:
            return
    progress.cursor = max(progress.cursor, fetched.through)


def _rotten(fetched: Fetched, at: int) -> AnnouncedLoss:
    """The run of unreadable neighbours that begins here."""
    end = at
    while end + 1 < len(fetched.offsets) and fetched.offsets[end + 1] is None:
        if fetched.seqs[end + 1] != fetched.seqs[end] + 1:
            break
        end += 1
    return AnnouncedLoss(fetched.seqs[at], fetched.seqs[end], "cap")


def tombstone_of(topic: Topic, gap: AnnouncedLoss | None, head: int) -> Tombstone | None:
    """A loss as readers are told of it."""
    if gap is None:
        return None
    resumes = topic.earliest if gap.reason == "recreated" else gap.hi + 1
    return Tombstone(gap.lo, gap.hi, gap.reason, resumes, head)  # type: ignore[arg-type]


def page_of(topic: Topic, progress: PageScan, *, scanned: int) -> Page:
    head, cursor = topic.head, progress.cursor
    return Page(
        topic.name,
        progress.found,
        cursor,
        head,
        topic.earliest,
        cursor == head,
        tombstone_of(topic, progress.gap, head),
        head - cursor,
        scanned,
        len(progress.cold),
    )
