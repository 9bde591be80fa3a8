"""Live reads of a log in this process: the calls of a client's, without a connection to lose."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from topics.errors import InvalidRequest, TopicNotFound
from topics.events import Arrived, CaughtUp, Event, Lost, TopicDropped, item_of
from topics.values import Record, Tombstone

if TYPE_CHECKING:
    from topics.embedded.log import Log


def follow(
    log: Log,
    topic: str,
    after: int | None,
    *,
    limit: int,
    node: str | Sequence[str],
    match: str | Sequence[str] | None,
    wait: float | None,
) -> Generator[Record | Tombstone, None, None]:
    """See `Log.follow`."""
    for event in events(log, {topic: after}, limit=limit, node=node, match=match, wait=wait):
        item = item_of(event)
        if item is not None:
            yield item


def events(
    log: Log,
    topics: Iterable[str] | Mapping[str, int | None],
    *,
    limit: int,
    node: str | Sequence[str],
    match: str | Sequence[str] | None,
    wait: float | None,
) -> Generator[Event, None, None]:
    """See `Log.watch`. Topics go in the order of their names, each to its head before the next."""
    cursors = _beginnings(log, topics)
    heads: dict[str, int] = {}
    while cursors:
        for topic in sorted(cursors):
            if topic in heads and not log._has_moved({topic: heads[topic]}):
                continue
            has_news = topic not in heads
            try:
                while True:
                    page = log.read(
                        topic, after=cursors[topic], limit=limit, node=node, match=match
                    )
                    if page.tombstone is not None:
                        yield Lost(topic, page.tombstone)
                    for record in page.records:
                        yield Arrived(topic, record)
                    has_news = has_news or bool(page.records) or page.tombstone is not None
                    cursors[topic], heads[topic] = page.next_from_seq, page.head_seq
                    if page.caught_up:
                        break
                if has_news:
                    yield CaughtUp(topic, page.head_seq)
            except TopicNotFound:
                del cursors[topic]
                heads.pop(topic, None)
                yield TopicDropped(topic)
        log._check()
        if cursors and not log._await_append(heads, wait):
            return


def _beginnings(log: Log, topics: Iterable[str] | Mapping[str, int | None]) -> dict[str, int]:
    """Where each topic is read from; an absent one is an error, a later loss of it is news."""
    names = (topics,) if isinstance(topics, str) else topics
    starts = topics if isinstance(topics, Mapping) else dict.fromkeys(names, 0)
    if not starts:
        raise InvalidRequest("name at least one topic to watch")
    cursors: dict[str, int] = {}
    for topic, after in starts.items():
        if after is not None and after < 0:
            raise InvalidRequest(f"after must be 0 or more, not {after}")
        head = log.state(topic, touch=False).head_seq
        cursors[topic] = head if after is None else after
    return cursors
