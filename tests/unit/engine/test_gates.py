"""Writers at a closed gate go in the order in which they came, and no newcomer overtakes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.builders import Store

from topics.batch import RecordBatch
from topics.engine.effects import Gate, Io, Op, Pause, run
from topics.engine.engine import Engine
from topics.engine.writes.append import Timing
from topics.engine.writes.gates import AppendGates
from topics.errors import Internal

TOPIC = 7


class Loop:
    """Resumes what waits as an event loop does: not at once, but behind all that is due already."""

    def __init__(self) -> None:
        self.due: deque[Callable[[], None]] = deque()
        self.errors: list[Exception] = []

    def start(self, op: Op[Any], given: object = None) -> None:
        try:
            wait = op.send(given)
        except StopIteration:
            return
        except Internal as error:
            self.errors.append(error)
            return
        if isinstance(wait, Gate):
            wait.when_open(partial(self.due.append, partial(self.start, op)))
        else:
            assert isinstance(wait, Io | Pause)
            done = wait.work() if isinstance(wait, Io) else None
            self.due.append(partial(self.start, op, done))

    def step(self) -> None:
        self.due.popleft()()

    def run(self) -> None:
        """Until nobody is due, which has to come soon: nobody here waits for anybody for long."""
        for _ in range(1000):
            if not self.due:
                return
            self.step()
        pytest.fail("they let each other go first for ever")


class Topic:
    """One topic, and in which order it was entered."""

    def __init__(self) -> None:
        self.gates = AppendGates()
        self.loop = Loop()
        self.went: list[str] = []
        self.closed: dict[str, Gate] = {}

    def write(self, name: str) -> None:
        """Somebody comes who writes one record."""
        if TOPIC in self.gates.closed:
            self.loop.start(self._write(name))
        else:
            self.went.append(name)

    def _write(self, name: str) -> Op[None]:
        yield from self.gates.enter(TOPIC)
        assert not self.closed
        self.went.append(name)

    def close(self, name: str) -> None:
        self.loop.start(self._close(name))

    def _close(self, name: str) -> Op[None]:
        gate = yield from self.gates.close([TOPIC])
        assert not self.closed
        self.went.append(name)
        self.closed[name] = gate

    def open(self) -> None:
        _, gate = self.closed.popitem()
        self.gates.open(gate)


@pytest.fixture
def topic() -> Topic:
    topic = Topic()
    topic.close("first")
    return topic


def test_who_comes_when_it_has_just_opened_goes_behind_those_who_waited(topic: Topic) -> None:
    topic.write("a")
    topic.write("b")
    topic.open()
    topic.write("c")
    topic.loop.step()
    topic.write("d")
    topic.loop.run()
    assert topic.went == ["first", "a", "b", "c", "d"]
    assert not topic.gates.closed


def test_the_whole_line_goes_in_one_turn_of_the_loop(topic: Topic) -> None:
    names = [f"w{number}" for number in range(100)]
    for name in names[:50]:
        topic.write(name)
    topic.open()
    for name in names[50:]:
        topic.write(name)
    for _ in names:
        topic.loop.step()
    assert topic.went == ["first", *names]
    assert not topic.loop.due


def test_those_behind_one_who_closes_it_again_keep_their_places(topic: Topic) -> None:
    topic.write("a")
    topic.close("second")
    topic.write("b")
    topic.open()
    topic.loop.step()
    topic.loop.step()
    assert topic.went == ["first", "a", "second"]
    topic.write("c")
    topic.loop.run()
    topic.open()
    topic.write("d")
    topic.loop.run()
    assert topic.went == ["first", "a", "second", "b", "c", "d"]


@given(st.lists(st.sampled_from(["write", "close", "open", "step"]), max_size=60))
def test_the_order_of_coming_is_the_order_of_going(acts: list[str]) -> None:
    topic, came = Topic(), []
    for number, act in enumerate(acts):
        if act in ("write", "close"):
            came.append(f"{act} {number}")
            (topic.write if act == "write" else topic.close)(came[-1])
        elif act == "open" and topic.closed:
            topic.open()
        elif act == "step" and topic.loop.due:
            topic.loop.step()
    topic.loop.run()
    while topic.closed:
        topic.open()
        topic.loop.run()
    assert topic.went == came
    assert not topic.gates.closed


def test_a_driver_may_resume_those_in_line_in_any_order(topic: Topic) -> None:
    for name in "abcd":
        topic.write(name)
    topic.open()
    topic.loop.due.reverse()
    topic.loop.run()
    assert topic.went == ["first", *"abcd"]


def test_who_gives_up_waiting_does_not_hold_up_those_behind(topic: Topic) -> None:
    gives_up = topic.gates.enter(TOPIC)
    next(gives_up)
    topic.write("b")
    topic.open()
    gives_up.close()
    topic.loop.run()
    assert topic.went == ["first", "b"]
    assert not topic.gates.closed


def test_the_last_who_gives_up_takes_the_bar_away(topic: Topic) -> None:
    gives_up = topic.gates.enter(TOPIC)
    next(gives_up)
    topic.open()
    gives_up.close()
    assert not topic.gates.closed


def test_a_stranded_commit_refuses_all_in_line_and_lets_them_in_once_it_is_home(
    topic: Topic,
) -> None:
    gates, gate = topic.gates, topic.closed["first"]
    gates.begin_landing(gate)
    topic.write("a")
    topic.write("b")
    gates.strand(gate, "no space left")
    topic.loop.run()
    assert [str(error) for error in topic.loop.errors] == ["no space left"] * 2
    topic.closed.clear()

    again, landing = Gate(), Gate()

    def complete_stranded() -> Op[None]:
        gates.unstrand([TOPIC], again)
        yield landing
        gates.end_landing(again)
        gates.open(again)

    gates.complete_stranded = complete_stranded
    for name in "cde":
        topic.write(name)
    topic.loop.run()
    assert topic.went == ["first"]
    landing.open()
    topic.loop.step()
    topic.write("f")
    topic.loop.run()
    assert topic.went == ["first", *"cdef"]
    assert not gates.closed


def write(engine: Engine, value: int) -> Op[Any]:
    return engine.append("t", RecordBatch([b"%d" % value]))


def test_records_are_stored_in_the_order_in_which_their_writes_came_to_a_closed_topic() -> None:
    store, loop = Store(), Loop()
    engine, gates = store.log._engine, store.kernel.gates
    store.log.append("t", {"data": 0})
    gate = run(gates.close([store.topic("t").id]))
    for value in (1, 2, 3):
        loop.start(write(engine, value))
    gates.open(gate)
    loop.start(write(engine, 4))
    loop.step()
    loop.start(write(engine, 5))
    loop.run()
    assert [record.data for record in store.log.read("t").records] == [0, 1, 2, 3, 4, 5]
    assert not gates.closed


def test_writes_done_together_stand_in_line_together() -> None:
    store, loop, acks = Store(), Loop(), []
    engine, gates = store.log._engine, store.kernel.gates

    def together(*values: int) -> Op[None]:
        batches = [RecordBatch([b"%d" % value]) for value in values]
        acks.append((yield from engine.append_together("t", batches, Timing())))

    store.log.append("t", {"data": 0})
    gate = run(gates.close([store.topic("t").id]))
    loop.start(write(engine, 1))
    loop.start(together(2, 3))
    loop.start(write(engine, 4))
    gates.open(gate)
    loop.start(together(5, 6))
    loop.run()
    assert [record.data for record in store.log.read("t").records] == [0, 1, 2, 3, 4, 5, 6]
    firsts = [[ack.first_seq for ack in each] for each in acks if each is not None]
    assert firsts == [[3, 4], [6, 7]]
    assert not gates.closed


@pytest.mark.parametrize("keys", [["known", None], ["twice", "twice"]])
def test_writes_that_cannot_be_done_together_take_their_places_when_they_come(
    keys: list[str | None],
) -> None:
    store, loop = Store(), Loop()
    engine, gates = store.log._engine, store.kernel.gates
    batches = [RecordBatch([b"1"]), RecordBatch([b"2"])]

    def together() -> Op[None]:
        acks = yield from engine.append_together("t", batches, Timing(), keys)
        assert acks is None
        for batch, key in zip(batches, keys, strict=True):
            loop.start(engine.append("t", batch, key=key))

    store.log.append("t", {"data": 0}, idempotency_key="known")
    gate = run(gates.close([store.topic("t").id]))
    loop.start(together())
    loop.start(write(engine, 3))
    gates.open(gate)
    loop.run()
    deduped = 1 if keys[0] == "known" else 2
    stored = [record.data for record in store.log.read("t").records]
    assert stored == [value for value in range(4) if value != deduped]
    assert not gates.closed


def test_writes_of_which_one_repeats_a_write_in_line_keep_their_places() -> None:
    store, loop = Store(), Loop()
    engine, gates = store.log._engine, store.kernel.gates
    batches, keys = [RecordBatch([b"2"]), RecordBatch([b"3"])], ["key", None]

    def together() -> Op[None]:
        acks = yield from engine.append_together("t", batches, Timing(), keys)
        assert acks is None
        for batch, key in zip(batches, keys, strict=True):
            loop.start(engine.append("t", batch, key=key))

    store.log.append("t", {"data": 0})
    gate = run(gates.close([store.topic("t").id]))
    loop.start(engine.append("t", RecordBatch([b"1"]), key="key"))
    loop.start(together())
    loop.start(write(engine, 4))
    gates.open(gate)
    loop.run()
    assert [record.data for record in store.log.read("t").records] == [0, 1, 3, 4]
    assert not gates.closed


@pytest.mark.parametrize("change", [{"discard": "reject", "cap_records": 2}, None])
def test_writes_in_line_together_go_alone_when_the_topic_has_changed_meanwhile(
    change: dict[str, Any] | None,
) -> None:
    store, loop, answers = Store(), Loop(), []
    engine, gates = store.log._engine, store.kernel.gates

    def together() -> Op[None]:
        batches = [RecordBatch([b"1"]), RecordBatch([b"2"])]
        answers.append((yield from engine.append_together("t", batches, Timing())))

    store.log.append("t", {"data": 0})
    gate = run(gates.close([store.topic("t").id]))
    loop.start(engine.drop("t") if change is None else engine.put("t", change))
    loop.start(together())
    gates.open(gate)
    loop.run()
    assert answers == [None]
    assert not gates.closed


def test_writes_in_line_at_a_topic_that_is_dropped_make_it_anew_in_their_order() -> None:
    store, loop = Store(), Loop()
    engine, gates = store.log._engine, store.kernel.gates
    store.log.append("t", {"data": 0})
    dropped = store.topic("t").id
    gate = run(gates.close([dropped]))
    loop.start(engine.drop("t"))
    for value in (1, 2, 3):
        loop.start(write(engine, value))
    gates.open(gate)
    loop.start(write(engine, 4))
    loop.run()
    assert [record.data for record in store.log.read("t").records] == [1, 2, 3, 4]
    assert store.topic("t").id != dropped
    assert not gates.closed


def test_two_routers_to_one_destination_both_get_through_its_line() -> None:
    store, loop = Store(), Loop()
    engine, gates = store.log._engine, store.kernel.gates
    for name in ("one", "two"):
        store.log.route(name, source="s", dest="t")
    run(engine.append("s", RecordBatch([b"1"])))
    gate = run(gates.close([store.topic("t").id]))
    for router in store.kernel.catalog.routers:
        loop.start(engine.forwarder.advance(router))
    gates.open(gate)
    loop.run()
    assert [router.cursor for router in store.kernel.catalog.routers] == [1, 1]
    assert not gates.closed
