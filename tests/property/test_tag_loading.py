"""Deletes by tag that load the index slice by slice, with everything else in between.

The deletes are stepped by hand. Between two steps records are written, deleted, capped and expired,
checkpoints move them, topics are dropped and made anew. Whatever happened on the way, a delete by
tag removes what lives and matches in one of its steps, and nothing else.

The model is a list of the live records; the log is on a simulated disk, with slices so small that
a handful of records takes many.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.builders import Store

from topics.core import deleting as core_deleting
from topics.core import tags as tags_module
from topics.core import topic as topic_module
from topics.core.facts import Match
from topics.engine.effects import Gate, Io, Op, Wait, fulfil
from topics.engine.reads import tagging
from topics.engine.writes import deleting
from topics.errors import TopicNotFound
from topics.values import DeleteResult

NAME = "a"
TTL_MS = 1000
TAGS = ("", "a", "ab", "b", "ba", None)
MATCHES = (Match("a"), Match(""), Match("a", is_prefix=True), Match("ba"), Match("c"))


@dataclass
class Live:
    """A record that nobody removed yet."""

    seq: int
    tag: str | None
    ts: int


@dataclass
class Model:
    """The topic as it should be."""

    cap: int = 0
    ttl_ms: int = 0
    head: int = 0
    live: list[Live] = field(default_factory=list)

    def append(self, tagged: list[str | None], now_ms: int) -> None:
        for tag in tagged:
            self.head += 1
            self.live.append(Live(self.head, tag, now_ms))
        self.enforce_cap()

    def enforce_cap(self) -> None:
        if self.cap:
            self.live = self.live[-self.cap :]

    def expire(self, now_ms: int) -> None:
        if self.ttl_ms:
            self.live = [each for each in self.live if now_ms - each.ts <= self.ttl_ms]

    def delete(self, match: Match | None, before: int | None) -> int:
        def is_hit(each: Live) -> bool:
            return (match is None or match.accepts(each.tag)) and (
                before is None or each.seq < before
            )

        count = len(self.live)
        self.live = [each for each in self.live if not is_hit(each)]
        return count - len(self.live)


class Done(Io):
    """File work that was done, and how it ended."""

    __slots__ = ("error", "result")

    def __init__(self, asked: Io) -> None:
        super().__init__(self.tell)
        self.error: Exception | None = None
        try:
            self.result = asked.work()
        except OSError as error:
            self.error = error

    def tell(self) -> object:
        if self.error is not None:
            raise self.error
        return self.result


@dataclass
class Deletion:
    """A delete by tag under way, and what it waits for."""

    match: Match
    before: int | None
    op: Op[DeleteResult]
    wait: Wait | None = None
    removed: int | None = None  # once it has removed something: how many records


class World:
    """A topic, its model, and the deletes by tag that are under way there."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.store = Store()
        self.under_way: list[Deletion] = []
        self.durability = chance.choice(["fsync", "disk", "memory", "ephemeral"])
        self.make()

    def make(self) -> None:
        self.model = Model()
        self.configure()
        for _ in range(3):
            self.append()
            self.checkpoint()
        self.append()

    def configure(self) -> None:
        model = self.model
        self.store.put(NAME, durability=self.durability, cap_records=model.cap, ttl_ms=model.ttl_ms)

    @property
    def now_ms(self) -> int:
        return self.store.clock.now_ms()

    def compare(self) -> None:
        self.model.expire(self.now_ms)
        page = self.store.log.read(NAME, limit=1000)
        assert [(r.seq, r.tag) for r in page.records] == [(e.seq, e.tag) for e in self.model.live]
        kernel = self.store.kernel
        assert kernel.catalog.bytes == kernel.topic(NAME).bytes
        index = self.store.topic(NAME).tags
        if index.loaded:
            head = self.model.head
            tags = index.some(Match("", is_prefix=True), None, head)
            every = [s for t in tags for s in index.seqs_of(t, lo=1, below=head + 1, most=head)]
            live = {each.seq for each in self.model.live}
            tagged = {each.seq for each in self.model.live if each.tag is not None}
            assert sorted(seq for seq in every if seq in live) == sorted(tagged)

    # Deletes by tag

    def delete_by_tag(self) -> None:
        before = self.chance.choice([None, None, self.model.head])
        match = self.chance.choice(MATCHES)
        op = self.store.log._engine.delete(NAME, before=before, match=match)
        self.under_way.append(Deletion(match, before, op))

    def go_on(self) -> None:
        if self.under_way:
            self.step(self.chance.randrange(len(self.under_way)))

    def step(self, which: int) -> None:
        """One step of a delete; who waits for another one's load lets that one go first."""
        deletion = self.under_way[which]
        wait = deletion.wait
        if isinstance(wait, Gate) and not wait.is_open:
            self.step(next(i for i, d in enumerate(self.under_way) if not isinstance(d.wait, Gate)))
        elif isinstance(wait, Io) and not isinstance(wait, Done):
            deletion.wait = Done(wait)  # what it brings may be old when the delete goes on
        else:
            self.resume(deletion)

    def resume(self, deletion: Deletion) -> None:
        op, wait, version = deletion.op, deletion.wait, self.delete_version
        try:
            deletion.wait = next(op) if wait is None else fulfil(op, wait)
        except StopIteration as ended:
            self.under_way.remove(deletion)
            self.look_for_removals(deletion, version)
            self.ended(deletion, ended.value)
        except TopicNotFound:
            self.under_way.remove(deletion)
            assert NAME not in self.store.kernel.catalog.by_name
        else:
            self.look_for_removals(deletion, version)

    def ended(self, deletion: Deletion, result: DeleteResult) -> None:
        if NAME in self.store.kernel.catalog.by_name:
            assert result.deleted == self.removed_by(deletion)
            self.compare()

    @property
    def delete_version(self) -> int:
        topic = self.store.kernel.catalog.by_name.get(NAME)
        return 0 if topic is None else topic.delete_version

    def look_for_removals(self, deletion: Deletion, version: int) -> None:
        """Note in the model what a step removed; in further steps the index is pruned."""
        if self.delete_version != version:
            deletion.removed = self.removed_by(deletion)
            self.compare()

    def removed_by(self, deletion: Deletion) -> int:
        if deletion.removed is None:
            self.model.expire(self.now_ms)
            return self.model.delete(deletion.match, deletion.before)
        return deletion.removed

    # Everything else

    def append(self) -> None:
        tagged = self.chance.choices(TAGS, k=self.chance.randint(1, 12))
        self.model.expire(self.now_ms)
        self.model.append(tagged, self.now_ms)
        self.store.log.append(NAME, [{"data": 0, "tag": tag} for tag in tagged])

    def delete_a_range(self) -> None:
        self.model.expire(self.now_ms)
        before = (self.model.live[0].seq if self.model.live else 0) + self.chance.randint(0, 3)
        expected = self.model.delete(None, before)
        assert self.store.log.delete(NAME, before_seq=before).deleted == expected

    def change_caps(self) -> None:
        self.model.expire(self.now_ms)
        self.model.cap = self.chance.choice([0, 20, 30])
        self.model.ttl_ms = self.chance.choice([0, TTL_MS])
        self.configure()
        self.model.enforce_cap()

    def let_time_pass(self) -> None:
        self.store.clock.advance(self.chance.choice([1, TTL_MS // 2]))

    def checkpoint(self) -> None:
        self.model.expire(self.now_ms)
        self.store.log.checkpoint()

    def drop(self) -> None:
        """Deletes under way find the topic gone, or go on in the new one."""
        self.store.log.drop(NAME)
        while self.under_way and self.chance.random() < 0.5:
            self.step(0)
        self.make()


CHORES = {
    World.go_on: 60,
    World.delete_by_tag: 8,
    World.append: 10,
    World.delete_a_range: 3,
    World.change_caps: 2,
    World.let_time_pass: 2,
    World.checkpoint: 3,
    World.drop: 1,
}


@given(seed=st.integers(0, 1 << 32))
def test_a_delete_by_tag_removes_what_matches_at_one_moment_whatever_happened_around_it(
    seed: int,
) -> None:
    chance = random.Random(seed)
    with (
        mock.patch.object(tagging, "SLICE_RECORDS", 2),
        mock.patch.object(tagging, "SLICE_TAGS", 1),
        mock.patch.object(tags_module, "ROW_TAGS", 2),
        mock.patch.object(tags_module, "FEW_DEAD", 3),
        mock.patch.object(topic_module, "MAX_DELETED_RUNS", 2),
        mock.patch.object(core_deleting, "STEP_SEQS", 2),
        mock.patch.object(core_deleting, "STEP_TAGS", 1),
        mock.patch.object(deleting, "STEP_TAGS", 1),
    ):
        world = World(chance)
        for chore in chance.choices(list(CHORES), list(CHORES.values()), k=150):
            chore(world)
        while world.under_way:
            world.step(0)
        world.compare()
        if world.durability != "ephemeral":
            world.store.kill()
            world.compare()
