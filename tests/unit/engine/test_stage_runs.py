"""Runs of sinks: what a dead one has staged goes, and what a living one has staged stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from topics.embedded import Log
from topics.engine.effects import resumed, run
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.engine.stages.apps import Caller
from topics.engine.stages.rows import stage_rows_of
from topics.engine.stages.runs import REMEMBERED
from topics.errors import InvalidRequest, NotFound
from topics.testing import ManualClock, SimDisk
from topics.values import Staged

LEASE_MS, TTL_MS = 1000, 100_000


class Server:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = SimDisk()
        self.open()

    def open(self) -> None:
        settings = EngineSettings(
            cache_bytes=64 << 10, stage_ttl_ms=TTL_MS, stage_lease_ms=LEASE_MS
        )
        opening = Opening(settings, self.clock)
        self.engine = open_engine(self.disk.mount(), "/data", opening)
        self.log = Log(self.engine)

    def kill(self) -> None:
        self.disk.kill()
        self.open()

    def stage(
        self, sink: int, *, epoch: int = 1, part: int = 0, by_run: bool = True, app: str = "etl"
    ) -> Staged:
        rows = stage_rows_of([{"topic": "t", "data": part}])
        attempt = sink << 24 | part
        return run(self.engine.stage(app, epoch, part, attempt, rows, by_run=by_run))

    def waiting(self) -> list[tuple[int, int]]:
        return [(found.epoch, found.stages) for found in run(self.engine.staging.waiting())]

    def pass_ms(self, ms: int) -> None:
        self.clock.advance(ms)
        run(self.engine.staging.upkeep())


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.log.close()


def test_a_new_run_discards_what_earlier_runs_have_left(server: Server) -> None:
    for epoch in (1, 2):
        for part in range(3):
            server.stage(7, epoch=epoch, part=part)
    server.stage(8, epoch=2, part=0)
    assert server.waiting() == [(2, 1)]
    assert run(server.engine.commit("etl", 2, [(0, 8 << 24)])).topics["t"].count == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_run_keeps_its_own_stages_also_through_a_restart(
    server: Server, is_restarted: bool
) -> None:
    server.stage(7, part=0)
    server.stage(7, part=1)
    if is_restarted:
        server.kill()
    server.stage(7, part=2)
    parts = [(part, 7 << 24 | part) for part in range(3)]
    assert run(server.engine.commit("etl", 1, parts)).topics["t"].count == 3


def test_a_restarted_server_discards_old_stages_of_a_run_that_died_with_it(server: Server) -> None:
    server.stage(7)
    server.kill()
    server.clock.advance(LEASE_MS)
    server.stage(8, epoch=2)
    assert server.waiting() == [(2, 1)]


def test_a_dead_run_that_calls_first_after_a_restart_takes_nothing_from_the_living(
    server: Server,
) -> None:
    server.stage(7, epoch=1)
    server.stage(8, epoch=2, part=0)
    server.kill()
    server.stage(7, epoch=1)
    server.stage(8, epoch=2, part=1)
    assert server.waiting() == [(2, 2)]
    with pytest.raises(InvalidRequest, match="a later run"):
        server.stage(7)


def test_a_run_that_calls_while_stages_of_silent_runs_are_removed_keeps_what_it_stages(
    server: Server,
) -> None:
    for app in ("another", "etl"):
        for part in range(3):
            server.stage(7, part=part, app=app)
    server.clock.advance(LEASE_MS + 1)
    sweep = server.engine.staging.sweep()
    wait = next(sweep)  # removes the first stage of the first app
    server.stage(7, part=0)
    server.stage(7, part=0, epoch=2, app="another")
    run(resumed(sweep, wait))
    left = {(w.app, w.epoch): w.stages for w in run(server.engine.staging.waiting())}
    assert left == {("another", 1): 2, ("another", 2): 1, ("etl", 1): 1}


def test_a_run_that_was_followed_by_another_is_refused_and_takes_nothing_away(
    server: Server,
) -> None:
    server.stage(7)
    server.stage(8)
    with pytest.raises(InvalidRequest, match="a later run of 'etl' has begun"):
        server.stage(7, part=1)
    with pytest.raises(NotFound):
        run(server.engine.commit("etl", 1, [(0, 7 << 24)]))
    assert run(server.engine.commit("etl", 1, [(0, 8 << 24)])).topics["t"].count == 1


def test_a_few_earlier_runs_are_remembered(server: Server) -> None:
    for sink in range(1, REMEMBERED + 3):
        server.stage(sink)
    with pytest.raises(InvalidRequest):
        server.stage(REMEMBERED + 1)
    server.stage(1)  # forgotten: it is taken for a new one


def test_the_stages_of_a_silent_run_go_when_its_lease_ends(server: Server) -> None:
    server.stage(7, part=0)
    server.stage(9, epoch=2, part=5, by_run=False)
    server.pass_ms(LEASE_MS - 1)
    server.stage(7, part=1)  # a sign of life
    server.pass_ms(LEASE_MS)
    assert server.waiting() == [(1, 2), (2, 1)]
    server.pass_ms(2)
    assert server.waiting() == [(2, 1)], "a stage of no run waits until it is too old"
    server.pass_ms(TTL_MS)
    assert server.waiting() == []


def test_a_commit_is_a_sign_of_life(server: Server) -> None:
    server.stage(7, epoch=1)
    server.stage(7, epoch=2)
    server.pass_ms(LEASE_MS)
    run(server.engine.commit("etl", 1, [(0, 7 << 24)]))
    server.pass_ms(2)
    assert server.waiting() == [(2, 1)]


def test_a_commit_of_an_app_without_runs_is_as_before(server: Server) -> None:
    server.stage(0, by_run=False)
    run(server.engine.commit("etl", 1, [(0, 0)]))
    server.pass_ms(LEASE_MS * 2)
    assert server.waiting() == []


def test_stages_can_be_seen_and_dropped(server: Server) -> None:
    for epoch, part in ((1, 0), (1, 1), (2, 0)):
        server.stage(7, epoch=epoch, part=part)
        server.clock.advance(1)
    first, second = run(server.engine.staging.waiting())
    assert (first.app, first.epoch, first.stages, first.records, first.bytes) == ("etl", 1, 2, 2, 2)
    assert (first.disk_bytes, first.newest_ts - first.oldest_ts) == (2 * 4096, 1)
    assert second.epoch == 2
    stranger = Caller(b"s" * 16, allows=lambda name: name.startswith("mine."))
    assert run(server.engine.staging.waiting(stranger)) == []
    assert run(server.engine.staging.drop("etl", epoch=1)).to_dict() == {
        "app": "etl",
        "dropped": 2,
        "disk_bytes": 8192,
    }
    assert server.waiting() == [(2, 1)]
    assert run(server.engine.staging.drop("etl")).dropped == 1
    assert run(server.engine.staging.drop("etl")).dropped == 0
    assert server.engine.staging.taken == (0, 0, 0)
