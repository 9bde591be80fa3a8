"""When the garbage collector looks at everything."""

from __future__ import annotations

import pytest

from topics.server import collector
from topics.server.collector import DUE, MANY_OBJECTS, MANY_TOPICS, GarbageCollector


class FakeGc:
    """Counts what is asked of the collector; a full look takes `look_s`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.look_s = 0.1
        self.middle_looks = 0
        self.old: list[object] = []
        self.looks = self.freezes = 0
        self.thresholds: tuple[int, ...] = ()

    def set_threshold(self, *thresholds: int) -> None:
        self.thresholds = thresholds

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.middle_looks

    def get_objects(self, generation: int) -> list[object]:
        assert generation == 2
        return self.old

    def collect(self) -> None:
        self.looks += 1
        self.middle_looks = 0
        self.now_s += self.look_s

    def freeze(self) -> None:
        self.freezes += 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeGc:
    made = FakeGc()
    monkeypatch.setattr(collector, "gc", made)
    return made


@pytest.fixture
def begun(fake: FakeGc) -> GarbageCollector:
    made = GarbageCollector(lambda: fake.now_s)
    made.begin(10)
    assert (fake.looks, fake.freezes) == (1, 1)
    assert fake.thresholds[2] > DUE
    return made


def test_topics_leave_the_sight_of_the_collector_when_many_were_added(
    fake: FakeGc, begun: GarbageCollector
) -> None:
    begun.tick(9 + MANY_TOPICS, is_busy=False)
    assert fake.freezes == 1
    begun.tick(10 + MANY_TOPICS, is_busy=True)
    assert (fake.looks, fake.freezes) == (2, 2)
    begun.tick(5, is_busy=False)
    begun.tick(10 + MANY_TOPICS, is_busy=False)
    assert (fake.looks, fake.freezes) == (2, 2), "no more than there were"


def test_topics_leave_the_sight_without_a_full_look_while_a_large_request_holds_many_objects(
    fake: FakeGc, begun: GarbageCollector
) -> None:
    fake.old = [None] * (MANY_OBJECTS + 1)
    begun.tick(10 + MANY_TOPICS, is_busy=False)
    assert (fake.looks, fake.freezes) == (1, 2)


def test_a_full_look_waits_until_it_is_due_and_upkeep_is_over(
    fake: FakeGc, begun: GarbageCollector
) -> None:
    fake.middle_looks = DUE - 1
    begun.tick(10, is_busy=False)
    fake.middle_looks = DUE
    begun.tick(10, is_busy=True)
    assert fake.looks == 1
    begun.tick(10, is_busy=False)
    assert (fake.looks, fake.freezes) == (2, 1)


def test_long_looks_come_seldom(fake: FakeGc, begun: GarbageCollector) -> None:
    for _ in range(100):
        fake.middle_looks = DUE
        begun.tick(10, is_busy=False)
        fake.now_s += 1
    assert fake.looks == 1 + 100 // 20
