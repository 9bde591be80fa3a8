"""A large read rests while others write, and only then."""

from __future__ import annotations

from typing import cast

import pytest

from topics.delivery.loop_budget import LONGEST_REST_S, REST, PacedRead
from topics.engine.effects import Io, Op, Sleep, Wait
from topics.storage.wal.committer import Committer
from topics.storage.wal.submission import Position
from topics.testing import ManualClock


class Log:
    """A log of two shards, as far as a read looks at it."""

    def __init__(self) -> None:
        self.ends = [Position(1, 32, 0), Position(1, 32, 0)]

    def position(self, shard: int) -> Position:
        return self.ends[shard]

    def write(self, shard: int) -> None:
        first, offset, lfn = self.ends[shard]
        self.ends[shard] = Position(first, offset + 100, lfn + 1)


class Read:
    """A read whose steps take as long as they are told to."""

    def __init__(self) -> None:
        self.log = Log()
        self.clock = ManualClock(0)
        self._pace = PacedRead(cast(Committer, self.log), self.clock, shards=2)

    def step(self, *, ms: int = 1, writes_to: int | None = None) -> list[Wait]:
        """Take one; returns what it waited for."""

        def work() -> Op[str]:
            yield Io(list)
            self.clock.advance(ms)
            if writes_to is not None:
                self.log.write(writes_to)
            return "made"

        def whole() -> Op[None]:
            assert (yield from self._pace.step(work())) == "made"

        return list(whole())


def rests(waits: list[Wait]) -> list[float]:
    return [wait.seconds for wait in waits if isinstance(wait, Sleep)]


@pytest.fixture
def read() -> Read:
    return Read()


def test_a_read_that_is_alone_does_not_rest(read: Read) -> None:
    assert [rests(read.step()) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("shard", [0, 1])
def test_a_write_during_a_step_makes_the_next_one_wait_a_multiple_of_it(
    read: Read, shard: int
) -> None:
    assert rests(read.step(ms=2, writes_to=shard)) == []
    assert rests(read.step()) == pytest.approx([REST * 0.002])
    assert rests(read.step()) == []  # nobody has written since


def test_a_write_between_two_steps_counts_as_well(read: Read) -> None:
    read.step(ms=1)
    read.log.write(0)
    assert rests(read.step()) == pytest.approx([REST * 0.001])


def test_no_rest_is_longer_than_the_longest(read: Read) -> None:
    read.step(ms=60_000, writes_to=0)
    assert rests(read.step()) == [LONGEST_REST_S]


def test_the_rest_comes_before_the_records_are_looked_for(read: Read) -> None:
    read.step(writes_to=0)
    waits = read.step()
    assert isinstance(waits[0], Sleep)
    assert isinstance(waits[1], Io)
