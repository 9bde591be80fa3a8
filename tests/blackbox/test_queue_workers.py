"""Fifty workers, twenty thousand jobs, workers that die and a server that is killed.

Every job ends: acked once, or as a dead letter. What a worker was told about an ack holds.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest
from tests.blackbox.api_client import Api
from tests.blackbox.conftest import PATIENCE_S, Connect, ServerFactory, ServerProcess

WORKERS = 50
JOBS = 20_000
KILLS = 3
LEASE_MS = 1500
CLAIM = 20
QUEUE, LETTERS = "jobs", "letters"


class Worker(threading.Thread):
    """Claims, then acks, gives back, or dies with its jobs and is replaced by another."""

    def __init__(self, number: int, floor: Floor) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.floor = floor
        self.random = random.Random(number)
        self.lives = 0
        self.handled = 0
        self.acked: Counter[int] = Counter()
        self.uncertain: set[int] = set()  # acks that got no answer
        self.failure: BaseException | None = None
        self._connection: http.client.HTTPConnection | None = None

    @property
    def node(self) -> str:
        return f"worker-{self.number}-{self.lives}"

    def run(self) -> None:
        try:
            while not self.floor.is_done.is_set():
                self.work()
        except BaseException as failure:  # shown by the test
            self.failure = failure
            self.floor.is_done.set()
        finally:
            self.hang_up()

    def work(self) -> None:
        claimed = self.call("claim", {"node": self.node, "max": CLAIM, "lease_ms": LEASE_MS})
        if claimed is None:
            return
        jobs = claimed["claimed"]
        if not jobs:
            time.sleep(0.02)
            return
        self.handled += len(jobs)
        fate = self.random.random()
        if fate < 0.02:
            self.lives += 1  # it dies; its leases run out
        elif fate < 0.05:
            self.call("nack", self.named(jobs) | {"delay_ms": self.random.choice([0, 200])})
        else:
            self.finish(jobs)

    def finish(self, jobs: list[dict[str, Any]]) -> None:
        seqs = [job["$seq"] for job in jobs]
        done = self.call("ack", self.named(jobs))
        if done is None:
            self.uncertain.update(seqs)
            return
        skipped = set(done["skipped"])
        assert done["acked"] == len(seqs) - len(skipped)
        self.acked.update(seq for seq in seqs if seq not in skipped)

    def named(self, jobs: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "node": self.node,
            "seqs": [job["$seq"] for job in jobs],
            "lease_ids": [job["lease_id"] for job in jobs],
        }

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, action: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None when the server went away before it."""
        try:
            if self._connection is None:
                self._connection = self.floor.connect()
            self._connection.request(
                "POST",
                f"/v0/topics/{QUEUE}/{action}",
                json.dumps(body),
                {"content-type": "application/json"},
            )
            response = self._connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException):
            self.hang_up()
            time.sleep(0.05)
            return None
        if response.status == 503:
            time.sleep(0.05)
            return None
        assert response.status == 200, answer
        return answer


class Floor:
    """What the workers share."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.is_done = threading.Event()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.server.host, self.server.port, timeout=PATIENCE_S)


def wait_until_left(api: Api, floor: Floor, most: int) -> None:
    """Until so many jobs are left at most, or a worker has failed."""
    deadline = time.monotonic() + PATIENCE_S
    while not floor.is_done.is_set() and (left := api.state(QUEUE)["count"]) > most:
        assert time.monotonic() < deadline, f"{left} jobs are stuck"
        time.sleep(0.05)


def letters_of(api: Api) -> set[int]:
    found: set[int] = set()
    cursor = 0
    while True:
        page = api.diff(LETTERS, from_seq=cursor, limit=1000)
        found |= {int(record["meta"]["$dead_letter_src_seq"]) for record in page["records"]}
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return found


def test_every_job_ends_once_through_deaths_of_workers_and_server(
    server_factory: ServerFactory, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    server = server_factory(env={"TOPICS_WAL_SHARDS": "1"})
    api = connect(server)
    api.make(
        QUEUE,
        type="queue",
        durability="disk",
        leases_durable=True,
        claim_jitter_ms=5,
        max_deliveries=2,
        dead_letter=LETTERS,
    )
    api.make(LETTERS)
    floor = Floor(server)
    workers = [Worker(number, floor) for number in range(WORKERS)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    # Jobs come in parts: workers may be faster than we see, and each kill has to find some left.
    part = JOBS // (KILLS + 1)
    written: set[int] = set()
    for first in range(0, JOBS, part):
        written |= set(api.write(QUEUE, *range(first, first + part))["seqs"])
        if first + part < JOBS:
            wait_until_left(api, floor, part // 2)
            server.restart()
            api = connect(server)
    wait_until_left(api, floor, 0)
    floor.is_done.set()
    for worker in workers:
        worker.join(PATIENCE_S)
    took = time.monotonic() - began
    failures = [worker.failure for worker in workers if worker.failure is not None]
    assert not failures, failures[0]

    acked = sum((worker.acked for worker in workers), Counter())
    uncertain = set().union(*(worker.uncertain for worker in workers))
    letters = letters_of(api)
    assert max(acked.values()) == 1, "an ack was confirmed twice"
    assert not acked.keys() & letters, "a job was acked and is a dead letter"
    assert len(written) == JOBS
    assert acked.keys() | uncertain | letters == written
    shares = sorted(worker.handled for worker in workers)
    with capsys.disabled():
        print(
            f"\n{JOBS} jobs, {WORKERS} workers, {KILLS} kills in {took:.1f} s: "
            f"{len(acked)} acks confirmed, {len(uncertain)} unanswered, "
            f"{len(letters)} dead letters, {sum(worker.lives for worker in workers)} workers died; "
            f"jobs per worker {shares[0]} to {shares[-1]}, median {shares[WORKERS // 2]}"
        )
