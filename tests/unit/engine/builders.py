"""An engine on a simulated disk, small enough that segments and log files change often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.unit.queue.builders import HeldLog, VirtualLoop

from topics.core.facts import Fact
from topics.core.topic import Topic
from topics.embedded.log import Log
from topics.engine.effects import run
from topics.engine.kernel import Kernel
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.testing import ManualClock, SimDisk

SMALL: dict[str, Any] = {"wal_shards": 1, "segment_max_events": 4, "cache_bytes": 1 << 16}


@dataclass
class Store:
    """A log that can be ended in every way and opened again."""

    disk: SimDisk = field(default_factory=SimDisk)
    clock: ManualClock = field(default_factory=ManualClock)
    settings: dict[str, Any] = field(default_factory=lambda: dict(SMALL))

    def __post_init__(self) -> None:
        self.log = self.open()

    def open(self, **changed: Any) -> Log:  # noqa: ANN401 - EngineSettings checks them
        opening = Opening(
            EngineSettings(**{**self.settings, **changed}), self.clock, prealloc_start=4096
        )
        self.log = Log(open_engine(self.disk.mount(), "/data", opening))
        return self.log

    def restart(self, **changed: Any) -> Log:  # noqa: ANN401 - EngineSettings checks them
        """A clean stop, then a start."""
        self.log.close()
        return self.open(**changed)

    def kill(self, **changed: Any) -> Log:  # noqa: ANN401 - EngineSettings checks them
        """The process dies; everything it wrote is still there."""
        self.disk.kill()
        return self.open(**changed)

    def lose_power(self) -> Log:
        """Nothing survives but what was synced."""
        self.disk.crash(mode="none", names="none")
        return self.open()

    @property
    def kernel(self) -> Kernel:
        return self.log._engine.kernel

    def topic(self, name: str) -> Topic:
        return self.kernel.catalog.by_name[name]

    def commit(self, *facts: Fact, topic_id: int = 0) -> None:
        """Put facts through the log as one durable submission."""
        run(self.kernel.commit(facts, topic_id=topic_id, durable=True))

    def put(self, name: str, **config: Any) -> None:  # noqa: ANN401 - the engine checks them
        """Create a topic, or replace the whole configuration of one that exists."""
        run(self.log._engine.put(name, config))

    def append(self, name: str, *values: object, **fields: object) -> None:
        self.log.append(name, [{"data": value, **fields} for value in values])

    def seqs(self, name: str) -> list[int]:
        return [record.seq for record in self.log.read(name, limit=1000).records]


@dataclass
class Held(Store):
    """The same on a log that can keep what it is given, and a loop that goes on meanwhile."""

    tasks: VirtualLoop = field(init=False)
    held: HeldLog = field(init=False)

    def hold(self) -> None:
        self.tasks = VirtualLoop(self.clock)
        self.held = HeldLog(self.kernel.committer)
        self.kernel.committer = self.held
        self.held.is_holding = True

    def let_go(self) -> None:
        while self.held.held:
            self.held.let_go()
            self.tasks.settle()
