"""Writes, deletes, erasures, checkpoints and restarts in any order, compared with a model.

After an erasure no byte of a record that was deleted by then is on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from tests.property.model.stores import small_world

from topics.embedded import Log
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.testing import ManualClock, SimDisk

WORLDS = 60
STEPS = 25
TOPICS = ("a", "b")
SETTINGS = EngineSettings(segment_max_events=5, cache_bytes=64 << 10)


@dataclass
class Model:
    """What each topic holds, and what was deleted and not erased."""

    live: dict[str, dict[int, str]] = field(default_factory=lambda: {t: {} for t in TOPICS})
    head: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    erased: list[bytes] = field(default_factory=list)
    deleted: dict[str, list[bytes]] = field(default_factory=lambda: {t: [] for t in TOPICS})

    def remove(self, topic: str, before: int | None, tag: str | None) -> int:
        doomed = [
            seq
            for seq in self.live[topic]
            if (before is None or seq < before) and (tag is None or tag_of(seq) == tag)
        ]
        for seq in doomed:
            self.deleted[topic].append(self.live[topic].pop(seq).encode())
        return len(doomed)


def tag_of(seq: int) -> str:
    return f"tag-{seq % 3}"


def opened(disk: SimDisk) -> Log:
    return Log(open_engine(disk.mount(), "/data", Opening(SETTINGS, ManualClock())))


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.model = SimDisk(), Model()
        self.log = opened(self.disk)
        for topic in TOPICS:
            self.log.create(topic, durability="fsync")

    def step(self) -> None:
        choose = self.random
        topic = choose.choice(TOPICS)
        action = choose.choice(["write", "write", "delete", "erase", "checkpoint", "end"])
        getattr(self, action)(topic)
        self.check()

    def write(self, topic: str) -> None:
        for _ in range(self.random.randint(1, 6)):
            seq = self.model.head[topic] + 1
            text = f"record-{topic}-{seq:06d}-of-somebody"
            ack = self.log.append(topic, {"data": text, "tag": tag_of(seq)})
            assert ack.last_seq == seq
            self.model.head[topic], self.model.live[topic][seq] = seq, text

    def selector(self, topic: str) -> tuple[int | None, str | None]:
        before = self.random.randint(0, self.model.head[topic] + 1)
        tag = tag_of(self.random.randint(0, 2))
        return self.random.choice([(before, None), (None, tag), (before, tag)])

    def delete(self, topic: str) -> None:
        before, tag = self.selector(topic)
        deleted = self.log.delete(topic, before_seq=before, match=tag).deleted
        assert deleted == self.model.remove(topic, before, tag)

    def erase(self, topic: str) -> None:
        before, tag = self.selector(topic)
        state = self.log.erase(topic, before_seq=before, match=tag)
        assert state.deleted == self.model.remove(topic, before, tag)
        assert state.receipt is not None
        assert state.receipt["scan"]["found"] == []
        self.model.erased += self.model.deleted[topic]
        self.model.deleted[topic].clear()
        for path, data in self.disk.contents().items():
            assert [text for text in self.model.erased if text in data] == [], path

    def checkpoint(self, topic: str) -> None:
        del topic
        self.log.checkpoint()

    def end(self, topic: str) -> None:
        del topic
        if self.random.random() < 0.5:
            self.log.close()
        else:
            self.disk.crash(self.random.randint(0, 1 << 30))
        self.log = opened(self.disk)

    def check(self) -> None:
        for topic in TOPICS:
            found = {record.seq: record.data for record in self.log.read(topic, limit=999).records}
            assert found == self.model.live[topic]
            ledger = self.log.audit(topic)
            assert (ledger.head_seq, ledger.live) == (self.model.head[topic], len(found))
            assert ledger.deleted == self.model.head[topic] - len(found)


def test_a_dead_segment_is_not_looked_for_again_once_it_was_dropped() -> None:
    with small_world():
        world = World(1114)
        for _ in range(STEPS):
            world.step()


@pytest.mark.parametrize("worlds", range(3))
def test_any_order_of_changes_and_erasures_is_as_the_model_says(worlds: int) -> None:
    with small_world():
        for seed in range(worlds * WORLDS // 3, (worlds + 1) * WORLDS // 3):
            world = World(seed)
            for _ in range(STEPS):
                world.step()
