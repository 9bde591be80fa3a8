"""Losses to caps that the log must know of before what causes them.

Replay derives what caps take from the log itself, so as a rule nothing is logged for it. It cannot
where records of a past ephemeral life still count: they are in no log.
"""

from __future__ import annotations

from topics.core.facts import Evicted
from topics.core.topic import Topic
from topics.engine.kernel import Kernel


def due_to_caps(kernel: Kernel, topic: Topic, *, count: int, nbytes: int) -> Evicted | None:
    """What has to be logged before so many more records; None when replay finds it by itself."""
    if not topic.counts_volatile or not kernel.is_logged(topic):
        return None
    coming = topic.handed_out - topic.head + count
    floor = topic.cap_floor(topic.config, count=coming, nbytes=topic.pending_bytes + nbytes)
    if floor <= topic.cap_hi:
        return None
    ts = max(kernel.clock.now_ms(), topic.last_ts)
    return Evicted(topic.id, ts, floor, topic.earliest, topic.ttl_hi)
