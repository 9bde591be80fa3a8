"""Tag index of one topic: tag to ascending seqs, for deletes by tag.

It costs nothing until a tag is used. Records appended while the index is loaded are added as they
come; older ones are loaded from their segments the first time somebody asks. Seqs that died are
left in place and filtered by the caller, who knows what is live; once too many are dead the index
is thrown away and loaded again when next needed.

Keys are kept in byte order (UTF-8 byte order is code point order), so that a prefix is one
contiguous range of keys. The order is made when a prefix is first asked for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from topics.core.facts import Match

NARROW, WIDE = "I", "Q"
NARROW_MAX = (1 << 32) - 1
"""A topic seldom reaches this seq; until it does, a posting takes half the memory."""


class TagIndex:
    __slots__ = ("_order", "_postings", "dead", "entries", "loaded")

    def __init__(self) -> None:
        # Many tags are on one record only: its seq alone takes a third of an array's memory.
        self._postings: dict[str, int | array[int]] = {}
        self._order: list[str] | None = None
        self.loaded = False  # covers every live record of the topic
        self.entries = 0
        self.dead = 0

    def add(self, tag: str, seq: int) -> None:
        """Note one record; seqs of a tag come in ascending order."""
        postings = self._postings.get(tag)
        if postings is None:
            self._begin(tag, seq)
        elif isinstance(postings, int):
            self._postings[tag] = _packed((postings, seq))
        else:
            try:
                postings.append(seq)
            except OverflowError:
                self._postings[tag] = postings = array(WIDE, postings)
                postings.append(seq)
        self.entries += 1

    def add_many(self, tag: str, seqs: array[int]) -> None:
        if len(seqs) == 1:
            self.add(tag, seqs[0])
            return
        if tag in self._postings:
            self._postings[tag] = _joined(self._seqs(tag), seqs)
        else:
            self._begin(tag, _packed(seqs))
        self.entries += len(seqs)

    def _begin(self, tag: str, postings: int | array[int]) -> None:
        self._postings[tag] = postings
        if self._order is not None:
            insort(self._order, tag)

    def _seqs(self, tag: str) -> array[int]:
        postings = self._postings[tag]
        return _packed((postings,)) if isinstance(postings, int) else postings

    def matching(self, match: Match, *, lo: int, below: int) -> Iterator[int]:
        """Seqs in `lo .. below - 1` that the selector accepts; tag by tag, so not sorted."""
        for tag in self._tags(match):
            postings = self._seqs(tag)
            yield from postings[bisect_left(postings, lo) : bisect_left(postings, below)]

    def _tags(self, match: Match) -> Iterator[str]:
        if not match.is_prefix:
            if match.value in self._postings:
                yield match.value
            return
        if self._order is None:
            self._order = sorted(self._postings)
        at = bisect_left(self._order, match.value)
        while at < len(self._order) and self._order[at].startswith(match.value):
            yield self._order[at]
            at += 1

    def forget_matching(self, match: Match, *, below: int) -> None:
        """Drop the postings of a selector whose records below `below` were all deleted."""
        for tag in list(self._tags(match)):
            postings = self._seqs(tag)
            cut = bisect_left(postings, below)
            self.entries -= cut
            if cut < len(postings):
                self._postings[tag] = postings[cut:]
            else:
                del self._postings[tag]
                if self._order is not None:
                    del self._order[bisect_left(self._order, tag)]

    def note_dead(self, count: int) -> None:
        """Records died that may be indexed; start afresh when most of the index is dead."""
        self.dead += count
        if self.loaded and self.dead > 1024 and self.dead > self.entries // 2:
            self.clear()

    def clear(self) -> None:
        self._postings = {}
        self._order = None
        self.loaded = False
        self.entries = 0
        self.dead = 0


def _packed(seqs: Sequence[int]) -> array[int]:
    """Ascending seqs in as little memory as they need."""
    return array(NARROW if seqs[-1] <= NARROW_MAX else WIDE, seqs)


def _joined(postings: array[int], seqs: array[int]) -> array[int]:
    """Postings with later ones behind them; the first may be reused."""
    if postings.typecode == NARROW and seqs[-1] > NARROW_MAX:
        postings = array(WIDE, postings)
    postings.extend(seqs if seqs.typecode == postings.typecode else array(postings.typecode, seqs))
    return postings
