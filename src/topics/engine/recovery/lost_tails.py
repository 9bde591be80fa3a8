"""What a salvaged log may have lost behind the last record that it still shows of a topic.

Lost records leave a gap before the next record of their topic, and the gap says which they are. If
no record follows, nothing says whether records were lost. Their seqs were given out, and readers
may know them, so none may be used a second time. Therefore every topic that logged to a damaged
group, and whose head no frame behind the damage tells, counts as having lost as many records as the
damage can have held.

That is one record for each lost frame, with two exceptions: a frame of a topic that routers feed
may be a pass with many copies, and a frame of an ephemeral topic may reserve a block. The frame
that made a topic such a topic may be lost as well; then the topic counts as what it was before.
"""

from __future__ import annotations

from collections.abc import Iterable

from topics.core.catalog import Catalog
from topics.core.durability import EPHEMERAL_BLOCK
from topics.core.facts import Forwarded, RouterCreated
from topics.core.topic import Topic
from topics.engine.recovery.copied_records import Holds
from topics.engine.recovery.next_seqs import ceiling_of
from topics.engine.routers.passes import PASS_RECORDS
from topics.engine.settings import RANGES
from topics.storage import layout
from topics.storage.wal.scan import GenerationScan, LostFrames

_RESERVATION = EPHEMERAL_BLOCK + RANGES["max_batch_records"][1]
"""How far an ephemeral topic's ceiling rises at the most with one frame: by a write and a block."""
_BEHIND_ALL = 1 << 64


class LostTails:
    """By topic, how many seqs behind its head may have been given out."""

    def __init__(self, holds: Holds, fed: Iterable[int]) -> None:
        self._holds = holds
        self._fed = set(fed)  # topics that routers feed, or once did
        self._settled: dict[int, tuple[int, int]] = {}
        self._was_volatile: dict[int, int] = {}
        self._seqs: dict[int, int] = {}

    def settle(self, topic_id: int, generation: int, lfn: int = _BEHIND_ALL) -> None:
        """Note that all seqs which the topic gave out before this frame are known."""
        self._settled[topic_id] = (generation, lfn)

    def leave_volatile(self, topic: Topic) -> None:
        """The topic stops being ephemeral: its ceiling no longer tells how far it was."""
        self._was_volatile[topic.id] = ceiling_of(topic)

    def weigh(self, parts: Iterable[GenerationScan], catalog: Catalog) -> None:
        """Judge each topic, once everything was replayed."""
        parts = list(parts)
        damage = [(part, lost) for part in parts for lost in part.lost]
        if not damage:
            return
        for part in parts:
            for _, fact in part.entries:
                if isinstance(fact, RouterCreated):
                    self._fed.add(fact.dest_id)
                elif isinstance(fact, Forwarded):
                    self._fed.add(fact.topic_id)
        for topic in catalog:
            frames = sum(lost.frames for part, lost in damage if self._may_hit(topic, part, lost))
            if frames:
                self._seqs[topic.id] = self._most(topic, frames) + _lag(topic, catalog)

    def of(self, topic: Topic) -> int:
        """How many seqs behind the topic's head count as lost."""
        return self._seqs.get(topic.id, 0)

    def _may_hit(self, topic: Topic, part: GenerationScan, lost: LostFrames) -> bool:
        if layout.shard_of(topic.id, part.shards) != part.shard:
            return False
        if self._settled.get(topic.id, (0, 0)) > (part.generation, lost.behind):
            return False
        return not self._holds(part.generation, lost.behind + lost.frames, topic.id)

    def _most(self, topic: Topic, frames: int) -> int:
        if not topic.durability.survives_restart:
            return frames * _RESERVATION
        if topic.id in self._was_volatile:
            unknown = max(0, self._was_volatile[topic.id] - topic.head)
            return unknown + frames * _RESERVATION
        return frames * (PASS_RECORDS if topic.id in self._fed else 1)


def _lag(topic: Topic, catalog: Catalog) -> int:
    """What routers have not brought to a topic as far as is known.

    They pass a run of seqs that their source lost in one frame, however long it is.
    """
    behind = 0
    for router in catalog.routers.into(topic.id):
        source = catalog.by_id[router.source_id]
        behind += max(0, ceiling_of(source) - router.cursor)
    return behind
