"""A restore is exact at any moment: compared with what the log held then.

A log is written, deleted from, checkpointed, restarted and backed up in random order; after every
step its records, cursors and jobs are noted. Then the backup is restored to random moments.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import topics
from topics.engine.backup import cutting, restoring
from topics.engine.backup.destination import Destination
from topics.engine.backup.restoring import Restore, RestoreTarget
from topics.engine.backup.taking import Backup
from topics.storage import crashpoints
from topics.storage.objects.directory import DirectoryObjects
from topics.testing import ManualClock, SimDisk

TOPICS = ("audit", "orders", "paid", "scratch")
State = dict[str, Any]


class World:
    """A log on a simulated disk, its backup, and what it held at every step."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = SimDisk()
        self.clock = ManualClock()
        self.held: list[tuple[int, State]] = []
        self.seen: dict[str, int] = {}  # the highest seq of each topic that a reader saw
        self.log = self.open("/data")
        self.log.create("orders", durability="fsync")
        self.log.create("scratch", durability="memory")
        self.log.create("jobs", type="queue")
        self.log.route("copy", source="orders", dest="audit")
        self.backup: Backup | None = None
        self.dest = self.destination()

    def open(self, path: str) -> topics.Log:
        return topics.open(
            path, fs=self.disk, clock=self.clock, segment_max_events=20, wal_shards=2
        )

    def destination(self) -> Destination:
        return Destination(DirectoryObjects(self.disk, "/backup"), self.clock)

    def step(self) -> None:
        rng, log = self.rng, self.log
        name = rng.choice(TOPICS[1:])
        match rng.randrange(20):
            case 0 | 1 | 2:
                log.delete(name, match=rng.choice(["x", "y"]))
            case 3:
                log.delete(name, before_seq=rng.randint(0, 30))
            case 4 | 5:
                log.checkpoint()
            case 6:
                log.close()
                self.log = log = self.open("/data")
            case 7:
                log.set_cursor("orders", "billing", rng.randint(0, log.state("orders").head_seq))
            case 8:
                jobs = log.queue("jobs", node="w").claim(2)
                log.queue("jobs", node="w").ack(jobs[:1])
            case 9:
                log.append("jobs", [{"data": rng.randint(0, 9)} for _ in range(3)])
            case _:
                tags = [rng.choice(["x", "y", None]) for _ in range(rng.randint(1, 6))]
                log.append(name, [{"data": {"k": rng.random()}, "tag": tag} for tag in tags])
        self.held.append((self.clock.now_ms(), state_of(log)))
        for found in log.topics():
            self.seen[found.topic] = max(self.seen.get(found.topic, 0), found.head_seq)
        self.clock.advance(rng.randint(1, 50))

    def back_up(self) -> None:
        if self.backup is None:
            self.backup = Backup(self.disk, "/data", self.dest, clock=self.clock)
            self.backup.begin()
        with crashpoints.installed(self.going_on()):
            self.backup.run()

    def going_on(self) -> crashpoints.Hook:
        """The owner goes on in the middle of a backup: deletes and checkpoints above all."""
        left = self.rng.choice([0, 1, 3])

        def hook(reached: str) -> None:
            nonlocal left
            if left and reached in ("backup.snapshot", "backup.object", "object.renamed"):
                left -= 1
                self.step()
                self.log.checkpoint()

        return hook

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            if self.rng.random() < 0.3:
                self.back_up()
        self.back_up()

    def restore(self, number: int) -> str | None:
        """Restore to a moment between a step and the next; what is wrong, if anything."""
        at_ms, held = self.held[number]
        if number + 1 < len(self.held):
            at_ms = self.rng.randint(at_ms, self.held[number + 1][0] - 1)
        root = self.dest.require()
        if not any(span.from_ms <= at_ms <= span.to_ms for span in root.spans):
            return None
        target = f"/restored-{number}"
        restore = Restore(
            self.destination(), self.disk, target, RestoreTarget(at_ms=at_ms), clock=self.clock
        )
        assert restore.plan().missing == []
        restore.run()
        with self.open(target) as log:
            found = state_of(log)
            silent = self.silently_reused(log)
        if found != held:
            return f"step {number}: {found} instead of {held}"
        return silent

    def silently_reused(self, log: topics.Log) -> str | None:
        """A reader that saw a seq is told that it is lost, and never gets another record by it."""
        for name in ("orders", "scratch"):
            seen = self.seen[name]
            kept = [item for item in log.scan(name) if isinstance(item, topics.Record)]
            told = [item for item in log.scan(name) if isinstance(item, topics.Tombstone)]
            head = log.audit(name).head_seq
            new = log.append(name, [{"data": "new"}]).last_seq
            if new <= seen:
                return f"{name}: the seq {new} was given out again; {seen} had been seen"
            if kept and kept[-1].seq < seen and not any(gap.gap_to >= seen for gap in told):
                return f"{name}: nobody is told that {seen} is lost: {told}, head {head}"
        return None


def state_of(log: topics.Log) -> State:
    held: State = {
        name: [
            (record.seq, record.data, record.tag, record.ts)
            for record in log.scan(name)
            if isinstance(record, topics.Record)
        ]
        for name in (*TOPICS, "jobs")
        if name in {found.topic for found in log.topics()}
    }
    held["cursors"] = {each.cursor: each.seq for each in log.cursors("orders")}
    return held


@pytest.mark.parametrize("seed", range(4))
def test_br06_a_restore_is_exact_at_fifty_random_moments(seed: int) -> None:
    world = World(seed)
    world.run(120)
    wrong = [world.restore(number) for number in world.rng.sample(range(120), 50)]
    assert [each for each in wrong if each is not None] == []


def _late_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    real = cutting.cut

    def cut(groups: list[cutting.GroupLog], **at: Any) -> cutting.CutLog:  # noqa: ANN401
        return real(groups, **{**at, "at_ms": at["at_ms"] + 40})

    monkeypatch.setattr(restoring, "cut", cut)


def _no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting.Beyond, "note", lambda self, topic_id, seq: None)


BUGS = {"a cut too late": _late_cut, "no gap": _no_gap}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    world = World(1)
    world.run(120)
    assert any(world.restore(number) is not None for number in range(10, 110, 4))
