"""What a store may look like after whatever went wrong, judged from outside.

A `Program` runs the embedded log on a simulated disk and writes every call into a `Book`: sent,
then acked or failed. `Oracle.check` recovers the disk and holds what it finds against the book:

1. what was acked is there, what is there was sent, and each write is whole or absent;
2. the ledger adds up, counters agree with the records, a tombstone covers no live record;
3. the next seq is head + 1 and above every acked one;
4. no acked delete is undone and no floor is lower than a reader has seen;
5. recovering again, or with another number of shards, or without snapshots while the log is whole,
   gives the same; then one more write is taken and found after one more restart.

After a power cut an op on a `disk` or `memory` topic counts as acked only once a later sync
covered it; an ephemeral topic keeps nothing but its seqs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.crash.stores import Contents, contents
from tests.property.model.stores import LOG_FILE_BYTES

from topics.embedded import Log
from topics.engine.opening import Opening, open_engine
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
        if lives and lives[-1].dropped is None:
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
        acked = self._call(Op(), lambda: self.log.create(topic, **config))
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
        if not acked:
            life.dropped = None if topic in self.engine.kernel.catalog.by_name else life.dropped
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


# Judging


def complaints(book: Book, found: dict[str, Contents], end: End) -> Iterator[str]:
    """Everything that is not as it must be."""
    for topic in found.keys() - book.lives.keys():
        yield f"{topic}: nobody created it"
    for topic, lives in book.lives.items():
        life, shown = lives[-1], found.get(topic)
        if shown is None:
            gone = life.dropped is not None or not life.born.holds(end)
            if not gone:
                yield f"{topic}: it is gone"
            continue
        if life.dropped is not None and life.dropped.state == "acked":
            yield f"{topic}: it was dropped and is back"
            continue
        for problem in _of_topic(life, shown, end):
            yield f"{topic}: {problem}"


def _of_topic(life: Life, shown: Contents, end: End) -> Iterator[str]:
    if life.epoch and shown.state["epoch"] != life.epoch:
        yield f"epoch {shown.state['epoch']} instead of {life.epoch}"
    if not any(agrees(shown.state["config"], config) for config in life.configs):
        yield f"configuration {shown.state['config']} was never sent"
    yield from _of_numbers(shown)
    yield from _of_writes(life, shown, end)
    yield from _of_removals(life, shown, end)
    floor = life.floor if end == "kill" else life.safe_floor
    if shown.audit["evict_floor"] < floor:
        yield f"floor {shown.audit['evict_floor']} was {floor}"


LEDGER = ("live", "deleted", "lost_cap", "lost_ttl", "lost_crash", "skipped", "source_trim")


def _of_numbers(shown: Contents) -> Iterator[str]:
    audit, records = shown.audit, shown.records
    head = audit["head_seq"]
    if head != sum(audit[name] for name in LEDGER):
        yield f"the ledger does not add up: {audit}"
    if shown.state["count"] != len(records) or audit["live"] != len(records):
        yield f"{shown.state['count']} counted, {len(records)} read"
    nbytes = sum(len(r.raw) + len(r.raw_meta or b"") for r in records.values())
    if shown.state["bytes"] != nbytes:
        yield f"{shown.state['bytes']} bytes counted, {nbytes} read"
    if not 1 <= audit["evict_floor"] <= audit["earliest_seq"] <= head + 1:
        yield f"marks out of order: {audit}"
    if min(records, default=head + 1) != audit["earliest_seq"]:
        yield f"earliest is {audit['earliest_seq']}, first record {min(records, default=0)}"
    for seq in records:
        if shown.announces(seq):
            yield f"seq {seq} is live and announced as lost"
    times = [record.ts for _, record in sorted(records.items())]
    if times != sorted(times):
        yield "times go back"


def _of_writes(life: Life, shown: Contents, end: End) -> Iterator[str]:
    found = {record.data: seq for seq, record in shown.records.items()}
    sent = {text: write for write in life.writes for text in write.texts}
    for text, seq in found.items():
        if text not in sent:
            yield f"seq {seq} holds {text!r}, which was never sent here"
        elif shown.records[seq].tag != sent[text].tag:
            yield f"seq {seq} has the tag of another"
    torn_at = 0
    for write in life.writes:
        missing = [
            seq
            for seq, text in zip(write.seqs(found), write.texts, strict=False)
            if found.get(text) != seq and not _is_excused(life, shown, seq, write.tag)
        ]
        if not missing:
            if torn_at and any(text in found for text in write.texts):
                yield f"{write.texts} is there, although seq {torn_at} before it is lost"
            continue
        if write.durability == "ephemeral":
            continue
        torn_at = torn_at or missing[0]
        if any(text in found for text in write.texts):
            yield f"of {write.texts} only a part is there"
        if write.holds(end):
            yield f"{write.texts} at {missing} was acked and is gone"
        if write.state == "acked" and write.durability == "disk":
            silent = [seq for seq in missing if not shown.announces(seq)]
            if silent:
                yield f"{silent} are lost without a word"
    acked = [w.first + len(w.texts) - 1 for w in life.writes if _keeps_seqs(w, end)]
    if shown.audit["head_seq"] < max(acked, default=0):
        yield f"head {shown.audit['head_seq']} is below {max(acked)}, which was handed out"


def _keeps_seqs(write: Write, end: End) -> bool:
    return write.state == "acked" and (write.durability != "memory" or write.holds(end))


def _is_excused(life: Life, shown: Contents, seq: int, tag: str | None) -> bool:
    if shown.state["config"]["durability"] == "ephemeral":
        return True  # nothing of it outlives a restart, older records of another class neither
    evicted = seq < shown.audit["evict_floor"] and life.may_evict
    return evicted or any(removal.hits(seq, tag) for removal in life.removals)


def _of_removals(life: Life, shown: Contents, end: End) -> Iterator[str]:
    for removal in life.removals:
        if removal.holds(end):
            back = [s for s, r in shown.records.items() if removal.hits(s, r.tag)]
            if back:
                yield f"{back} were deleted and are back"


# Recovering


@dataclass
class Oracle:
    """Checks one disk after one end of a program."""

    book: Book
    end: End
    clock: ManualClock
    settings: dict[str, Any] = field(default_factory=dict)

    def check(self, disk: SimDisk) -> dict[str, Contents]:
        """Recover and judge; returns what was found. The disk itself is left as it is."""
        twin = disk.clone()
        found = dump(self._recover(twin))
        problems = list(complaints(self.book, found, self.end))
        assert not problems, "\n".join(problems)
        twin.kill()
        assert_same(found, dump(self._recover(twin)), "recovering again")
        twin.kill()
        shards = self.settings.get("wal_shards", SETTINGS["wal_shards"]) % 3 + 1
        other = self._recover(disk.clone(), wal_shards=shards)
        assert_same(found, dump(other), f"recovering with {shards} shards")
        self._replay_all(disk.clone(), found)
        self._go_on(twin, found)
        return found

    def _recover(self, disk: SimDisk, **changes: Any) -> Program:  # noqa: ANN401 - as above
        clock = ManualClock(self.clock.now_ms())
        return Program(disk, clock=clock, **self.settings | changes)

    def _replay_all(self, disk: SimDisk, found: dict[str, Contents]) -> None:
        """As long as no log file was let go, the log alone tells the same."""
        meta = f"{DATA_DIR}/meta"
        if not disk.exists(meta) or disk.exists(f"{meta}/TRIMMED"):
            return
        for name in disk.listdir(meta):
            disk.unlink(f"{meta}/{name}")
        assert_same(found, dump(self._recover(disk)), "replaying all of the log")

    def _go_on(self, disk: SimDisk, before: dict[str, Contents]) -> None:
        """One more write to every topic, and one more restart."""
        program = self._recover(disk)
        program.book = self.book.copy()
        program.book.rebase(before)
        for topic, shown in before.items():
            assert program.append(topic), f"{topic}: a recovered log takes no writes"
            write = program.book.life(topic).writes[-1]
            assert write.first == shown.audit["head_seq"] + 1, topic
            if program.book.life(topic).durability == "ephemeral":
                program.book.life(topic).writes.pop()
        assert program.close()
        program.watch.check()
        problems = list(complaints(program.book, dump(self._recover(disk)), "power"))
        assert not problems, "\n".join(["after one more write and restart:", *problems])


def dump(program: Program) -> dict[str, Contents]:
    program.watch.check()
    return contents(program.log)


def assert_same(one: dict[str, Contents], other: dict[str, Contents], what: str) -> None:
    """Two dumps agree; if not, the message tells on what."""
    assert one.keys() == other.keys(), f"{what}: topics differ"
    for topic, shown in one.items():
        for name, value in vars(shown).items():
            twin = getattr(other[topic], name)
            assert value == twin, f"{what}: {topic} has other {name}:\n  {value}\n  {twin}"


def check(program: Program, end: End, *, disk: SimDisk | None = None) -> dict[str, Contents]:
    """Judge a disk after the program on it has ended."""
    program.watch.check()
    oracle = Oracle(program.book, end, program.clock, program.settings)
    return oracle.check(disk or program.disk)
