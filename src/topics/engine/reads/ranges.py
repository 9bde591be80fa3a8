"""Which records are fetched together: live ones with few dead ones between them.

A topic of which every second record is deleted would otherwise be read record by record. Where many
seqs in a row are dead a stretch ends: their bytes need not be read along.
"""

from __future__ import annotations

from itertools import compress, islice
from typing import NamedTuple

from topics.core.seqset import bits_between, lowest, selectors
from topics.core.topic import Topic
from topics.engine.reads.piece import Piece

LONGEST = 2048
"""Seqs of a stretch that has dead ones in it."""


class Stretch(NamedTuple):
    """`lo..hi` begins with a live record; a bit of `dead` says that one is not: bit 0 is `lo`."""

    lo: int
    hi: int
    dead: int = 0


def next_stretch(topic: Topic, lo: int, hi: int, most: int) -> Stretch | None:
    """The first of `lo..hi` that has live records, at most so many of them; None if none has."""
    extent = next(topic.extents(lo, hi), None)
    if extent is None:
        return None
    lo, end = extent
    if end - lo + 1 >= min(most, LONGEST) or end == hi:
        return Stretch(lo, min(end, lo + most - 1))
    end = min(hi, topic.head, lo + LONGEST - 1)
    dead = topic.dead_bits(lo, end)
    long = _long_runs(dead)
    if long:
        end = lo + lowest(long) - 1
    dead &= bits_between(0, end - lo)
    live = compress(range(lo, end + 1), selectors(bits_between(0, end - lo) & ~dead))
    last = next(islice(live, most - 1, None), end)
    return Stretch(lo, last, dead & bits_between(0, last - lo))


def _long_runs(bits: int) -> int:
    """Where 32 bits in a row begin."""
    for shift in (1, 2, 4, 8, 16):
        bits &= bits >> shift
    return bits


def without_dead(piece: Piece, stretch: Stretch) -> Piece:
    """A piece of a stretch but for the records that the stretch knows as dead."""
    lo, _, dead = stretch
    if not dead:
        return piece
    live = [not dead >> seq - lo & 1 for seq in piece.seqs]
    return Piece(
        list(compress(piece.seqs, live)),
        list(compress(piece.sizes, live)),
        list(compress(piece.bufs, live)),
        list(compress(piece.offsets, live)),
        piece.through,
        piece.cold,
    )
