"""A checkpoint writes what changed, and a snapshot in parts says what a whole one would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.property.model.snapshots import check_snapshot
from tests.unit.engine.builders import SMALL, Store

from topics.engine.effects import Io, Pause, fulfil
from topics.engine.upkeep import snapshots, topic_lines
from topics.engine.upkeep.snapshots import Snapshots
from topics.engine.upkeep.trimming import Kept
from topics.storage.snapshots.chain import Changed, SnapshotFile


@pytest.fixture(autouse=True)
def parts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SMALL_BYTES", 0)


@dataclass
class Parted(Store):
    """A store whose two snapshots are known, so that the next checkpoint writes a part."""

    def fill(self, topics: int = 12) -> None:
        for number in range(topics):
            self.append(f"t{number}", "a", "b")
        self.settle()

    def settle(self) -> None:
        self.log.checkpoint()
        self.log.checkpoint()

    @property
    def snapshots(self) -> Snapshots:
        upkeep = self.log._engine.upkeep
        assert upkeep is not None
        return upkeep._checkpointer._snapshots

    def files(self) -> tuple[SnapshotFile, ...]:
        assert self.snapshots.newest is not None
        return self.snapshots.newest.files


def lines(store: Parted) -> list[str]:
    """What the newest file tells of topics, routers and apps."""
    path = f"/data/meta/snapshot.{store.files()[-1].number:04d}.bin"
    return store.disk.peek(path)[24:].decode().splitlines()


def test_a_part_tells_of_what_changed_since_the_chain_was_written() -> None:
    store = Parted()
    store.fill()
    store.append("t3", "c")
    store.log.checkpoint()
    head, gone, only, end = lines(store)
    assert '"line":"part"' in head
    assert '"topics":[]' in gone
    assert '"name":"t3"' in only
    assert '"topics":1' in end
    store.append("t5", "c")
    store.log.drop("t1")
    store.log.checkpoint()
    _, gone, first, second, _ = lines(store)
    assert '"topics":[2]' in gone
    assert '"name":"t3"' in first, "the other chain has not told of it yet"
    assert '"name":"t5"' in second
    check_snapshot(store.log)


def test_only_topics_that_changed_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[str] = []
    original = topic_lines._line

    def noted(topic: Any, *args: Any) -> Any:  # noqa: ANN401 - passed on as it came
        captured.append(topic.name)
        return original(topic, *args)

    store = Parted()
    store.fill()
    monkeypatch.setattr(topic_lines, "_line", noted)
    store.append("t3", "c")
    store.log.checkpoint()
    assert captured == ["t3"]


def test_the_work_of_a_checkpoint_does_not_grow_with_the_number_of_topics() -> None:
    def waits(topics: int) -> int:
        store = Parted(settings={**SMALL, "segment_max_age_ms": 0})
        store.fill(topics)
        store.append("t3", "c")
        upkeep = store.log._engine.upkeep
        assert upkeep is not None
        work = upkeep.checkpoint()
        found = [next(work)]
        try:
            while True:
                found.append(fulfil(work, found[-1]))
        except StopIteration:
            return sum(isinstance(wait, Io | Pause) for wait in found)

    assert waits(400) == waits(10)


def expire(store: Store) -> None:
    store.clock.advance(2000)
    store.log.read("mortal")


def end_leases(store: Store) -> None:
    store.clock.advance(100_000)
    store.log.queue("q").stats()


def copy_one(store: Store) -> None:
    store.append("source", "x")
    store.log.read("copy")


CHANGES: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.append("log", "x", tag="t"),
    "append with a key": lambda store: store.log.append("log", {"data": 1}, idempotency_key="k"),
    "delete": lambda store: store.log.delete("log", before_seq=2),
    "delete by tag": lambda store: store.log.delete("log", match="t"),
    "cursor": lambda store: store.log.set_cursor("log", "c", 1),
    "cursor gone": lambda store: store.log.drop_cursor("log", "old"),
    "ephemeral append": lambda store: store.append("ephemeral", "x"),
    "ephemeral delete": lambda store: store.log.delete("ephemeral", before_seq=2),
    "ephemeral cursor": lambda store: store.log.set_cursor("ephemeral", "c", 1),
    "configuration": lambda store: store.log.configure("log", cap_records=1),
    "another class": lambda store: store.log.configure("ephemeral", durability="fsync"),
    "expiry": expire,
    "expiry that nobody saw": lambda store: store.clock.advance(2000),
    "create": lambda store: store.log.create("new", durability="fsync"),
    "drop": lambda store: store.log.drop("log"),
    "drop of a source": lambda store: store.log.drop("source"),
    "claim": lambda store: store.log.queue("q").claim(1),
    "nack": lambda store: store.log.queue("q").nack([1], delay_ms=500),
    "extend": lambda store: store.log.queue("q").extend([1], lease_ms=90_000),
    "ack": lambda store: store.log.queue("q").ack([1]),
    "end of a lease": end_leases,
    "route": lambda store: store.log.route("r2", source="log", dest="mortal"),
    "reroute": lambda store: store.log.route("r", source="source", dest="copy", match="t"),
    "copy": copy_one,
    "router gone": lambda store: store.log.drop_router("r"),
    "stage": lambda store: (
        store.log.stage("etl", 2, 0, [{"topic": "log", "data": 1}]),
        store.log.commit("etl", 2, [(0, 0)]),
    ),
    "stage again": lambda store: store.log.commit("etl", 1, [(0, 0)]),
}


def world() -> Parted:
    store = Parted()
    for name in ("log", "source", "copy"):
        store.log.create(name, durability="fsync")
    store.log.create("ephemeral", durability="ephemeral")
    for name in ("log", "ephemeral"):
        store.append(name, "a", "b", tag="t")
    store.log.create("mortal", durability="fsync", ttl_ms=1000)
    store.append("mortal", "a")
    store.log.set_cursor("log", "old", 1)
    store.log.create("q", type="queue", durability="fsync", leases_durable=True)
    store.append("q", "a", "b", "c")
    store.log.queue("q").claim(1)
    store.log.route("r", source="source", dest="copy")
    store.append("source", "a", tag="t")
    store.log.read("copy")
    store.log.stage("etl", 1, 0, [{"topic": "log", "data": 1}])
    store.log.commit("etl", 1, [(0, 0)])
    store.settle()
    return store


def seen(store: Store) -> dict[str, object]:
    """What a restart has to find again."""
    catalog, log = store.kernel.catalog, store.log
    return {
        "apps": {name: (app.epoch, app.result) for name, app in catalog.apps.items()},
        "routers": log.routers(),
        "queue": log.queue("q").stats(),
        "deliveries": dict(store.topic("q").leases.deliveries),  # type: ignore[union-attr]
        **{
            name: (topic.config, topic.ledger, topic.cursors, store.seqs(name), topic.head)
            for name, topic in catalog.by_name.items()
            if topic.config.durability != "ephemeral"
        },
    }


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_in_the_snapshot_after_it_and_in_the_one_behind(change: str) -> None:
    """A start reads no log before the snapshot, so only the snapshots tell of it."""
    store = world()
    store.restart()
    store.append("source", "x")
    store.settle()
    CHANGES[change](store)
    for _ in range(2):
        store.log.checkpoint()
        check_snapshot(store.log)
    expected = seen(store)
    store.kill()
    assert seen(store) == expected
    store.settle()
    check_snapshot(store.log)


def test_leases_that_a_restart_ended_stay_over_when_they_become_durable() -> None:
    store = world()
    store.log.create("w", type="queue", durability="fsync")
    store.append("w", "a")
    store.log.queue("w").claim(1)
    store.settle()
    store.restart()
    store.append("log", "x")
    store.settle()
    store.log.configure("w", leases_durable=True)
    store.kill()
    assert store.log.queue("w").stats().ready == 1
    store.append("log", "x")
    store.settle()
    check_snapshot(store.log)


def test_ages_of_records_from_a_clock_that_was_ahead_are_told_anew_every_time() -> None:
    store = world()
    store.clock.advance(10_000_000)
    store.append("mortal", "ahead")
    store.clock.set(store.clock.now_ms() - 10_000_000)
    for _ in range(4):
        store.log.read("mortal")
        store.append("log", "x")
        store.log.checkpoint()
        assert any('"name":"mortal"' in line for line in lines(store))
        store.clock.advance(100)
    store.clock.advance(10_000_000)
    store.append("log", "x")
    store.settle()
    assert not store.kernel.ahead
    check_snapshot(store.log)


def test_a_growing_segment_is_sealed_for_its_age_though_its_topic_is_idle() -> None:
    store = Parted(settings={**SMALL, "segment_max_age_ms": 60_000})
    store.fill(3)
    store.clock.advance(30_000)
    store.append("t1", "c")
    store.log.checkpoint()
    assert store.topic("t2").history.active is not None  # type: ignore[attr-defined]
    store.clock.advance(31_000)
    store.append("t1", "d")
    store.log.checkpoint()
    assert store.topic("t2").history.active is None  # type: ignore[attr-defined]
    check_snapshot(store.log)
    store.kill()
    store.log.drop("t0")
    store.clock.advance(61_000)
    store.append("t1", "e")
    store.log.checkpoint()
    check_snapshot(store.log)


def test_a_small_store_writes_whole_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SMALL_BYTES", 1 << 20)
    store = Parted()
    store.fill()
    for _ in range(4):
        store.append("t1", "c")
        store.log.checkpoint()
        assert len(store.files()) == 1
    assert b'"snapshot":4' in store.disk.peek("/data/FORMAT")


def test_a_chain_begins_anew_when_its_parts_are_many_or_long() -> None:
    kept = Kept()
    kept.topic_ids = set(range(100))

    def takes_part(sizes: list[int], changed: int = 1) -> bool:
        files = tuple(SnapshotFile(n, size, 0) for n, size in enumerate(sizes, 1))
        return snapshots.Track(files, kept, Changed(set(range(changed)))).takes_part()

    assert takes_part([100])
    assert takes_part([100, 40])
    assert not takes_part([100, 40, 10])
    assert takes_part([100_000] + [1] * (snapshots.MOST_PARTS - 1))
    assert not takes_part([100_000] + [1] * snapshots.MOST_PARTS)
    assert takes_part([100], changed=50)
    assert not takes_part([100], changed=51)


@pytest.mark.parametrize("spoil", ["flip", "unlink"])
def test_a_start_that_knows_one_chain_begins_the_other_anew(spoil: str) -> None:
    store = Parted()
    store.fill()
    for _ in range(2):
        store.append("t1", "c")
        store.log.checkpoint()
    older = store.snapshots.older
    assert older is not None
    store.log.close()
    for file in older.files[:-1]:
        path = f"/data/meta/snapshot.{file.number:04d}.bin"
        store.disk.flip(path, 60) if spoil == "flip" else store.disk.unlink(path)
    store.open()
    assert store.snapshots.newest is not None
    assert store.snapshots.older is None
    for _ in range(3):
        store.append("t1", "c")
        store.log.checkpoint()
        check_snapshot(store.log)
