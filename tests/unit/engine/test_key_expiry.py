"""Idempotency keys outside their window leave memory and snapshots, in steps."""

from __future__ import annotations

import pytest
from tests.unit.engine.builders import Store
from tests.unit.engine.test_filtered_reads import played

from topics.engine import retention
from topics.engine.upkeep import checkpoint

WINDOW_MS = 1000
KEYS = 10


@pytest.fixture
def store() -> Store:
    made = Store()
    made.log.create("t", idempotency_window_ms=WINDOW_MS)
    write(made, "old")
    return made


def write(store: Store, name: str, topic: str = "t") -> None:
    for number in range(KEYS):
        store.log.append(topic, {"data": number}, idempotency_key=f"{name}{number}")


def keys(store: Store, topic: str = "t") -> list[str]:
    return [key for key, _ in store.topic(topic).keys.items()]


def chore(store: Store) -> int:
    """Let upkeep drop what has expired; how often that pauses."""
    return played(retention.expire_keys(store.kernel))[1]


def test_keys_of_a_topic_that_nobody_writes_to_leave_in_steps(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEP_KEYS", 4)
    monkeypatch.setattr(retention, "TOPICS_BETWEEN_PAUSES", 2)
    assert chore(store) == 0
    assert len(keys(store)) == KEYS
    store.clock.advance(WINDOW_MS + 1)
    write(store, "young", topic="other")
    assert chore(store) == 3
    assert (keys(store), len(keys(store, "other"))) == ([], KEYS)
    assert store.kernel.catalog.keyed == {store.topic("other").id}
    store.log.drop("other")
    assert store.kernel.catalog.keyed == set()
    assert chore(store) == 0


@pytest.mark.parametrize("few", [0, 9])
def test_a_snapshot_holds_only_keys_inside_their_window(
    store: Store, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(checkpoint, "FEW_PIECES", few)
    store.clock.advance(WINDOW_MS)
    store.log.append("t", {"data": 1}, idempotency_key="young")
    assert len(keys(store)) == KEYS + 1
    store.clock.advance(1)
    monkeypatch.setattr(store.log._engine.upkeep, "_chores", ())  # nothing has left memory yet
    store.log.checkpoint()
    assert len(keys(store)) == KEYS + 1
    store.kill()
    assert keys(store) == ["young"]
    assert store.kernel.catalog.keyed == {store.topic("t").id}
    assert store.log.append("t", {"data": 1}, idempotency_key="young").deduped


def test_a_key_that_came_again_is_in_the_snapshot_once(store: Store) -> None:
    store.clock.advance(WINDOW_MS + 1)
    write(store, "old")
    store.log.checkpoint()
    store.kill()
    assert keys(store) == [f"old{number}" for number in range(KEYS)]
