"""Ends and new beginnings: clean restarts, kills, power cuts, refused syncs, full disks.

After each the engine is opened again, and every topic must be in a state that it may be in.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.property.model import choices
from tests.property.model.machine import EngineMachine, step
from tests.property.model.observe import Seen, look
from tests.property.model.oracle import Draft, Model, Refused
from tests.property.model.reading import Reading, drain
from tests.property.model.stores import PowerCut, SimStore
from tests.property.model.tracks import CLEAN, How, Track

from topics.engine.settings import EngineSettings
from topics.errors import TopicsError
from topics.storage import layout
from topics.testing import PowerOff, SimDisk
from topics.values import Ack

KILL: How = frozenset({"kill"})
POWER: How = frozenset({"power"})


class MortalMachine(EngineMachine):
    """The engine on a store that outlives it."""

    @rule(shards=choices.shard_counts)
    @step
    def restart(self, shards: int) -> None:
        self.running.close()
        for track in self.tracks.values():
            track.sync()
        self._reopen(CLEAN, shards)

    @rule(shards=choices.shard_counts, doubt=st.booleans())
    @step
    def kill(self, shards: int, doubt: bool) -> None:
        self.store.end(self.running, None)
        self._reopen(KILL, shards, doubt=doubt)

    @precondition(lambda self: self.store.can_lose_power)
    @rule(shards=choices.shard_counts, cut=choices.cuts, doubt=st.booleans())
    @step
    def lose_power(self, shards: int, cut: PowerCut, doubt: bool) -> None:
        self.store.end(self.running, cut)
        self._reopen(POWER, shards, doubt=doubt)

    @precondition(lambda self: self.store.can_lose_power)
    @rule(calls=st.integers(1, 40), end=choices.ends)
    def die_soon(self, calls: int, end: PowerCut | None) -> None:
        """Plant a bomb: some later step is cut off before its n-th file call."""
        assert isinstance(self.store, SimStore)
        self.bomb = end
        self.store.arm(calls, end)

    @precondition(lambda self: self.store.can_lose_power)
    @rule(first=choices.ends, calls=st.integers(1, 60), second=choices.ends)
    @step
    def die_twice(self, first: PowerCut | None, calls: int, second: PowerCut | None) -> None:
        """End the program, and the next one while it recovers."""
        assert isinstance(self.store, SimStore)
        self.store.end(self.running, first)
        how = KILL if first is None else POWER
        try:
            abandoned = self.store.open_with_bomb(self.settings, self.clock, calls, second)
        except PowerOff:
            how |= KILL if second is None else POWER
        else:
            self.store.end(abandoned, None)
            how |= KILL
        self._reopen(how, self.settings.wal_shards)

    @precondition(lambda self: self.store.can_lose_power)
    @rule(name=choices.names, batch=choices.batches, end=choices.ends)
    @step
    def fail_a_sync(self, name: str, batch: list[Draft], end: PowerCut | None) -> None:
        """The disk refuses a sync and forgets the pages: nothing is acked until a restart."""
        assert isinstance(self.store, SimStore)
        track = self.tracks.get(name)
        if track is None or track.now.cfg.durability != "fsync" or track.now.cfg.ttl_ms:
            return
        call = self._appending(name, batch)
        try:
            self._write(name, batch, None, None)
        except Refused as refused:
            self._expect_refusal(refused.code, call)
            return
        shards = self.settings.wal_shards
        group = layout.group_key(layout.shard_of(track.topic_id, shards), shards)
        self.store.disk.fsyncgate(f"{layout.group_dir(self.store.path, group)}/*")
        self._expect_refusal("internal", call)
        self._expect_refusal("internal", call)
        drain(self.running, name, track.states[track.acked], Reading())
        self.store.end(self.running, end)
        self._reopen(KILL if end is None else POWER, self.settings.wal_shards)

    @precondition(lambda self: self.store.can_lose_power)
    @rule(name=choices.names, batch=choices.batches)
    @step
    def run_out_of_space(self, name: str, batch: list[Draft]) -> None:
        """A full disk may refuse a write; then nothing of it is left, and the next one follows."""
        assert isinstance(self.store, SimStore)
        track = self.tracks.get(name)
        if track is None or track.now.cfg.ttl_ms or track.now.cfg.discard == "reject":
            return
        self._write(name, batch, None, None)
        self.store.disk.capacity = self.store.disk.used
        try:
            self._appending(name, batch)()
        except TopicsError as error:
            refused = error.code
            del track.states[track.acked + 1 :]
            track.now.ts = self.topic(name).last_ts
            track.now.ts_is_soft = True
        else:
            refused = "internal"
            if track.now.cfg.durability == "fsync":
                self.made_durable(name)
        finally:
            self.store.disk.capacity = None
        assert refused == "internal"
        self.clock.advance(1001)  # after which a full shard looks for room again

    def _appending(self, name: str, batch: list[Draft]) -> Callable[[], Ack]:
        records = [draft.as_argument() for draft in batch]
        return lambda: self.running.append(name, records)

    @rule()
    def look_from_outside(self) -> None:
        """A read-only view shows what a recovery would, and disturbs nobody."""
        view = self.store.view(self.settings, self.clock)
        assert view is not None
        for name, track in self.tracks.items():
            model = track.now.copy()
            model.expire(self.now)
            if model.cfg.durability == "ephemeral":
                continue
            shown = [record.seq for record in view.read(name, limit=1000).records]
            after = view.read(name).next_from_seq
            assert shown == [
                seq
                for seq in model.live
                if seq not in model.volatile and seq <= max(after, *shown, 0)
            ]
        view.close()

    def died(self) -> None:
        """A bomb went off in a step: the model's newest states may or may not be there."""
        for track in self.tracks.values():
            track.expire(self.now)
        self._reopen(KILL if self.bomb is None else POWER, self.settings.wal_shards)

    def _reopen(self, how: How, shards: int, *, doubt: bool = False) -> None:
        """Open again; every topic must be in a state it may be in."""
        self.settings = EngineSettings(**{**self.options, "wal_shards": shards})
        image = self.store.disk.clone() if doubt and isinstance(self.store, SimStore) else None
        if isinstance(self.store, SimStore):
            self.store.disk.honest()  # a step that died may have left its trap set
            self.store.disk.capacity = None
        self.log = self.store.open(self.settings, self.clock)
        catalog = self.running._engine.kernel.catalog
        for name, track in list(self.tracks.items()):
            topic = catalog.by_name.get(name)
            if topic is None:
                assert track.may_be_absent, f"topic {name} is gone"
                del self.tracks[name]
                continue
            self.newest_id = track.topic_id = max(track.topic_id, topic.id)
            self._resume(track, self.look(topic), how)
        if image is not None:
            self._doubt_the_snapshot(image)

    def _resume(self, track: Track, seen: Seen, how: How) -> None:
        track.states = [track.recover(seen, how)]
        track.may_be_absent = False
        track.newest_version = max(track.newest_version, track.now.delete_version)
        track.sync()

    def _doubt_the_snapshot(self, image: SimDisk) -> None:
        """Without its newest snapshot the same directory gives the same records."""
        assert isinstance(self.store, SimStore)
        meta = f"{self.store.path}/{layout.META}"
        found = image.listdir(meta) if image.exists(meta) else []
        numbers = sorted(n for n in map(layout.parse_snapshot, found) if n is not None)
        if not numbers or (len(numbers) == 1 and layout.TRIMMED in found):
            return
        image.unlink(layout.snapshot_path(self.store.path, numbers[-1]))
        other = SimStore(image).open(self.settings, self.clock)
        for name, track in self.tracks.items():
            if track.now.cfg.durability == "ephemeral":
                continue
            topic = other._engine.kernel.catalog.by_name[name]
            ours = look(self.topic(name))
            theirs = look(topic)
            assert [s for s, f in ours.fate.items() if f == "live"] == [
                s for s, f in theirs.fate.items() if f == "live"
            ], f"topic {name} differs without its newest snapshot"
            drain(other, name, _expired(track.now, self.now), Reading())


def _expired(model: Model, now: int) -> Model:
    model = model.copy()
    model.expire(now)
    return model
