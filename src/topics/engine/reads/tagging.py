"""Loading the tag index of a topic, while the topic goes on changing.

A topic of millions of records takes seconds to look through, so it is done in slices, from the
oldest record to the newest, and other operations run in between. Records that the walk has passed
are in the index. Records written meanwhile have higher seqs, so the walk reaches them at the end.
The index counts as loaded in the step that finds no further record, and from then on each write
adds its own tags. Records that die meanwhile are either not looked at any more or stay in the index
as dead seqs, which are never shown. A checkpoint may move records from the log into segments
between two slices: each slice looks up anew where its records are.

Writers must not outrun the walk: behind the last checkpoint a slice takes twice as many seqs as
were written since the slice before.
"""

from __future__ import annotations

from collections.abc import Sequence

from topics.core.catalog import Catalog
from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Gate, Io, Op
from topics.engine.reads.frame_records import names_at
from topics.engine.reads.history import SegmentHistory
from topics.engine.reads.ranges import Fetched, next_range, without_dead
from topics.engine.reads.tail_frames import fetch_slots
from topics.errors import Internal
from topics.storage.frames.header import FLAG_TAG
from topics.storage.segments.segment import Segment
from topics.storage.segments.tagfile import TagFile
from topics.storage.sources import Sources

SLICE_RECORDS = 512
SLICE_BYTES = 1 << 20
SLICE_TAGS = 512
_UNTAGGED = bytes(ord("0") + (not flags & FLAG_TAG) for flags in range(256))
"""What a binary number says of flags: 1 if the record has no tag."""
TRIES = 3
"""How often a slice looks for its records before it says that they cannot be read."""


class TagLoader:
    def __init__(self, catalog: Catalog, sources: Sources) -> None:
        self._catalog = catalog
        self._sources = sources
        self._under_way: dict[int, Gate] = {}
        """By topic id the loads that are not done."""

    def load(self, topic: Topic) -> Op[None]:
        """Have the index loaded when this ends, unless the topic was dropped meanwhile.

        A second call during a load waits for the first. When records cannot be read, the error of
        the disk passes through, because replay must know of a missing file; nothing is loaded.
        """
        while not topic.tags.loaded and self._is_there(topic):
            gate = self._under_way.get(topic.id)
            if gate is not None:
                yield gate
                continue  # look again: if the other load failed, this call loads
            gate = self._under_way[topic.id] = Gate()
            try:
                yield from self._load(topic)
            finally:
                del self._under_way[topic.id]
                gate.open()

    def _is_there(self, topic: Topic) -> bool:
        return self._catalog.by_id.get(topic.id) is topic

    def _load(self, topic: Topic) -> Op[None]:
        topic.tags.clear()
        at, head = topic.earliest, topic.head
        while self._is_there(topic):
            came, head = topic.head - head, topic.head
            at = yield from self._advance(topic, at, max(SLICE_RECORDS, 2 * came))
            if at > topic.head:
                topic.tags.loaded = True
                return
            yield PAUSE

    def _advance(self, topic: Topic, at: int, most: int) -> Op[int]:
        """Go on from `at` for about `most` seqs; returns where to go on.

        After each slice the topic is looked at again: it may have been dropped, or its first
        records evicted.
        """
        stop = at + most
        while self._is_there(topic):
            at = max(at, topic.earliest)
            if at > topic.head or at >= stop:
                break
            at = yield from self._slice(topic, at, stop - at)
        return at

    def _slice(self, topic: Topic, at: int, most: int) -> Op[int]:
        """Add what comes next, a segment or at most so many seqs; returns where to go on."""
        for attempt in range(1, TRIES + 1):
            try:
                return (yield from self._look(topic, at, most))
            except (OSError, KeyError):
                # A checkpoint may have moved the records, or they died and it let them go.
                if not self._is_there(topic) or topic.earliest > at:
                    return at
                if attempt == TRIES:
                    raise
        raise AssertionError("unreachable")

    def _look(self, topic: Topic, at: int, most: int) -> Op[int]:
        history = topic.history
        if at > history.last:
            return (yield from self._look_at_tail(topic, at, at + most - 1))
        assert isinstance(history, SegmentHistory)
        part = history.part_from(at)
        if part is None:
            return history.last + 1
        if isinstance(part, Segment):
            found = yield Io(history.tag_reader(part))
            yield from _add_segment(topic, part, found, at)
            return part.last + 1
        # A segment that still grows has no tag file, and its index no hash: look at each record.
        stop = min(part.last, max(at, part.first) + most - 1)
        live_range = next_range(topic, at, stop, most)
        if live_range is None:
            return stop + 1
        fetched = yield from history.fetch(live_range.lo, live_range.hi, SLICE_BYTES)
        _add(topic, without_dead(fetched, live_range))
        return fetched.through + 1

    def _look_at_tail(self, topic: Topic, lo: int, hi: int) -> Op[int]:
        hi = min(hi, topic.head)
        # Only what lives: the memory of dead records may have been given back.
        live_range = next_range(topic, lo, hi, hi - lo + 1)
        if live_range is None:
            return hi + 1
        lo, hi, dead = live_range
        tail = topic.tail
        slots = a, b = lo - tail.first, hi - tail.first + 1
        dead |= int(tail.flags[a:b].tobytes().translate(_UNTAGGED)[::-1], 2)
        fetched = yield from fetch_slots(
            self._sources, topic.id, tail, slots, SLICE_BYTES, dead=dead
        )
        if None in fetched.offsets:
            seq = fetched.seqs[fetched.offsets.index(None)]
            raise Internal(f"seq {seq} of topic {topic.name!r} cannot be read from the log")
        _add(topic, fetched)
        return fetched.through + 1


def _add(topic: Topic, fetched: Fetched) -> None:
    """Note tags from frames; one that is rotten in its segment is not shown to readers either."""
    for seq, buf, offset in zip(fetched.seqs, fetched.bufs, fetched.offsets, strict=True):
        tag = None if offset is None else names_at(buf, offset)[1]
        if tag is not None:
            topic.tags.add(tag, seq)


def _add_segment(topic: Topic, part: Segment, found: TagFile, at: int) -> Op[None]:
    """Note tags of a segment from `at` on: what lies before was seen when it was still growing."""
    for count, (tag, seqs) in enumerate(found.items(), 1):
        left = _still_wanted(topic, part, seqs, max(at, topic.earliest))
        if left:
            topic.tags.add_many(tag, left)
        if count % SLICE_TAGS == 0:
            yield PAUSE


def _still_wanted(topic: Topic, part: Segment, seqs: Sequence[int], lo: int) -> Sequence[int]:
    """Those of some seqs of a segment that are not below `lo` and not known to be deleted."""
    deleted = topic.deleted
    if lo <= part.first and deleted.has_none_of(part.first, part.last):
        return seqs
    return [seq for seq in seqs if seq >= lo and seq not in deleted]
