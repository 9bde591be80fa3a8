"""The facts behind the story of a topic, taken from the engine; `wire.stories` makes the sentences.

`topics explain` collects the same facts through the calls of a log, on every kind of log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from topics.core.ages import AHEAD_MS
from topics.core.topic import Topic
from topics.engine.effects import Op
from topics.engine.engine import Engine
from topics.values import TopicState
from topics.wire import stories
from topics.wire.plain import counted
from topics.wire.stories import DeadJobs, Facts, Story

MAX_CURSORS = 100


def explain(engine: Engine, name: str, *, allows: Callable[[str], bool]) -> Op[Story]:
    """The story of a topic, without names that the reader may not use."""
    state = yield from engine.views.state(name, touch=False)
    ledger = yield from engine.views.audit(name)
    cursors = yield from engine.cursors.list(name)
    topic = engine.kernel.topic(name)
    after_gaps = {}
    for gap in ledger.gaps:
        found = yield from engine.kernel.indexes.ask(topic, partial(topic.first_after, gap.gap_to))
        if found:
            after_gaps[gap.gap_to] = found[1]
    oldest = yield from engine.kernel.indexes.ask(topic, partial(topic.first_after, 0))
    newest = yield from engine.kernel.indexes.ask(
        topic, partial(topic.first_after, max(0, topic.head - 1))
    )
    ahead_ms = newest[1] - engine.kernel.clock.now_ms() if newest else 0
    late = [found for found in cursors if found.lag_records or found.gap_pending]
    facts = Facts(
        state,
        ledger,
        cursors=late[:MAX_CURSORS],
        routers=[
            engine.routing.state(router)
            for router in engine.kernel.catalog.routers.into(topic.id)
            if allows(router.name) and allows(router.source)
        ],
        after_gaps=after_gaps,
        oldest_ts=oldest[1] if oldest else None,
        ahead=(newest[1], ahead_ms) if newest and ahead_ms > AHEAD_MS else None,
        dead=(yield from _dead(engine, state, allows)) if state.queue is not None else None,
    )
    return stories.of_topic(facts)


def _dead(engine: Engine, state: TopicState, allows: Callable[[str], bool]) -> Op[DeadJobs | None]:
    letters_in = state.config["dead_letter"]
    letters = engine.kernel.catalog.by_name.get(letters_in or "")
    if letters is None or not allows(letters.name):
        return None
    count = dead_count(engine, engine.kernel.topic(state.topic))
    oldest = yield from engine.kernel.indexes.ask(letters, partial(letters.first_after, 0))
    if not count or not oldest:
        return None
    return DeadJobs(counted(count, "job"), letters.name, oldest[1], count != 1)


def dead_count(engine: Engine, queue: Topic) -> int:
    """The letters of a queue in its dead-letter topic; if queues share that topic, the jobs that
    died since the server started."""
    assert queue.leases is not None
    catalog = engine.kernel.catalog
    letters = catalog.by_name.get(queue.config.dead_letter or "")
    if letters is None:
        return queue.leases.dead_lettered
    shared = Counter(topic.config.dead_letter for topic in catalog.by_id.values())
    return letters.count if shared[letters.name] == 1 else queue.leases.dead_lettered
