"""kill -9 while routers forward: destinations equal their filtered source, record for record."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import httpx
import pytest
from tests.blackbox.api_client import Api, datas, good
from tests.blackbox.conftest import PATIENCE_S, Connect, ServerFactory, ServerProcess

KILLS = 5
BATCH = 20
TAGS = ("eu:1", "eu:2", "us:1", None)


class Writer(threading.Thread):
    """Writes batches, each under a key, until it has the answer to every one of them."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.is_done = threading.Event()
        self.batches = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_done.is_set():
                self.write(self.batches)
                self.batches += 1
        except BaseException as failure:  # shown by the test
            self.failure = failure

    def write(self, number: int) -> None:
        records: list[dict[str, Any]] = []
        for at in range(BATCH):
            tag = TAGS[at % len(TAGS)]
            value = number * BATCH + at
            records.append({"data": value, **({"tag": tag} if tag else {})})
        body = {"records": records, "idempotency_key": f"batch-{number}"}
        while True:
            try:
                answer = httpx.post(self.server.url + "/v0/topics/a", json=body, timeout=PATIENCE_S)
            except httpx.HTTPError:
                time.sleep(0.02)
                continue
            if answer.status_code == 200:
                return
            assert answer.status_code == 503, answer.text
            time.sleep(0.02)


def drain(api: Api, name: str) -> tuple[list[int], list[int]]:
    """Seqs and values of everything in a topic; nothing may be announced as lost."""
    seqs: list[int] = []
    values: list[int] = []
    cursor = 0
    while True:
        page = api.diff(name, from_seq=cursor, limit=1000)
        assert page["tombstone"] is None
        seqs += [record["$seq"] for record in page["records"]]
        values += datas(page)
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return seqs, values


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_destinations_equal_their_source_after_kills_in_the_middle_of_forwarding(
    server_factory: ServerFactory, connect: Connect, durability: str
) -> None:
    server = server_factory(env={"TOPICS_WAL_SHARDS": "2"})
    api = connect(server)
    wide = [f"wide{at}" for at in range(20)]
    for name in ("a", "eu", "chain", "once", *wide):
        api.make(name, durability=durability)
    routes: dict[str, dict[str, Any]] = {
        "eu": {"source": "a", "dest": "eu", "filter": "eu:*"},
        "chain": {"source": "eu", "dest": "chain", "preserve_tag": False},
        "once": {"source": "a", "dest": "once", "guarantee": "exactly_once"},
        **{name: {"source": "a", "dest": name} for name in wide},
    }
    for name, route in routes.items():
        good(api.put(f"/v0/routers/{name}", route))
    writer = Writer(server)
    writer.start()
    chance = random.Random(durability)
    known: dict[str, dict[int, int]] = {}
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.1, 0.5))
        name = chance.choice(["eu", "chain", "once", wide[0]])
        seqs, values = drain(connect(server), name)
        known[name] = dict(zip(seqs, values, strict=True))
        time.sleep(chance.uniform(0.0, 0.05))
        server.restart()
    writer.is_done.set()
    writer.join(PATIENCE_S)
    assert not writer.is_alive()
    assert writer.failure is None
    api = connect(server)
    written = list(range(writer.batches * BATCH))
    assert drain(api, "a")[1] == written
    european = [value for value in written if value % len(TAGS) < 2]
    for name, expected in (
        ("eu", european),
        ("chain", european),
        ("once", written),
        *((name, written) for name in wide),
    ):
        seqs, values = drain(api, name)
        assert values == expected, name
        now = dict(zip(seqs, values, strict=True))
        assert known.get(name, {}).items() <= now.items(), "a copy changed its seq"
    totals = good(api.get("/v0/routers"))["routers"]
    assert {found["router"]: found["forwarded_total"] for found in totals} == {
        name: len(european if name in ("eu", "chain") else written) for name in routes
    }
