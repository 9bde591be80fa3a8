"""The state machine: random operations on the real engine, each held against the model.

A rule first changes the model, then the engine, then compares. If the program dies on the way, the
state the model reached is one that may come back, and the one before it is another. What the
engine writes by itself is told by its crash points: at a checkpoint's barrier every topic was
looked through for expired records and everything so far is durable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.property.model import choices
from tests.property.model.observe import Seen, differences, let_keys_expire, look
from tests.property.model.oracle import Cfg, Draft, Model, Refused, Write
from tests.property.model.reading import (
    Reading,
    check_cursors,
    check_holes,
    check_views,
    drain,
    read_since,
)
from tests.property.model.snapshots import check_snapshot
from tests.property.model.stores import PowerCut, Store, small_world
from tests.property.model.tracks import Track

from topics.core.topic import Topic
from topics.embedded.log import Log
from topics.engine.settings import EngineSettings
from topics.errors import TopicsError
from topics.storage import crashpoints, layout
from topics.testing import ManualClock, PowerOff
from topics.topic_settings import TopicSettings
from topics.values import Ack

P = ParamSpec("P")
M = TypeVar("M", bound="EngineMachine")


class SlicingClock(ManualClock):
    """A clock on which looking takes time: upkeep then stops after each piece of work."""

    look_ms = 0

    def monotonic(self) -> float:
        self._elapsed_ms += self.look_ms
        return super().monotonic()


def step(body: Callable[Concatenate[M, P], None]) -> Callable[Concatenate[M, P], None]:
    """A step during which the program may die, and after which model and engine agree."""

    @functools.wraps(body)
    def run(machine: M, /, *args: P.args, **kwargs: P.kwargs) -> None:
        machine.is_sound = False
        try:
            body(machine, *args, **kwargs)
        except PowerOff:
            machine.died()
        else:
            for track in machine.tracks.values():
                track.acknowledge()
        machine.compare()
        machine.is_sound = True

    return run


class EngineMachine(RuleBasedStateMachine):
    """Operations of the embedded engine. Subclasses choose where it keeps its bytes."""

    make_store: ClassVar[Callable[[], Store]]

    def __init__(self) -> None:
        super().__init__()
        self.store = type(self).make_store()
        self.clock = SlicingClock()
        self.tracks: dict[str, Track] = {}
        self.newest_id = 0
        self.latest = 0  # the highest time that the clock has shown
        self.bomb: PowerCut | None = None
        self._small = small_world()
        self._small.__enter__()
        crashpoints.install(self._on_crashpoint)
        self.log: Log | None = None
        self.is_sound = True  # the last step went well

    def teardown(self) -> None:
        try:
            if self.log is not None and self.is_sound:
                self._finish()
        finally:
            crashpoints.install(None)
            self._small.__exit__(None, None, None)
            self.store.discard(self.log)

    @step
    def _finish(self) -> None:
        """Whatever a run did, its log can be read to the end."""
        for name, track in self.tracks.items():
            track.expire(self.now)
            drain(self.running, name, track.now, Reading())
            check_views(self.running, name, track.now)

    def _on_crashpoint(self, point: str) -> None:
        if point == "ckpt.barrier":
            for name, track in self.tracks.items():
                if self._is_asked_only(name, track):
                    track.sync_all_but_newest()
                else:
                    track.expire(self.now)
                    track.sync()

    def _is_asked_only(self, name: str, track: Track) -> bool:
        """Whether the newest state is a configuration that the engine does not have yet.

        `configure` looks at the topic before it changes anything, and after each look upkeep runs.
        """
        topic = self.running._engine.kernel.catalog.by_name.get(name)
        return topic is not None and look(topic).cfg != track.now.cfg

    # The engine

    @property
    def running(self) -> Log:
        assert self.log is not None
        return self.log

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def topic(self, name: str) -> Topic:
        return self.running._engine.kernel.catalog.by_name[name]

    @initialize(
        settings=choices.engine_settings,
        use_cold=st.booleans(),
        look_ms=st.sampled_from([0, 0, 3]),
        first=choices.configs,
        batch=choices.batches,
    )
    @step
    def start(
        self,
        settings: dict[str, Any],
        use_cold: bool,
        look_ms: int,
        first: Cfg,
        batch: list[Draft],
    ) -> None:
        cold_dir = self.store.cold_dir if use_cold else None
        self.options = {**settings, "cold_dir": cold_dir}
        self.settings = EngineSettings(**self.options)
        self.log = self.store.open(self.settings, self.clock)
        self.clock.look_ms = look_ms
        self.create("a", first)
        self._append("a", batch)

    def compare(self) -> None:
        """Engine and model agree on everything that can be seen without a call."""
        catalog = self.running._engine.kernel.catalog
        assert set(catalog.by_name) == set(self.tracks)
        for name, track in self.tracks.items():
            seen = self.look(catalog.by_name[name])
            let_keys_expire(track.now, seen)
            found = list(differences(seen, track.now))
            assert not found, f"topic {name}: " + "; ".join(found)
            track.remember()
        assert catalog.bytes == sum(topic.bytes for topic in catalog)

    def look(self, topic: Topic) -> Seen:
        self.latest = max(self.latest, self.now)
        return look(topic, self.latest)

    def made_durable(self, name: str) -> None:
        """A sync covered this topic's shard: with it everything logged there before."""
        for track in self.tracks.values():
            track.acknowledge()
        shards = self.settings.wal_shards
        shard = layout.shard_of(self.tracks[name].topic_id, shards)
        for track in self.tracks.values():
            if layout.shard_of(track.topic_id, shards) == shard:
                track.sync()

    # Topics

    @rule(name=choices.names, cfg=choices.configs)
    @step
    def configure(self, name: str, cfg: Cfg) -> None:
        self.create(name, cfg)

    def create(self, name: str, cfg: Cfg) -> None:
        cfg = _typed(name, cfg)
        track = self.tracks.get(name)
        if track is None:
            self.begin(name, cfg)
            created = self.running.create(name, **cfg.as_fields())
            assert created.created
            self.begun(name)
            return
        track.expire(self.now)  # it asks for the state first
        is_change = cfg != track.now.cfg
        if is_change:
            track.next().configure(cfg)
        self.running.configure(name, **cfg.as_fields())
        if is_change:
            self.made_durable(name)

    def begin(self, name: str, cfg: Cfg) -> Track:
        model = Model(cfg, max_keys=self.settings.max_idempotency_keys)
        track = self.tracks[name] = Track([model], may_be_absent=True)
        return track

    def begun(self, name: str) -> None:
        track, topic = self.tracks[name], self.topic(name)
        assert topic.epoch > self.newest_id, "an epoch came again"
        self.newest_id = track.topic_id = topic.id
        track.may_be_absent = False
        self.made_durable(name)
        track.durable = 0  # what was appended in the same call is as safe as its class makes it

    @rule(name=choices.names, if_empty=st.booleans())
    @step
    def drop(self, name: str, if_empty: bool) -> None:
        track = self.tracks.get(name)
        if track is None:
            assert not self.running.drop(name, if_empty=if_empty).deleted
            return
        track.expire(self.now)
        if if_empty and track.now.live:
            assert self._refusal(self.running.drop, name, if_empty=True) == "topic_not_empty"
            return
        track.may_be_absent = True
        assert self.running.drop(name, if_empty=if_empty).deleted
        self.made_durable(name)
        del self.tracks[name]

    # Writing

    @rule(
        name=choices.names,
        batch=choices.batches,
        key=choices.keys,
        expect=st.sampled_from([None, None, None, 0, 1]),
        node=choices.nodes,
    )
    @step
    def append(
        self, name: str, batch: list[Draft], key: str | None, expect: int | None, node: str | None
    ) -> None:
        self._append(name, batch, key=key, expect=expect, node=node)

    def _append(
        self,
        name: str,
        batch: list[Draft],
        *,
        key: str | None = None,
        expect: int | None = None,
        node: str | None = None,
    ) -> None:
        track = self.tracks.get(name)
        head = track.now.head if track else 0
        expect_head = None if expect is None else head + expect
        batch = [Draft(d.text, d.tag, d.node or node, d.meta) for d in batch]

        def call() -> Ack:
            return self.running.append(
                name,
                [draft.as_argument() for draft in batch],
                node=node,
                idempotency_key=key,
                expect_head=expect_head,
                config=cast("TopicSettings", _typed(name, Cfg()).as_fields()),
            )

        try:
            expected = self._write(name, batch, key, expect_head)
        except Refused as refused:
            self._expect_refusal(refused.code, call)
            return
        ack = call()
        assert ack.created == (track is None)
        assert Write(ack.first_seq, ack.last_seq, ack.head_seq, ack.deduped) == expected
        if track is None:
            self.begun(name)
        elif track.now.cfg.durability == "fsync" and not ack.deduped:
            self.made_durable(name)

    def _write(
        self, name: str, batch: list[Draft], key: str | None, expect_head: int | None
    ) -> Write:
        """The model's side of a write: its answer, or why it must be refused."""
        track = self.tracks.get(name)
        if track is None:
            if expect_head:
                raise Refused("head_mismatch")
            track = self.begin(name, _typed(name, Cfg()))
        if track.now.cfg.discard == "reject" or track.now.was_ephemeral:
            track.expire(self.now)  # also for a write that is then refused or known
        if key is not None:
            entry = track.now.find_key(self.now, key)
            if entry is not None:
                return Write(entry.first, entry.first + entry.count - 1, entry.head, deduped=True)
        if expect_head is not None and expect_head != track.now.head:
            raise Refused("head_mismatch")
        track.now.admit(batch)
        state = track.next()
        state.expire(self.now)
        return state.write(self.now, batch, key)

    @rule(name=choices.names, deletion=choices.deletions)
    @step
    def delete(self, name: str, deletion: choices.Deletion) -> None:
        track = self.tracks.get(name)
        if track is None:
            assert self._refusal(self.running.delete, name, before_seq=1) == "topic_not_found"
            return
        match, before = deletion.match, None
        if deletion.ahead is not None:
            before = max(0, track.now.earliest + deletion.ahead)
        track.expire(self.now)
        hit = track.now.selected(before, match.accepts if match else lambda tag: True)
        if hit:
            self._remove(track, hit)
        argument = None if match is None else match.argument
        result = self.running.delete(name, before_seq=before, match=argument)
        assert result.deleted == len(hit)
        if hit:
            assert result.count == len(track.now.live)
            assert track.now.delete_version > track.newest_version
            track.newest_version = track.now.delete_version
            if track.now.cfg.durability == "fsync":
                self.made_durable(name)

    def _remove(self, track: Track, hit: list[int]) -> None:
        state = track.next()
        state.delete(hit)
        generation = self.running._engine.kernel.generation
        if state.delete_version >> 32 == generation:
            state.delete_version += 1
        else:
            state.delete_version = generation << 32 | 1
        state.version_is_logged = state.cfg.durability != "ephemeral"

    def _expect_refusal(self, code: str, call: Callable[[], object]) -> None:
        assert self._refusal(call) == code

    def _refusal(self, call: Callable[..., object], *args: object, **kwargs: object) -> str:
        try:
            call(*args, **kwargs)
        except TopicsError as error:
            return error.code
        raise AssertionError("the engine accepted what it must refuse")

    # Reading

    @rule(
        name=choices.names,
        reading=choices.readings,
    )
    @step
    def read(self, name: str, reading: Reading) -> None:
        track = self.tracks.get(name)
        if track is None:
            assert self._refusal(self.running.read, name) == "topic_not_found"
            return
        track.expire(self.now)
        cursor = reading.after % (track.now.head + 3)
        drain(self.running, name, track.now, replace(reading, after=cursor))

    @rule(name=choices.names, age_ms=st.integers(-5, 2000))
    @step
    def read_from_a_time(self, name: str, age_ms: int) -> None:
        track = self.tracks.get(name)
        if track is not None:
            track.expire(self.now)
            read_since(self.running, name, track.now, max(0, track.now.ts - age_ms))

    @rule(name=choices.names, lo=st.integers(0, 40), width=st.integers(0, 40))
    @step
    def look_around(self, name: str, lo: int, width: int) -> None:
        for track in self.tracks.values():
            track.expire(self.now)
        shown = self.running.topics()
        assert [topic.topic for topic in shown] == sorted(self.tracks)
        if name in self.tracks:
            model = self.tracks[name].now
            check_views(self.running, name, model)
            check_holes(self.running, name, model, lo, lo + width)
            check_cursors(self.running, name, model, self.now)

    # Cursors

    @rule(name=choices.names, cursor=st.sampled_from(["c1", "c2"]), back=st.integers(-1, 12))
    @step
    def set_cursor(self, name: str, cursor: str, back: int) -> None:
        track = self.tracks.get(name)
        if track is None:
            return
        seq = track.now.head - back
        if not 0 <= seq <= track.now.head:
            refused = self._refusal(self.running.set_cursor, name, cursor, seq)
            assert refused == "invalid_request"
            return
        state = track.next()
        state.cursors[cursor] = (seq, self.now)
        self._note_cursor(state, cursor)
        track.expire(self.now)  # the answer tells how far the cursor is behind
        assert self.running.set_cursor(name, cursor, seq).seq == seq
        if state.cfg.durability == "fsync":
            self.made_durable(name)

    @rule(name=choices.names, cursor=st.sampled_from(["c1", "c2"]))
    @step
    def drop_cursor(self, name: str, cursor: str) -> None:
        track = self.tracks.get(name)
        if track is None:
            return
        present = cursor in track.now.cursors
        if present:
            state = track.next()
            del state.cursors[cursor]
            self._note_cursor(state, cursor)
        assert self.running.drop_cursor(name, cursor) == present
        if present and track.now.cfg.durability == "fsync":
            self.made_durable(name)

    def _note_cursor(self, state: Model, cursor: str) -> None:
        soft = state.soft_cursors - {cursor}
        state.soft_cursors = soft | {cursor} if state.cfg.durability == "ephemeral" else soft

    # Time and upkeep

    @rule(ms=st.sampled_from([60, 201, 1, 30, 60, 201, 1001, 5000, 61_000]))
    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(ms=st.sampled_from([1, 40, 900, 10_000]))
    def set_the_clock_back(self, ms: int) -> None:
        self.clock.set(self.now - ms)

    @rule()
    @step
    def checkpoint(self) -> None:
        self.running.checkpoint()
        if self.running._engine.upkeep is not None:
            check_snapshot(self.running, max(self.latest, self.now))

    @rule()
    @step
    def maintain(self) -> None:
        self.running.maintain()

    @rule()
    @step
    def sync(self) -> None:
        self.running.sync()
        for track in self.tracks.values():
            track.sync()

    # Ends

    def died(self) -> None:
        """The program died in a step; only a machine that can end programs gets here."""
        raise AssertionError("nothing here ends the program")


def _typed(name: str, cfg: Cfg) -> Cfg:
    return Cfg(**{**cfg.as_fields(), "type": "queue" if name == "q" else "log"})
