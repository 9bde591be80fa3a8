"""Watchers see each record once and in order, whatever goes on around them.

Writers write, a deleter deletes by tag and by seq, a cap and a time limit take the oldest away, and
watchers leave their connections at random moments and come back with the last id they saw. After
that every seq has to be accounted for: seen once, with what was written, or deleted, or told as
lost.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerProcess
from tests.blackbox.event_client import Event, EventStream, put
from tests.seeds import seed_for

WRITERS, WRITES, BATCH = 2, 80, 4
WATCHERS = 3
END = "the end"
SEED_VARIABLE = "TOPICS_TEST_SEED"


class World:
    """What was done to the topic, told by those who did it."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.server = server
        self.seed = seed
        self.written: dict[int, Any] = {}
        self.http = httpx.Client(base_url=server.url, timeout=PATIENCE_S)

    def write(self, writer: int) -> None:
        rng = random.Random(f"{self.seed}/writer {writer}")
        for number in range(WRITES):
            datas = [f"{writer}/{number}/{at}" for at in range(BATCH)]
            records = [{"data": data, "tag": rng.choice("abc")} for data in datas]
            answer = self.http.post("/v0/topics/t", json={"records": records})
            body = answer.raise_for_status().json()
            self.written.update(zip(body["seqs"], datas, strict=True))

    def delete(self) -> None:
        """Take records away as others write them, in both ways there are."""
        rng = random.Random(f"{self.seed}/deleter")
        for _ in range(WRITES // 4):
            head = self.http.get("/v0/topics/t").json()["head_seq"]
            body: dict[str, Any] = {"match": rng.choice("abc")}
            if rng.random() < 0.5:
                body["before_seq"] = max(0, head - rng.randrange(40))
            self.http.post("/v0/topics/t/delete", json=body).raise_for_status()

    def squeeze(self, *configs: dict[str, int]) -> None:
        for config in configs:
            self.http.put("/v0/topics/t", json=config).raise_for_status()


class Watcher:
    """One reader that is cut off now and then, and what it was told altogether."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed}/watcher {number}")
        limit = self._rng.choice([1, 3, 256])
        body = {"topics": {"t": {}}, "limit": limit, "heartbeat_ms": 1000}
        made = world.http.post("/v0/watch", json=body)
        self._path = made.raise_for_status().json()["stream_url"]
        self._last_id: str | None = None
        self.seen: list[tuple[int, Any]] = []
        self.lost: list[tuple[int, int]] = []
        self.connections = 0

    def follow(self) -> None:
        while not self._follow_once():
            pass

    def _follow_once(self) -> bool:
        """Read for a while; whether the last record has come."""
        self.connections += 1
        frames = self._rng.randrange(1, 60)
        headers = {} if self._last_id is None else {"last-event-id": self._last_id}
        with EventStream(self._world.server, self._path, headers) as stream:
            assert stream.status == 200
            for _ in range(frames):
                if self._take(stream.next()):
                    return True
        return False

    def _take(self, event: Event) -> bool:
        if event.id is not None:
            self._last_id = event.id
        if event.event == "tombstone":
            self.lost.append((event.data["gap_from"], event.data["gap_to"]))
        if event.event == "record":
            self.seen += [(record["$seq"], record["data"]) for record in event.data["records"]]
            return bool(event.data["records"][-1]["data"] == END)
        return False


def check(world: World, watcher: Watcher, last: int, deleted: int) -> None:
    seqs = [seq for seq, _ in watcher.seen]
    assert seqs == sorted(set(seqs)), "twice, or out of order"
    for seq, data in watcher.seen:
        assert data == (END if seq == last else world.written[seq])
    told = {seq for lo, hi in watcher.lost for seq in range(lo, hi + 1)}
    silent = set(range(1, last + 1)) - set(seqs) - told
    assert len(silent) <= deleted, "more is missing than was ever deleted"


def test_every_record_is_seen_once_or_accounted_for(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = seed_for(SEED_VARIABLE)
    print(f"again: {SEED_VARIABLE}={seed} .venv/bin/python -m pytest {__file__}")
    put(server, "t")
    world = World(server, seed)
    watchers = [Watcher(world, number) for number in range(WATCHERS)]
    with ThreadPoolExecutor(WATCHERS + WRITERS + 2) as pool:
        following = [pool.submit(watcher.follow) for watcher in watchers]
        working = [pool.submit(world.write, number) for number in range(WRITERS)]
        working.append(pool.submit(world.delete))
        working.append(
            pool.submit(world.squeeze, {"cap_records": 100}, {"cap_records": 30, "ttl_ms": 3000})
        )
        for job in working:
            job.result()
        world.squeeze({})  # the last record must not expire before everybody has it
        end = world.http.post("/v0/topics/t", json={"records": [{"data": END}]})
        last = end.raise_for_status().json()["last_seq"]
        for job in following:
            job.result()
    audit = world.http.get("/v0/topics/t/audit").json()
    world.http.close()
    for watcher in watchers:
        check(world, watcher, last, audit["deleted"])
    with capsys.disabled():
        shown = ", ".join(f"{len(w.seen)} seen in {w.connections} connections" for w in watchers)
        print(f"\n{last} records, {audit['deleted']} deleted, {audit['lost_cap']} evicted: {shown}")
