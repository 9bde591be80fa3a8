"""The records that a delete by tag removes, found before it is logged.

One tag may be on a million records and a prefix may cover a million tags, so the records are found
and weighed in steps between which the topic goes on. What is written meanwhile is noted as it
comes (`note`, called by the tag index); what dies meanwhile is left out when the delete is applied,
which then costs a step for each chunk of 1024 seqs. Below `exact_from` only delete bytes tell what
is dead: there each record is asked about when it is found, and later deletes are known to the topic
until it forgets them (`leave_out_deleted`, called before it does).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from topics.core.facts import Match
from topics.core.seqset import CHUNK_BITS, LAST_BIT

if TYPE_CHECKING:
    from topics.core.topic import Topic

STEP_SEQS = 2048
STEP_TAGS = 512
STEP_CHUNKS = 8


class Chosen:
    """Bits by chunk, as in a `SeqSet`, with the weight of those that were live."""

    __slots__ = ("_match", "_topic", "_weighed", "chunks")

    def __init__(self, topic: Topic, match: Match) -> None:
        self._topic = topic
        self._match = match
        self.chunks: dict[int, int] = {}
        self._weighed: dict[int, tuple[int, int]] = {}  # which bits, and their bytes

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
        chunks, topic = self.chunks, self._topic
        if seqs[0] < topic.exact_from:
            seqs = tuple(filter(topic.is_live, seqs))
        for seq in seqs:
            chunk = seq >> CHUNK_BITS
            chunks[chunk] = chunks.get(chunk, 0) | 1 << (seq & LAST_BIT)

    def leave_out_deleted(self) -> None:
        """Do not rely on the topic any more to know what was deleted since it was found."""
        for chunk, bits in self.chunks.items():
            self.chunks[chunk] = bits & ~self._topic.deleted.chunk(chunk)

    def weigh(self, below: int) -> Iterator[None]:
        """Weigh what was found, a few chunks in each step."""
        for count, (chunk, bits) in enumerate(list(self.chunks.items()), 1):
            live = self._topic.live_bits(chunk, bits, below)
            if live:
                weight = self._topic.weigh_bits(chunk << CHUNK_BITS, live)
                self._weighed[chunk] = live, weight[1]
            if count % STEP_CHUNKS == 0:
                yield

    def live(self, below: int) -> Iterator[tuple[int, int, int]]:
        """What is live by now of the records below a seq: chunk, bits and bytes."""
        topic = self._topic
        for chunk, bits in self.chunks.items():
            live = topic.live_bits(chunk, bits, below)
            if live:
                weighed, nbytes = self._weighed.get(chunk, (0, 0))
                if weighed != live:
                    nbytes = topic.weigh_bits(chunk << CHUNK_BITS, live)[1]
                yield chunk, live, nbytes


def chosen_at_once(topic: Topic, match: Match, below: int) -> Chosen:
    """The same without steps: in replay nobody else waits."""
    chosen = Chosen(topic, match)
    for _ in chosen.find(below):
        pass
    return chosen
