"""ST04: stages and results that get old, and the limit on staged bytes, with restarts between."""

from __future__ import annotations

from typing import Any

import pytest
from tests.crash.stores import DATA_DIR, opened

from topics.embedded import Log
from topics.errors import NotFound, Throttled
from topics.testing import ManualClock, SimDisk

TTL_MS = 10_000
APP_TTL_MS = 100_000
MAX_BYTES = 100


class Store:
    """A store that is killed and opened again while time goes on."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.clock = ManualClock()
        self.log = self._opened()

    def _opened(self) -> Log:
        return opened(
            self.disk.mount(),
            clock=self.clock,
            stage_ttl_ms=TTL_MS,
            stage_app_ttl_ms=APP_TTL_MS,
            max_stage_bytes=MAX_BYTES,
        )

    def restart(self) -> None:
        self.disk.kill()
        self.log = self._opened()

    def stage(self, epoch: int, part: int = 0, *, size: int = 10) -> None:
        self.log.stage("etl", epoch, part, [row(size)])

    @property
    def staged_bytes(self) -> int:
        return self.log._engine.staging.taken.nbytes

    @property
    def files(self) -> list[str]:
        return [path for path in self.disk.paths() if path.startswith(f"{DATA_DIR}/stages/")]

    def snapshots_catch_up(self) -> None:
        """Two checkpoints: both kept snapshots contain all that was committed."""
        for _ in range(2):
            self.log.append("tick", {"data": 0})
            self.log.checkpoint()


def row(size: int) -> dict[str, Any]:
    return {"topic": "orders", "data": "x" * (size - 2)}


@pytest.mark.parametrize("restarts", [False, True])
def test_st04_a_stage_lives_exactly_its_time(restarts: bool) -> None:
    store = Store()
    store.stage(1)
    store.clock.advance(TTL_MS)
    if restarts:
        store.restart()
    store.stage(1, part=1)
    assert store.staged_bytes == 20
    store.clock.advance(1)
    if restarts:
        store.restart()
    with pytest.raises(NotFound):
        store.log.commit("etl", 1, [(0, 0), (1, 0)])
    assert store.staged_bytes == 10
    assert len(store.files) == 1
    assert store.log.commit("etl", 1, [(1, 0)]).topics["orders"].count == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_st04_maintenance_removes_old_stages_that_nobody_asks_for(restarts: bool) -> None:
    store = Store()
    store.stage(1)
    store.clock.advance(TTL_MS + 1)
    if restarts:
        store.restart()
    store.log.maintain()
    assert (store.staged_bytes, store.files) == (0, [])


def test_st04_staging_again_starts_the_time_anew() -> None:
    store = Store()
    store.stage(1)
    store.clock.advance(TTL_MS)
    store.stage(1)
    store.clock.advance(TTL_MS)
    assert store.log.commit("etl", 1, [(0, 0)]).topics["orders"].count == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_st04_the_limit_counts_every_stage_that_is_not_committed(restarts: bool) -> None:
    store = Store()
    store.stage(1, 0, size=60)
    if restarts:
        store.restart()
    store.stage(1, 1, size=40)
    with pytest.raises(Throttled) as refused:
        store.stage(1, 2, size=3)
    assert refused.value.detail == {
        "limit": "max_stage_bytes",
        "max": MAX_BYTES,
        "retry_after_ms": 1000,
    }
    store.stage(1, 0, size=50)  # what it replaces no longer counts
    store.stage(1, 2, size=10)
    with pytest.raises(Throttled):
        store.stage(1, 3, size=3)
    store.log.commit("etl", 1, [(0, 0), (1, 0)])  # consumes two and discards one
    assert store.staged_bytes == 0
    if restarts:
        store.restart()
        assert store.staged_bytes == 0
    store.stage(2, 0, size=MAX_BYTES)


def test_st04_old_stages_make_room_at_once() -> None:
    store = Store()
    store.stage(1, size=MAX_BYTES)
    store.clock.advance(TTL_MS + 1)
    store.stage(2, size=MAX_BYTES)


@pytest.mark.parametrize("restarts", [False, True])
def test_st04_files_of_a_commit_stay_until_both_snapshots_contain_it(restarts: bool) -> None:
    store = Store()
    store.stage(1)
    store.log.commit("etl", 1, [(0, 0)])
    store.clock.advance(TTL_MS + 1)
    store.log.maintain()
    assert len(store.files) == 1
    if restarts:
        store.restart()
    store.log.checkpoint()
    store.log.maintain()
    assert len(store.files) == 1
    store.snapshots_catch_up()
    assert store.files == []
    assert store.log.commit("etl", 1, []).deduped  # the result outlives the stages


@pytest.mark.parametrize("restarts", [False, True])
def test_st04_a_result_is_forgotten_after_long_without_use(restarts: bool) -> None:
    store = Store()
    store.stage(1)
    answer = store.log.commit("etl", 1, [(0, 0)])
    store.snapshots_catch_up()
    for _ in range(3):
        store.clock.advance(APP_TTL_MS)
        again = store.log.commit("etl", 1, [])  # a use
        assert (again.deduped, again.topics) == (True, answer.topics)
        store.snapshots_catch_up()
        if restarts:
            store.restart()
    store.clock.advance(APP_TTL_MS + 1)
    if restarts:
        store.restart()
    assert not store.log.commit("etl", 1, []).deduped


def test_st04_a_result_is_not_forgotten_while_its_files_are_needed() -> None:
    store = Store()
    store.stage(1)
    store.log.commit("etl", 1, [(0, 0)])
    store.clock.advance(APP_TTL_MS + 1)
    store.log.maintain()
    store.restart()
    assert store.log.stage("etl", 1, 0, [row(10)]).deduped
    assert len(store.files) == 1
