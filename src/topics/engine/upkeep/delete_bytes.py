"""Which delete bytes a checkpoint may write.

Below its `exact_from` a snapshot names no deletes; a start from it takes every delete byte found
there for a delete that the snapshot knows. A delete that was logged after the snapshot must not
have its byte there yet: the start would not see the record, and the replayed delete, which takes
the record off `count` and `bytes`, would find nothing.

So a delete below the `exact_from` of a kept snapshot is named in the next two snapshots, and the
checkpoint after these writes its byte: by then no kept snapshot is older than the delete.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.core.catalog import Catalog
from topics.core.seqset import SeqSet
from topics.core.topic import SEQ_BASE, Topic


class Flips(NamedTuple):
    """The deletes of one topic whose delete bytes are not on disk."""

    fresh: SeqSet  # since the last checkpoint
    due: SeqSet  # to be written now
    early: SeqSet  # of `fresh`: to be named in two snapshots first
    named: SeqSet  # all that this snapshot has to name, `early` included


class _Named(NamedTuple):
    """What the newest two snapshots say about a topic."""

    exact_from: tuple[int, int] = (SEQ_BASE, SEQ_BASE)
    in_one: SeqSet = SeqSet()  # early deletes that the newest snapshot names
    in_both: SeqSet = SeqSet()


_NOTHING = _Named()


class DeleteBytes:
    """Of all topics; an entry only for topics that have more deletes than a snapshot names."""

    def __init__(self, catalog: Catalog) -> None:
        self._waiting = {
            topic.id: _Named(exact_from=(SEQ_BASE, topic.exact_from))
            for topic in catalog
            if topic.exact_from > SEQ_BASE
        }

    def take(self, topic: Topic) -> Flips:
        """Take over the deletes since the last checkpoint, and tell what to do with each."""
        fresh, topic.unflipped = topic.unflipped, SeqSet()
        waiting = self._waiting.get(topic.id)
        if waiting is None:
            return Flips(fresh, fresh, SeqSet(), SeqSet())
        known_from = max(waiting.exact_from)
        early = fresh.below(known_from)
        due = fresh.copy()
        due.discard_through(known_from - 1)
        due.merge(waiting.in_both)
        named = early.copy()
        named.merge(waiting.in_one)
        return Flips(fresh, due, early, named)

    def noted(self, topic: Topic, flips: Flips, exact_from: int) -> bool:
        """A snapshot with these is durable. Whether bytes of the topic remain to be written."""
        was = self._waiting.get(topic.id, _NOTHING)
        now = _Named((was.exact_from[1], exact_from), flips.early, was.in_one)
        if max(now.exact_from) > SEQ_BASE or now.in_one or now.in_both:
            self._waiting[topic.id] = now
        else:
            self._waiting.pop(topic.id, None)
        return bool(now.in_one) or bool(now.in_both)

    def forget(self, topic_id: int) -> None:
        """The topic is gone."""
        self._waiting.pop(topic_id, None)
