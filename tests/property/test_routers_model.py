"""Routers against a model: trees of topics, filters, deletes, caps, kills and power cuts.

The model keeps each topic as a list of everything that ever got a seq there, and each router as a
place in its source's list. Whatever happens, once a destination was read it shows exactly what the
model's passes put there: nothing missing, nothing twice, in order; and after the death of the
process every copy still has the seq it had.

The clock stands still, so passes run only where the model knows of them: before a read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from topics.embedded.log import Log
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.errors import RouterCycle, TopicExistsIncompatible, TopicFull
from topics.storage.wal.settings import WalSettings
from topics.testing import CrashMode, FaultFs, ManualClock, PowerOff, SimDisk
from topics.topic_settings import Durability
from topics.values import Record, Tombstone

ROOT = "t0"
MAX_TOPICS = 7
TAGS = ("a", "ab", "b", None)
MATCHES = (None, "a", "a*", "b")
PATH = "/data"
LOG_FILE_BYTES = 4096
MODES: tuple[CrashMode, ...] = ("none", "prefix", "subset")


@dataclass
class Entry:
    """Something that got a seq: a record, or what is left of one."""

    value: int
    tag: str | None
    alive: bool = True


@dataclass
class Track:
    """One topic."""

    cap: int = 0
    rejects: bool = False
    origins: tuple[str, ...] = ()  # topics from which records may have come
    entries: list[Entry] = field(default_factory=list)
    floor: int = 0  # entries below were lost to the cap
    trimmed: bool = False
    seen: dict[int, int] = field(default_factory=dict)  # seq -> value, as last read

    @property
    def live(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.alive]

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        while self.cap and not self.rejects and len(self.live) > self.cap:
            oldest = self.live[0]
            oldest.alive = False
            self.floor = self.entries.index(oldest) + 1

    @property
    def is_full(self) -> bool:
        return self.rejects and len(self.live) >= self.cap


@dataclass
class Route:
    """One router."""

    source: str
    dest: str
    match: str | None
    place: int  # entries of the source it is done with

    def accepts(self, entry: Entry) -> bool:
        if self.match is None:
            return True
        if entry.tag is None:
            return False
        if self.match.endswith("*"):
            return entry.tag.startswith(self.match[:-1])
        return entry.tag == self.match


class RouterMachine(RuleBasedStateMachine):
    durability: Durability
    settings: EngineSettings

    @initialize(
        durability=st.sampled_from(["fsync", "disk", "memory"]), shards=st.sampled_from([1, 3])
    )
    def begin(self, durability: Durability, shards: int) -> None:
        self.durability = durability
        self.settings = EngineSettings(wal_shards=shards, segment_max_events=4, cache_bytes=1 << 16)
        self.start_over()

    def start_over(self) -> None:
        self.disk = SimDisk()
        self.clock = ManualClock()
        self.tracks: dict[str, Track] = {}
        self.routes: dict[str, Route] = {}
        self.written: dict[int, str] = {}  # value -> where it was written first
        self.value = self.names = 0
        self.open()
        self.make(ROOT)
        for source in (ROOT, ROOT, "t1"):
            self.add_route(source, None, 0, rejects=False, exactly_once=False)

    def open(self) -> None:
        self.fs = FaultFs(self.disk.mount())
        opening = Opening(self.settings, self.clock, prealloc_start=LOG_FILE_BYTES)
        small = partial(WalSettings, file_bytes=LOG_FILE_BYTES)
        with mock.patch("topics.engine.recovery.opening.WalSettings", small):
            self.log = Log(open_engine(self.fs, PATH, opening))
        self.log.topics()  # from here on the log does not look at the clock again

    def make(self, name: str, cap: int = 0, *, rejects: bool = False) -> None:
        self.log.create(
            name,
            durability=self.durability,
            cap_records=cap,
            discard="reject" if rejects else "old",
        )
        self.tracks[name] = Track(cap, rejects, (name,))

    # What the model says

    def upstream(self, name: str) -> list[Route]:
        """The routes that lead to a topic, farthest first."""
        found: list[Route] = []
        while True:
            above = [route for route in self.routes.values() if route.dest == name]
            if not above:
                return found[::-1]
            found.append(above[0])
            name = above[0].source

    def forward(self, route: Route) -> None:
        source, dest = self.tracks[route.source], self.tracks[route.dest]
        if source.floor > route.place:
            dest.trimmed = True
            route.place = source.floor
        while route.place < len(source.entries):
            entry = source.entries[route.place]
            if entry.alive and route.accepts(entry):
                if dest.is_full:
                    return
                dest.add(Entry(entry.value, entry.tag))
            route.place += 1

    # What happens

    def some(self, data: st.DataObject, names: Collection[str]) -> str:
        return data.draw(st.sampled_from(sorted(names)))

    @rule(data=st.data(), tags=st.lists(st.sampled_from(TAGS), min_size=1, max_size=5))
    def write(self, data: st.DataObject, tags: list[str | None]) -> None:
        name = self.some(data, self.tracks)
        track = self.tracks[name]
        drafts = [{"data": self.value + i, "tag": tag} for i, tag in enumerate(tags)]
        if track.rejects and len(track.live) + len(tags) > track.cap:
            if len(tags) <= track.cap:
                with pytest.raises(TopicFull):
                    self.log.append(name, drafts)
            return
        self.log.append(name, drafts)
        for tag in tags:
            track.add(Entry(self.value, tag))
            self.written[self.value] = name
            self.value += 1

    @rule(data=st.data(), tags=st.lists(st.sampled_from(TAGS), min_size=1, max_size=3))
    def write_and_read(self, data: st.DataObject, tags: list[str | None]) -> None:
        self.write(data, tags)
        self.compare(self.some(data, self.tracks))

    @precondition(lambda self: len(self.tracks) < MAX_TOPICS)
    @rule(
        data=st.data(),
        match=st.sampled_from(MATCHES),
        cap=st.sampled_from([0, 3, 6]),
        rejects=st.booleans(),
        exactly_once=st.booleans(),
    )
    def route(
        self, data: st.DataObject, match: str | None, cap: int, rejects: bool, exactly_once: bool
    ) -> None:
        source = self.some(data, self.tracks)
        self.add_route(source, match, cap, rejects=rejects, exactly_once=exactly_once)

    def add_route(
        self, source: str, match: str | None, cap: int, *, rejects: bool, exactly_once: bool
    ) -> None:
        self.names += 1
        dest, name = f"t{self.names}", f"r{self.names}"
        self.make(dest, cap, rejects=rejects and cap > 0)
        self.tracks[dest].origins += self.tracks[source].origins
        self.log.route(name, source=source, dest=dest, match=match, exactly_once=exactly_once)
        self.routes[name] = Route(source, dest, match, len(self.tracks[source].entries))

    @precondition(lambda self: self.routes)
    @rule(data=st.data(), match=st.sampled_from(MATCHES))
    def change_the_filter(self, data: st.DataObject, match: str | None) -> None:
        name = self.some(data, self.routes)
        route = self.routes[name]
        self.log.route(name, source=route.source, dest=route.dest, match=match)
        route.match = match

    @precondition(lambda self: self.routes)
    @rule(data=st.data())
    def refuse_a_cycle_and_a_diamond(self, data: st.DataObject) -> None:
        route = self.routes[self.some(data, self.routes)]
        way = self.upstream(route.dest)
        if way[0].source == ROOT:
            with pytest.raises(RouterCycle) as caught:
                self.log.route("loop", source=route.dest, dest=ROOT)
            assert caught.value.detail is not None
            path = [ROOT, *(step.dest for step in way)]
            assert caught.value.detail["cycle"] == [route.dest, *path]
        others = [name for name in self.tracks if name not in (route.source, route.dest)]
        if others:
            with pytest.raises(TopicExistsIncompatible):
                self.log.route("diamond", source=self.some(data, others), dest=route.dest)

    @rule(data=st.data(), tag=st.sampled_from(["a", "b", "ab*"]))
    def delete(self, data: st.DataObject, tag: str) -> None:
        name = self.some(data, self.tracks)
        self.log.delete(name, match=tag)
        chosen = Route("", "", tag, 0)
        for entry in self.tracks[name].entries:
            entry.alive = entry.alive and not chosen.accepts(entry)

    @precondition(lambda self: len(self.routes) > 3)
    @rule(data=st.data(), topic=st.booleans())
    def drop(self, data: st.DataObject, topic: bool) -> None:
        """A router, or a topic with all that touches it."""
        router = self.some(data, self.routes)
        dest = self.routes[router].dest
        if topic:
            self.log.drop(dest)
            del self.tracks[dest]
        else:
            assert self.log.drop_router(router)
        self.routes = {
            name: route
            for name, route in self.routes.items()
            if name != router and (not topic or dest != route.source)
        }

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        self.compare(self.some(data, self.tracks))

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """A stop, or a kill; either way everything is still there."""
        if clean:
            self.log.close()
        else:
            self.disk.kill()
        self.open()
        self.compare_all()

    @rule(calls=st.integers(1, 40), data=st.data(), checkpoint=st.booleans())
    def kill_at_work(self, calls: int, data: st.DataObject, checkpoint: bool) -> None:
        """The process dies before some file call of a pass or of a checkpoint."""
        self.fs.stop_before(len(self.fs.trace) + calls, self.disk.kill)
        try:
            if checkpoint:
                self.log.checkpoint()
            self.compare(self.some(data, self.tracks))
        except PowerOff:
            pass
        else:
            self.disk.kill()
        self.open()
        self.compare_all()

    @rule(seed=st.integers(0, 1 << 16), mode=st.sampled_from(MODES))
    def cut_the_power(self, seed: int, mode: CrashMode) -> None:
        self.disk.crash(seed, mode)
        self.open()
        if self.durability == "fsync":
            self.compare_all()
            return
        for name in self.tracks:
            self.check_after_loss(name)
        self.start_over()

    # Comparing

    def events(self, name: str) -> tuple[list[Record], list[Tombstone]]:
        records, lost = [], []
        for event in self.log.follow(name, limit=1000, wait=0.0):
            if isinstance(event, Tombstone):
                lost.append(event)
            else:
                records.append(event)
        return records, lost

    def compare(self, name: str) -> None:
        for route in self.upstream(name):
            self.forward(route)
        track = self.tracks[name]
        records, lost = self.events(name)
        assert [(r.data, r.tag) for r in records] == [(e.value, e.tag) for e in track.live]
        now = {record.seq: record.data for record in records}
        for seq in now.keys() & track.seen.keys():
            assert now[seq] == track.seen[seq], f"seq {seq} of {name} changed"
        # What was read once and still lives has kept its seq.
        values = set(now.values())
        kept = {seq: value for seq, value in track.seen.items() if value in values}
        assert kept.items() <= now.items()
        track.seen = now
        reasons = {tombstone.reason for tombstone in lost}
        assert reasons <= {"source_trim", "cap", "mixed"}
        if track.trimmed and not track.floor:
            assert "source_trim" in reasons

    def compare_all(self) -> None:
        for name in self.tracks:
            self.compare(name)

    def check_after_loss(self, name: str) -> None:
        """After a power cut on a class that may lose its tail, a delete too: nothing is made up,
        nothing is there twice, and what came from one topic is still in its order."""
        values = [record.data for record in self.events(name)[0]]
        assert len(set(values)) == len(values), "a copy was made twice"
        origins = self.tracks[name].origins
        assert {self.written[value] for value in values} <= set(origins)
        for origin in origins:
            own = [value for value in values if self.written[value] == origin]
            assert own == sorted(own)


TestRouters = RouterMachine.TestCase
