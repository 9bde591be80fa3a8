"""A stop has so much time for its last checkpoint: what is not done by then is given up."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.unit.engine.builders import SMALL, Store

from topics.engine.effects import run
from topics.testing import ManualClock

TOPICS = 2
NO_TIME: dict[str, object] = {**SMALL, "wal_shards": 2, "stop_checkpoint_ms": 0}
RECORDS = [{"data": number} for number in range(6)]


class Ticking(ManualClock):
    """A clock that moves on by a millisecond whenever somebody looks at it."""

    def monotonic(self) -> float:
        self.advance(1)
        return super().monotonic()


@dataclass
class Busy(Store):
    """Topics of every class with more records than one segment takes, and deletes."""

    settings: dict[str, object] = field(default_factory=lambda: {**SMALL, "wal_shards": 2})

    def fill(self) -> None:
        for number in range(TOPICS):
            for durability in ("disk", "fsync", "memory", "ephemeral"):
                topic = f"{durability}{number}"
                self.log.create(topic, durability=durability)
                self.log.append(topic, RECORDS)
                self.log.delete(topic, before_seq=2)

    def state(self) -> dict[str, tuple[int, list[int]]]:
        return {
            topic.topic: (topic.head_seq, self.seqs(topic.topic))
            for topic in self.log.topics()
            if not topic.topic.startswith("ephemeral")
        }

    def snapshots(self) -> list[str]:
        return [name for name in self.disk.mount().listdir("/data/meta") if "snap" in name]


def test_a_stop_without_time_leaves_the_checkpoint_out_and_skips_no_seq(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Busy(settings=NO_TIME)
    store.fill()
    before = store.state()
    store.restart()
    store.restart()  # with nothing to write there is nothing to give up
    assert store.snapshots() == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the log has everything" in caplog.text
    assert store.state() == before
    for topic in before:
        assert store.log.append(topic, {"data": "next"}).first_seq == len(RECORDS) + 1
        assert store.log.read(topic).tombstone is None
    assert store.log.append("ephemeral0", {"data": "next"}).first_seq == len(RECORDS) + 1


def test_a_stop_that_gave_its_checkpoint_up_is_durable_all_the_same() -> None:
    store = Busy(settings=NO_TIME)
    store.fill()
    before = store.state()
    store.log.close()
    store.lose_power()
    assert store.state() == before
    assert store.log.append("disk1", {"data": "next"}).first_seq == len(RECORDS) + 1


def test_a_checkpoint_may_be_given_up_at_any_step() -> None:
    limit = completed = 0
    while completed < 20:  # the last of them in the middle of trimming
        store = Busy(clock=Ticking())
        store.fill()
        before = store.state()
        store.log.close()
        store.open(stop_checkpoint_ms=limit)
        store.append("disk0", "one more")
        store.append("fsync1", "one more")
        store.log.delete("memory1", before_seq=3)
        expected = store.state()
        assert expected != before
        upkeep = store.log._engine.upkeep
        assert upkeep is not None
        store.log.close()
        completed += not upkeep.gave_up
        store.disk.crash(mode="none", names="none")
        store.open()
        assert store.state() == expected
        assert store.log.append("disk0", {"data": "next"}).first_seq == len(RECORDS) + 2
        limit += 1
    assert limit > 60


def test_maintenance_under_way_is_given_up_as_well() -> None:
    store = Busy()
    store.fill()
    upkeep = store.log._engine.upkeep
    assert upkeep is not None
    store.kernel.must_checkpoint = True
    upkeep.run(within_ms=0, now=True)
    upkeep._work = upkeep._work or upkeep.poll()
    upkeep._step()
    assert upkeep._work is not None
    upkeep.stop_within(0)
    expected = store.state()
    store.log.close()
    assert upkeep.gave_up
    store.open()
    assert store.state() == expected


def test_a_stop_in_a_hurry_is_not_slowed_down_again() -> None:
    store = Busy()
    upkeep = store.log._engine.upkeep
    assert upkeep is not None
    store.fill()
    upkeep.stop_within(0)
    upkeep.stop_within(60_000)
    run(upkeep.closing())
    assert upkeep.gave_up
