"""Fetching records that are still in the log, or in memory: one view or read per stretch."""

from __future__ import annotations

from itertools import accumulate

from topics.core.tail import FRAME_OVERHEAD, Tail
from topics.engine.effects import Io, Op
from topics.engine.piece import Piece
from topics.storage.frames import verify
from topics.storage.sources import Sources

SPAN_SLACK = 4096
"""Foreign bytes between two wanted frames that are cheaper to read along than to skip."""


def fetch_slots(
    sources: Sources, topic_id: int, tail: Tail, slots: tuple[int, int], room: int
) -> Op[Piece]:
    """Records in slots `a` to `b - 1`, at least one, not many more than `room` bytes."""
    a, b = slots
    sizes = _sizes(tail, a, b)
    if sum(sizes) > room:
        b = a + _fitting(sizes, room)
        sizes = sizes[: b - a]
    piece = Piece(range(tail.first + a, tail.first + b), sizes, [], [], tail.first + b - 1)
    spans = _spans(tail, a, b)
    if len(spans) > 1:
        # A read of the first may take a while, and a checkpoint cut the tail meanwhile.
        tail, spans = _copy(tail, a, b), [(start - a, end - a) for start, end in spans]
    for span in spans:
        yield from _read_span(sources, topic_id, tail, span, piece)
    return piece


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
        return None  # those between come from elsewhere
    size = last + tail.lengths[b - 1] - start
    if not 0 < size <= SPAN_SLACK and not 0 < size <= min(
        room, sum(tail.lengths[a:b]) + SPAN_SLACK
    ):
        return None
    view = sources.get(start >> 32).view(start & 0xFFFFFFFF, size)
    if view is None:
        return None
    return [view] * (b - a), [location - start for location in locations]


def _copy(tail: Tail, a: int, b: int) -> Tail:
    """Where the records of slots `a` to `b - 1` are, for nobody else to change."""
    copy = Tail(tail.first + a)
    copy.locations, copy.lengths = tail.locations[a:b], tail.lengths[a:b]
    return copy


def _sizes(tail: Tail, a: int, b: int) -> list[int]:
    names = tail.name_lengths[a:b]
    return [
        length - FRAME_OVERHEAD - name
        for length, name in zip(tail.lengths[a:b], names, strict=True)
    ]


def _fitting(sizes: list[int], room: int) -> int:
    """How many of the first records fit; one always does."""
    for count, total in enumerate(accumulate(sizes)):
        if total > room:
            return max(count, 1)
    return len(sizes)


def _spans(tail: Tail, a: int, b: int) -> list[tuple[int, int]]:
    """Slots `a..b-1` cut where the log is interrupted by too many bytes of others."""
    locations, lengths = tail.locations, tail.lengths
    length = locations[b - 1] + lengths[b - 1] - locations[a]
    # In a scattered tail what lies between may be as long by chance: the frame of a router pass
    # instead of its copy.
    if length == sum(lengths[a:b]) and not tail.is_scattered:
        return [(a, b)]
    spans, start = [], a
    for at in range(a + 1, b):
        skipped = locations[at] - locations[at - 1] - lengths[at - 1]
        if not 0 <= skipped <= SPAN_SLACK:
            spans.append((start, at))
            start = at
    spans.append((start, b))
    return spans


def _read_span(
    sources: Sources, topic_id: int, tail: Tail, span: tuple[int, int], piece: Piece
) -> Op[None]:
    a, b = span
    bufs, offsets = piece.bufs, piece.offsets
    first_seq = tail.first + a
    locations, lengths = tail.locations[a:b], tail.lengths[a:b]
    source = sources.get(locations[0] >> 32)
    start = locations[0] & 0xFFFFFFFF
    size = (locations[-1] & 0xFFFFFFFF) + lengths[-1] - start
    buf = source.view(start, size)
    places = [location - locations[0] for location in locations]
    bufs += [buf or b""] * len(places)
    if buf is not None:
        offsets += places
        return
    buf = yield Io(lambda: source.pread(start, size))
    bufs[-len(places) :] = [buf] * len(places)
    for at, (place, length) in enumerate(zip(places, lengths, strict=True)):
        intact = verify(buf, place, length, topic_id=topic_id, seq=first_seq + at)
        offsets.append(place if intact else None)
