"""Deleting records: which ones a delete selects, and how a topic forgets them.

A delete is silent, and no floor moves. It selects seqs (an ack), everything below a seq, or the
records with a tag.

One tag may be on a million records and a prefix may cover a million tags, so the records of a tag
are found and weighed before the delete is logged, in steps between which the topic goes on
(`TagSelection`). Records written meanwhile are noted as they come (`note`, called by the tag
index); records that die meanwhile are left out when the delete is applied, which then costs a step
for each chunk of 1024 seqs. By then all of them have been weighed, record by record: applying a
delete must not read anything.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import compress

from topics.core.facts import Deleted, Match
from topics.core.runs import runs_of
from topics.core.seqset import CHUNK_BITS, LAST_BIT, lowest, selectors
from topics.core.topic import Topic

STEP_SEQS = 2048
STEP_TAGS = 512
_COUNT_BITS = 32
ALL_TAGS = 1 << 20
"""A step without a pause: during replay no request waits for the tag index to be pruned."""


class TagSelection:
    """Bits by chunk, as in a `SeqSet`, with the weight of those that were live."""

    __slots__ = ("_match", "_topic", "_weighed", "chunks")

    def __init__(self, topic: Topic, match: Match) -> None:
        self._topic = topic
        self._match = match
        self.chunks: dict[int, int] = {}
        self._weighed: dict[int, tuple[int, int, array[int]]] = {}
        """Which bits, their bytes, and the bytes of each."""

    def note(self, tag: str, seq: int) -> None:
        """A record was written."""
        if self._match.accepts(tag):
            self._add((seq,))

    def find(self, below: int) -> Iterator[None]:
        """Look for the records below a seq, a step at a time. The tag index is loaded."""
        topic, after, left = self._topic, None, STEP_SEQS
        while tags := topic.tags.some(self._match, after, STEP_TAGS):
            for after in tags:
                at, left = topic.earliest, left - 1
                while seqs := topic.tags.seqs_of(after, lo=at, below=below, most=STEP_SEQS):
                    self._add(seqs)
                    at, left = seqs[-1] + 1, left - len(seqs)
                    if left <= 0:
                        yield
                        left = STEP_SEQS
            if len(tags) == STEP_TAGS:
                yield

    def _add(self, seqs: tuple[int, ...]) -> None:
        chunks = self.chunks
        for seq in seqs:
            chunk = seq >> CHUNK_BITS
            chunks[chunk] = chunks.get(chunk, 0) | 1 << (seq & LAST_BIT)

    def has(self, seq: int) -> bool:
        return bool(self.chunks.get(seq >> CHUNK_BITS, 0) >> (seq & LAST_BIT) & 1)

    def weigh(self, below: int) -> Iterator[None]:
        """Weigh what was found and was not weighed yet, a step for each chunk.

        May raise `NotLoaded`; what was weighed by then is not weighed again.
        """
        topic = self._topic
        for chunk, bits in list(self.chunks.items()):
            live = topic.live_bits(chunk, bits, below)
            if live and not self._is_weighed(chunk, live):
                if self._is_in_tail(chunk, live):
                    nbytes = topic.weigh_bits(chunk << CHUNK_BITS, live)[1]
                    self._weighed[chunk] = live, nbytes, _NO_SIZES
                else:
                    sizes = array("Q", _sizes(topic, chunk << CHUNK_BITS, live))
                    self._weighed[chunk] = live, sum(sizes), sizes
                yield

    def _is_in_tail(self, chunk: int, live: int) -> bool:
        """Whether the sizes of some records are at hand in any case."""
        return (chunk << CHUNK_BITS) + lowest(live) > self._topic.history.last

    def _is_weighed(self, chunk: int, live: int) -> bool:
        """Whether memory can tell the bytes of these records, and of any that are left of them.

        What was weighed in the tail may have moved to a segment since.
        """
        weighed, _, sizes = self._weighed.get(chunk, _UNWEIGHED)
        return not live & ~weighed and (bool(sizes) or self._is_in_tail(chunk, live))

    def live(self, below: int) -> Iterator[tuple[int, int, int]]:
        """What is live by now of the records below a seq: chunk, bits and bytes."""
        for chunk, bits in self.chunks.items():
            live = self._topic.live_bits(chunk, bits, below)
            if live:
                yield chunk, live, self._nbytes(chunk, live)

    def _nbytes(self, chunk: int, live: int) -> int:
        weighed, nbytes, sizes = self._weighed.get(chunk, _UNWEIGHED)
        if weighed == live:
            return nbytes
        if sizes and not live & ~weighed:  # some of them died since
            chosen = selectors(live).ljust(weighed.bit_length(), b"\0")
            return sum(compress(sizes, compress(chosen, selectors(weighed))))
        return self._topic.weigh_bits(chunk << CHUNK_BITS, live)[1]


_NO_SIZES = array("Q")
_UNWEIGHED = (0, 0, _NO_SIZES)


def _sizes(topic: Topic, base: int, bits: int) -> list[int]:
    """The bytes of each of some live records, in order; bit 0 is `base`."""
    lo, hi = base + lowest(bits), base + bits.bit_length() - 1
    return [nbytes for seq, nbytes in topic.sizes(lo, hi) if bits >> (seq - base) & 1]


def _select_now(topic: Topic, match: Match, below: int) -> TagSelection:
    """The same without steps: during replay no request waits."""
    selection = TagSelection(topic, match)
    for _ in selection.find(below):
        pass
    return selection


def limit_of(topic: Topic, fact: Deleted) -> int:
    """No seq from here on is reached by a delete."""
    limit = topic.head + 1 if fact.bound is None else min(fact.bound, topic.head + 1)
    return limit if fact.before is None else min(limit, fact.before)


def selects_any(topic: Topic, fact: Deleted, chosen: TagSelection | None = None) -> bool:
    """Whether a delete removes anything; finds out at the first record."""
    limit = limit_of(topic, fact)
    if fact.match is None:
        return topic.earliest < limit and topic.count > 0
    chosen = chosen or _select_now(topic, fact.match, limit)
    return next(chosen.live(limit), None) is not None


def apply_deleted(
    topic: Topic, fact: Deleted, *, generation: int, chosen: TagSelection | None = None
) -> int:
    """Remove what the fact selects: silent, and no floor moves. Returns how many died.

    `chosen` is what a fact with a tag removes, from a caller who has looked for it before and
    prunes the tag index afterwards, both in steps.
    """
    lowest, limit = topic.earliest, limit_of(topic, fact)
    if fact.seqs:
        removed = _remove_runs(topic, _live_among(topic, fact.seqs))
    elif fact.match is None:
        removed = _remove_below(topic, limit)
        bound = topic.head + 1 if fact.bound is None else fact.bound
        topic.delete_below = max(topic.delete_below, min(fact.before or 0, bound))
    else:
        found = chosen or _select_now(topic, fact.match, limit)
        removed = _remove_chosen(topic, found, limit)
    topic.ledger.deleted += removed
    with topic.tags.held():
        topic.tags.note_dead(removed)
        if fact.match is not None and fact.before is None and chosen is None:
            for _ in topic.tags.forget_matching(fact.match, below=limit, step=ALL_TAGS):
                pass
    # The log's generation in the upper half, the number of the delete in it in the lower.
    if topic.delete_version >> _COUNT_BITS == generation:
        topic.delete_version += 1
    else:
        topic.delete_version = generation << _COUNT_BITS | 1
    if lowest in topic.deleted:
        topic.advance(lowest)
    if topic.config.cap_records or topic.config.cap_bytes:
        topic.enforce_caps()
    return removed


def _live_among(topic: Topic, seqs: tuple[int, ...]) -> Sequence[tuple[int, int]]:
    """Runs of those of some seqs that are live, in order."""
    lo, hi = seqs[0], seqs[-1]
    if hi - lo + 1 == len(seqs) and seqs == tuple(range(lo, hi + 1)) and topic.is_all_live(lo, hi):
        return ((lo, hi),)  # an ack of what one claim gave
    return [part for lo, hi in runs_of(sorted(set(seqs))) for part in topic.extents(lo, hi)]


def _remove_runs(topic: Topic, runs: Sequence[tuple[int, int]]) -> int:
    """Remove live records one run after the other."""
    removed = 0
    for lo, hi in runs:
        count, nbytes = topic.weigh_extent(lo, hi)
        topic.count -= count
        topic.bytes -= nbytes
        removed += count
        if len(topic.weights):
            _take_off_weights(topic, lo, hi)
        topic.deleted.add(lo, hi)
        topic.unflipped.add(lo, hi)
        topic.forget_leases_between(lo, hi)
    return removed


def _take_off_weights(topic: Topic, lo: int, hi: int) -> None:
    """A run of live records is about to go."""
    for chunk in range(lo >> CHUNK_BITS, (hi >> CHUNK_BITS) + 1):
        if topic.weights.get(chunk) is not None:
            a, b = max(lo, chunk << CHUNK_BITS), min(hi, chunk << CHUNK_BITS | LAST_BIT)
            topic.weights.take_off(chunk, *topic.weigh_extent(a, b))


def _remove_below(topic: Topic, limit: int) -> int:
    """Remove every record below a seq. What lies there was live, is deleted or in a hole, so
    it becomes one run between holes, however many runs of it were deleted before."""
    lo, hi = topic.earliest, limit - 1
    if lo > hi:
        return 0
    count, nbytes = topic.weigh_below(limit)
    topic.forget_weights_through(hi)
    topic.count -= count
    topic.bytes -= nbytes
    for a, b in topic.runs.gaps_between(lo, hi):
        topic.deleted.add(a, b)
        topic.unflipped.add(a, b)
    topic.forget_leases_between(lo, hi)
    return count


def _remove_chosen(topic: Topic, chosen: TagSelection, limit: int) -> int:
    """Remove the live ones of some records, a step for each chunk."""
    removed = 0
    gone: dict[int, int] = {}
    for chunk, bits, nbytes in chosen.live(limit):
        count = bits.bit_count()
        topic.bytes -= nbytes
        removed += count
        gone[chunk] = bits
        topic.weights.take_off(chunk, count, nbytes)
    topic.count -= removed
    topic.deleted.update(gone)
    topic.unflipped.update(gone)
    if topic.leases is not None and topic.leases.deliveries:
        was = topic.leases.deliveries
        topic.leases.forget(
            [seq for seq in was if gone.get(seq >> CHUNK_BITS, 0) >> (seq & LAST_BIT) & 1]
        )
    return removed
