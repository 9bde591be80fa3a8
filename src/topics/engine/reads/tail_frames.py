"""Fetching records that are still in the log, or in memory: one view or read per range."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, compress
from typing import NamedTuple

from topics.core.seqset import bits_between, selectors
from topics.core.tail import FRAME_OVERHEAD, Tail
from topics.engine.effects import Io, Op
from topics.engine.reads.ranges import Fetched
from topics.storage.frames.append import verify
from topics.storage.sources import OFFSET_BITS, OFFSET_MASK, Sources

SPAN_SLACK = 4096
"""Foreign bytes between two wanted frames that are cheaper to read along than to skip."""


class _Slots(NamedTuple):
    """Where wanted records are, as columns of their own: the tail goes on changing."""

    seqs: Sequence[int]
    locations: array[int]
    lengths: array[int]
    sizes: Sequence[int]

    def part(self, start: int, end: int) -> _Slots:
        seqs, locations, lengths, sizes = self
        return _Slots(seqs[start:end], locations[start:end], lengths[start:end], sizes[start:end])


def fetch_slots(
    sources: Sources,
    topic_id: int,
    tail: Tail,
    slots: tuple[int, int],
    room: int,
    *,
    dead: int = 0,
) -> Op[Fetched]:
    """Records in slots `a` to `b - 1`, at least one, not many more than `room` bytes.

    A bit of `dead` says that the record is not wanted: bit 0 is that of slot `a`.
    """
    a, b = slots
    wanted, through = _wanted(tail, a, b, dead), tail.first + b - 1
    if sum(wanted.sizes) > room:
        wanted = wanted.part(0, _fitting(wanted.sizes, room))
        through = wanted.seqs[-1]
    fetched = Fetched(wanted.seqs, list(wanted.sizes), [], [], through)  # type: ignore[arg-type]
    for start, end in _spans(wanted, is_scattered=tail.is_scattered):
        yield from _read_span(sources, topic_id, wanted.part(start, end), fetched)
    return fetched


def view_slots(
    sources: Sources, tail: Tail, lo: int, hi: int, room: int
) -> tuple[list[bytes], list[int]] | None:
    """The frames of the records `lo..hi`, each as a buffer and where it begins in it.

    None when they are not in memory, are scattered, or take more than `room` bytes.
    """
    a, b = lo - tail.first, hi - tail.first + 1
    locations = tail.locations[a:b]
    start, last = locations[0], locations[-1]
    if len(locations) > 2 and (min(locations) < start or max(locations) > last):
        return None  # the records between them lie elsewhere
    size = last + tail.lengths[b - 1] - start
    if not 0 < size <= SPAN_SLACK and not 0 < size <= min(
        room, sum(tail.lengths[a:b]) + SPAN_SLACK
    ):
        return None
    view = sources.get(start >> OFFSET_BITS).view(start & OFFSET_MASK, size)
    if view is None:
        return None
    return [view] * (b - a), [location - start for location in locations]


def _wanted(tail: Tail, a: int, b: int, dead: int) -> _Slots:
    """Slots `a` to `b - 1` but for those with a bit in `dead`."""
    first, locations, lengths = tail.first, tail.locations[a:b], tail.lengths[a:b]
    names = tail.name_lengths[a:b]
    seqs: Sequence[int] = range(first + a, first + b)
    if dead:
        chosen = selectors(bits_between(0, b - a - 1) & ~dead)
        seqs = list(compress(seqs, chosen))
        locations = array("Q", compress(locations, chosen))
        lengths = array("I", compress(lengths, chosen))
        names = array("H", compress(names, chosen))
    sizes = [each - FRAME_OVERHEAD - name for each, name in zip(lengths, names, strict=True)]
    return _Slots(seqs, locations, lengths, sizes)


def _fitting(sizes: Sequence[int], room: int) -> int:
    """How many of the first records fit; one always does."""
    for count, total in enumerate(accumulate(sizes)):
        if total > room:
            return max(count, 1)
    return len(sizes)


def _spans(slots: _Slots, *, is_scattered: bool) -> list[tuple[int, int]]:
    """Wanted slots, cut where the log is interrupted by too many bytes of others."""
    locations, lengths = slots.locations, slots.lengths
    if not lengths:
        return []
    length = locations[-1] + lengths[-1] - locations[0]
    # In a scattered tail what lies between may be as long by chance: the frame of a router pass
    # instead of its copy.
    if length == sum(lengths) and not is_scattered:
        return [(0, len(lengths))]
    spans, start = [], 0
    for at in range(1, len(lengths)):
        skipped = locations[at] - locations[at - 1] - lengths[at - 1]
        if not 0 <= skipped <= SPAN_SLACK:
            spans.append((start, at))
            start = at
    spans.append((start, len(lengths)))
    return spans


def _read_span(sources: Sources, topic_id: int, slots: _Slots, fetched: Fetched) -> Op[None]:
    bufs, offsets = fetched.bufs, fetched.offsets
    seqs, locations, lengths, _ = slots
    source = sources.get(locations[0] >> OFFSET_BITS)
    start = locations[0] & OFFSET_MASK
    size = (locations[-1] & OFFSET_MASK) + lengths[-1] - start
    buf = source.view(start, size)
    places = [location - locations[0] for location in locations]
    bufs += [buf or b""] * len(places)
    if buf is not None:
        offsets += places
        return
    buf = yield Io(lambda: source.pread(start, size))
    bufs[-len(places) :] = [buf] * len(places)
    for seq, place, length in zip(seqs, places, lengths, strict=True):
        intact = verify(buf, place, length, topic_id=topic_id, seq=seq)
        offsets.append(place if intact else None)
