"""Scheduling on a whole delivery: who is served, told, paced and let go, and when it sleeps."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.unit.delivery.builders import Peer, World, memory_world
from tests.unit.server.fakes import FakeLog, FakeWork

from topics.batch import RecordBatch
from topics.engine.effects import Op, Sleep, run
from topics.engine.routers.routing import RouterSpec
from topics.engine.writes.append import Timing
from topics.server.pump import Pump
from topics.values import Ack


class Loaded(World):
    """A world whose changes go through a pump."""

    def __init__(self) -> None:
        plain = memory_world()
        super().__init__(plain.engine, plain.clock)
        self.log = FakeLog()
        self.work = FakeWork()
        self.pump = Pump(
            self.delivery,
            self.log,
            self.work,
            shards=1,
            pool_size=4,
            workers=1,
            timers=self.clock,
            schedule=self._soon.append,
        )

    def advance(self, ms: int) -> None:
        """Let time pass on a loop that turns all the while."""
        for _ in range(ms):
            super().advance(1)

    def press(self, share: float, samples: int = 3) -> None:
        """Let the log be this full for some samples."""
        self.log.share = share
        self.work.on_wait()
        self.advance(100 * samples)

    def append(
        self, name: str, *datas: object, node: str | None = None, settle: bool = True
    ) -> Ack:
        """Write without being paced: here nothing can sleep."""
        raw = [json.dumps(data).encode() for data in datas]
        batch = RecordBatch(raw, None, None, None)
        ack = run(self.engine.append(name, batch, wait_for_room=True))
        if settle:
            self.settle()
        return ack

    def start_append(self, name: str, *, wait_for_room: bool = False) -> Op[Ack]:
        self.timing = Timing()
        batch = RecordBatch([b"1"], None, None, None)
        return self.engine.append(name, batch, wait_for_room=wait_for_room, timing=self.timing)


@pytest.fixture
def world() -> Iterator[Loaded]:
    made = Loaded()
    made.put("orders", priority=-1)
    made.put("urgent", priority=900)
    yield made
    made.pump.stop()
    made.settle()


def datas(peer: Peer) -> list[object]:
    return [
        record["data"]
        for event in peer.events()
        if event.event == "record"
        for record in event.data["records"]
    ]


# Calm


def test_a_lone_write_is_pushed_in_the_next_turn_without_any_timer_passing(world: Loaded) -> None:
    peer = world.watch("orders")
    peer.events()
    world.append("orders", 7)
    assert datas(peer) == [7]


def test_an_idle_server_has_no_timer_armed(world: Loaded) -> None:
    world.append("orders", 1)
    assert world.clock.pending() == 0
    world.watch("orders", heartbeat_ms=10**9)
    world.append("orders", 2)
    assert world.clock.pending() == 1, "a topic that is served alone does not wait for another"
    world.watch("urgent", heartbeat_ms=10**9)
    world.append("orders", 3, settle=False)
    world.append("urgent", 3)
    assert world.clock.pending() == 3
    world.advance(200)
    assert world.clock.pending() == 2


def test_a_write_while_a_topic_is_served_is_pushed_too(world: Loaded) -> None:
    written: list[bool] = []

    class Writer:
        def wake(self, name: str) -> None:
            if not written:
                written.append(True)
                world.append("orders", "during", settle=False)

    peer = world.watch("orders")
    world.delivery.changes.listen("orders", Writer())
    world.append("orders", "before")
    assert datas(peer) == ["before", "during"]


def test_urgent_topics_are_pushed_first(world: Loaded) -> None:
    order: list[str] = []

    class Listener:
        def wake(self, name: str) -> None:
            order.append(name)

    for name in ("orders", "urgent"):
        world.delivery.changes.listen(name, Listener())
    world.append("orders", 1, settle=False)
    world.append("urgent", 1)
    assert order == ["urgent", "orders"]


def test_routers_of_a_source_are_served_with_it(world: Loaded) -> None:
    served: list[str] = []

    class Passes:
        def serve(self, source: object) -> None:
            served.append(getattr(source, "name", ""))

        def run(self) -> None:
            served.append("run")

    world.pump.passes = Passes()
    run(world.engine.routing.put("r", RouterSpec("orders", "copies")))
    world.append("orders", 1)
    assert served == ["orders", "run"]
    world.pump.advance(world.topic("orders"))
    world.settle()
    assert served == ["orders", "run"] * 2


# Pressure


def test_pushes_gather_while_there_is_some_pressure(world: Loaded) -> None:
    peer = world.watch("urgent")
    peer.events()
    world.press(0.6, samples=1)
    world.append("urgent", 1)
    world.advance(9)
    assert peer.events() == []
    world.append("urgent", 2)
    world.advance(1)
    assert peer.names() == ["record", "caught-up"]


def test_pressure_counts_the_file_pool_too(world: Loaded) -> None:
    world.work.on_pool = 3
    world.press(0.0, samples=1)
    assert world.pump.pressure == 0.75


def test_a_withheld_topic_says_so_and_delivers_everything_later(world: Loaded) -> None:
    peer = world.watch("orders", "urgent")
    peer.events()
    world.press(1.0)
    world.append("orders", 1)
    world.append("urgent", 2)
    world.advance(100)
    events = {event.event: event.data for event in peer.events()}
    assert events["error"]["reason"] == "pressure"
    assert events["error"]["topic"] == "orders"
    assert events["record"]["topic"] == "urgent"
    world.press(0.5, samples=1)
    assert datas(peer) == [1]


def test_what_gathers_while_the_mode_begins_is_announced(world: Loaded) -> None:
    peer = world.watch("orders")
    peer.events()
    world.press(1.0, samples=2)
    world.advance(90)
    world.append("orders", 1)
    world.advance(110)  # the third sample falls into the window
    assert peer.names() == ["error"]


def test_what_is_ready_when_the_mode_begins_is_announced(world: Loaded) -> None:
    peer = world.watch("orders")
    peer.events()
    world.log.share = 1.0
    world.work.on_wait()
    world.append("orders", 1, settle=False)
    world.clock.advance(300)  # the loop is busy elsewhere all the time
    world.settle()
    assert peer.names() == ["error"]


def test_a_stream_opened_while_its_topic_is_withheld_gets_its_records_later(world: Loaded) -> None:
    world.append("orders", 1)
    world.press(1.0)
    peer = world.watch("orders")
    assert "record" not in peer.names()
    world.press(0.0, samples=1)
    assert datas(peer) == [1]


def test_a_withheld_topic_can_be_polled(world: Loaded) -> None:
    world.press(1.0)
    answers: list[bool] = []
    world.delivery.changes.poll("orders", 30_000).then(answers.append)
    world.append("orders", 1)
    world.advance(120)
    assert answers == [True]


def test_the_end_of_a_withheld_topic_is_told_at_once(world: Loaded) -> None:
    peer = world.watch("orders", "urgent")
    peer.events()
    world.press(1.0)
    world.drop("orders")
    assert peer.names() == ["topic-deleted"]


# Pacing


def test_writes_to_low_priorities_wait_first_and_say_how_long(world: Loaded) -> None:
    world.press(0.9)
    op = world.start_append("orders")
    wait = next(op)
    assert isinstance(wait, Sleep)
    assert wait.seconds == pytest.approx(0.018)
    with pytest.raises(StopIteration):
        next(op)
    assert world.timing.throttled_ns == pytest.approx(18_000_000)


@pytest.mark.parametrize(
    ("name", "wait_for_room"), [("urgent", False), ("orders", True), ("new", False)]
)
def test_other_writes_do_not_wait(world: Loaded, name: str, wait_for_room: bool) -> None:
    world.press(1.0)
    run(world.start_append(name, wait_for_room=wait_for_room))
    assert world.timing.throttled_ns == 0


def test_pacing_ends_with_the_pressure(world: Loaded) -> None:
    world.press(1.0)
    world.press(0.0, samples=1)
    run(world.start_append("orders"))
    assert world.timing.throttled_ns == 0


# A full log


def test_a_full_queue_counts_at_once(world: Loaded) -> None:
    world.log.share = 1.0
    assert world.pump.pressure == 1.0
    world.log.share = 0.5
    assert world.pump.pressure == 0.0


def test_a_refusal_says_how_long_the_queue_takes(world: Loaded) -> None:
    world.press(1.0)
    refusal = world.engine.kernel.backlog()
    assert refusal.retry_after_ms == 5000
    world.log.share = 0.1
    assert world.engine.kernel.backlog().retry_after_ms == 1000


# The end


def test_a_stopped_pump_arms_nothing_and_serves_nobody(world: Loaded) -> None:
    world.press(1.0)
    world.pump.stop()
    pending = world.clock.pending()
    peer: Peer = world.watch("orders", heartbeat_ms=10**9)
    peer.events()
    world.append("orders", 1)
    world.advance(500)
    assert world.clock.pending() <= pending + 1
    assert datas(peer) == []
    assert world.engine.kernel.host.pace_ms is None
