"""The end of a turn: first what was left for it, then the answers, and neither for too long."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable

import pytest

from topics.delivery.loop_budget import BUDGET_NS, LoopBudget
from topics.http.tick import Tick, TickBatch


class Loop:
    """What was scheduled, and what came of it."""

    def __init__(self) -> None:
        self.scheduled: list[Callable[[], None]] = []
        self.done: list[str] = []
        self.tick = Tick(self.scheduled.append)

    def end_turn(self) -> None:
        due, self.scheduled[:] = self.scheduled[:], []
        for callback in due:
            callback()

    def does(self, what: str) -> Callable[[], None]:
        return lambda: self.done.append(what)


class Answer:
    """A connection with one answer that has not left."""

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop = loop
        self._name = name

    def uncork(self) -> None:
        self._loop.done.append(self._name)

    def abort(self) -> None:
        raise AssertionError("nothing went wrong")


class Broken(Answer):
    """One that cannot be sent."""

    def uncork(self) -> None:
        raise RuntimeError("broken")

    def abort(self) -> None:
        self._loop.done.append(f"{self._name} closed")


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.mark.usefixtures("_patient")
def test_work_is_done_at_the_end_of_the_turn_before_answers_leave(loop: Loop) -> None:
    loop.tick.uncork_later(Answer(loop, "answer"))
    loop.tick.finish_later(loop.does("work"))
    loop.tick.uncork_later(Answer(loop, "another"))
    assert loop.done == []
    assert len(loop.scheduled) == 1, "a turn has one end"
    loop.end_turn()
    assert loop.done == ["work", "answer", "another"]


@pytest.mark.usefixtures("_patient")
def test_what_work_answers_leaves_with_the_same_turn(loop: Loop) -> None:
    loop.tick.finish_later(lambda: loop.tick.uncork_later(Answer(loop, "answer")))
    loop.end_turn()
    assert loop.done == ["answer"]
    assert not loop.scheduled


def test_work_that_leads_to_more_work_has_it_done_in_the_same_turn(loop: Loop) -> None:
    loop.tick.finish_later(lambda: loop.tick.finish_later(loop.does("more")))
    loop.end_turn()
    assert loop.done == ["more"]
    assert not loop.scheduled


@pytest.mark.usefixtures("_patient")
def test_a_turn_that_is_cut_ends_for_those_before_the_cut(loop: Loop) -> None:
    loop.tick.finish_later(loop.does("before"))
    loop.tick.uncork_later(Answer(loop, "answer"))
    loop.tick.cut()
    assert loop.done == ["before", "answer"]
    loop.tick.finish_later(loop.does("after"))
    assert len(loop.scheduled) == 1, "the end that was scheduled is still to come"
    loop.end_turn()
    assert loop.done == ["before", "answer", "after"]


def test_each_turn_with_something_to_do_has_an_end(loop: Loop) -> None:
    for what in ("first", "second"):
        loop.tick.finish_later(loop.does(what))
        loop.end_turn()
    assert loop.done == ["first", "second"]
    assert not loop.scheduled


def test_work_that_fails_holds_up_nobody(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    loop.tick.finish_later(fail)
    loop.tick.finish_later(loop.does("next"))
    with caplog.at_level(logging.CRITICAL, logger="topics.http"):
        loop.end_turn()
    assert loop.done == ["next"]
    loop.tick.finish_later(loop.does("later"))
    loop.end_turn()
    assert loop.done == ["next", "later"]


def test_others_are_expected_when_there_were_some_in_this_turn_or_the_one_before(
    loop: Loop,
) -> None:
    crowded = loop.tick.is_crowded
    assert not crowded(), "the first of all"
    loop.end_turn()
    assert [crowded(), crowded(), crowded()] == [False, True, True]
    loop.end_turn()
    assert crowded(), "there were three before"
    loop.end_turn()
    assert not crowded(), "there was one before"


def test_who_is_heard_twice_in_a_row_is_served_and_answered_without_a_turn(loop: Loop) -> None:
    one = Answer(loop, "one")
    loop.tick.hear(one)
    loop.tick.uncork_later(one)
    assert loop.done == [], "nobody knows yet whether it is alone"
    loop.end_turn()
    for _ in range(3):
        loop.tick.hear(one)
        assert not loop.tick.is_crowded()
        loop.tick.uncork_later(one)
        assert not loop.scheduled, "nothing is left for the end of a turn"
    assert loop.done == ["one"] * 4


def test_who_is_heard_after_somebody_else_is_not_alone(loop: Loop) -> None:
    one, other = Answer(loop, "one"), Answer(loop, "other")
    for connection in (one, one, other, one):
        loop.tick.hear(connection)
    loop.tick.uncork_later(one)
    assert loop.done == []
    loop.end_turn()
    assert loop.done == ["one"]


def test_what_one_connection_asks_at_once_is_still_done_together(loop: Loop) -> None:
    one = Answer(loop, "one")
    loop.tick.hear(one)
    loop.tick.hear(one)
    assert [loop.tick.is_crowded() for _ in range(3)] == [False, True, True]
    loop.tick.uncork_later(one)
    assert loop.done == [], "others of this turn are not answered yet"
    loop.end_turn()
    assert loop.done == ["one"]
    loop.tick.hear(one)
    assert loop.tick.is_crowded(), "there were three before"
    loop.end_turn()
    loop.tick.hear(one)
    assert not loop.tick.is_crowded()
    assert not loop.scheduled


@pytest.mark.usefixtures("_patient")
def test_an_answer_to_somebody_else_waits_for_the_end_of_the_turn(loop: Loop) -> None:
    writer = Answer(loop, "writer")
    loop.tick.hear(writer)
    loop.tick.hear(writer)
    loop.tick.uncork_later(Answer(loop, "reader"))
    loop.tick.uncork_later(writer)
    assert loop.done == []
    loop.end_turn()
    assert loop.done == ["reader", "writer"]


def test_a_connection_that_is_over_is_let_go(loop: Loop) -> None:
    one = Answer(loop, "one")
    gone = weakref.ref(one)
    loop.tick.hear(one)
    loop.tick.forget(Answer(loop, "other"))
    loop.tick.forget(one)
    del one
    assert gone() is None


def test_a_lone_connection_that_cannot_take_its_answer_is_closed(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    one = Broken(loop, "one")
    loop.tick.hear(one)
    loop.tick.hear(one)
    with caplog.at_level(logging.CRITICAL, logger="topics.http"):
        loop.tick.uncork_later(one)
    assert loop.done == ["one closed"]


@pytest.mark.usefixtures("_patient")
def test_a_crowd_is_served_together_and_who_is_alone_at_once(loop: Loop) -> None:
    batch = TickBatch(loop.does("served"), most=10)

    def join(weight: int = 1) -> bool:
        return batch.join(loop.tick, 0, weight=weight)

    assert not join()
    assert join()
    assert join(9)
    assert loop.done == []
    assert join(), "which is one too many"
    assert loop.done == ["served"]
    loop.end_turn()
    assert loop.done == ["served", "served"]


class Clock:
    """Stands in for `time`: moves only when somebody works."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(loop: Loop) -> Clock:
    clock = Clock()
    loop.tick.reads = LoopBudget(loop.scheduled.append, clock.perf_counter_ns)
    return clock


