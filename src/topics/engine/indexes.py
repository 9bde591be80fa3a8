"""Questions about records in segments: answered from memory, after loading what memory lacks.

`apply` must not fail and the event loop must not wait for a disk. So an operation loads the
indexes that a change needs before the change is logged, and holds them until it is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import ParamSpec, TypeVar

from topics.core.loading import NotLoaded
from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Io, Op
from topics.engine.reads.history import indexes_of
from topics.errors import Internal
from topics.storage.segments.codec import Idx
from topics.storage.segments.store import SegmentStore

P = ParamSpec("P")
T = TypeVar("T")

CHUNKS_AT_ONCE = 16
"""So many chunks of records are weighed at a time."""


class Indexes:
    """The indexes of all segments. `require` raises for a topic that was dropped during a wait."""

    def __init__(self, segments: SegmentStore | None, require: Callable[[Topic], None]) -> None:
        self._segments = segments  # None: everything lives in memory
        self._require = require

    def ask(self, topic: Topic, question: Callable[[], T]) -> Op[T]:
        """What memory answers, once the indexes that it takes are loaded.

        Raises `Internal` when one of them cannot be read, `TopicNotFound` when the topic was
        dropped meanwhile.
        """
        held: list[object] = []  # an index stays in memory as long as it is referenced
        while True:
            try:
                return self.ask_memory(question)
            except NotLoaded as missing:
                load = missing.load
            held.append((yield from self.load(topic, load)))

    def ask_memory(self, question: Callable[P, T], *about: P.args, **more: P.kwargs) -> T:
        """What memory answers; raises `NotLoaded` when a file has to be read first."""
        store = self._segments
        if store is None:
            return question(*about, **more)
        was, store.refuses_to_wait = store.refuses_to_wait, True
        try:
            return question(*about, **more)
        finally:
            store.refuses_to_wait = was

    def load(self, topic: Topic, load: Callable[[], object]) -> Op[object]:
        """Load what `NotLoaded` named; raises as `ask` does. The caller keeps the result."""
        try:
            return (yield Io(load))
        except OSError as error:
            self._require(topic)
            message = f"an index of topic {topic.name!r} could not be read: {error}"
            raise Internal(message) from error

    def prepare_loss(self, topic: Topic, through: int) -> Op[object]:
        """Load what it takes to evict everything up to a seq, in small steps.

        The caller keeps the result until the eviction is applied.
        """
        held: list[object] = []
        while True:
            try:
                while self._weigh_some(topic, through):
                    held.clear()
                    yield PAUSE
                return self.ask_memory(sizes_at_hand, topic, through)
            except NotLoaded as missing:
                load = missing.load
            held.append((yield from self.load(topic, load)))

    def _weigh_some(self, topic: Topic, through: int) -> bool:
        """Weigh a few chunks; False when every chunk that can be weighed now is weighed."""
        some = islice(topic.weigh_front(through), CHUNKS_AT_ONCE)
        return len(self.ask_memory(list, some)) == CHUNKS_AT_ONCE


def sizes_at_hand(topic: Topic, through: int) -> list[Idx]:
    """What `Topic.lose` and deletes by position need beside the weights they know."""
    return indexes_of(topic, topic.rest_of(through), through)
