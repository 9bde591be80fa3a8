"""Which records are fetched together: live ones with few dead ones between them.

Otherwise a topic of which every second record is deleted would be read record by record. A range
ends where many seqs in a row are dead, so that their bytes are not read.
"""

from __future__ import annotations

from itertools import compress, islice
from typing import NamedTuple

import msgspec

from topics.core.seqset import bits_between, lowest, selectors
from topics.core.topic import Topic

LONGEST = 2048
"""Most seqs of a range that has dead ones in it."""


class Fetched(msgspec.Struct):
    """Live records of ascending seqs, as parallel columns.

    A record whose bytes are rotten in every copy has no offset. `through` is the last seq that
    was examined; it may lie past the last record when deleted ones follow. `cold` is the first
    seq of the segment they came from, if that lies in the cold directory.
    """

    seqs: list[int] | range
    sizes: list[int]
    bufs: list[bytes]
    offsets: list[int | None]
    through: int
    cold: int | None = None


class LiveRange(NamedTuple):
    """`lo..hi` begins with a live record; a bit of `dead` says that one is not: bit 0 is `lo`."""

    lo: int
    hi: int
    dead: int = 0


def next_range(topic: Topic, lo: int, hi: int, most: int) -> LiveRange | None:
    """The first of `lo..hi` that has live records, at most so many of them; None if none has."""
    extent = next(topic.extents(lo, hi), None)
    if extent is None:
        return None
    lo, end = extent
    if end - lo + 1 >= min(most, LONGEST) or end == hi:
        return LiveRange(lo, min(end, lo + most - 1))
    end = min(hi, topic.head, lo + LONGEST - 1)
    dead = topic.dead_bits(lo, end)
    long = _long_runs(dead)
    if long:
        end = lo + lowest(long) - 1
    dead &= bits_between(0, end - lo)
    live = compress(range(lo, end + 1), selectors(bits_between(0, end - lo) & ~dead))
    last = next(islice(live, most - 1, None), end)
    return LiveRange(lo, last, dead & bits_between(0, last - lo))


def _long_runs(bits: int) -> int:
    """Where 32 bits in a row begin."""
    for shift in (1, 2, 4, 8, 16):
        bits &= bits >> shift
    return bits


def without_dead(fetched: Fetched, live_range: LiveRange) -> Fetched:
    """What was fetched of a range, but for the records that the range knows as dead."""
    lo, _, dead = live_range
    if not dead:
        return fetched
    live = [not dead >> seq - lo & 1 for seq in fetched.seqs]
    return Fetched(
        list(compress(fetched.seqs, live)),
        list(compress(fetched.sizes, live)),
        list(compress(fetched.bufs, live)),
        list(compress(fetched.offsets, live)),
        fetched.through,
        fetched.cold,
    )
