"""Where the engine of a model run keeps its bytes, and how its process ends."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import msgspec

from topics.core.durability import CLASSES
from topics.embedded.log import Log
from topics.embedded.view import View
from topics.engine.engine import Engine, memory_engine
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.storage.fs import Fs, RealFs
from topics.storage.segments.lru import ByteLru
from topics.storage.wal.settings import WalSettings
from topics.testing import CrashMode, FaultFs, ManualClock, NameMode, SimDisk
from topics.topic_settings import Durability

DISK_BLOCK = 4
MAX_DISK_BLOCK = 16
EPHEMERAL_BLOCK = 8
LOG_FILE_BYTES = 2048
MOST_PARTS = 2


@contextmanager
def small_world() -> Iterator[None]:
    """Blocks of seqs and log files so small that a short run goes through many of them.

    Snapshots are in parts, however small they are, and a chain of parts is short.
    """
    changed: dict[str, object] = {
        "writes.reserving.RESERVE_BLOCK": DISK_BLOCK,
        "writes.reserving.MAX_RESERVE_BLOCK": MAX_DISK_BLOCK,
        "recovery.opening.WalSettings": partial(WalSettings, file_bytes=LOG_FILE_BYTES),
        "upkeep.snapshots.SMALL_BYTES": 0,
        "upkeep.snapshots.MOST_PARTS": MOST_PARTS,
        "upkeep.snapshots.PARTS_SHARE": 100,
    }
    blocks: dict[Durability, int] = {"disk": DISK_BLOCK, "ephemeral": EPHEMERAL_BLOCK}
    classes = {
        name: msgspec.structs.replace(CLASSES[name], first_block=block)
        for name, block in blocks.items()
    }
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(CLASSES, classes))
        for name, value in changed.items():
            stack.enter_context(mock.patch(f"topics.engine.{name}", value))
        yield


def impatient(engine: Engine) -> Engine:
    """An engine that keeps no index of a segment unless somebody holds it, and fails where the
    owner of the state would read one itself: applying facts, TTL, cursors, deletes."""
    store = engine.kernel.segments
    assert store is not None
    store._idx = ByteLru(0)
    store.refuses_to_wait = True
    return engine


@dataclass(frozen=True)
class PowerCut:
    """How the power goes."""

    seed: int = 0
    mode: CrashMode = "prefix"
    names: NameMode = "prefix"


class Store(ABC):
    """A place for one log. `can_lose_power`: by a simulated power cut."""

    can_lose_power = False
    cold_dir: str | None = None

    @abstractmethod
    def open(self, settings: EngineSettings, clock: ManualClock) -> Log:
        """The log, as its process finds it."""

    def view(self, settings: EngineSettings, clock: ManualClock) -> Log | None:
        """A read-only look beside the owner."""
        return None

    @abstractmethod
    def end(self, log: Log, cut: PowerCut | None) -> None:
        """The process dies, and with `cut` the machine too."""

    def discard(self, log: Log | None) -> None:
        """The run is over."""
        del log


class MemoryStore(Store):
    def open(self, settings: EngineSettings, clock: ManualClock) -> Log:
        return Log(memory_engine(settings, clock))

    def end(self, log: Log, cut: PowerCut | None) -> None:
        raise AssertionError("nothing is left of a log in memory that could be opened again")


@dataclass
class SimStore(Store):
    """A simulated disk; the bomb ends the program before a chosen file call."""

    can_lose_power = True
    disk: SimDisk = field(default_factory=SimDisk)
    fs: FaultFs | None = None
    path = "/data"
    cold_dir = "/cold"

    def _opening(self, settings: EngineSettings, clock: ManualClock) -> Opening:
        return Opening(settings, clock, prealloc_start=LOG_FILE_BYTES)

    def open(self, settings: EngineSettings, clock: ManualClock) -> Log:
        self.fs = FaultFs(self.disk.mount())
        return Log(impatient(open_engine(self.fs, self.path, self._opening(settings, clock))))

    def open_with_bomb(
        self, settings: EngineSettings, clock: ManualClock, calls: int, cut: PowerCut | None
    ) -> Log:
        self.fs = FaultFs(self.disk.mount())
        self.arm(calls, cut)
        return Log(impatient(open_engine(self.fs, self.path, self._opening(settings, clock))))

    def view(self, settings: EngineSettings, clock: ManualClock) -> Log | None:
        return View(self.disk.mount(), self.path, self._opening(settings, clock))

    def arm(self, calls: int, cut: PowerCut | None) -> None:
        """End the program before the `calls`-th file call from now."""
        assert self.fs is not None
        self.fs.stop_before(len(self.fs.trace) + calls, partial(self._go, cut))

    def _go(self, cut: PowerCut | None) -> None:
        if cut is None:
            self.disk.kill()
        else:
            self.disk.crash(cut.seed, cut.mode, names=cut.names)

    def end(self, log: Log, cut: PowerCut | None) -> None:
        del log
        self._go(cut)


class RealStore(Store):
    """A directory of the real file system; a process death is an engine that nobody closes."""

    def __init__(self) -> None:
        self.root = tempfile.mkdtemp(prefix="topics-model-")
        self.path = f"{self.root}/data"
        self.cold_dir = f"{self.root}/cold"
        self.fs: Fs = RealFs()

    def open(self, settings: EngineSettings, clock: ManualClock) -> Log:
        opening = Opening(settings, clock, prealloc_start=LOG_FILE_BYTES)
        return Log(impatient(open_engine(self.fs, self.path, opening)))

    def view(self, settings: EngineSettings, clock: ManualClock) -> Log | None:
        return View(self.fs, self.path, Opening(settings, clock))

    def end(self, log: Log, cut: PowerCut | None) -> None:
        del cut
        abandon(log._engine)

    def discard(self, log: Log | None) -> None:
        if log is not None:
            abandon(log._engine)
        shutil.rmtree(self.root, ignore_errors=True)


def abandon(engine: Engine) -> None:
    """Drop every descriptor as the end of a process would; write nothing."""
    for shard in getattr(engine.kernel.committer, "_shards", ()):
        shard._file.close()
    engine.release()
