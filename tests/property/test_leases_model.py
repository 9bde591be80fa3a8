"""The lease state machine against a model, with a clock under control.

The model knows of every job where it is: fresh, waiting to be handed out again, leased to somebody
until a time, delayed until a time, or gone. Every answer of the queue is foretold: which jobs a
claim gives and in which order, what an ack skips, what the counters say. So no job is lost, none
has two holders, none is delivered more often than its limit, and none is stuck.

After the death of the process durable leases are as they were, and of others nothing is left. A
power cut may take the newest lease events with it: then a job is as it was some events ago, and
the clock frees what nobody remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from topics.core.topic import Topic
from topics.embedded.log import Log
from topics.engine.effects import run
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.queue import ClaimedJobs, Queues
from topics.storage.wal.settings import WalSettings
from topics.testing import FaultFs, ManualClock, PowerOff, SimDisk
from topics.topic_settings import Durability
from topics.values import Acked, Job

QUEUE, LETTERS = "jobs", "letters"
PATH = "/data"
LOG_FILE_BYTES = 4096
NODES = ("anna", "bert", "carl")
LEASES_MS = (100, 300, 1000)
State = Literal["fresh", "waiting", "leased", "delayed", "acked", "dead", "deleted"]
GONE = ("acked", "dead", "deleted")


@dataclass(frozen=True)
class Held:
    """A lease as the model saw it given out."""

    lease_id: int
    node: str
    deadline_ms: int


@dataclass
class Task:
    """One job, from its append to its end."""

    value: int
    state: State = "fresh"
    held: Held | None = None
    ready_at: int = 0
    deliveries: int = 0
    leases: list[Held] = field(default_factory=list)


class LeaseMachine(RuleBasedStateMachine):
    limit: int
    is_durable: bool

    @initialize(
        durability=st.sampled_from(["fsync", "disk"]),
        leases_durable=st.booleans(),
        limit=st.sampled_from([0, 1, 3]),
    )
    def begin(self, durability: Durability, leases_durable: bool, limit: int) -> None:
        self.disk = SimDisk()
        self.clock = ManualClock()
        self.durability = durability
        self.is_durable = leases_durable
        self.limit = limit
        self.tasks: dict[int, Task] = {}  # by seq
        self.values = 0
        self.dead_lettered = 0
        self.lease_ids: set[int] = set()
        self.open()
        self.log.create(
            QUEUE,
            type="queue",
            durability=durability,
            leases_durable=leases_durable,
            max_deliveries=limit,
            dead_letter=LETTERS if limit else None,
        )
        if limit:
            self.log.create(LETTERS, durability=durability)
        self.append(4)

    def open(self) -> None:
        self.fs = FaultFs(self.disk.mount())
        opening = Opening(
            EngineSettings(wal_shards=1, segment_max_events=4, cache_bytes=1 << 16),
            self.clock,
            prealloc_start=LOG_FILE_BYTES,
        )
        small = partial(WalSettings, file_bytes=LOG_FILE_BYTES)
        with mock.patch("topics.engine.recovery.opening.WalSettings", small):
            self.log = Log(open_engine(self.fs, PATH, opening))

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def places(self, state: State) -> list[int]:
        return sorted(seq for seq, task in self.tasks.items() if task.state == state)

    def sweep(self) -> None:
        for task in self.tasks.values():
            held = task.held
            if task.state == "leased" and held is not None and held.deadline_ms < self.now:
                task.state, task.held = "waiting", None
            elif task.state == "delayed" and task.ready_at <= self.now:
                task.state = "waiting"

    # What happens

    @precondition(lambda self: len(self.places("fresh")) < 6)
    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        ack = self.log.append(QUEUE, [{"data": self.values + i} for i in range(count)])
        for at, seq in enumerate(ack.seqs):
            self.tasks[seq] = Task(self.values + at)
        self.values += count

    @rule(
        node=st.sampled_from(NODES),
        most=st.integers(1, 4),
        lease_ms=st.sampled_from([None, *LEASES_MS]),
        idle_ms=st.sampled_from([0, 0, 101, 301]),
    )
    def claim(self, node: str, most: int, lease_ms: int | None, idle_ms: int) -> None:
        """A worker takes jobs, and perhaps sits on them."""
        self.sweep()
        expected = self.foretell(most)
        jobs = self.log.queue(QUEUE, node=node).claim(most, lease_ms=lease_ms)
        assert [job.seq for job in jobs] == sorted(expected)
        deadline = self.now + (lease_ms or 30_000)
        for job in jobs:
            self.hand_out(job, Held(job.lease_id, node, deadline))
        self.clock.advance(idle_ms)

    @rule(claims=st.lists(st.tuples(st.sampled_from(NODES), st.integers(1, 3)), max_size=3))
    def claim_together(self, claims: list[tuple[str, int]]) -> None:
        """Several workers claim in one step; to each it is as if it came after the one before."""
        self.sweep()
        expected = self.foretell(sum(most for _, most in claims))
        queues = self.queues
        claimers = [
            queues.claimer(self.topic, node=x, most=most, lease_ms=300) for x, most in claims
        ]
        outcomes = run(queues.claim_all(QUEUE, claimers))
        for (node, most), outcome in zip(claims, outcomes, strict=True):
            assert isinstance(outcome, ClaimedJobs)
            share, expected = expected[:most], expected[most:]
            assert [job.seq for job in outcome.jobs] == share
            for job in outcome.jobs:
                self.hand_out(job, Held(job.lease_id, node, self.now + 300))

    @rule(data=st.data(), nodes=st.lists(st.sampled_from(NODES), max_size=3), stale=st.booleans())
    def finish_together(self, data: st.DataObject, nodes: list[str], stale: bool) -> None:
        """Several workers finish jobs in one step, again as if one after the other."""
        self.sweep()
        known = st.lists(st.sampled_from([*sorted(self.tasks), 10**6]), max_size=4)
        asked, expected = [], []
        for node in nodes:
            seqs = data.draw(known)
            names = [self.named(seq, stale=stale) for seq in seqs]
            ids = [name.lease_id if isinstance(name, Job) else None for name in names]
            asked.append(self.queues.named(node, seqs, ids))
            acting, skipped = self.judge(node, seqs, stale=stale)
            expected.append((len(acting), skipped))
            for seq in acting:
                self.tasks[seq].state, self.tasks[seq].held = "acked", None
        outcomes = run(self.queues.ack_all(QUEUE, asked))
        assert [(x.acked, x.skipped) for x in outcomes if isinstance(x, Acked)] == expected

    @property
    def queues(self) -> Queues:
        return self.log._all_queues()

    @rule(
        node=st.sampled_from(NODES),
        most=st.integers(1, 4),
        ends=st.lists(st.sampled_from(["ack", "nack", "delay", "extend", "forget"]), min_size=4),
    )
    def work(self, node: str, most: int, ends: list[str]) -> None:
        """A worker takes jobs and deals with each of them in its own way."""
        self.claim(node, most, 100, 0)
        mine = [seq for seq in self.places("leased") if self.holder(seq) == node]
        for seq, end in zip(mine, ends, strict=False):
            if end == "ack":
                self.finish(node, [seq], [seq], [])
            elif end in ("nack", "delay"):
                self.give_back(node, [seq], 0 if end == "nack" else 100, [seq], [])
            elif end == "extend":
                self.prolong(node, [seq], 400, [seq], [])

    def holder(self, seq: int) -> str | None:
        held = self.tasks[seq].held
        return None if held is None else held.node

    def foretell(self, most: int) -> list[int]:
        """The jobs a claim will give, in order; spent ones on the way become dead letters."""
        given: list[int] = []
        for seq in self.places("waiting") + self.places("fresh"):
            task = self.tasks[seq]
            if len(given) == most:
                break
            if self.limit and task.deliveries >= self.limit:
                task.state, task.held = "dead", None
                self.dead_lettered += 1
            else:
                given.append(seq)
        return given

    def hand_out(self, job: Job, held: Held) -> None:
        task = self.tasks[job.seq]
        assert task.held is None
        task.state, task.held = "leased", held
        task.deliveries += 1
        task.leases.append(held)
        assert (job.data, job.deliveries) == (task.value, task.deliveries)
        assert job.deadline_ms == held.deadline_ms
        assert job.lease_id not in self.lease_ids, "a lease id came twice"
        self.lease_ids.add(job.lease_id)
        assert not self.limit or job.deliveries <= self.limit

    @rule(
        data=st.data(),
        node=st.sampled_from(NODES),
        how=st.sampled_from(["ack", "ack", "nack", "extend"]),
        stale=st.booleans(),
        time_ms=st.sampled_from([0, 100, 400]),
    )
    def answer(self, data: st.DataObject, node: str, how: str, stale: bool, time_ms: int) -> None:
        """A worker finishes, gives back or prolongs jobs, its own or what it takes for such."""
        self.sweep()
        known = sorted(self.tasks)
        seqs = data.draw(st.lists(st.sampled_from([*known, 10**6]), max_size=4))
        jobs = [self.named(seq, stale=stale) for seq in seqs]
        expected, skipped = self.judge(node, seqs, stale=stale)
        if how == "ack":
            self.finish(node, jobs, expected, skipped)
        elif how == "nack":
            self.give_back(node, jobs, time_ms, expected, skipped)
        else:
            self.prolong(node, jobs, time_ms, expected, skipped)

    def finish(
        self, node: str, jobs: Sequence[Job | int], expected: list[int], skipped: list[int]
    ) -> None:
        acked = self.log.queue(QUEUE, node=node).ack(jobs)
        assert (acked.acked, acked.skipped) == (len(expected), skipped)
        for seq in expected:
            self.tasks[seq].state, self.tasks[seq].held = "acked", None

    def give_back(
        self,
        node: str,
        jobs: Sequence[Job | int],
        delay_ms: int,
        expected: list[int],
        skipped: list[int],
    ) -> None:
        nacked = self.log.queue(QUEUE, node=node).nack(jobs, delay_ms=delay_ms)
        assert (nacked.nacked, nacked.skipped) == (len(expected), skipped)
        for seq in expected:
            task = self.tasks[seq]
            task.state, task.held = ("delayed" if delay_ms else "waiting"), None
            task.ready_at = self.now + delay_ms

    def prolong(
        self,
        node: str,
        jobs: Sequence[Job | int],
        lease_ms: int,
        expected: list[int],
        skipped: list[int],
    ) -> None:
        extended = self.log.queue(QUEUE, node=node).extend(jobs, lease_ms=lease_ms)
        deadline = self.now + max(lease_ms, 100)
        assert (extended.extended, extended.skipped) == (len(expected), skipped)
        assert extended.deadlines == dict.fromkeys(expected, deadline)
        for seq in expected:
            held = self.tasks[seq].held
            assert held is not None
            self.tasks[seq].held = replace(held, deadline_ms=deadline)
            self.tasks[seq].leases.append(replace(held, deadline_ms=deadline))

    def named(self, seq: int, *, stale: bool) -> Job | int:
        """A job as a worker names it: by its first lease, if that may be out of date."""
        task = self.tasks.get(seq)
        if not stale or task is None or not task.leases:
            return seq
        return Job(seq, task.leases[0].lease_id, 0, 0, 1, b"null")

    def judge(self, node: str, seqs: list[int], *, stale: bool) -> tuple[list[int], list[int]]:
        acting: list[int] = []
        skipped: list[int] = []
        for seq in seqs:
            task = self.tasks.get(seq)
            held = task.held if task is not None else None
            fits = task is not None and held is not None and held.node == node
            if stale and task is not None and held is not None and task.leases:
                fits = fits and task.leases[0].lease_id == held.lease_id
            if fits and seq not in acting:
                acting.append(seq)
            else:
                skipped.append(seq)
        return acting, skipped

    @rule(ms=st.sampled_from([1, 99, 100, 101, 400, 30_001]))
    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)

    @precondition(lambda self: len(self.tasks) > 20)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Jobs that are deleted take their leases with them."""
        before = data.draw(st.sampled_from(sorted(self.tasks)))
        self.log.delete(QUEUE, before_seq=before)
        for seq, task in self.tasks.items():
            if seq < before and task.state not in GONE:
                task.state, task.held = "deleted", None

    @precondition(lambda self: self.limit)
    @rule()
    def redrive(self) -> None:
        """Letters come back as new jobs, the oldest first."""
        letters = [record.data for record in self.log.read(LETTERS, limit=1000).records]
        head = self.log.state(QUEUE).head_seq
        done = self.log.queue(QUEUE).redrive(most=2)
        assert (done.moved, done.more) == (min(2, len(letters)), len(letters) > 2)
        for at, value in enumerate(letters[:2]):
            self.tasks[head + 1 + at] = Task(value)

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()

    # Ends

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.log.close()
        else:
            self.disk.kill()
        self.reopen()

    def reopen(self) -> None:
        self.open()
        self.dead_lettered = 0
        if not self.is_durable:
            for task in self.tasks.values():
                if task.state not in GONE:
                    task.state, task.held, task.deliveries = "fresh", None, 0

    @rule(
        calls=st.integers(1, 8),
        node=st.sampled_from(NODES),
        how=st.sampled_from(["claim", "ack", "nack", "checkpoint"]),
    )
    def kill_at_work(self, calls: int, node: str, how: str) -> None:
        """The process dies before some file call of an operation whose answer nobody gets."""
        self.sweep()
        mine = [seq for seq in self.places("leased") if self.holder(seq) == node]
        self.fs.stop_before(len(self.fs.trace) + calls, self.disk.kill)
        queue = self.log.queue(QUEUE, node=node)
        try:
            if how == "claim":
                queue.claim(3, lease_ms=300)
            elif how == "ack":
                queue.ack(mine)
            elif how == "nack":
                queue.nack(mine)
            else:
                self.log.checkpoint()
        except PowerOff:
            pass
        else:
            self.disk.kill()
        # What a claim found spent may have become a letter, and counts are not all remembered.
        spent = {seq for seq, x in self.tasks.items() if self.limit and x.deliveries >= self.limit}
        self.reopen()
        self.adopt(set(mine), spent, node)

    @precondition(lambda self: self.durability == "fsync")
    @rule(seed=st.integers(0, 1 << 16), mode=st.sampled_from(["none", "prefix"]))
    def cut_the_power(self, seed: int, mode: Literal["none", "prefix"]) -> None:
        self.disk.crash(seed, mode)
        self.reopen()
        self.adopt(set(), set(), None)

    def adopt(self, uncertain: set[int], spent: set[int], node: str | None) -> None:
        """Take over what came back, as far as it may: events may be lost, jobs may not.

        `uncertain` are jobs whose end was under way, `spent` those that nobody may get again;
        `node` is a claimer that got no answer.
        """
        leases = self.topic.leases
        assert leases is not None
        self.sweep()
        live = {seq for seq, _ in self.topic.sizes(1, self.topic.head)}
        for seq, task in self.tasks.items():
            if task.state in GONE:
                assert seq not in live, f"job {seq} was {task.state} and is back"
                continue
            if seq not in live:
                assert seq in uncertain or seq in spent, f"job {seq} is merely gone"
                task.state, task.held = "acked" if seq in uncertain else "dead", None
                continue
            self.adopt_lease(seq, task, node)

    def adopt_lease(self, seq: int, task: Task, node: str | None) -> None:
        leases = self.topic.leases
        assert leases is not None
        lease, known = leases.leased.get(seq), {(h.lease_id, h.node) for h in task.leases}
        deliveries = leases.deliveries.get(seq, 0)
        if lease is None:
            task.held = None
            task.state = "fresh" if seq >= leases.claim_cursor else "waiting"
            if seq in leases.delayed:
                task.state, task.ready_at = "delayed", leases.delayed[seq]
        else:
            held = Held(lease.lease_id, lease.node, lease.deadline_ms)
            assert (held.lease_id, held.node) in known or held.node == node
            task.state, task.held = "leased", held
            task.leases.append(held)
            self.lease_ids.add(held.lease_id)
        assert deliveries <= task.deliveries + (node is not None)
        task.deliveries = deliveries

    # What holds at any time

    @property
    def topic(self) -> Topic:
        return self.log._engine.kernel.catalog.by_name[QUEUE]

    @invariant()
    def counters_agree(self) -> None:
        if not hasattr(self, "tasks"):
            return
        self.sweep()
        stats = self.log.queue(QUEUE).stats()
        in_flight = len(self.places("leased"))
        ready = len(self.places("fresh")) + len(self.places("waiting"))
        assert (stats.ready, stats.in_flight) == (ready, in_flight)
        assert stats.dead_lettered == self.dead_lettered

    def teardown(self) -> None:
        """Whatever happened, every job that is left comes to an end."""
        if not hasattr(self, "tasks"):
            return
        queue = self.log.queue(QUEUE, node="last")
        for _ in range(2):
            self.clock.advance(31_000)
            while jobs := queue.claim(100):
                assert queue.ack(jobs).acked == len(jobs)
        stats = queue.stats()
        assert (stats.ready, stats.in_flight) == (0, 0)
        assert self.log.state(QUEUE).count == 0
        if self.limit:
            self.all_dead_are_among_the_letters()

    def all_dead_are_among_the_letters(self) -> None:
        letters = {record.data for record in self.log.read(LETTERS, limit=1000).records}
        redriven = {task.value for task in self.tasks.values() if task.state != "dead"}
        dead = {task.value for task in self.tasks.values() if task.state == "dead"}
        assert dead <= letters | redriven


TestLeases = LeaseMachine.TestCase
