"""Tag index of one topic: tag to ascending seqs, for deletes by tag.

It costs nothing until a tag is used. Records appended while the index is loaded are added as they
come; older records are loaded from segments and the log at the first delete by tag (see
`engine.reads.tagging`), and the index answers only once all of them are in. Seqs that died are left
in place and filtered by the caller, who knows what is live; once too many are dead the index is
thrown away and loaded again when next needed. While a delete is on its way through the log it holds
the index (`held`): when the log confirms the delete, the index must still have what it removes.

Keys are kept in byte order (UTF-8 byte order is code point order), so that a prefix is one
contiguous range of keys.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from topics.core.facts import Match

if TYPE_CHECKING:
    from topics.core.deleting import TagSelection

NARROW, WIDE = "I", "Q"
NARROW_MAX = (1 << 32) - 1
"""A topic seldom reaches this seq; until it does, a posting takes half the memory."""

FEW_DEAD = 1024
"""So many dead seqs are not worth a new index."""

ROW_TAGS = 1024
"""What lies together in order: a new tag moves half of that at most, in a microsecond."""


class TagIndex:
    __slots__ = ("_choosing", "_holders", "_order", "_postings", "dead", "entries", "loaded")

    def __init__(self) -> None:
        self._holders = 0
        self._choosing: tuple[TagSelection, ...] = ()  # they note every record that is written
        self.clear()

    def clear(self) -> None:
        # Many tags are on one record only: its seq alone takes a third of an array's memory.
        self._postings: dict[str, int | array[int]] = {}
        self._order = _NO_TAGS
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
        for chosen in self._choosing:
            chosen.note(tag, seq)

    def add_many(self, tag: str, seqs: Sequence[int]) -> None:
        if len(seqs) == 1:
            self.add(tag, seqs[0])
            return
        if tag in self._postings:
            self._postings[tag] = _joined(self._seqs(tag), seqs)
        else:
            self._begin(tag, _packed(seqs))
        self.entries += len(seqs)

    def _begin(self, tag: str, postings: int | array[int]) -> None:
        if self._order is _NO_TAGS:
            self._order = TagOrder()
        self._postings[tag] = postings
        self._order.add(tag)

    def _seqs(self, tag: str) -> array[int]:
        postings = self._postings[tag]
        return _packed((postings,)) if isinstance(postings, int) else postings

    def some(self, match: Match, after: str | None, most: int) -> list[str]:
        """The next tags that the selector accepts, in order; `after` is the last one before."""
        if match.is_prefix:
            return list(islice(self._order.beginning_with(match.value, after), most))
        return [match.value] if after is None and match.value in self._postings else []

    def seqs_of(self, tag: str, *, lo: int, below: int, most: int) -> tuple[int, ...]:
        """The first seqs of a tag in `lo .. below - 1`; none when the tag is gone."""
        postings = self._postings.get(tag)
        if postings is None:
            return ()
        if isinstance(postings, int):
            return (postings,) if lo <= postings < below else ()
        start = bisect_left(postings, lo)
        end = min(bisect_left(postings, below, start), start + most)
        return tuple(postings[start:end])

    def forget_matching(self, match: Match, *, below: int, step: int) -> Iterator[None]:
        """Drop the postings of a selector whose records below `below` are all dead, so many tags
        at a time. The dead were noted: they are taken off again."""
        after = None
        while tags := self.some(match, after, step):
            for tag in tags:
                postings = self._seqs(tag)
                cut = bisect_left(postings, below)
                self.entries -= cut
                self.dead = max(0, self.dead - cut)
                if cut < len(postings):
                    self._postings[tag] = postings[cut:]
                else:
                    del self._postings[tag]
                    self._order.remove(tag)
            after = tags[-1]
            if len(tags) == step:
                yield

    def note_dead(self, count: int) -> None:
        """Records died that may be indexed; start afresh when most of the index is dead."""
        self.dead += count
        self._let_go_if_dead()

    @contextmanager
    def held(self) -> Iterator[None]:
        """From here on, once it is loaded, it stays."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            self._let_go_if_dead()

    @contextmanager
    def telling(self, chosen: TagSelection) -> Iterator[None]:
        """From here on `chosen` is told of every record with a tag that is written."""
        self._choosing += (chosen,)
        try:
            yield
        finally:
            self._choosing = tuple(each for each in self._choosing if each is not chosen)

    def _let_go_if_dead(self) -> None:
        is_dead = self.dead > FEW_DEAD and self.dead > self.entries // 2
        if is_dead and self.loaded and not self._holders:
            self.clear()


class TagOrder:
    """Tags in order, in rows of bounded length: no change has to move all of a million others."""

    __slots__ = ("_firsts", "_rows")

    def __init__(self) -> None:
        self._rows: list[list[str]] = [[]]
        # By row: no tag in the row sorts before its bound, and a tag that does goes to another row.
        self._firsts = [""]

    def add(self, tag: str) -> None:
        """Add a tag that is not there."""
        at = bisect_right(self._firsts, tag) - 1
        row = self._rows[at]
        insort(row, tag)
        if len(row) > ROW_TAGS:
            half = len(row) // 2
            self._rows[at : at + 1] = [row[:half], row[half:]]
            self._firsts.insert(at + 1, row[half])

    def remove(self, tag: str) -> None:
        """Take a tag out that is there."""
        at = bisect_right(self._firsts, tag) - 1
        row = self._rows[at]
        del row[bisect_left(row, tag)]
        if not row and at:
            del self._rows[at], self._firsts[at]

    def beginning_with(self, prefix: str, after: str | None = None) -> Iterator[str]:
        """The tags with a prefix that come behind `after`, in order; with no changes in between."""
        start = prefix if after is None else max(prefix, after)
        at = bisect_right(self._firsts, start) - 1
        for row in islice(self._rows, at, None):
            for tag in islice(row, bisect_left(row, start), None):
                if not tag.startswith(prefix):
                    return
                if tag != after:
                    yield tag


_NO_TAGS = TagOrder()
"""What topics without tags share: there may be very many of them."""


def _packed(seqs: Sequence[int]) -> array[int]:
    """Ascending seqs in as little memory as they need."""
    return array(NARROW if seqs[-1] <= NARROW_MAX else WIDE, seqs)


def _joined(postings: array[int], seqs: Sequence[int]) -> array[int]:
    """Postings with later ones behind them; the first may be reused."""
    if postings.typecode == NARROW and seqs[-1] > NARROW_MAX:
        postings = array(WIDE, postings)
    postings.extend(array(postings.typecode, seqs))
    return postings
