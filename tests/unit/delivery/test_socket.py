"""The outbound side of a WebSocket: four messages at most, nothing dropped."""

from __future__ import annotations

import pytest
from tests.unit.delivery.builders import Client, World

from topics.delivery.pages import Options
from topics.delivery.socket import MAX_MESSAGES
from topics.wire.requests import Start


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)


def test_records_and_caught_up_are_messages_of_their_own(world: World, client: Client) -> None:
    world.append("orders", 1)
    client.subscribe("orders")
    record, caught_up = client.wire.messages()
    assert (record["op"], record["from_seq"], record["to_seq"]) == ("record", 0, 1)
    assert caught_up == {"op": "caught_up", "topic": "orders", "head_seq": 1}


def test_a_tombstone_has_its_real_reason_on_the_first_read_too(
    world: World, client: Client
) -> None:
    world.put("orders", cap_records=1)
    world.append("orders", 1, 2)
    client.subscribe("orders")
    tombstone = client.wire.messages()[0]
    assert (tombstone["op"], tombstone["reason"], tombstone["gap_to"]) == ("tombstone", "cap", 1)


def test_delivery_pauses_when_the_queue_is_full_and_loses_nothing(
    world: World, client: Client
) -> None:
    client.subscribe("orders")
    client.wire.messages()
    client.wire.stalled = True
    for n in range(20):
        world.append("orders", n)
    client.wire.catch_up()
    world.settle()
    messages = client.wire.messages()
    assert {message["op"] for message in messages} == {"record", "caught_up"}
    assert [
        record["$seq"]
        for message in messages
        if message["op"] == "record"
        for record in message["records"]
    ] == list(range(1, 21))
    assert world.delivery.lagged_total == 0
    assert client.balanced


def test_an_answer_under_way_has_its_message_kept_free(world: World, client: Client) -> None:
    client.subscribe("orders")
    client.sink.answer_is_due = True
    client.wire.stalled = True
    for n in range(5):
        world.append("orders", n)
    assert client.wire.queued_messages < MAX_MESSAGES
    client.sink.send(b'{"op":"ack"}')
    assert client.wire.queued_messages <= MAX_MESSAGES


def test_a_dropped_topic_ends_its_subscription_only(world: World, client: Client) -> None:
    world.put("audit")
    client.subscribe("orders")
    client.subscribe("audit")
    client.wire.messages()
    world.drop("orders")
    assert client.wire.messages() == [
        {"op": "topic_deleted", "topic": "orders", "head_seq": 0, "reason": "deleted"}
    ]
    world.append("audit", 1)
    assert client.wire.ops() == ["record", "caught_up"]
    world.drop("audit")
    world.put("audit")
    client.subscribe("audit")
    assert client.wire.ops() == ["topic_deleted", "caught_up"]


def test_the_news_of_a_drop_waits_for_room(world: World, client: Client) -> None:
    client.subscribe("orders")
    client.wire.messages()
    client.wire.stalled = True
    world.append("orders", 1)
    world.drop("orders")
    client.wire.catch_up()
    world.settle()
    assert client.wire.ops() == ["record", "caught_up", "topic_deleted"]


def test_nothing_follows_after_unsubscribing_not_even_a_read_under_way(
    world: World, client: Client
) -> None:
    client.subscribe("orders")
    client.wire.messages()
    world.runner.held = True
    world.append("orders", 1)
    client.feed.unfollow("orders")
    world.runner.release()
    world.settle()
    assert client.wire.messages() == []


def test_subscribing_again_replaces_place_and_options(world: World, client: Client) -> None:
    world.append("orders", 1, 2)
    client.subscribe("orders")
    client.wire.messages()
    client.subscribe("orders", Start(1), Options(limit=1))
    record, caught_up = client.wire.messages()
    assert (record["from_seq"], record["to_seq"]) == (1, 2)
    assert caught_up["op"] == "caught_up"


def test_sockets_at_the_same_place_share_the_very_same_messages(world: World) -> None:
    first, second = Client(world), Client(world)
    for client in (first, second):
        client.subscribe("orders")
    reads = world.delivery.pages.reads
    world.append("orders", 1)
    assert world.delivery.pages.reads == reads + 1
    assert [id(m) for m in first.wire.sent[-2:]] == [id(m) for m in second.wire.sent[-2:]]


def test_a_slow_socket_behind_a_quick_one_queues_four_messages_at_most(
    world: World, client: Client
) -> None:
    slow = Client(world)
    for each in (client, slow):
        each.subscribe("orders")
        each.wire.messages()
    slow.wire.stalled = True
    for n in range(20):
        world.append("orders", n)
        assert slow.wire.queued_messages <= MAX_MESSAGES
    assert client.wire.ops() == ["record", "caught_up"] * 20
    slow.wire.catch_up()
    world.settle()
    assert [
        record["$seq"]
        for message in slow.wire.messages()
        if message["op"] == "record"
        for record in message["records"]
    ] == list(range(1, 21))
