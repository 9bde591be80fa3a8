"""Creating, configuring and dropping topics. Each step is durable before it is visible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from topics.core.config import check_topic_name, parse
from topics.core.durability import CLASSES
from topics.core.facts import (
    ConfigUpdated,
    Evicted,
    Fact,
    HeadReserved,
    RouterDeleted,
    SeqSkipped,
    TopicCreated,
    TopicDeleted,
)
from topics.core.topic import SEQ_BASE, Topic
from topics.engine.effects import Op, stepwise
from topics.engine.kernel import CONTROL_BYTES, FactSubmission, Kernel
from topics.engine.retention import retain
from topics.errors import Throttled, TopicExistsIncompatible, TopicNotEmpty
from topics.storage.crashpoints import crashpoint
from topics.storage.segments.drop import retire_topics
from topics.topic_settings import TopicConfig
from topics.values import Created, Dropped, Eviction


class Lifecycle:
    def __init__(self, kernel: Kernel, *, on_dropped: Sequence[Callable[[int], None]] = ()) -> None:
        self._kernel = kernel
        self.on_dropped = list(on_dropped)
        """Told of the id of every topic that is dropped: nothing may be kept of it."""
        self.being_created: dict[str, FactSubmission] = {}
        """By name the creations that are on their way through the log."""
        self._to_retire: list[int] = []  # dropped topics whose directories have their names still

    def parse(self, fields: Mapping[str, Any], name: str) -> TopicConfig:
        return parse(fields, topic=name)

    def put(self, name: str, fields: Mapping[str, Any], *, dry_run: bool = False) -> Op[Created]:
        """Create a topic, or replace the whole configuration of one that exists.

        A dry run refuses what this would refuse, tells what the change would evict, and changes
        nothing.
        """
        check_topic_name(name)
        config = parse(fields, topic=name)
        if dry_run:
            evicted = yield from self._would_evict(name, config)
            return Created(name, False, config.to_dict(), evicted)
        while True:
            topic = self._kernel.catalog.by_name.get(name)
            if topic is not None:
                if (yield from self._update(topic, config)):
                    return Created(name, False, config.to_dict())
            elif name in self.being_created:
                yield self.being_created[name]  # look again: the creation may have failed
            else:
                yield from self.create(name, config)
                return Created(name, True, config.to_dict())

    def _would_evict(self, name: str, config: TopicConfig) -> Op[Eviction]:
        """The oldest records, as many as the tighter one of the caps and the TTL takes."""
        kernel = self._kernel
        topic = kernel.catalog.by_name.get(name)
        if topic is None:
            self._require_place()
            return Eviction(0, 0)
        _refuse_type_change(topic, config)
        yield from retain(kernel, topic)
        kernel.require(topic)
        expired = partial(topic.expired_through, kernel.clock.now_ms(), ttl_ms=config.ttl_ms)
        floor = yield from kernel.indexes.ask(topic, partial(topic.cap_floor, config))
        through = max(floor, (yield from kernel.indexes.ask(topic, expired)))
        if through < topic.earliest:
            return Eviction(0, 0)
        held = yield from kernel.indexes.prepare_loss(topic, through)
        gone = yield from kernel.indexes.ask(topic, partial(topic.weigh_below, through + 1))
        del held
        return Eviction(*gone)

    def _require_place(self) -> None:
        """Refuse a topic beyond the largest number."""
        limit = self._kernel.settings.max_topics
        if limit and len(self._kernel.catalog.by_id) + len(self.being_created) >= limit:
            raise Throttled("max_topics", maximum=limit)

    def create(self, name: str, config: TopicConfig) -> Op[Topic]:
        """Create a topic. If another call created it meanwhile, return that topic."""
        kernel, catalog = self._kernel, self._kernel.catalog
        check_topic_name(name)
        while name in self.being_created:  # a creation that failed may be followed by another
            yield self.being_created[name]
        if name in catalog.by_name:
            return catalog.by_name[name]
        self._require_place()
        topic_id = catalog.next_topic_id
        if not kernel.in_memory:
            kernel.require_room(topic_id, CONTROL_BYTES)
        catalog.next_topic_id += 1  # never given out again, even if this creation fails
        now_ms = kernel.clock.now_ms()
        facts: list[Fact] = [
            TopicCreated(topic_id, now_ms, name, config.to_json(), topic_id, SEQ_BASE)
        ]
        klass = CLASSES[config.durability]
        if klass.reserves_seqs:
            facts.append(HeadReserved(topic_id, now_ms, klass.first_block))
        if kernel.in_memory:
            kernel.apply(facts)
            return catalog.by_id[topic_id]
        submission = kernel.submit(facts, topic_id=topic_id, durable=True, then=self._created)
        if not submission.done:
            self.being_created[name] = submission
            yield submission
        if submission.error is not None:
            raise submission.error
        return catalog.by_id[topic_id]

    def _created(self, submission: FactSubmission) -> None:
        """Forget a creation at once: operations that run before its creator would wait for it."""
        fact = submission.facts[0]
        assert isinstance(fact, TopicCreated)
        self.being_created.pop(fact.name, None)

    def _update(self, topic: Topic, config: TopicConfig) -> Op[bool]:
        """Configure a topic; False when it was dropped while this waited for the gate."""
        kernel = self._kernel
        _refuse_type_change(topic, config)
        if config == topic.config:
            return True
        yield from retain(kernel, topic)
        gate = yield from kernel.gates.close([topic.id])
        try:
            if topic.id not in kernel.catalog.by_id:
                return False
            # The facts tell how far the topic is and what its caps take, for a place in the log
            # behind what is on its way.
            yield from kernel.all_applied(topic)
            if CLASSES[config.durability].needs_sync and not topic.durability.needs_sync:
                yield from kernel.sync_marks.sync(kernel.sync_marks.of(topic))
            floor = yield from kernel.indexes.ask(topic, partial(topic.cap_floor, config))
            held = (
                yield from kernel.indexes.prepare_loss(topic, floor) if floor > topic.cap_hi else ()
            )
            facts = self._update_facts(topic, config, floor)
            if kernel.in_memory:
                kernel.apply(facts)
            else:
                yield from kernel.commit(facts, topic_id=topic.id, durable=True)
            del held
        finally:
            kernel.gates.open(gate)
        kernel.dirty.add(topic.id)
        kernel.give_memory_back(topic)
        kernel.host.changed(topic)
        return True

    def _update_facts(self, topic: Topic, config: TopicConfig, floor: int) -> list[Fact]:
        """Floors are pinned first, so that a relaxed cap or TTL revives nothing on replay.

        So is the floor of the new caps: replay could not derive it where records count that are
        in no log, those of an ephemeral life.
        """
        ts = max(self._kernel.clock.now_ms(), topic.last_ts)
        facts: list[Fact] = [Evicted(topic.id, ts, floor, topic.earliest, topic.ttl_hi)]
        before, after = topic.durability, CLASSES[config.durability]
        if after.survives_restart and not before.survives_restart and topic.head >= SEQ_BASE:
            # The log does not know how far an ephemeral life came, nor one that ended in a crash
            # before it: from the first seq on, replay skips what it has no record of.
            facts.append(SeqSkipped(topic.id, ts, SEQ_BASE, topic.head, SeqSkipped.POWER_LOSS))
        facts.append(
            ConfigUpdated(topic.id, ts, topic.name, config.to_json(), topic.epoch, SEQ_BASE)
        )
        if after is not before and after.reserves_seqs:
            facts.append(HeadReserved(topic.id, ts, topic.handed_out + after.first_block))
        return facts

    def drop(self, name: str, *, if_empty: bool = False) -> Op[Dropped]:
        """Remove a topic and every router that touches it. Durable: the point of no return."""
        kernel = self._kernel
        topic = kernel.catalog.by_name.get(name)
        if topic is None:
            return Dropped(name, False, [])
        yield from retain(kernel, topic)
        gate = yield from kernel.gates.close([topic.id])
        try:
            return (yield from self._drop(topic, if_empty=if_empty))
        finally:
            kernel.gates.open(gate)

    def _drop(self, topic: Topic, *, if_empty: bool) -> Op[Dropped]:
        kernel, name = self._kernel, topic.name
        if topic.id not in kernel.catalog.by_id:
            return Dropped(name, False, [])  # another call dropped it first
        if if_empty:
            yield from kernel.all_applied(topic)
            if topic.count:
                raise TopicNotEmpty(name, count=topic.count)
        routers = kernel.catalog.routers
        removed = [routers.by_name[router] for router in routers.touching(topic.id)]
        ts = max(kernel.clock.now_ms(), topic.last_ts)
        dropped = TopicDeleted(topic.id, ts, name, topic.epoch)
        if kernel.in_memory:
            kernel.apply([dropped])
        else:
            yield from kernel.commit([dropped], topic_id=topic.id, durable=True)
            crashpoint("topic.frame")
        for forget in self.on_dropped:
            forget(topic.id)
        if not kernel.in_memory:
            yield from self._clear(
                topic, [RouterDeleted(ts, r.name, r.source_id, r.dest_id) for r in removed]
            )
        kernel.forget(topic)
        kernel.host.changed(topic)
        return Dropped(name, True, [router.name for router in removed])

    def _clear(self, topic: Topic, routers: list[RouterDeleted]) -> Op[None]:
        """What follows the point of no return may fail: recovery does it again."""
        kernel = self._kernel
        self._to_retire.append(topic.id)
        if routers:
            submission = kernel.submit(routers, topic_id=0, durable=True)
            if not submission.done:
                yield submission

    def retire(self) -> Op[None]:
        """Give the directories of dropped topics the name under which they are removed.

        Upkeep does this, and not the drop itself: a checkpoint or a move under way would look for
        files under the old name. What the disk refuses is tried again.
        """
        store = self._kernel.segments
        assert store is not None
        topic_ids = tuple(self._to_retire)
        try:
            yield from stepwise(retire_topics(store, topic_ids))
        except OSError:
            return
        del self._to_retire[: len(topic_ids)]


def _refuse_type_change(topic: Topic, config: TopicConfig) -> None:
    if config.type != topic.config.type:
        raise TopicExistsIncompatible.type_change(
            topic.name, existing_type=topic.config.type, requested_type=config.type
        )
