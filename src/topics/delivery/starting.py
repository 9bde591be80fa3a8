"""Where streams begin: a wish such as "at the head" becomes a place, once and for good."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from topics.core.topic import Topic
from topics.delivery.subscriptions import Place
from topics.engine.effects import Op
from topics.engine.engine import Engine
from topics.errors import TopicNotFound
from topics.wire.requests import Start
from topics.wire.shapes import StreamStart


class Started(NamedTuple):
    """A topic to be followed: the place to begin, and what the caller is told of it."""

    place: Place
    shown: StreamStart


def resolve(
    engine: Engine, starts: Mapping[str, Start], *, lenient: bool
) -> Op[dict[str, Started]]:
    """Places for all these topics as of one moment.

    Topics that do not exist are left out when `lenient`, and refused otherwise. Bringing a topic
    up to date may take a while, so that is done for all of them before anything is decided.
    """
    found = engine.kernel.catalog.by_name
    for name in starts:
        if name not in found and not lenient:
            raise TopicNotFound(name)
    timed: dict[str, tuple[Topic, int]] = {}
    for name, start in starts.items():
        topic = found.get(name)
        if topic is None:
            continue
        yield from engine.views.state(name, touch=True)
        if start.from_ts is not None and found.get(name) is topic:
            cursor = yield from engine.kernel.indexes.ask(
                topic, partial(topic.start_of, start.from_ts)
            )
            timed[name] = topic, cursor
    if any(found.get(name, topic) is not topic for name, (topic, _) in timed.items()):
        return (yield from resolve(engine, starts, lenient=lenient))  # dropped and made anew
    started = {}
    for name, start in starts.items():
        topic = found.get(name)
        if topic is None:
            if lenient:
                continue
            raise TopicNotFound(name)
        cursor = start.cursor
        if start.tail:
            cursor = topic.head
        elif start.from_ts is not None:
            cursor = timed[name][1]
        shown = StreamStart(from_seq=cursor, head_seq=topic.head, earliest_seq=topic.earliest)
        started[name] = Started(Place(topic.epoch, cursor), shown)
    return started
