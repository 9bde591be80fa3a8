"""A queue with two workers: every job is done, waiting, or a dead letter, and never merely gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from topics.torture.book import Hand, TopicActor, TopicView, Weather
from topics.torture.calls import Answer, Client

State = Literal["sent", "waiting", "finishing", "finished"]


@dataclass
class SentJob:
    """One job, known by its text: a dead letter has another seq."""

    together: list[str]
    state: State = "sent"
    holder: str | None = None


@dataclass
class QueueWorker:
    """One thread that produces and works."""

    queue: QueueActor
    node: str
    held: list[Answer] = field(default_factory=list)

    def __call__(self, api: Client, rng: Random) -> None:
        dice = rng.random()
        if dice < 0.45:
            self.queue.produce(api, rng)
        elif not self.held:
            self.held = self.queue.claim(api, self.node, most=rng.choice((1, 4)))
        elif dice < 0.85:
            jobs, self.held = self.held, []
            self.queue.ack(api, self.node, jobs)
        else:
            jobs, self.held = self.held, []
            self.queue.nack(api, self.node, jobs)


class QueueActor(TopicActor):
    """Produces, claims, acks and nacks; a job that comes back too often becomes a dead letter."""

    def __init__(self, durability: str, *, leases_durable: bool, weather: Weather) -> None:
        super().__init__(f"queue-{durability}", durability)
        self._letters = f"letters-{durability}"
        self._config = {
            "type": "queue",
            "durability": durability,
            "max_deliveries": 3,
            "dead_letter": self._letters,
            "leases_durable": leases_durable,
            "lease_ms": 3_600_000,  # none ends by itself, however slow the machine
        }
        self._weather = weather
        self._lock = threading.Lock()
        self._jobs: dict[str, SentJob] = {}
        self._problems: list[str] = []

    def hands(self) -> list[Hand]:
        with self._lock:
            for job in self._jobs.values():
                job.holder = None  # leases end with the life of their workers here
        return [QueueWorker(self, "a"), QueueWorker(self, "b")]

    # Working

    def produce(self, api: Client, rng: Random) -> None:
        texts = [self._labels.next(rng) for _ in range(rng.choice((1, 1, 3)))]
        with self._lock:
            self._jobs |= {text: SentJob(texts) for text in texts}
        api.post(self._path, {"records": [{"data": text} for text in texts]})
        with self._lock:
            for text in texts:
                if self._jobs[text].state == "sent":
                    self._jobs[text].state = "waiting"
            self.acked += 1

    def claim(self, api: Client, node: str, *, most: int) -> list[Answer]:
        jobs: list[Answer] = api.post(f"{self._path}/claim", {"node": node, "max": most})["claimed"]
        jumps = self._weather.clock_jumps
        with self._lock:
            for shown in jobs:
                job = self._jobs[shown["data"]]
                # An ack under way ends a lease, or, if it fails, gives the job back.
                doubtful = job.state == "finishing" and self._weather.disk_full
                if job.state in ("finishing", "finished") and not doubtful and not jumps:
                    self._problems.append(f"{shown['data']!r} was acked and is handed out again")
                if job.holder not in (None, node) and not doubtful and not jumps:
                    self._problems.append(f"{shown['data']!r} is leased to two workers")
                job.holder = node
        return jobs

    def ack(self, api: Client, node: str, jobs: list[Answer]) -> None:
        self._note(jobs, "finishing")
        skipped = api.post(f"{self._path}/ack", _answer(node, jobs))["skipped"]
        self._note([job for job in jobs if job["$seq"] not in skipped], "finished")
        # A job whose lease ended may have been finished by another worker meanwhile.
        if skipped and not self._weather.clock_jumps:
            self._problems.append(f"{self.name}: acks of {skipped} came too late")
        self.acked += 1

    def nack(self, api: Client, node: str, jobs: list[Answer]) -> None:
        with self._lock:
            for job in jobs:
                self._jobs[job["data"]].holder = None
        api.post(f"{self._path}/nack", _answer(node, jobs))

    def _note(self, jobs: list[Answer], state: State) -> None:
        with self._lock:
            for job in jobs:
                self._jobs[job["data"]].state = state

    # After a restart

    def judge(self, api: Client, *, restarted: bool) -> Iterator[str]:
        views = yield from self._look(api, self._letters)
        if views:
            yield from self._problems
            self._problems = []
            yield from self._compare(*views)

    def _compare(self, waiting: TopicView, letters: TopicView) -> Iterator[str]:
        in_queue, dead = set(waiting.texts), set(letters.texts)
        if len(in_queue) != len(waiting.live):
            yield f"{self.name}: a job is there twice"
        invented = (in_queue | dead) - self._jobs.keys()
        if invented:
            yield f"{self.name}: nobody produced {sorted(invented)}"
        kept: dict[str, SentJob] = {}
        for text, job in self._jobs.items():
            somewhere = text in in_queue or text in dead
            if job.state == "finished" and text in in_queue:
                yield f"{self.name}: {text!r} was acked and is back"
            elif job.state == "waiting" and not somewhere:
                yield f"{self.name}: {text!r} is gone"
            elif job.state == "sent" and somewhere != self._is_known(job, in_queue | dead):
                yield f"{self.name}: of {job.together} only a part is there"
            if somewhere:
                kept[text] = SentJob(job.together, "waiting" if text in in_queue else "finished")
        self._jobs = kept

    def _is_known(self, job: SentJob, there: set[str]) -> bool:
        """Whether a write without an answer happened: its first job tells, even if done since."""
        first = job.together[0]
        state = self._jobs[first].state if first in self._jobs else "finished"
        return first in there or state in ("finishing", "finished")

    def prepare(self, api: Client, rng: Random) -> None:
        if not self._exists:
            api.put(f"/v0/topics/{self._letters}", {"durability": self._durability})
            self._create(api, self._config)


def _answer(node: str, jobs: list[Answer]) -> Answer:
    return {
        "node": node,
        "seqs": [job["$seq"] for job in jobs],
        "lease_ids": [job["lease_id"] for job in jobs],
    }
