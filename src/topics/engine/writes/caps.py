"""What a write evicts: as far as the log must know it, and memory, before the write is logged.

Applying a write must not read files. So the indexes that tell what the write evicts are in memory
before the write is logged, and are held until it is applied. Other writes may be on their way, and
some of them may fail, so the cap may cut anywhere up to where it would if all of them came.

Replay derives what caps evict from the log itself, so as a rule nothing is logged for it. It cannot
where records of a past ephemeral life still count: they are in no log.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.core.facts import Evicted
from topics.core.loading import NotLoaded
from topics.core.seqset import LAST_BIT
from topics.core.topic import Topic
from topics.engine.effects import Op
from topics.engine.kernel import Kernel
from topics.engine.reads.history import indexes_of
from topics.engine.retention import due_eviction, load_for_write


class Losses(NamedTuple):
    """What a write evicts: what the log has to know of it, and the indexes that tell all of it."""

    evicted: Evicted | None
    held: object


NO_LOSSES = Losses(None, ())


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


def losses_of(kernel: Kernel, topic: Topic, *, count: int, nbytes: int) -> Losses:
    """What so many more records evict; raises `NotLoaded` when memory cannot tell."""
    if not topic.evicts:
        return NO_LOSSES
    if topic.earliest <= topic.history.last or len(topic.volatile):
        return kernel.indexes.ask_memory(_losses_of, kernel, topic, count, nbytes)
    # All live records are in the tail, whose sizes and times are in memory.
    evicted = due_eviction(kernel, topic) if topic.config.ttl_ms else None
    return NO_LOSSES if evicted is None else Losses(evicted, ())


def load_losses(kernel: Kernel, topic: Topic, *, count: int, nbytes: int) -> Op[Losses]:
    """The same once everything is loaded, for an operation that keeps the gate closed meanwhile."""
    held: list[object] = []
    while True:
        try:
            return losses_of(kernel, topic, count=count, nbytes=nbytes)
        except NotLoaded as missing:
            load = missing.load
        held.append((yield from load_for_write(kernel, topic, load)))


def _losses_of(kernel: Kernel, topic: Topic, count: int, nbytes: int) -> Losses:
    evicted = due_eviction(kernel, topic) if topic.config.ttl_ms else None
    if len(topic.volatile):
        loss = due_to_caps(kernel, topic, count=count, nbytes=nbytes)
        evicted = loss or evicted  # what TTL takes besides is taken by the next look
    first = through = 0
    if evicted is not None:
        through = max(evicted.ttl_hi, evicted.cap_hi)
        first = topic.rest_of(through)
    coming = topic.handed_out - topic.head + count
    cut = topic.cap_floor(topic.config, count=coming, nbytes=topic.pending_bytes + nbytes)
    if cut > topic.cap_hi:
        # By then the whole chunk may be weighed in which it cuts.
        first, through = topic.earliest, max(cut | LAST_BIT, through)
    if not through:
        return NO_LOSSES
    for _ in topic.weigh_front(through):
        pass
    return Losses(evicted, indexes_of(topic, first, through))
