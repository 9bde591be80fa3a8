"""What a stream is sent, in which order, and from where it goes on."""

import pytest
from tests.unit.delivery.builders import Peer, World

from topics.core.topic import Topic
from topics.delivery.pages import Options
from topics.delivery.subscriptions import Place
from topics.engine.effects import PAUSE, Op
from topics.engine.reads.reading import Query
from topics.errors import Internal
from topics.values import Page
from topics.wire.requests import Start


def seqs(event_data: dict[str, list[dict[str, int]]]) -> list[int]:
    return [record["$seq"] for record in event_data["records"]]


def test_a_stream_begins_with_retry_then_delivers_and_says_it_caught_up(world: World) -> None:
    world.append("orders", {"sku": "MUG"}, {"sku": "TEA"})
    peer = world.watch("orders")
    ts = world.clock.now_ms()
    assert b"".join(peer.chunks) == (
        b"retry: 2000\n\n"
        b"id: eyJvcmRlcnMiOjJ9\n"
        b"event: record\n"
        b'data: {"topic":"orders","from_seq":0,"head_seq":2,"records":['
        b'{"$seq":1,"$ts":%d,"data":{"sku": "MUG"}},'
        b'{"$seq":2,"$ts":%d,"data":{"sku": "TEA"}}],"to_seq":2}\n\n'
        b"id: eyJvcmRlcnMiOjJ9\n"
        b"event: caught-up\n"
        b'data: {"topic":"orders","head_seq":2}\n\n' % (ts, ts)
    )


def test_an_append_reaches_a_parked_stream_and_brings_it_back_to_caught_up(world: World) -> None:
    peer = world.watch("orders")
    assert peer.names() == ["retry", "caught-up"]
    world.append("orders", 1)
    record, caught_up = peer.events()
    assert (seqs(record.data), record.data["from_seq"], record.data["to_seq"]) == ([1], 0, 1)
    assert caught_up.data == {"topic": "orders", "head_seq": 1}


def test_appends_of_one_turn_come_as_one_batch(world: World) -> None:
    peer = world.watch("orders")
    peer.events()
    for n in range(5):
        world.append("orders", n, settle=False)
    world.settle()
    record, _ = peer.events()
    assert seqs(record.data) == [1, 2, 3, 4, 5]


def test_topics_go_in_name_order_each_drained_before_the_next(world: World) -> None:
    world.put("audit")
    world.append("orders", 1, 2, 3)
    world.append("audit", 1, 2)
    peer = world.watch("orders", "audit", options=Options(limit=2))
    shown = [(e.event, e.data["topic"]) for e in peer.events()[1:]]
    assert shown == [
        ("record", "audit"),
        ("caught-up", "audit"),
        ("record", "orders"),
        ("record", "orders"),
        ("caught-up", "orders"),
    ]


def test_every_frame_id_holds_all_topics_as_they_stand_after_it(world: World) -> None:
    world.put("audit")
    world.append("orders", 1, 2)
    world.append("audit", 1)
    peer = world.watch("orders", "audit")
    positions = [event.positions for event in peer.events()[1:]]
    assert positions == [{"audit": 1, "orders": 0}] * 2 + [{"audit": 1, "orders": 2}] * 2


def not_at_hand(topic: Topic, query: Query) -> None:
    """The records have to be fetched."""


def test_a_busy_topic_does_not_keep_the_others_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("zebra")
    world.append("orders", 1)
    world.append("zebra", 1)
    real, left = world.engine.read, iter(range(20))

    def read_while_it_grows(name: str, query: Query) -> Op[Page]:
        page = yield from real(name, query)
        if name == "orders" and next(left, None) is not None:
            world.append("orders", 0, settle=False)
        return page

    monkeypatch.setattr(world.engine, "read", read_while_it_grows)
    monkeypatch.setattr(world.engine, "newest", not_at_hand)
    peer = world.watch("orders", "zebra", options=Options(limit=1))
    shown = [e.data["topic"] for e in peer.events()[1:] if e.event == "record"]
    assert shown.index("zebra") <= 2
    assert shown.count("orders") == 21


def test_records_of_the_own_node_move_the_cursor_without_a_frame(world: World) -> None:
    peer = world.watch("orders", options=Options(nodes=frozenset({"me"})))
    peer.events()
    world.append("orders", 1, 2, node="me")
    assert peer.events() == []
    world.append("orders", 3)
    record, caught_up = peer.events()
    assert (record.data["from_seq"], seqs(record.data)) == (2, [3])
    assert caught_up.positions == {"orders": 3}


