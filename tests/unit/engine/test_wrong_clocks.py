"""A wall clock that was far off for a moment must not spoil a topic for years."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.engine.builders import Store

from topics.core.ages import SPACING_MS
from topics.engine.upkeep.schedule import POLL_MS

HOUR_MS = 3_600_000
YEARS_MS = 10 * 365 * 24 * HOUR_MS
TTL_MS = 10 * HOUR_MS


def while_ahead(store: Store, act: Callable[[], object]) -> None:
    """Do something while the clock is years ahead; then it is right again."""
    right = store.clock.now_ms()
    store.clock.set(right + YEARS_MS)
    act()
    store.clock.set(right)


def poisoned(ttl_ms: int) -> Store:
    store = Store()
    store.log.create("t", durability="fsync", ttl_ms=ttl_ms)
    store.append("t", 1)
    while_ahead(store, lambda: store.append("t", 2))
    store.append("t", 3)
    return store


def times(store: Store) -> list[int]:
    return [record.ts for record in store.log.read("t", limit=1000).records]


def test_records_with_times_far_ahead_expire_by_the_time_that_passes() -> None:
    store = poisoned(ttl_ms=TTL_MS)
    store.clock.advance(SPACING_MS)
    assert times(store) == sorted(times(store))
    store.clock.advance(TTL_MS // 2)
    store.append("t", 4)
    assert store.seqs("t") == [2, 3, 4], "the first expired while the clock was ahead"
    store.clock.advance(TTL_MS // 2 - SPACING_MS)
    assert store.seqs("t") == [2, 3, 4], "none is older than its time to live"
    store.clock.advance(TTL_MS // 8)
    assert store.seqs("t") == [4]
    assert store.log.audit("t").lost_ttl == 3
    store.clock.advance(TTL_MS // 2)
    assert store.seqs("t") == []
    store.append("t", 5)
    assert times(store)[0] > store.clock.now_ms() + YEARS_MS // 2, "times never go back"
    store.kill()
    assert store.seqs("t") == [5], "what expired does not come back"


def test_restarts_do_not_begin_anew_with_ageing() -> None:
    store = poisoned(ttl_ms=TTL_MS)
    for _ in range(5):
        store.log.read("t")
        store.clock.advance(TTL_MS // 8)
        store.restart()
        store.clock.advance(TTL_MS // 8)
    assert store.seqs("t") == []


def test_without_a_checkpoint_a_restart_only_puts_it_off() -> None:
    store = poisoned(ttl_ms=TTL_MS)
    store.log.read("t")
    store.clock.advance(TTL_MS - 1)
    store.kill()
    store.clock.advance(2)
    assert store.seqs("t") == [2, 3]
    store.clock.advance(TTL_MS + 1)
    assert store.seqs("t") == []


def test_a_clock_that_is_behind_for_a_moment_expires_nothing() -> None:
    store = Store()
    store.log.create("t", durability="fsync", ttl_ms=TTL_MS)
    right = store.clock.now_ms()
    store.append("t", 1)
    for behind in (0, right - 2 * YEARS_MS, right - YEARS_MS, right):
        store.clock.set(behind)
        store.append("t", 2)
        store.clock.advance(1000)
        assert store.seqs("t")[0] == 1
    store.log.checkpoint()
    assert not len(store.topic("t").ages), "the times tell again"


def test_a_key_of_a_clock_that_was_ahead_leaves_its_window() -> None:
    store = Store()
    store.log.create("t", durability="fsync", idempotency_window_ms=60_000)
    while_ahead(store, lambda: store.log.append("t", {"data": 1}, idempotency_key="daily"))
    assert store.log.append("t", {"data": 1}, idempotency_key="daily").deduped
    store.clock.advance(60_001)
    assert not store.log.append("t", {"data": 1}, idempotency_key="daily").deduped
    assert store.log.append("t", {"data": 1}, idempotency_key="daily").deduped


@pytest.mark.parametrize("restarts", [False, True])
def test_leases_and_delays_of_a_clock_that_was_ahead_end(restarts: bool) -> None:
    store = Store()
    store.log.create("q", type="queue", durability="fsync", leases_durable=True, lease_ms=30_000)
    store.append("q", 1, 2)

    def claim_both() -> None:
        queue = store.log.queue("q", node="w")
        _, second = queue.claim(2)
        queue.nack([second], delay_ms=1000)

    while_ahead(store, claim_both)
    if restarts:
        store.kill()
    queue = store.log.queue("q", node="x")
    assert [job.seq for job in queue.claim(2)] == [2]
    store.clock.advance(30_001)
    assert [job.seq for job in queue.claim(2)] == [1, 2]


def test_upkeep_goes_on_after_the_clock_was_ahead() -> None:
    store = Store()
    store.log.create("t", durability="fsync")
    while_ahead(store, store.log.maintain)
    store.append("t", 1)
    upkeep = store.log._engine.upkeep
    assert upkeep is not None
    before = upkeep._checkpointer.snapshot_id
    store.clock.advance(61_000 + POLL_MS)
    store.log.maintain()
    assert upkeep._checkpointer.snapshot_id > before
