"""Watches and sockets from outside: options, losses and order that other files leave open."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.blackbox.api_client import Api, Refusal, good, refused
from tests.blackbox.conftest import PATIENCE_S, Connect, ServerProcess
from tests.blackbox.event_client import Event, EventStream, watch
from websockets.sync.client import connect as ws_connect

SERVER_ENV = {"TOPICS_TEST_MIN_HEARTBEAT_MS": "20"}


def events(server: ServerProcess, made: dict[str, Any], until: str = "caught-up") -> list[Event]:
    with EventStream(server, made["stream_url"]) as stream:
        return stream.until(until)[1:]


# Sessions


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": None},
        {"topics": []},
        {"topics": {}},
        {"topics": {"t": 5}},
        {"topics": {"t": None}},
        {"topics": {"t": {"from_seq": -1}}},
        {"topics": {"t": {"tail": 1}}},
        {"topics": {"t": {}}, "limit": None},
        {"topics": {"t": {}}, "heartbeat_ms": "x"},
        {"topics": {"t": {}}, "consistency": "Strong"},
        {"topics": {"t": {}}, "include_data": 1},
        {"topics": {"t": {}}, "node": 5},
    ],
)
def test_an_ill_formed_watch_is_refused(api: Api, body: dict[str, Any]) -> None:
    api.put("/v0/topics/t")
    assert refused(api.post("/v0/watch", body)) == Refusal(400, "invalid_request")


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0, "max_batch_bytes": 0, "heartbeat_ms": 0},
        {"limit": 4294967295, "max_batch_bytes": 2**64 - 1, "heartbeat_ms": 2**32 - 1},
        {"consistency": "strong", "node": ["a", "b"], "match": "a*"},
        {"consistency": "eventual", "node": None, "match": None},
    ],
)
def test_options_out_of_range_are_clamped(api: Api, options: dict[str, Any]) -> None:
    api.put("/v0/topics/t")
    made = good(api.post("/v0/watch", {"topics": {"t": {}}, **options}))
    assert set(made) == {"wid", "stream_url", "session_ttl_ms", "topics", "performance"}
    assert made["session_ttl_ms"] == 300_000


def test_of_a_repeated_topic_the_last_counts(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    api.write(topic, 1, 2, 3)
    body = f'{{"topics":{{"{topic}":{{"from_seq":0}},"{topic}":{{"from_seq":2}}}}}}'
    made = good(api.post("/v0/watch", body))
    assert made["topics"][topic] == {"from_seq": 2, "head_seq": 3, "earliest_seq": 1}


def test_a_tail_begins_at_the_head(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    api.write(topic, 1, 2, 3)
    made = watch(shared_server, topics_map={topic: {"tail": True}})
    assert made["topics"][topic]["from_seq"] == 3
    assert [event.event for event in events(shared_server, made)] == ["caught-up"]


# Losses


def test_the_first_loss_of_a_stream_is_too_old_and_later_ones_have_their_reason(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    api.make(topic, cap_records=2)
    api.write(topic, *range(5))
    made = watch(shared_server, topic)
    with EventStream(shared_server, made["stream_url"]) as stream:
        _, tombstone, record, caught_up = stream.until("caught-up")
        assert list(tombstone.data) == [
            "topic",
            "reason",
            "gap_from",
            "gap_to",
            "earliest_seq",
            "head_seq",
        ]
        assert tombstone.data["reason"] == "from_seq_too_old"
        assert (tombstone.data["gap_from"], tombstone.data["gap_to"]) == (1, 3)
        assert tombstone.positions == {topic: 3}
        assert (record.seqs, record.positions) == ([4, 5], {topic: 5})
        assert caught_up.data == {"topic": topic, "head_seq": 5}
        api.write(topic, *range(10))
        later = stream.until("caught-up")
        assert [event.event for event in later] == ["tombstone", "record", "caught-up"]
        assert later[0].data["reason"] == "cap"


def test_a_cursor_beyond_the_head_restarts_at_the_earliest(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    api.write(topic, 1, 2)
    made = watch(shared_server, topics_map={topic: {"from_seq": 50}})
    tombstone, record, _ = events(shared_server, made)
    assert tombstone.positions == {topic: 0}, "its id points before the earliest record"
    assert record.seqs == [1, 2]


def test_topics_go_in_name_order_each_to_its_head(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    names = [f"{topic}.{part}" for part in ("b", "a", "c")]
    for name in names:
        api.write(name, 1, 2)
    made = watch(shared_server, *names, limit=1)
    with EventStream(shared_server, made["stream_url"]) as stream:
        seen = [event for _ in names for event in stream.until("caught-up")]
    order = [event.data["topic"] for event in seen if event.event == "record"]
    assert order == [name for name in sorted(names) for _ in range(2)]
    assert list(seen[-1].positions) == sorted(names)


# Sockets


def talk(server: ServerProcess, *commands: dict[str, Any], replies: int) -> list[dict[str, Any]]:
    url = server.url.replace("http", "ws") + "/v0/ws"
    with ws_connect(url, open_timeout=PATIENCE_S) as socket:
        for command in commands:
            socket.send(json.dumps(command))
        return [json.loads(socket.recv(timeout=PATIENCE_S)) for _ in range(replies)]


def test_a_subscription_tells_the_real_reason_of_a_loss(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    api.make(topic, cap_records=2)
    api.write(topic, *range(5))
    told = talk(shared_server, {"op": "subscribe", "topic": topic}, replies=4)
    assert [message["op"] for message in told] == [
        "subscribed",
        "tombstone",
        "record",
        "caught_up",
    ]
    assert told[0]["topics"] == {topic: {"from_seq": 0, "head_seq": 5, "earliest_seq": 4}}
    assert told[0]["request_id"] is None
    assert told[1] == {
        "op": "tombstone",
        "topic": topic,
        "reason": "cap",
        "gap_from": 1,
        "gap_to": 3,
        "earliest_seq": 4,
        "head_seq": 5,
    }
    assert set(told[2]) == {"op", "topic", "from_seq", "to_seq", "head_seq", "records"}
    assert told[3] == {"op": "caught_up", "topic": topic, "head_seq": 5}


def test_options_of_a_subscription_shape_its_records(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    api.append(topic, [{"data": n, "tag": "t", "node": "me", "meta": 1} for n in range(3)])
    command = {"op": "subscribe", "topic": topic, "limit": 2, "include_tags": True}
    hidden = {"include_data": False, "include_meta": False}
    _, first, second, _ = talk(shared_server, {**command, **hidden}, replies=4)
    assert [len(message["records"]) for message in (first, second)] == [2, 1]
    assert set(first["records"][0]) == {"$seq", "$ts", "$node", "$tag"}
    own = talk(shared_server, {**command, "node": ["me"]}, replies=2)
    assert own[1] == {"op": "caught_up", "topic": topic, "head_seq": 3}


def test_a_socket_can_start_by_time_or_at_the_tail(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    api.write(topic, 1, 2)
    tail = talk(shared_server, {"op": "subscribe", "topic": topic, "tail": True}, replies=2)
    assert (tail[0]["topics"][topic]["from_seq"], tail[1]["op"]) == (2, "caught_up")
    early = talk(shared_server, {"op": "subscribe", "topic": topic, "from_ts": 0}, replies=2)
    assert [record["$seq"] for record in early[1]["records"]] == [1, 2]
    both = {"op": "subscribe", "topic": topic, "from_ts": 0, "from_seq": 1}
    assert talk(shared_server, both, replies=1)[0]["op"] == "error"
