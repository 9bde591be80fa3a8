"""The records that a delete by tag removes, found before it is logged.

One tag may be on a million records and a prefix may cover a million tags, so the records are found
and weighed in steps between which the topic goes on. What is written meanwhile is noted as it
comes (`note`, called by the tag index); what dies meanwhile is left out when the delete is applied,
which then costs a step for each chunk of 1024 seqs. By then all of it has been weighed, record by
record: when the delete is applied, nothing may have to be read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import compress
from typing import TYPE_CHECKING

from topics.core.facts import Match
from topics.core.seqset import CHUNK_BITS, LAST_BIT, lowest, selectors

if TYPE_CHECKING:
    from topics.core.topic import Topic

STEP_SEQS = 2048
STEP_TAGS = 512


class Chosen:
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
                    sizes = array("Q", topic.sizes_of(chunk, live))
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


def chosen_at_once(topic: Topic, match: Match, below: int) -> Chosen:
    """The same without steps: in replay nobody else waits."""
    chosen = Chosen(topic, match)
    for _ in chosen.find(below):
        pass
    return chosen
