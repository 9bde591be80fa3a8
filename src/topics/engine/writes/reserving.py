"""Seqs reserved durably before they are given out, in blocks.

After a power cut a `disk` or `ephemeral` topic may have lost its last records, but none of their
seqs may be given out again. So a durable ceiling lies above every seq that was given out, and a
restart goes on behind the ceiling.
"""

from __future__ import annotations

from topics.core.facts import HeadReserved
from topics.core.topic import Topic
from topics.engine.effects import Op
from topics.engine.kernel import CONTROL_BYTES, FactSubmission, Kernel
from topics.storage.wal.submission import Submission

RESERVE_BLOCK = 256
MAX_RESERVE_BLOCK = 4096
FAST_BLOCK_MS = 100
NEVER = 1 << 64


class Ceilings:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._blocks: dict[int, tuple[int, int]] = {}  # topic id -> (block size, when taken)
        self.half_used: dict[int, int] = {}  # topic id -> the seq at which more is reserved
        self._under_way: dict[int, Submission] = {}  # topic id -> the reservation in the log

    def can_reserve(self, topic: Topic) -> bool:
        """Whether a reservation is under way, or the log has room for one."""
        return topic.id in self._under_way or self._kernel.has_room(topic.id, CONTROL_BYTES)

    def reserve(self, topic: Topic, last: int) -> Op[None]:
        """Make a ceiling above `last` durable, or wait for the one that is under way.

        Afterwards the caller asks again: the one under way may have been for less.
        """
        under_way = self._under_way.get(topic.id)
        if under_way is None:
            self._kernel.require_room(topic.id, CONTROL_BYTES)
            under_way = self._begin(topic, last)
        if not under_way.done:
            yield under_way
        if under_way.error is not None:
            raise under_way.error

    def reserve_ahead(self, topic: Topic) -> None:
        """Half of a block is used: reserve the next, so that no write has to wait for it."""
        del self.half_used[topic.id]
        is_wanted = topic.durability.reserves_seqs and topic.id not in self._under_way
        if is_wanted and self._kernel.has_room(topic.id, CONTROL_BYTES):
            self._begin(topic, topic.handed_out)

    def forget(self, topic_id: int) -> None:
        """The topic was dropped."""
        self._blocks.pop(topic_id, None)
        self.half_used.pop(topic_id, None)

    def _begin(self, topic: Topic, last: int) -> Submission:
        klass = topic.durability
        block = self._block(topic) if klass.survives_restart else klass.first_block
        fact = HeadReserved(topic.id, max(self._kernel.clock.now_ms(), topic.last_ts), last + block)
        submission = self._kernel.submit([fact], topic_id=topic.id, durable=True, then=self._ended)
        if not submission.done:
            self._under_way[topic.id] = submission
        self.half_used[topic.id] = last + block // 2
        return submission

    def _ended(self, submission: FactSubmission) -> None:
        (fact,) = submission.facts
        assert isinstance(fact, HeadReserved)
        self._under_way.pop(fact.topic_id, None)

    def _block(self, topic: Topic) -> int:
        """The next block: twice the last one while blocks are used up faster than 100 ms."""
        now_ms = self._kernel.clock.now_ms()
        size, taken = self._blocks.get(topic.id, (RESERVE_BLOCK // 2, 0))
        fast = now_ms - taken < FAST_BLOCK_MS
        size = min(size * 2, MAX_RESERVE_BLOCK) if fast or not taken else RESERVE_BLOCK
        self._blocks[topic.id] = (size, now_ms)
        return size