def test_a_first_read_that_filters_everything_still_says_caught_up(world: World) -> None:
    world.append("orders", 1, node="me")
    peer = world.watch("orders", options=Options(nodes=frozenset({"me"})))
    assert [(e.event, e.data) for e in peer.events()[1:]] == [
        ("caught-up", {"topic": "orders", "head_seq": 1})
    ]


def test_a_stream_at_the_head_of_a_quiet_topic_says_caught_up_once(world: World) -> None:
    world.append("orders", 1)
    session = world.session({"orders": Start(tail=True)})
    peer = world.open(session)
    assert peer.names() == ["retry", "caught-up"]
    world.put("orders", cap_records=5)  # a change that brings no record
    world.settle()
    assert peer.events() == []


def test_what_is_lost_before_the_first_read_is_too_old_and_later_has_its_reason(
    world: World,
) -> None:
    world.put("orders", cap_records=2)
    world.append("orders", 1, 2, 3, 4)
    peer = world.watch("orders")
    tombstone, record, caught_up = peer.events()[1:]
    assert tombstone.data == {
        "topic": "orders",
        "reason": "from_seq_too_old",
        "gap_from": 1,
        "gap_to": 2,
        "earliest_seq": 3,
        "head_seq": 4,
    }
    assert tombstone.positions == {"orders": 2}
    assert (record.data["from_seq"], seqs(record.data)) == (0, [3, 4])
    assert caught_up.event == "caught-up"
    world.append("orders", 5, 6, 7, 8)
    tombstone, record, _ = peer.events()
    assert (tombstone.data["reason"], tombstone.data["gap_to"]) == ("cap", 6)
    assert seqs(record.data) == [7, 8]


def test_a_cursor_beyond_the_head_restarts_at_the_earliest(world: World) -> None:
    world.append("orders", 1, 2)
    peer = world.watch("orders", after=50)
    tombstone, record, _ = peer.events()[1:]
    assert (tombstone.data["gap_from"], tombstone.data["gap_to"]) == (1, 2)
    assert tombstone.positions == {"orders": 0}
    assert seqs(record.data) == [1, 2]


# Topics that go and come back


def test_a_dropped_topic_is_told_at_once_and_the_stream_lives_on(world: World) -> None:
    world.put("audit")
    peer = world.watch("orders", "audit")
    peer.events()
    world.drop("orders")
    (deleted,) = peer.events()
    assert deleted.event == "topic-deleted"
    assert deleted.data == {"topic": "orders", "head_seq": 0, "reason": "deleted"}
    assert deleted.positions == {"audit": 0, "orders": 0}
    world.put("orders")
    world.append("orders", 1)
    assert peer.events() == [], "gone for this stream"
    world.append("audit", 1)
    assert peer.names() == ["record", "caught-up"]


def test_without_any_topic_left_the_stream_and_its_session_end(world: World) -> None:
    session = world.session({"orders": Start()})
    peer = world.open(session)
    peer.events()
    world.drop("orders")
    deleted, gone = peer.events()
    assert deleted.event == "topic-deleted"
    assert (gone.data["code"], gone.data["reason"]) == (410, "no_topics")
    assert peer.closed
    assert (world.ended, len(world.delivery.sessions)) == (1, 0)


def test_a_lenient_session_without_topics_ends_as_it_begins(world: World) -> None:
    peer = world.open(world.session({"nope": Start()}, lenient=True))
    _, gone = peer.events()
    assert gone.data["reason"] == "no_topics"
    assert gone.positions == {}
    assert peer.closed


@pytest.mark.parametrize("written", [1, 3, 9])
def test_a_recreated_topic_is_read_from_its_start_however_long_it_is(
    world: World, written: int
) -> None:
    world.append("orders", *range(3))
    peer = world.watch("orders")
    peer.events()
    world.recreate("orders", written)
    tombstone, record, caught_up = peer.events()
    assert (tombstone.data["reason"], tombstone.data["gap_from"]) == ("recreated", 1)
    assert tombstone.data["gap_to"] == written
    assert tombstone.positions == {"orders": 0}, "resuming here must skip nothing"
    assert seqs(record.data) == list(range(1, written + 1))
    assert caught_up.event == "caught-up"
    world.append("orders", "more")
    assert seqs(peer.events()[0].data) == [written + 1]


