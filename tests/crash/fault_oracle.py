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

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.crash.fault_program import DATA_DIR, SETTINGS, Book, End, Life, Program, Write, agrees
from tests.crash.stores import Contents, contents

from topics.testing import ManualClock, SimDisk


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
    """All there is, without what reading itself changes."""
    program.watch.check()
    found = contents(program.log)
    for shown in found.values():
        shown.state["effective_priority"] = None
    return found


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
