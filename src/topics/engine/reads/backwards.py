"""Reading newest first: for people, who look at the end of a topic and scroll back.

Records are stored and read in the order of their seqs. A page that goes back is therefore read in
short windows, each of them forwards, from the highest window down. What a filter leaves out counts
as looked at: after `MAX_EXAMINED` seqs the page ends, even without a record, and says where the
next one begins.
"""

from __future__ import annotations

from topics.core.topic import SEQ_BASE, Topic
from topics.engine.effects import PAUSE, Op
from topics.engine.kernel import Kernel
from topics.engine.reads.reading import DEFAULT_BUDGET, Query, Reader
from topics.engine.retention import retain
from topics.values import BackPage, Record, Tombstone

WINDOW = 64
FILTERED_WINDOW = 512
MAX_EXAMINED = 20_480


class BackReader:
    def __init__(self, kernel: Kernel, reader: Reader) -> None:
        self._kernel = kernel
        self._reader = reader

    def read(self, name: str, query: Query, *, before: int | None) -> Op[BackPage]:
        """At most `query.limit` live records below `before`, the newest first."""
        kernel = self._kernel
        topic = kernel.topic(name)
        yield from self._reader.catch_up(topic)
        yield from retain(kernel, topic)
        top = topic.head if before is None else min(topic.head, before - 1)
        found: list[Record] = []
        lost: list[Tombstone] = []
        begin, used, examined = top, 0, 0
        while len(found) < query.limit and used < query.budget:
            low = self._low_end(topic, top, query, missing=query.limit - len(found))
            if low == 0 or examined > MAX_EXAMINED:
                break
            records, gaps = yield from self._window(name, low, top, query)
            records.reverse()
            taken = records[: query.limit - len(found)]
            found += taken
            lost += reversed(gaps)
            used += sum(len(record.raw) for record in taken)
            examined += top - low
            top = (taken[-1].seq if len(taken) < len(records) else low) - 1
            yield PAUSE  # records below may be deleted meanwhile: the next window looks again
        is_more = top >= topic.earliest
        if not is_more and topic.evict_floor > SEQ_BASE:
            lost += yield from self._lost_at_the_beginning(name)
        next_before = top + 1 if is_more else None
        return BackPage(name, found, begin, topic.head, topic.earliest, lost, next_before)

    def _low_end(self, topic: Topic, top: int, query: Query, *, missing: int) -> int:
        """The lowest seq of the next window; 0 when nothing lives at or below `top`."""
        highest = topic.last_live_at_or_below(top)
        if highest == 0:
            return 0
        is_filtered = query.match is not None or bool(query.nodes)
        width = FILTERED_WINDOW if is_filtered else min(missing, WINDOW)
        return max(topic.earliest, highest + 1 - width)

    def _window(
        self, name: str, low: int, top: int, query: Query
    ) -> Op[tuple[list[Record], list[Tombstone]]]:
        """All records of a window, forwards, in as many reads as gaps and sizes ask for."""
        records: list[Record] = []
        gaps: list[Tombstone] = []
        after = low - 1
        while after < top:
            page = yield from self._reader.read(
                name,
                Query(
                    after=after,
                    limit=top - after,
                    budget=DEFAULT_BUDGET,
                    nodes=query.nodes,
                    match=query.match,
                    to_seq=top,
                ),
            )
            records += page.records
            if page.tombstone is not None:
                gaps.append(page.tombstone)
            if page.next_from_seq <= after:
                break  # the topic was dropped and created again: its seqs begin anew
            after = page.next_from_seq
        return records, gaps

    def _lost_at_the_beginning(self, name: str) -> Op[list[Tombstone]]:
        first = yield from self._reader.read(name, Query(after=0, limit=1))
        return [] if first.tombstone is None else [first.tombstone]
