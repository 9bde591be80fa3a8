"""Programs that write down what they ask of a log, so that somebody can judge the outcome."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.crash.stores import Contents, contents
from tests.property.model.stores import LOG_FILE_BYTES

from topics.embedded import Log
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.errors import TopicsError
from topics.storage.wal.inline import InlineCommitter
from topics.testing import FaultFs, ManualClock, SimDisk, WatchFs

DATA_DIR = "/data"
COLD_DIR = "/cold"
SETTINGS: dict[str, Any] = {
    "wal_shards": 2,
    "segment_max_events": 4,
    "segment_max_age_ms": 0,
    "hot_retain_segments": 1,
    "cache_bytes": 1 << 16,
    "cold_dir": COLD_DIR,
}
"""Settings that make much happen with few records."""

State = Literal["sent", "acked", "failed"]
End = Literal["kill", "power"]
"""Whether only the process ended or the machine too."""


@dataclass
class Op:
    """A call that changes something. `safe`: acked, and no power cut can take it any more."""

    state: State = "sent"
    safe: bool = False

    def holds(self, end: End) -> bool:
        return self.state == "acked" and (self.safe or end == "kill")


@dataclass
class Write(Op):
    texts: tuple[str, ...] = ()
    tag: str | None = None
    durability: str = ""
    first: int = 0  # 0: no seq was told

    def seqs(self, found: dict[str, int]) -> list[int]:
        """The seqs of its records, as far as they are known or can be seen."""
        if self.first:
            return list(range(self.first, self.first + len(self.texts)))
        for at, text in enumerate(self.texts):
            if text in found:
                return list(range(found[text] - at, found[text] - at + len(self.texts)))
        return []


@dataclass
class Removal(Op):
    before: int | None = None
    match: str | None = None
    bound: int = 0

    def hits(self, seq: int, tag: str | None) -> bool:
        return (
            seq < self.bound
            and (self.before is None or seq < self.before)
            and (self.match is None or tag == self.match)
        )


@dataclass
class Life:
    """One instance of a topic, from its creation to its drop."""

    born: Op
    configs: list[dict[str, Any]]  # the last acked one, and those sent since
    dropped: Op | None = None
    epoch: int = 0
    writes: list[Write] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    floor: int = 1  # as readers saw it
    safe_floor: int = 1

    @property
    def durability(self) -> str:
        return str(self.configs[-1].get("durability", "disk"))

    @property
    def ops(self) -> list[Op]:
        return [*self.writes, *self.removals]

    @property
    def may_evict(self) -> bool:
        return any(
            {"cap_records", "cap_bytes", "ttl_ms"} & config.keys() for config in self.configs
        )


@dataclass
class Book:
    """Everything a program asked of a log, over all its runs."""

    lives: dict[str, list[Life]] = field(default_factory=dict)
    texts: int = 0

    def copy(self) -> Book:
        return copy.deepcopy(self)

    def life(self, topic: str) -> Life:
        return self.lives[topic][-1]

    def next_text(self, topic: str) -> str:
        self.texts += 1
        return f"{topic}-{self.texts}"

    def note_safe(self) -> None:
        """Everything acked so far is durable."""
        for life in (life for lives in self.lives.values() for life in lives):
            life.safe_floor = life.floor
            for op in life.ops:
                op.safe = op.safe or op.state == "acked"

    def rebase(self, found: dict[str, Contents]) -> None:
        """A recovery has decided what survived: from now on that is what there is."""
        for topic, lives in list(self.lives.items()):
            shown = found.get(topic)
            if shown is None:
                del self.lives[topic]
                continue
            life = lives[-1]
            life.born, life.dropped, life.epoch = Op("acked", True), None, shown.state["epoch"]
            life.configs = [c for c in life.configs if agrees(shown.state["config"], c)][-1:]
            by_text = {record.data: seq for seq, record in shown.records.items()}
            kept = []
            for write in life.writes:
                seqs = write.seqs(by_text)
                if any(text in by_text for text in write.texts):
                    write.state, write.safe, write.first = "acked", True, seqs[0]
                    kept.append(write)
            life.writes = kept
            # What could have hit something has done so by now, or never will.
            life.removals = [
                removal
                for removal in life.removals
                if not any(removal.hits(seq, r.tag) for seq, r in shown.records.items())
            ]
            for removal in life.removals:
                removal.state, removal.safe = "acked", True
            life.floor = life.safe_floor = shown.audit["evict_floor"]


def agrees(shown: dict[str, Any], config: dict[str, Any]) -> bool:
    return all(shown[name] == value for name, value in config.items())


def opening(clock: ManualClock, **changes: Any) -> Opening:  # noqa: ANN401 - EngineSettings checks
    settings = EngineSettings(**SETTINGS | changes)
    return Opening(settings, clock, prealloc_start=LOG_FILE_BYTES)


class Program:
    """One run: opens the log, makes calls, writes them down. Opening may be refused.

    File calls pass `watch`, which objects to dangerous orders, and `faults`, where tests make them
    fail. A call that fails leaves the log running, as a program that lives on would.
    """

    def __init__(
        self,
        disk: SimDisk,
        book: Book | None = None,
        *,
        clock: ManualClock | None = None,
        arm: Callable[[FaultFs], object] = lambda faults: None,
        **settings: Any,  # noqa: ANN401 - EngineSettings checks them
    ) -> None:
        self.disk = disk
        self.book = Book() if book is None else book
        self.clock = clock or ManualClock()
        self.settings = settings
        self.faults = FaultFs(disk.mount())
        self.watch = WatchFs(self.faults)
        arm(self.faults)
        engine = open_engine(self.watch, DATA_DIR, opening(self.clock, **settings))
        self.engine = engine
        self.log = Log(engine)
        self.is_closed = False

    # Calls

    def create(self, topic: str, **config: Any) -> bool:  # noqa: ANN401 - the log checks them
        lives = self.book.lives.setdefault(topic, [])
        if topic in self.engine.kernel.catalog.by_name:
            return self._configure(lives[-1], topic, config)
        life = Life(Op(), [config])
        lives.append(life)
        acked = self._call(life.born, lambda: self.log.create(topic, **config))
        if acked:
            life.born.safe = True
            life.epoch = self.log.state(topic, touch=False).epoch
        return acked

    def _configure(self, life: Life, topic: str, config: dict[str, Any]) -> bool:
        life.configs.append(config)
        acked = self._call(Op(), lambda: self.log._put(topic, config))
        if acked:
            life.configs = [config]
            self._note_floors()
        else:
            life.configs.insert(0, life.configs.pop())
        return acked

    def append(self, topic: str, count: int = 1, *, tag: str | None = None) -> bool:
        life = self.book.life(topic)
        texts = tuple(self.book.next_text(topic) for _ in range(count))
        write = Write(texts=texts, tag=tag, durability=life.durability)
        life.writes.append(write)
        drafts = [{"data": text} if tag is None else {"data": text, "tag": tag} for text in texts]

        def call() -> None:
            write.first = self.log.append(topic, drafts, create=False).first_seq

        if not self._call(write, call):
            return False
        if life.durability == "fsync":
            write.safe = True
            self._tell_watch(topic)
        return True

    def delete(self, topic: str, *, before: int | None = None, match: str | None = None) -> bool:
        life = self.book.life(topic)
        head = self.engine.kernel.catalog.by_name[topic].head
        removal = Removal(before=before, match=match, bound=head + 1)
        life.removals.append(removal)
        acked = self._call(removal, lambda: self.log.delete(topic, before_seq=before, match=match))
        removal.safe = acked and life.durability == "fsync"
        return acked

    def drop(self, topic: str) -> bool:
        life = self.book.life(topic)
        life.dropped = Op()
        acked = self._call(life.dropped, lambda: self.log.drop(topic))
        life.dropped.safe = acked
        return acked

    def checkpoint(self) -> bool:
        return self._syncing(self.log.checkpoint)

    def sync(self) -> bool:
        return self._syncing(self.log.sync)

    def maintain(self) -> None:
        """Whatever upkeep finds to do; its failures are its own affair."""
        self.log.maintain()
        self._note_floors()

    def close(self) -> bool:
        self.is_closed = True
        return self._syncing(self.log.close)

    def read_all(self) -> dict[str, Contents]:
        """Every topic as readers see it now."""
        found = contents(self.log)
        self._note_floors()
        return found

    # Notes

    def _syncing(self, call: Callable[[], None]) -> bool:
        self._note_floors()
        acked = self._call(Op(), call)
        if acked:
            self.book.note_safe()
        return acked

    def _call(self, op: Op, call: Callable[[], object]) -> bool:
        try:
            call()
        except (TopicsError, OSError):
            op.state = "failed"
            return False
        op.state = "acked"
        self._note_floors()
        return True

    def _note_floors(self) -> None:
        for topic in self.engine.kernel.catalog:
            if topic.name in self.book.lives:
                life = self.book.life(topic.name)
                life.floor = max(life.floor, topic.evict_floor)
                if topic.config.durability == "fsync" and not topic.config.ttl_ms:
                    life.safe_floor = life.floor

    def _tell_watch(self, topic: str) -> None:
        committer = self.engine.kernel.committer
        assert isinstance(committer, InlineCommitter)
        shard = committer.shard_of(self.engine.kernel.catalog.by_name[topic].id)
        self.watch.acked(committer._shards[shard].path, committer.position(shard).offset)