def test_a_connection_lost_right_after_recreated_resumes_with_the_whole_new_topic(
    world: World,
) -> None:
    world.append("orders", *range(5))
    session = world.session({"orders": Start()})
    peer = world.open(session)
    last_seen = peer.events()[-1].positions
    peer.leave()
    world.recreate("orders", 3)
    peer = world.open(session)
    tombstone = peer.events()[1]
    assert tombstone.data["reason"] == "from_seq_too_old"
    peer.leave()
    session.resume(tombstone.positions)
    assert seqs(world.open(session).events()[1].data) == [1, 2, 3]
    # A client that never saw the tombstone comes with its old, larger id.
    session.resume(last_seen)
    assert [e.event for e in world.open(session).events()] == [
        "retry",
        "tombstone",
        "record",
        "caught-up",
    ]


# Places


def test_a_place_falls_to_what_the_client_says_but_never_rises() -> None:
    place = Place(epoch=1, cursor=10)
    place.lower(7)
    assert place.cursor == 7
    place.lower(50)
    assert place.cursor == 7


def test_a_client_still_in_the_old_instance_is_put_back_there() -> None:
    place = Place(epoch=1, cursor=50)
    place.move(2, 14)
    place.lower(50)
    assert (place.epoch, place.cursor) == (1, 50)
    place.move(2, 14)
    place.lower(60)
    assert (place.epoch, place.cursor) == (2, 14), "it was never sent that"


# Reads under way


def test_a_publish_during_a_read_is_not_missed(world: World) -> None:
    peer = world.watch("orders")
    peer.events()
    world.runner.held = True
    world.append("orders", 1)
    assert peer.events() == []
    world.append("orders", 2)
    world.runner.release()
    world.settle()
    assert [r["$seq"] for e in peer.events() if e.event == "record" for r in e.data["records"]] == [
        1,
        2,
    ]


def test_a_topic_dropped_during_a_read_is_reported_not_delivered(world: World) -> None:
    world.append("orders", 1)
    session = world.session({"orders": Start()})
    world.runner.held = True
    peer = world.open(session)
    world.drop("orders")
    world.runner.release()
    world.settle()
    assert peer.names() == ["retry", "topic-deleted", "error"]


def test_two_streams_of_a_session_split_the_records(world: World) -> None:
    session = world.session({"orders": Start()})
    first, second = world.open(session), world.open(session)
    first.events(), second.events()
    for n in range(4):
        world.append("orders", n)
    delivered = [
        seq
        for peer in (first, second)
        for event in peer.events()
        if event.event == "record"
        for seq in seqs(event.data)
    ]
    assert sorted(delivered) == [1, 2, 3, 4]


# Load


def test_a_withheld_topic_gets_one_notice_and_its_records_once_let_go(world: World) -> None:
    peer = world.watch("orders")
    peer.events()
    world.delivery.changes.withheld = lambda topic: True
    world.append("orders", 1)
    world.append("orders", 2)
    (notice,) = peer.events()
    assert (notice.data["reason"], notice.data["topic"]) == ("pressure", "orders")
    world.delivery.changes.withheld = lambda topic: False
    world.delivery.changes.touch("orders")
    world.settle()
    assert seqs(peer.events()[0].data) == [1, 2]


def test_a_failed_read_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append("orders", 1)
    real = world.engine.read

    def broken(name: str, query: object) -> Op[Page]:
        yield PAUSE
        raise Internal("the disk is gone")

    monkeypatch.setattr(world.engine, "read", broken)
    monkeypatch.setattr(world.engine, "newest", not_at_hand)
    peer: Peer = world.watch("orders")
    assert peer.names() == ["retry"]
    monkeypatch.setattr(world.engine, "read", real)
    world.advance(1000)
    assert peer.names() == ["record", "caught-up"]


def test_what_a_recreated_topic_looks_like_from_its_old_instance_is_for_those_in_it_only(
    world: World,
) -> None:
    session = world.session({"orders": Start()})
    world.drop("orders")
    world.put("orders")
    in_new = world.watch("orders")
    in_new.events()
    world.runner.held = True
    in_old = Peer()
    world.stream(session, in_old)
    world.turn()
    world.append("orders", 1, settle=False)
    world.runner.release()
    world.settle()
    assert in_old.names() == ["retry", "tombstone", "record", "caught-up"]
    assert in_new.names() == ["record", "caught-up"]
