"""Slow readers, silence, and the ways a stream ends."""

import pytest
from tests.unit.delivery.builders import Peer, World

from topics.delivery.event_stream import QueueBounds
from topics.delivery.pages import Options
from topics.wire.rendering import Include
from topics.wire.requests import Start


def read_seqs(peer: Peer) -> list[int]:
    return [
        record["$seq"]
        for event in peer.events()
        if event.event == "record"
        for record in event.data["records"]
    ]


def stalled(world: World, *, bounds: QueueBounds) -> Peer:
    """A caught-up stream whose peer stops reading."""
    peer = world.open(world.session({"orders": Start()}), bounds=bounds)
    peer.events()
    peer.stalled = True
    return peer


# Slow readers


def test_a_slow_reader_gets_what_was_queued_a_notice_and_the_rest(world: World) -> None:
    # A batch and its caught-up are two frames: one pair is with the transport, two are queued.
    peer = stalled(world, bounds=QueueBounds(frames=4, bytes=1 << 20))
    for n in range(10):
        world.append("orders", n)
    assert world.delivery.lagged_total == 1
    peer.catch_up()
    world.settle()
    events = peer.events()
    kinds = [event.event for event in events]
    assert kinds == ["record", "caught-up"] * 3 + ["error", "record", "caught-up"]
    notice, rest = events[6], events[7]
    assert (notice.data["code"], notice.data["reason"]) == (429, "slow_consumer")
    assert notice.data["retry_after_ms"] == 1000
    assert notice.positions == {"orders": 3}, "unchanged"
    assert [record["$seq"] for record in rest.data["records"]] == list(range(4, 11))


def test_the_bytes_queued_for_a_reader_are_bounded_too(world: World) -> None:
    peer = stalled(world, bounds=QueueBounds(frames=1000, bytes=2000))
    for _ in range(50):
        world.append("orders", "x" * 100)
    assert world.delivery.lagged_total == 1
    peer.catch_up()
    world.settle()
    assert read_seqs(peer) == list(range(1, 51))


def test_nothing_is_read_for_a_lagged_reader(world: World) -> None:
    peer = stalled(world, bounds=QueueBounds(frames=2, bytes=1 << 20))
    for n in range(4):
        world.append("orders", n)
    reads = world.delivery.pages.reads
    for n in range(20):
        world.append("orders", n)
    assert world.delivery.pages.reads == reads
    assert peer.chunks[-1].startswith(b"id: ")


def test_a_lagged_reader_learns_what_it_lost_meanwhile(world: World) -> None:
    world.put("orders", cap_records=3)
    peer = stalled(world, bounds=QueueBounds(frames=2, bytes=1 << 20))
    for n in range(10):
        world.append("orders", n)
    peer.catch_up()
    world.settle()
    events = peer.events()
    notice = next(n for n, event in enumerate(events) if event.event == "error")
    tombstone, record, caught_up = events[notice + 1 :]
    assert (tombstone.data["reason"], tombstone.data["gap_from"]) == ("cap", 3)
    assert [r["$seq"] for r in record.data["records"]] == [8, 9, 10]
    assert caught_up.event == "caught-up"


def test_a_slow_reader_delays_nobody_else(world: World) -> None:
    slow = stalled(world, bounds=QueueBounds(frames=2, bytes=1 << 20))
    quick = world.watch("orders")
    quick.events()
    for n in range(10):
        world.append("orders", n)
    assert read_seqs(quick) == list(range(1, 11))
    assert slow.events() == []
    assert not slow.closed, "slowness alone never disconnects"


def test_notices_of_slowness_come_at_most_every_five_seconds(world: World) -> None:
    peer = stalled(world, bounds=QueueBounds(frames=2, bytes=1 << 20))
    notices = []
    for wait_ms in (0, 4_999, 1):
        world.clock.advance(wait_ms)
        peer.stalled = True
        for n in range(5):
            world.append("orders", n)
        peer.catch_up()
        world.settle()
        notices.append(sum(event.event == "error" for event in peer.events()))
    assert notices == [1, 0, 1]
    assert world.delivery.lagged_total == 3


def test_the_news_of_a_drop_waits_for_a_full_queue_too(world: World) -> None:
    peer = stalled(world, bounds=QueueBounds(frames=2, bytes=1 << 20))
    for n in range(2):
        world.append("orders", n)
    world.drop("orders")
    assert not peer.closed
    peer.catch_up()
    world.settle()
    assert peer.names()[-3:] == ["error", "topic-deleted", "error"]
    assert peer.closed


