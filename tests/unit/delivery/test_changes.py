"""Long polls: woken by appends and drops, by nothing else, and never late."""

from collections.abc import Callable
from itertools import count

import pytest
from tests.unit.delivery.builders import World

from topics.delivery.changes import Poll
from topics.delivery.loop_budget import BUDGET_NS, LoopBudget

MANY = 64


class Answers:
    """What a poll said."""

    def __init__(self, poll: Poll) -> None:
        self.seen: list[bool] = []
        poll.then(self.seen.append)


def test_an_append_wakes_a_parked_poll(world: World) -> None:
    answers = Answers(world.delivery.changes.poll("orders", 30_000))
    world.append("orders", 1)
    assert answers.seen == [True]
    assert world.clock.pending() == 0


def test_an_append_between_registering_and_parking_is_not_missed(world: World) -> None:
    poll = world.delivery.changes.poll("orders", 30_000)
    world.append("orders", 1)
    assert Answers(poll).seen == [True]


def test_a_poll_gives_up_when_its_time_has_passed(world: World) -> None:
    answers = Answers(world.delivery.changes.poll("orders", 50))
    world.advance(49)
    assert answers.seen == []
    world.advance(1)
    assert answers.seen == [False]
    world.append("orders", 1)
    assert answers.seen == [False]


def test_a_drop_wakes_a_poll(world: World) -> None:
    answers = Answers(world.delivery.changes.poll("orders", 30_000))
    world.drop("orders")
    assert answers.seen == [True]


def test_a_new_configuration_is_no_append(world: World) -> None:
    answers = Answers(world.delivery.changes.poll("orders", 30_000))
    world.put("orders", cap_records=7)
    world.settle()
    assert answers.seen == []


def test_a_cancelled_poll_says_nothing_and_leaves_nothing(world: World) -> None:
    poll = world.delivery.changes.poll("orders", 30_000)
    answers = Answers(poll)
    poll.cancel()
    world.append("orders", 1)
    world.advance(30_000)
    assert answers.seen == []
    assert world.clock.pending() == 0


def test_a_poll_of_another_topic_sleeps_on(world: World) -> None:
    world.put("audit")
    answers = Answers(world.delivery.changes.poll("audit", 30_000))
    world.append("orders", 1)
    assert answers.seen == []


def test_a_server_that_stops_lets_polls_go_and_parks_no_more(world: World) -> None:
    parked = Answers(world.delivery.changes.poll("orders", 30_000))
    world.delivery.shut_down()
    world.settle()
    assert parked.seen == [False]
    assert Answers(world.delivery.changes.poll("orders", 30_000)).seen == [False]


def test_polls_that_end_together_are_answered_a_few_at_a_time(world: World) -> None:
    changes = world.delivery.changes
    polls = [changes.poll("orders", 30_000) for _ in range(MANY)]
    answers = [Answers(poll) for poll in polls]
    for poll in polls:
        poll.give_up()
    changes.budget.run()
    assert 0 < sum(len(answer.seen) for answer in answers) < MANY // 8
    world.settle()
    assert [answer.seen for answer in answers] == [[False]] * MANY


# The loop budget


def test_work_beyond_the_budget_of_a_tick_waits_for_the_next_one() -> None:
    soon: list[Callable[[], None]] = []
    clock = count(step=BUDGET_NS // 4)
    budget = LoopBudget(soon.append, lambda: next(clock))
    done: list[int] = []
    for n in range(6):
        budget.add(lambda n=n: done.append(n))  # type: ignore[misc]
    assert len(soon) == 1
    soon.pop()()
    assert done == [0, 1, 2, 3]
    assert len(budget) == 2
    soon.pop()()
    assert done == list(range(6))
    assert not soon


def test_work_that_is_queued_while_the_budget_is_held_needs_no_tick() -> None:
    soon: list[Callable[[], None]] = []
    budget, done = LoopBudget(soon.append), []
    budget.hold()
    budget.add(lambda: done.append(1))
    budget.run()
    assert done == [1]
    budget.add(lambda: done.append(2))
    assert len(soon) == 1


def test_a_failing_stream_does_not_silence_the_others(caplog: pytest.LogCaptureFixture) -> None:
    budget = LoopBudget(lambda callback: None, lambda: 0)
    done: list[str] = []
    budget.add(_fail)
    budget.add(lambda: done.append("other"))
    budget.run()
    assert done == ["other"]
    assert "failed" in caplog.text


def _fail() -> None:
    raise RuntimeError("a bug in one stream")
