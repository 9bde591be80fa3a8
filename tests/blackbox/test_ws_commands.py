"""WebSocket commands and messages over a real connection."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.blackbox.conftest import ServerFactory, ServerProcess
from tests.blackbox.event_client import gauge, put, wait_until_gauge, write
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 90.0
KEYS = "boss,reader:read,writer:rw,near:rw:near."


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that do not mind each other."""
    root: Path = tmp_path_factory.mktemp("ws")
    server = ServerProcess(root, {}, ())
    yield server.start()
    server.end()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The same with keys."""
    root: Path = tmp_path_factory.mktemp("ws-keyed")
    server = ServerProcess(root, {"TOPICS_API_KEYS": KEYS}, ())
    yield server.start()
    server.end()


class Client:
    """A socket that speaks JSON."""

    socket: ClientConnection

    def __init__(self, server: ServerProcess, key: str = "", query: str = "") -> None:
        self._url = f"ws://{server.address}/v0/ws{query}"
        self._headers = {"Authorization": f"Bearer {key}"} if key else None
        self._open = ExitStack()

    def __enter__(self) -> Client:
        self.socket = self._open.enter_context(
            connect(
                self._url,
                additional_headers=self._headers,
                compression=None,
                max_size=None,
                open_timeout=PATIENCE_S,
                close_timeout=1,
                proxy=None,
            )
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def send(self, **command: object) -> None:
        self.socket.send(json.dumps(command))

    def next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(PATIENCE_S))
        return message

    def ask(self, **command: object) -> dict[str, Any]:
        """Send a command and read one message."""
        self.send(**command)
        return self.next()

    def until(self, op: str) -> list[dict[str, Any]]:
        messages = [self.next()]
        while messages[-1]["op"] != op:
            messages.append(self.next())
        return messages


@pytest.fixture
def client(shared: ServerProcess) -> Iterator[Client]:
    with Client(shared) as made:
        yield made


# Connecting


def test_a_request_without_upgrade_is_refused(shared: ServerProcess) -> None:
    answer = httpx.get(f"{shared.url}/v0/ws", timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


def test_a_socket_needs_a_key_in_its_header(keyed: ServerProcess) -> None:
    for key, query in [("", ""), ("", "?token=boss"), ("no", "")]:
        with pytest.raises(InvalidStatus) as refused, Client(keyed, key, query):
            pass
        assert refused.value.response.status_code == 401


def test_sockets_count_as_stream_connections(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_MAX_SSE_CONNECTIONS": "1"})
    with Client(server) as only:
        assert only.ask(op="ping") == {"op": "pong", "request_id": None}
        assert gauge(server, "sse_connections") == 1
        with pytest.raises(InvalidStatus) as refused, Client(server):
            pass
        assert refused.value.response.status_code == 429
    wait_until_gauge(server, "sse_connections", 0)
    with Client(server):
        pass


# Commands


def test_a_request_id_comes_back_as_it_was_spelled(client: Client) -> None:
    for sent in ('{"a":[1.0,1e2]}', '"x"', "17", "null"):
        client.socket.send(f'{{"op":"ping","request_id":{sent}}}')
        assert client.socket.recv(PATIENCE_S) == f'{{"op":"pong","request_id":{sent}}}'


def test_a_publish_is_acked_like_a_write(client: Client) -> None:
    ack = client.ask(op="publish", topic="ws.pub", records=[{"data": 1}, {"data": 2}], request_id=7)
    performance = ack.pop("performance")
    assert ack == {
        "op": "ack",
        "request_id": 7,
        "topic": "ws.pub",
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    assert {"server_total_ms", "wal_append_ms", "fsync_ms"} <= set(performance)
    quiet = client.ask(op="publish", topic="ws.pub", records=[{"data": 3}], return_seqs=False)
    assert quiet["seqs"] is None


def test_a_publish_with_a_known_key_is_not_appended_again(client: Client) -> None:
    command = {
        "op": "publish",
        "topic": "ws.once",
        "records": [{"data": 1}],
        "idempotency_key": "k",
    }
    assert client.ask(**command)["deduped"] is False
    again = client.ask(**command)
    assert (again["deduped"], again["seqs"]) == (True, [1])


def test_commands_sent_at_once_are_answered_in_order(client: Client) -> None:
    for n in range(50):
        client.send(op="publish", topic="ws.order", records=[{"data": n}], request_id=n)
        client.send(op="ping", request_id=f"p{n}")
    answers = [client.next() for _ in range(100)]
    assert [a["request_id"] for a in answers] == [key for n in range(50) for key in (n, f"p{n}")]
    assert [a["first_seq"] for a in answers[::2]] == list(range(1, 51))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"op":"dance"}',
        '{"op":7}',
        '{"op":"subscribe","limit":"5"}',
        '{"op":"publish","records":[]}',
        '{"op":"ping"} x',
    ],
)
def test_what_is_no_command_is_invalid_json_without_an_id(client: Client, text: str) -> None:
    client.socket.send(text)
    error = client.next()
    assert error.pop("message")
    assert error == {"op": "error", "request_id": None, "code": "invalid_json"}
    assert client.ask(op="ping")["op"] == "pong", "the socket stays open"


def test_a_binary_message_is_unsupported(client: Client) -> None:
    client.socket.send(b"\x00")
    error = client.next()
    assert (error["op"], error["code"]) == ("error", "unsupported_message")
    assert "request_id" not in error


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"op": "subscribe"}, "invalid_request"),
        ({"op": "subscribe", "topics": {}}, "invalid_request"),
        ({"op": "unsubscribe"}, "invalid_request"),
        ({"op": "subscribe", "topic": "ws.absent"}, "topic_not_found"),
        ({"op": "publish", "topic": "t", "records": []}, "invalid_request"),
        ({"op": "publish", "topic": ".bad", "records": [{"data": 1}]}, "invalid_request"),
        (
            {"op": "publish", "topic": "ws.absent", "records": [{"data": 1}], "create": False},
            "topic_not_found",
        ),
        (
            {"op": "publish", "topic": "t", "records": [{"data": "x" * 1_048_577}]},
            "record_too_large",
        ),
        ({"op": "publish", "topic": "t", "records": [{"data": 1}] * 10_001}, "batch_too_large"),
    ],
)
def test_a_refused_command_names_its_id_and_its_code(
    client: Client, command: dict[str, Any], code: str
) -> None:
    error = client.ask(**command, request_id="r")
    assert (error["op"], error["request_id"], error["code"]) == ("error", "r", code)
    assert "detail" not in error
    assert client.ask(op="ping")["op"] == "pong"


@pytest.mark.parametrize("size", [1, 2_200_000])
def test_a_misspelt_field_is_refused_with_the_name_that_was_meant(
    client: Client, size: int
) -> None:
    records = [{"data": "x" * 1_000}] * (size // 1_000 or 1)
    error = client.ask(op="publish", topic="ws.typo", records=records, expct_head=0, request_id=7)
    assert (error["op"], error["request_id"], error["code"]) == ("error", 7, "invalid_request")
    assert error["detail"] == {"field": "expct_head", "did_you_mean": "expect_head"}
    assert client.ask(op="subscribe", topic="ws.typo")["code"] == "topic_not_found"


def test_a_head_mismatch_tells_the_head(client: Client) -> None:
    client.ask(op="publish", topic="ws.head", records=[{"data": 1}])
    error = client.ask(op="publish", topic="ws.head", records=[{"data": 1}], expect_head=9)
    assert (error["code"], error["head_seq"]) == ("head_mismatch", 1)


def test_a_config_counts_only_for_a_new_topic_and_a_socket_asks_for_admin_always(
    keyed: ServerProcess,
) -> None:
    body = {"records": [{"data": 1}], "config": {"ttl_ms": 900_000}}

    def over_http(key: str, topic: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(f"http://{keyed.address}/v0/topics/{topic}", json=body, headers=headers)

    def ttl_of(topic: str) -> int:
        headers = {"Authorization": "Bearer boss"}
        state = httpx.get(f"http://{keyed.address}/v0/topics/{topic}", headers=headers).json()
        ttl_ms: int = state["config"]["ttl_ms"]
        return ttl_ms

    with Client(keyed, "writer") as writer, Client(keyed, "boss") as boss:
        plain = {"op": "publish", "topic": "cfg.old", "records": [{"data": 1}]}
        assert writer.ask(**plain)["created"] is True
        for topic in ("cfg.old", "cfg.new"):
            refused = writer.ask(op="publish", topic=topic, **body)
            assert (refused["op"], refused["code"]) == ("error", "forbidden")
        assert over_http("writer", "cfg.old").status_code == 200
        assert over_http("writer", "cfg.new").status_code == 403
        assert boss.ask(op="publish", topic="cfg.old", **body)["created"] is False
        assert ttl_of("cfg.old") == 0, "ignored: the topic was there"
        assert boss.ask(op="publish", topic="cfg.new", **body)["created"] is True
        assert over_http("boss", "cfg.web").status_code == 201
        assert ttl_of("cfg.new") == ttl_of("cfg.web") == 900_000


def test_scopes_and_prefixes_hold_for_every_command(keyed: ServerProcess) -> None:
    with Client(keyed, "reader") as reader:
        assert reader.ask(op="publish", topic="t", records=[{"data": 1}])["code"] == "forbidden"
        assert reader.ask(op="subscribe", topic="t")["code"] == "topic_not_found"
    with Client(keyed, "writer") as writer:
        configured = {"op": "publish", "topic": "t", "records": [{"data": 1}], "config": {}}
        assert writer.ask(**configured)["code"] == "forbidden"
        del configured["config"]
        assert writer.ask(**configured)["op"] == "ack"
    with Client(keyed, "near") as near:
        for command in (
            {"op": "subscribe", "topic": "far"},
            {"op": "subscribe", "topics": {"near.a": {}, "far": {}}},
            {"op": "unsubscribe", "topic": "far"},
            {"op": "publish", "topic": "far", "records": [{"data": 1}]},
        ):
            assert near.ask(**command)["code"] == "forbidden", command
        assert near.ask(op="publish", topic="near.a", records=[{"data": 1}])["op"] == "ack"
    with Client(keyed, "boss") as boss:
        assert boss.ask(op="ping")["op"] == "pong"


# Subscriptions


def test_a_subscription_is_confirmed_before_its_first_record(
    shared: ServerProcess, client: Client
) -> None:
    write(shared, "ws.sub", 1, 2)
    subscribed = client.ask(op="subscribe", topic="ws.sub", from_seq=1, request_id=1)
    assert subscribed == {
        "op": "subscribed",
        "request_id": 1,
        "topics": {"ws.sub": {"from_seq": 1, "head_seq": 2, "earliest_seq": 1}},
    }
    record, caught_up = client.until("caught_up")
    assert (record["from_seq"], record["to_seq"], record["head_seq"]) == (1, 2, 2)
    assert caught_up == {"op": "caught_up", "topic": "ws.sub", "head_seq": 2}
    write(shared, "ws.sub", 3)
    assert client.next()["records"][0]["$seq"] == 3


def test_the_map_wins_over_the_single_topic_and_lenient_leaves_out(
    shared: ServerProcess, client: Client
) -> None:
    write(shared, "ws.map", 1, 2, 3)
    answer = client.ask(
        op="subscribe",
        topic="ws.map",
        from_seq=0,
        topics={"ws.map": {"tail": True}, "ws.nowhere": {}},
        lenient=True,
    )
    assert {name: t["from_seq"] for name, t in answer["topics"].items()} == {"ws.map": 3}
    assert client.next()["op"] == "caught_up"


def test_after_unsubscribing_nothing_follows(shared: ServerProcess, client: Client) -> None:
    put(shared, "ws.off")
    client.ask(op="subscribe", topic="ws.off")
    client.until("caught_up")
    answer = client.ask(op="unsubscribe", topics=["ws.off", "ws.never"], request_id="u")
    assert answer == {"op": "unsubscribed", "request_id": "u", "topics": ["ws.off", "ws.never"]}
    write(shared, "ws.off", 1)
    assert client.ask(op="ping")["op"] == "pong"


def test_a_dropped_topic_is_told(shared: ServerProcess, client: Client) -> None:
    put(shared, "ws.drop")
    client.ask(op="subscribe", topic="ws.drop")
    client.until("caught_up")
    httpx.delete(f"{shared.url}/v0/topics/ws.drop", timeout=PATIENCE_S).raise_for_status()
    assert client.next() == {
        "op": "topic_deleted",
        "topic": "ws.drop",
        "head_seq": 0,
        "reason": "deleted",
    }


def test_a_publisher_hears_its_own_records_unless_it_names_its_node(client: Client) -> None:
    client.ask(op="publish", topic="ws.echo", records=[{"data": 0}])
    client.ask(op="subscribe", topic="ws.echo", tail=True, node="me")
    client.until("caught_up")
    client.send(op="publish", topic="ws.echo", records=[{"data": 1}], node="me")
    assert client.next()["op"] == "ack"
    client.send(op="publish", topic="ws.echo", records=[{"data": 2}])
    seen = client.until("caught_up")
    assert {message["op"] for message in seen} == {"ack", "record", "caught_up"}
    (record,) = (message for message in seen if message["op"] == "record")
    assert [r["data"] for r in record["records"]] == [2]


def test_a_peer_that_does_not_read_holds_back_its_own_commands_and_loses_nothing(
    shared: ServerProcess,
) -> None:
    put(shared, "ws.slow")
    payload = "x" * 400_000
    with Client(shared) as slow:
        slow.ask(op="subscribe", topic="ws.slow")
        slow.until("caught_up")
        for n in range(40):
            write(shared, "ws.slow", [n, payload])
        slow.send(op="ping", request_id="late")
        seen: list[int] = []
        ponged = False
        while len(seen) < 40 or not ponged:
            message = slow.next()
            ponged |= message["op"] == "pong"
            if message["op"] == "record":
                seen += [record["data"][0] for record in message["records"]]
        assert seen == list(range(40))


def test_shutdown_says_goodbye(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, {}, ()).start()
    try:
        with Client(server) as client:
            client.ask(op="ping")
            server.signal(signal.SIGTERM)
            last = client.next()
            assert (last["op"], last["code"]) == ("error", "server_shutting_down")
            assert "request_id" not in last
            with pytest.raises(ConnectionClosed):
                client.next()
        assert server.wait() == 0
    finally:
        server.end()