def works(loop: Loop, clock: Clock, what: int, *, ns: int) -> Callable[[], None]:
    def work() -> None:
        clock.now_ns += ns
        loop.done.append(str(what))

    return work


def test_long_work_takes_its_budget_of_a_tick_and_goes_on_in_the_next(
    loop: Loop, clock: Clock
) -> None:
    reads = loop.tick.reads
    for number in range(5):
        reads.do(works(loop, clock, number, ns=BUDGET_NS // 2))
    assert loop.done == ["0", "1"]
    assert len(loop.scheduled) == 1
    loop.end_turn()
    reads.do(works(loop, clock, 5, ns=1))
    assert loop.done == ["0", "1", "2", "3"], "who comes later stands behind"
    loop.end_turn()
    assert loop.done == ["0", "1", "2", "3", "4", "5"]
    assert not reads.is_spent
    assert not loop.scheduled, "nothing is left to do"


def test_short_work_is_done_at_once_and_costs_no_turn(loop: Loop, clock: Clock) -> None:
    for number in range(10):
        loop.tick.reads.do(works(loop, clock, number, ns=BUDGET_NS // 20))
    assert len(loop.done) == 10
    assert not loop.scheduled


def test_long_work_that_leads_to_more_does_not_use_two_budgets(loop: Loop, clock: Clock) -> None:
    reads = loop.tick.reads
    inner = works(loop, clock, 1, ns=BUDGET_NS)
    reads.do(lambda: reads.do(inner))
    assert len(loop.scheduled) == 1
    loop.end_turn()
    assert not loop.scheduled


def test_long_work_that_fails_holds_up_nobody(
    loop: Loop, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    reads = loop.tick.reads
    for work in (works(loop, clock, 0, ns=BUDGET_NS), fail, works(loop, clock, 1, ns=1)):
        reads.do(work)
    with caplog.at_level(logging.CRITICAL, logger="topics.delivery"):
        loop.end_turn()
    assert loop.done == ["0", "1"]


# What follows the answers


def test_what_follows_a_lone_answer_is_done_in_the_same_iteration_and_after_it(loop: Loop) -> None:
    answer = Answer(loop, "answer")
    for _ in range(2):  # the second input in a row comes from a lone client
        loop.tick.hear(answer)
        loop.tick.pause()
    loop.tick.hear(answer)
    loop.tick.after_answers(loop.does("delivery"))
    loop.tick.uncork_later(answer)
    assert loop.done == ["answer"]
    loop.tick.pause()
    assert loop.done == ["answer", "delivery"]
    assert not loop.scheduled


def test_what_follows_many_answers_is_done_behind_the_last_of_them(loop: Loop) -> None:
    for name in ("a", "b"):
        answer = Answer(loop, name)
        loop.tick.hear(answer)
        loop.tick.after_answers(loop.does(f"delivery of {name}"))
        loop.tick.uncork_later(answer)
        loop.tick.pause()
    assert not loop.done
    loop.end_turn()
    assert loop.done == ["a", "b", "delivery of a", "delivery of b"]
    loop.end_turn()
    assert len(loop.done) == 4


def test_what_follows_no_input_comes_in_the_next_iteration(loop: Loop) -> None:
    loop.tick.begin()
    loop.tick.pause()
    loop.tick.after_answers(loop.does("delivery"))
    assert not loop.done
    loop.end_turn()
    assert loop.done == ["delivery"]


def test_one_delivery_that_fails_holds_up_no_other(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    loop.tick.begin()
    loop.tick.after_answers(fail)
    loop.tick.after_answers(loop.does("delivery"))
    loop.tick.pause()
    assert loop.done == ["delivery"]
    assert "failed" in caplog.text
