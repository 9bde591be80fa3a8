"""Topics that come and go in the middle of a checkpoint: it ends all the same, and nothing is lost.

The checkpoint runs on a thread of its own in a server, so others may do anything between two of its
file calls. Here they do it at exactly such places, on one thread and drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.crash.fault_scenes import MODES, run_lane
from tests.crash.stores import Contents, contents
from tests.seeds import seed_for

from topics.embedded import Log
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.storage import layout
from topics.storage.fs import Fs
from topics.testing import CrashMode, FaultFs, ManualClock, PowerOff, SimDisk
from topics.testing.faults import Op, Rule

DATA_DIR = "/data"
COLD_DIR = "/cold"
SEED = "TOPICS_DROPS_SEED"
ROUNDS = 25
ENDS = 30
TOPICS = ("a", "b", "c", "d")
ROUTES = (("a", "b"), ("b", "c"), ("a", "d"))
"""A chain, so that what is dropped may hold copies and be copied from at the same time."""


class MeddledFs(FaultFs):
    """Lets somebody else have a turn before each file call of a checkpoint."""

    def __init__(self, inner: Fs) -> None:
        super().__init__(inner)
        self.meddle: Callable[[], None] | None = None

    def check(self, op: Op, path: str) -> Rule | None:
        meddle = self.meddle
        if meddle is not None and "/wal/" not in path:
            self.meddle = None  # what others do is not interrupted
            meddle()
            self.meddle = meddle
        return super().check(op, path)


class World:
    """A log whose topics are made, filled, routed, dropped and made anew."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk()
        self.texts = 0
        self.open()

    def open(self) -> None:
        self.fs = MeddledFs(self.disk.mount())
        settings = EngineSettings(
            wal_shards=2,
            segment_max_events=4,
            cache_bytes=1 << 16,
            cold_dir=COLD_DIR,
            hot_retain_segments=1,
        )
        opening = Opening(settings, ManualClock(), prealloc_start=4096)
        self.engine = open_engine(self.fs, DATA_DIR, opening)
        self.log = Log(self.engine)

    @property
    def names(self) -> list[str]:
        return sorted(self.engine.kernel.catalog.by_name)

    def act(self) -> None:
        """Something that a client or a router does; drops are nearly as frequent as writes."""
        name, dice = self.random.choice(TOPICS), self.random.random()
        if name not in self.names:
            self.make(name)
        elif dice < 0.35:
            self.write(name)
        elif dice < 0.6:
            self.engine.forward()
        elif dice < 0.7:
            self.log.delete(name, before_seq=self.random.randint(1, 12))
        else:
            self.log.drop(name)

    def make(self, name: str) -> None:
        self.log.create(name, durability="fsync")
        self.write(name)
        for source, dest in ROUTES:
            if name in (source, dest) and {source, dest} <= set(self.names):
                self.log.route(f"{source}{dest}", source=source, dest=dest)

    def write(self, name: str) -> None:
        self.texts += 1
        tag = self.random.choice(("x", "y"))
        self.log.append(name, [{"data": f"{name}{self.texts}-{i}", "tag": tag} for i in range(3)])

    def checkpoint(self, meddle: Callable[[], None]) -> None:
        """Upkeep with a checkpoint, and others at work between its file calls."""
        upkeep = self.engine.upkeep
        assert upkeep is not None
        self.fs.meddle = meddle
        try:
            run_lane(upkeep._due(checkpoint=True))
        finally:
            self.fs.meddle = None

    def sometimes(self) -> None:
        if self.random.random() < 0.15:
            self.act()

    def contents(self) -> dict[str, Contents]:
        """Everything, once routers have copied what there is."""
        for _ in ROUTES:
            self.engine.forward()
        return contents(self.log)

    def directories(self) -> set[str]:
        roots = (DATA_DIR, COLD_DIR)
        return {name for root in roots for name in self.disk.listdir(f"{root}/{layout.TOPICS}")}


def told(seed: int) -> str:
    return f"{SEED}={seed} pytest {__file__}"


def test_no_checkpoint_is_given_up_for_topics_that_come_and_go() -> None:
    first = seed_for(SEED)
    for seed in range(first, first + ROUNDS):
        print(told(seed))
        world = World(seed)
        for _ in range(4):
            world.act()
            world.checkpoint(world.sometimes)
        expected = world.contents()
        world.disk.kill()
        world.open()
        assert world.contents() == expected
        for _ in range(2):
            world.write("a") if "a" in world.names else world.make("a")
            world.log.checkpoint()
        live = {layout.topic_name(topic.id) for topic in world.engine.kernel.catalog}
        assert world.directories() <= live, "what is left of dropped topics goes in the end"


class Ending:
    """Acts of others, and an end of the program or the machine after so many file calls."""

    def __init__(self, world: World, mode: CrashMode | None) -> None:
        self._world = world
        self._mode = mode
        self._last = len(world.fs.trace) + world.random.randint(1, 40)
        self.contents: dict[str, Contents] = {}  # when it came

    def meddle(self) -> None:
        world = self._world
        world.sometimes()
        if len(world.fs.trace) >= self._last:
            self.contents = world.contents()
            if self._mode is None:
                world.disk.kill()
            else:
                world.disk.crash(self._last, self._mode)
            raise PowerOff

    def come(self) -> None:
        while True:
            self._world.act()
            self._world.checkpoint(self.meddle)


@pytest.mark.parametrize("end", ["kill", "power"])
def test_dl14_an_end_anywhere_in_a_checkpoint_beside_drops_costs_nothing(end: str) -> None:
    first = seed_for(SEED)
    for seed in range(first, first + ENDS):
        print(told(seed))
        world = World(seed)
        for _ in range(3):
            world.act()
            world.checkpoint(world.sometimes)
        ending = Ending(world, MODES[seed % len(MODES)] if end == "power" else None)
        with pytest.raises(PowerOff):
            ending.come()
        world.open()
        assert world.contents() == ending.contents
        world.log.checkpoint()
        world.disk.kill()
        world.open()
        assert world.contents() == ending.contents
