"""Records past their time to live, and keys outside their window: finding and removing them.

Time passes without a write, so every read and write of a topic with a time to live asks first. A
write with a key drops a few expired keys of its topic; upkeep drops the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topics.core.ages import Ages
from topics.core.facts import Evicted
from topics.core.loading import NotLoaded
from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Op
from topics.engine.kernel import Kernel
from topics.errors import Internal
from topics.storage.crashpoints import crashpoint

RETRY_UNREADABLE_MS = 1000
STEP_KEYS = 2048
TOPICS_BETWEEN_PAUSES = 128


def retain(kernel: Kernel, topic: Topic) -> Op[None]:
    """Let expired records go. The loss is in the log before it is shown, unless the log
    cannot take it: then it is shown all the same, and nothing is reclaimed on disk."""
    if not may_have_expired(kernel, topic):
        return
    try:
        fact = yield from kernel.indexes.ask(topic, partial(due_eviction, kernel, topic))
        if fact is None:
            return
        held = yield from kernel.indexes.prepare_loss(topic, fact.ttl_hi)
    except Internal:
        # Expired records of a segment whose index cannot be read cannot be shown either.
        _note_unreadable(kernel, topic)
        return
    kernel.host.before_change()
    if not (yield from _log(kernel, topic, fact)):
        lose_expired(kernel, topic, fact)
    del held


def _log(kernel: Kernel, topic: Topic, fact: Evicted) -> Op[bool]:
    """Log a loss, which shows it; False if the topic is not logged or the log refused it."""
    if not kernel.is_logged(topic):
        return False
    submission = kernel.submit([fact], topic_id=topic.id, durable=False)
    if not submission.done:
        yield submission
    crashpoint("evict.commit")
    return submission.error is None


def may_have_expired(kernel: Kernel, topic: Topic) -> bool:
    """Whether records are past their time to live, as far as memory can tell."""
    if not topic.config.ttl_ms:
        return False
    try:
        return kernel.indexes.ask_memory(due_eviction, kernel, topic) is not None
    except NotLoaded:
        return True


def due_eviction(kernel: Kernel, topic: Topic) -> Evicted | None:
    """What has expired; raises `NotLoaded` when memory cannot tell."""
    if kernel.unreadable and _is_unreadable(kernel, topic):
        return None
    now_ms = kernel.clock.now_ms()
    ttl_ms, aged = topic.config.ttl_ms, 0
    if ttl_ms and topic.last_ts > now_ms:
        aged = aged_through(kernel, topic, ttl_ms, now_ms=now_ms)
    ttl_hi = topic.expired_through(now_ms, aged=aged)
    if ttl_hi <= topic.ttl_hi:
        return None
    return Evicted(topic.id, max(now_ms, topic.last_ts), topic.cap_hi, topic.earliest, ttl_hi)


def aged_through(kernel: Kernel, topic: Topic, age_ms: int, *, now_ms: int) -> int:
    """The last seq known to be older than `age_ms` although its time does not say so."""
    if not topic.is_ahead_of(now_ms):
        return 0
    running_ms = kernel.running_ms()
    if topic.ages.note(topic.head, running_ms):
        kernel.dirty.add(topic.id)
        kernel.ahead.add(topic.id)
    return topic.ages.through(running_ms - age_ms)


def forget_ages(kernel: Kernel, topic: Topic) -> None:
    """Drop the marks once the clock has reached the times of a topic, which then tell the age."""
    if len(topic.ages) and not topic.is_ahead_of(kernel.clock.now_ms()):
        topic.ages = Ages()
        kernel.ahead.discard(topic.id)


def lose_expired(kernel: Kernel, topic: Topic, fact: Evicted) -> None:
    """Show a loss that the log does not know of yet; the clock would derive it again."""
    if not kernel.is_there(topic):
        return  # its bytes were taken off the total when it was dropped
    kernel.show(topic, partial(topic.lose, ttl_hi=fact.ttl_hi, cap_hi=0), wakes=False)


def load_for_write(kernel: Kernel, topic: Topic, load: Callable[[], object]) -> Op[object]:
    """Load what `NotLoaded` told a write of.

    If an index cannot be read, nothing expires for a while, because a write need not wait for
    expiry. If the write needs the index for its caps, it is refused when it asks again.
    """
    try:
        return (yield from kernel.indexes.load(topic, load))
    except Internal:
        if not topic.config.ttl_ms or _is_unreadable(kernel, topic):
            raise
        _note_unreadable(kernel, topic)
        return ()


def _is_unreadable(kernel: Kernel, topic: Topic) -> bool:
    """Whether an index could not be read a moment ago: what expired goes later."""
    return kernel.unreadable.get(topic.id, 0) > kernel.clock.now_ms()


def _note_unreadable(kernel: Kernel, topic: Topic) -> None:
    kernel.unreadable[topic.id] = kernel.clock.now_ms() + RETRY_UNREADABLE_MS


def expire_keys(kernel: Kernel) -> Op[None]:
    """Drop idempotency keys outside their window, in steps, also of topics without new writes."""
    catalog = kernel.catalog
    for count, topic_id in enumerate(tuple(catalog.keyed), 1):
        while topic_id in catalog.by_id and _expire_keys(kernel, catalog.by_id[topic_id]):
            yield PAUSE
        if count % TOPICS_BETWEEN_PAUSES == 0:
            yield PAUSE


def _expire_keys(kernel: Kernel, topic: Topic) -> bool:
    """Drop some keys of a topic; whether there may be more to drop."""
    now_ms, window_ms = kernel.clock.now_ms(), topic.config.idempotency_window_ms
    aged = aged_through(kernel, topic, window_ms, now_ms=now_ms)
    if topic.keys.expire(now_ms=now_ms, window_ms=window_ms, aged=aged, at_most=STEP_KEYS):
        return True
    if not len(topic.keys):
        kernel.catalog.keyed.discard(topic.id)
    return False
