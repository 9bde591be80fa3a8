"""A wall clock that jumps, between two lives of a server and under its feet."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.blackbox.api_client import Api, datas, good
from tests.blackbox.conftest import Connect, ServerFactory
from tests.blackbox.test_torture import survived

from topics.torture.weather import FakeClock

HOUR_S = 3600


@pytest.fixture
def clock(tmp_path: Path) -> FakeClock:
    return FakeClock(tmp_path)


def times(api: Api, topic: str) -> list[int]:
    return [record["$ts"] for record in api.diff(topic)["records"]]


def test_cl14_a_clock_set_back_over_a_restart_revives_nothing(
    server_factory: ServerFactory, connect: Connect, clock: FakeClock
) -> None:
    clock.set(10 * HOUR_S)
    server = server_factory(env=clock.env)
    api = connect(server)
    api.make("t", durability="fsync", ttl_ms=HOUR_S * 1000)
    api.write("t", "old")
    clock.set(12 * HOUR_S)
    assert datas(api.diff("t")) == [], "two hours later it has expired"
    written = api.write("t", "new")
    clock.set(0)
    server.restart()
    api = connect(server)
    page = api.diff("t")
    assert datas(page) == ["new"]
    assert page["tombstone"]["reason"] == "ttl"
    assert api.write("t", "newer")["first_seq"] == written["last_seq"] + 1
    stamps = times(api, "t")
    assert stamps == sorted(stamps), "times never go back within a topic"
    assert stamps[-1] > (time.time() + 11 * HOUR_S) * 1000


def test_cl14_a_lease_that_ended_is_not_revived_by_a_clock_set_back(
    server_factory: ServerFactory, connect: Connect, clock: FakeClock
) -> None:
    server = server_factory(env=clock.env)
    api = connect(server)
    api.make("q", type="queue", durability="fsync", leases_durable=True)
    api.write("q", "job")
    (job,) = good(api.post("/v0/topics/q/claim", {"node": "a"}))["claimed"]
    clock.set(HOUR_S)
    (again,) = good(api.post("/v0/topics/q/claim", {"node": "b"}))["claimed"]
    assert again["$seq"] == job["$seq"]
    clock.set(0)
    server.restart()
    api = connect(server)
    stale = {"node": "a", "seqs": [job["$seq"]], "lease_ids": [job["lease_id"]]}
    assert good(api.post("/v0/topics/q/ack", stale))["skipped"] == [job["$seq"]]


def test_cl15_a_clock_that_jumps_ahead_only_raises_floors(
    server_factory: ServerFactory, connect: Connect, clock: FakeClock
) -> None:
    server = server_factory(env=clock.env)
    api = connect(server)
    api.make("t", durability="disk", ttl_ms=HOUR_S * 1000)
    api.make("kept", durability="disk")
    api.write("t", 1, 2)
    api.write("kept", 1, 2)
    floors = []
    for ahead_s in (2 * HOUR_S, -HOUR_S):
        clock.set(ahead_s)
        server.restart()
        api = connect(server)
        floors.append(good(api.get("/v0/topics/t/audit"))["evict_floor"])
        assert datas(api.diff("kept")) == [1, 2], "without a ttl no clock takes anything"
    assert floors == [3, 3]


@pytest.mark.timeout(600)
def test_servers_whose_clock_jumps_and_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    figures = survived(tmp_path, "--clock-jumps", cycles=4)
    assert figures["clock_jumps"] >= 4
