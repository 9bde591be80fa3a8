"""Fetched records on their way into a page."""

from __future__ import annotations

import msgspec


class Piece(msgspec.Struct):
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
