"""Everything the log knows: topics, routers, staging apps. One `apply` for live and replay.

A fact given to `apply` is already as durable as it has to be; applying it cannot fail and gives
the same result whether it was decided a microsecond ago or read back after a crash.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import islice, takewhile

import msgspec

from topics.core.config import parse_json
from topics.core.deleting import apply_deleted
from topics.core.facts import (
    Appended,
    ConfigUpdated,
    CursorMoved,
    Deleted,
    Evicted,
    Fact,
    HeadReserved,
    KeyRemembered,
    LeaseChanged,
    RouterCreated,
    RouterDeleted,
    SeqSkipped,
    StageCommitted,
    TopicCreated,
    TopicDeleted,
)
from topics.core.routers import Routers
from topics.core.tail import History
from topics.core.topic import Topic
from topics.topic_settings import TopicConfig


class StagingApp(msgspec.Struct):
    """A staging app: the last epoch it committed, the answer it got, and the key it belongs to.

    `owner` is the fingerprint of a key; empty while no caller with a key has used the app.
    """

    epoch: int
    result: bytes
    last_use_ms: int
    owner: bytes = b""


class Catalog:
    """Topics by id and by name; a name belongs to the highest live id that claims it."""

    def __init__(self, *, max_keys: int, history: Callable[[int], History]) -> None:
        self.by_id: dict[int, Topic] = {}
        self.by_name: dict[str, Topic] = {}
        self.expiring: set[int] = set()  # ids of topics with a time to live
        self.keyed: set[int] = set()  # ids of topics that remember idempotency keys
        self.routers = Routers()
        self.apps: dict[str, StagingApp] = {}
        self.next_topic_id = 1
        self.bytes = 0  # live bytes of all topics
        self.pending_bytes = 0  # of writes on their way, as far as a cap or quota counts them
        self.lease_floor = 0  # no lease id at or below it is ever given out again
        self._max_keys = max_keys
        self._history = history
        self._names: list[str] | None = None  # in order; made when it is first asked for

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_id.values())

    def names(self, *, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Names that begin with `prefix` and sort after `after`, in byte order.

        Topics must not be added or removed while the iterator is in use.
        """
        if self._names is None:
            self._names = sorted(self.by_name)
        names = self._names
        at = bisect_left(names, prefix)
        if after is not None:
            at = max(at, bisect_right(names, after))
        return takewhile(lambda name: name.startswith(prefix), islice(names, at, None))

    def expect(self, topic: Topic, nbytes: int) -> None:
        """Count bytes of writes that are not applied yet; a negative number takes them off."""
        topic.pending_bytes += nbytes
        self.pending_bytes += nbytes

    def add(self, topic: Topic) -> None:
        self.by_id[topic.id] = topic
        self.next_topic_id = max(self.next_topic_id, topic.id + 1)
        self.bytes += topic.bytes
        self._note_ttl(topic)
        if len(topic.keys):
            self.keyed.add(topic.id)
        holder = self.by_name.get(topic.name)
        if holder is None or holder.id < topic.id:
            self.by_name[topic.name] = topic
        if holder is None and self._names is not None:
            insort(self._names, topic.name)

    def new_topic(self, topic_id: int, name: str, epoch: int, config: TopicConfig) -> Topic:
        topic = Topic(topic_id, name, epoch, config, max_keys=self._max_keys)
        topic.history = self._history(topic_id)
        return topic

    def apply(self, fact: Fact, *, generation: int) -> None:
        """Publish one fact. Facts about topics that are gone change nothing."""
        match fact:
            case TopicCreated():
                self._create(fact)
            case TopicDeleted():
                self._drop(fact)
            case RouterCreated():
                self.routers.create(fact)
            case RouterDeleted():
                self.routers.drop(fact)
            case StageCommitted():
                self.apps[fact.app] = StagingApp(fact.epoch, fact.result, fact.ts, fact.owner)
            case _:
                topic = self.by_id.get(getattr(fact, "topic_id", 0))
                if topic is not None:
                    before = topic.bytes
                    _apply_to(topic, fact, generation)
                    self.bytes += topic.bytes - before
                    if isinstance(fact, ConfigUpdated):
                        self._note_ttl(topic)
                    elif isinstance(fact, KeyRemembered):
                        self.keyed.add(topic.id)

    def _note_ttl(self, topic: Topic) -> None:
        if topic.config.ttl_ms:
            self.expiring.add(topic.id)
        else:
            self.expiring.discard(topic.id)

    def _create(self, fact: TopicCreated) -> None:
        self.next_topic_id = max(self.next_topic_id, fact.topic_id + 1)
        if fact.topic_id not in self.by_id:
            self.add(self.new_topic(fact.topic_id, fact.name, fact.epoch, parse_json(fact.config)))

    def _drop(self, fact: TopicDeleted) -> None:
        topic = self.by_id.pop(fact.topic_id, None)
        if topic is None:
            return
        self.bytes -= topic.bytes
        self.expiring.discard(topic.id)
        self.keyed.discard(topic.id)
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
            if self._names is not None:
                del self._names[bisect_left(self._names, topic.name)]
        for name in self.routers.touching(topic.id):
            self.routers.remove(name)


def _apply_to(topic: Topic, fact: Fact, generation: int) -> None:
    match fact:
        case Appended():
            topic.apply_appended(fact)
        case Deleted():
            apply_deleted(topic, fact, generation=generation)
        case Evicted():
            topic.apply_evicted(fact)
        case HeadReserved():
            topic.reserved = max(topic.reserved, fact.ceiling)
        case SeqSkipped():
            topic.apply_skipped(fact)
        case ConfigUpdated():
            topic.apply_config(parse_json(fact.config))
        case CursorMoved():
            topic.apply_cursor(fact)
        case KeyRemembered():
            topic.keys.remember(fact)
        case LeaseChanged():
            if topic.leases is not None:
                topic.leases.apply(fact)
        case _:
            pass  # marks, headers, tier flips and router passes change nothing in a topic