# What was not handed over is delivered again


def test_frames_that_never_reached_the_transport_are_delivered_to_the_next_stream(
    world: World,
) -> None:
    session = world.session({"orders": Start()})
    peer = world.open(session)
    peer.events()
    peer.stalled = True
    for n in range(4):
        world.append("orders", n)
    peer.leave()
    assert session.places["orders"].cursor == 1, "the transport had taken the first"
    assert read_seqs(world.open(session)) == [2, 3, 4]


def test_frames_that_never_reached_the_transport_go_to_a_stream_that_shares_the_session(
    world: World,
) -> None:
    """At once: the topic may be quiet from then on."""
    session = world.session({"orders": Start()})
    first, second = world.open(session), world.open(session)
    world.settle()
    first.events()
    second.events()
    first.stalled = True
    for n in range(4):
        world.append("orders", n)
    assert read_seqs(second) == []
    first.leave()
    world.settle()
    assert read_seqs(second) == [2, 3, 4], "the transport took the first one"


def test_what_was_queued_of_a_new_instance_is_taken_back_with_the_instance(world: World) -> None:
    world.append("orders", 1, 2)
    session = world.session({"orders": Start(tail=True)})
    peer = world.open(session)
    epoch = session.places["orders"].epoch
    peer.stalled = True
    world.append("orders", 3)
    world.recreate("orders", 2)
    assert session.places["orders"].epoch != epoch
    peer.leave()
    place = session.places["orders"]
    assert (place.epoch, place.cursor) == (epoch, 3)
    assert world.open(session).names() == ["retry", "tombstone", "record", "caught-up"]


# Silence


def test_a_heartbeat_follows_silence_and_any_frame_puts_it_off(world: World) -> None:
    peer = world.watch("orders", heartbeat_ms=1000)
    peer.events()
    world.advance(999)
    assert peer.events() == []
    world.advance(1)
    (beat,) = peer.events()
    assert beat.comment == f": hb {world.clock.now_ms()}"
    world.advance(900)
    world.append("orders", 1)
    peer.events()
    world.advance(999)
    assert peer.events() == []
    world.advance(1)
    assert len(peer.events()) == 1


def test_a_reader_that_is_behind_gets_no_heartbeats_on_top(world: World) -> None:
    peer = world.watch("orders", heartbeat_ms=1000)
    peer.events()
    peer.stalled = True
    world.append("orders", 1)
    world.advance(10_000)
    peer.catch_up()
    assert peer.names() == ["record", "caught-up"]


def test_an_ended_stream_leaves_no_timer_and_no_waiter(world: World) -> None:
    peer = world.watch("orders")
    peer.leave()
    assert world.clock.pending() == 0
    world.append("orders", 1)
    assert world.ended == 1
    assert read_seqs(peer) == []


# Ends


def test_a_reconnect_ends_the_older_stream_and_takes_its_place(world: World) -> None:
    session = world.session({"orders": Start()})
    older = world.open(session)
    world.append("orders", 1, 2)
    first_id = older.events()[-1].positions
    world.append("orders", 3)
    older.events()
    session.resume(first_id)
    (gone,) = older.events()
    assert (gone.data["code"], gone.data["reason"]) == (410, "superseded")
    assert gone.positions == {"orders": 3}
    assert older.closed
    assert read_seqs(world.open(session)) == [3]


def test_an_id_ahead_of_the_session_or_of_foreign_topics_changes_nothing(world: World) -> None:
    world.append("orders", 1)
    session = world.session({"orders": Start(1)})
    session.resume({"orders": 900, "elsewhere": 1})
    assert world.open(session).names() == ["retry", "caught-up"]


def test_shutdown_ends_every_stream_with_its_last_place(world: World) -> None:
    world.append("orders", 1)
    peer = world.watch("orders")
    slow = world.watch("orders")
    slow.stalled = True
    world.append("orders", 2)
    world.append("orders", 3)
    peer.events()
    world.delivery.shut_down()
    (last,) = peer.events()
    assert last.data["code"] == "server_shutting_down"
    assert last.positions == {"orders": 3}
    assert peer.closed
    assert slow.closed
    assert world.ended == 2


@pytest.mark.parametrize("shown", [True, False])
def test_data_is_left_out_when_nobody_asked_for_it(world: World, shown: bool) -> None:
    world.append("orders", {"sku": 1})
    peer = world.watch("orders", options=Options(include=Include(data=shown)))
    (record,) = peer.events()[1].data["records"]
    assert ("data" in record) is shown
