"""Caps: what the server refuses to hold more of, also when many ask at once."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from tests.blackbox.api_client import Api, Refusal, eventually, good, refused
from tests.blackbox.conftest import Connect, ServerProcess
from tests.blackbox.event_client import EventStream

SERVER_ENV = {
    "TOPICS_API_KEYS": "boss,second,third",
    "TOPICS_MAX_TOPICS": "12",
    "TOPICS_MAX_ROUTERS": "2",
    "TOPICS_MAX_WATCH_SESSIONS": "3",
    "TOPICS_MAX_SSE_CONNECTIONS": "3",
    "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY": "2",
    "TOPICS_MAX_INFLIGHT_PER_KEY": "8",
    "TOPICS_MAX_TOTAL_BYTES": "1000",
    "TOPICS_MAX_IDEMPOTENCY_KEYS": "2",
    "TOPICS_MAX_BODY_BYTES": str(2 << 20),
    "TOPICS_MAX_REQUEST_BYTES": str(4 << 20),
}


@pytest.fixture
def boss(shared_server: ServerProcess, connect: Connect) -> Api:
    """A client of a server without topics."""
    api = connect(shared_server, key="boss")
    for found in good(api.get("/v0/topics"))["topics"]:
        good(api.delete(f"/v0/topics/{found['topic']}"))
    return api


def throttled(limit: str, maximum: int) -> Refusal:
    detail = {"limit": limit, "max": maximum, "retry_after_ms": 1000}
    return Refusal(429, "throttled", detail)


def test_topics_are_capped_however_they_are_made(boss: Api) -> None:
    for number in range(11):
        boss.make(f"t{number}")
    boss.make("q", type="queue", dead_letter="dead", max_deliveries=1)
    full = throttled("max_topics", 12)
    assert refused(boss.put("/v0/topics/more")) == full
    assert refused(boss.post("/v0/topics/more", {"records": [{"data": 1}]})) == full
    assert refused(boss.put("/v0/routers/r", {"source": "t0", "dest": "more"})) == full
    assert refused(boss.get("/v0/routers/r")).code == "router_not_found"
    assert boss.make("t1", ttl_ms=5)["created"] is False, "an update still works"
    boss.delete("/v0/topics/t1")
    assert boss.make("more")["created"] is True


def test_the_cap_of_topics_holds_when_many_ask_at_once(
    shared_server: ServerProcess, connect: Connect, boss: Api
) -> None:
    clients = [connect(shared_server, key=key) for key in ("boss", "second", "third") * 2]

    def make(number: int) -> int:
        return clients[number % 6].put(f"/v0/topics/c{number}").status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(make, range(30)))
    assert statuses.count(201) == 12
    assert statuses.count(429) == 18


def test_routers_are_capped_before_their_topics_are_made(boss: Api) -> None:
    for number in range(2):
        body = {"source": "s", "dest": f"d{number}"}
        good(boss.put(f"/v0/routers/r{number}", body))
    third = {"source": "new-source", "dest": "new-dest"}
    assert refused(boss.put("/v0/routers/r2", third)) == throttled("max_routers", 2)
    assert refused(boss.get("/v0/topics/new-dest")).code == "topic_not_found"
    again = boss.put("/v0/routers/r0", {"source": "s", "dest": "d0"})
    assert good(again)["created"] is False


def test_bytes_are_capped_over_all_topics_and_freed(boss: Api) -> None:
    boss.write("a", "x" * 498)
    boss.write("b", "x" * 398)
    full = throttled("max_total_bytes", 1000)
    body = {"records": [{"data": "x" * 99}]}
    assert refused(boss.post("/v0/topics/c", body)) == full
    boss.write("a", "x" * 98)
    assert refused(boss.post("/v0/topics/a", {"records": [{"data": 1}]})) == full
    good(boss.post("/v0/topics/a/delete", {"before_seq": 2}))
    boss.write("a", "x" * 498)
    boss.delete("/v0/topics/a")
    boss.make("b", cap_records=1)
    boss.write("b", "x" * 500)
    assert boss.metrics()["bytes_live"] == 502


def test_idempotency_keys_are_remembered_up_to_their_number(boss: Api) -> None:
    for key in ("one", "two", "three"):
        assert boss.write("k", 1, idempotency_key=key)["deduped"] is False
    assert boss.write("k", 1, idempotency_key="three")["deduped"] is True
    assert boss.write("k", 1, idempotency_key="one")["deduped"] is False, "the oldest is forgotten"


def test_streams_of_all_kinds_share_their_caps(
    shared_server: ServerProcess, connect: Connect, boss: Api
) -> None:
    boss.make("t")
    hers = connect(shared_server, key="second")
    keys = {key: {"authorization": f"Bearer {key}"} for key in ("boss", "second", "third")}
    mine = good(boss.post("/v0/watch", {"topics": {"t": {}}}))["stream_url"]
    other = good(hers.post("/v0/watch", {"topics": {"t": {}}}))["stream_url"]
    streams = [EventStream(shared_server, mine, keys["boss"]) for _ in range(2)]
    assert [stream.status for stream in streams] == [200, 200]
    assert refused(boss.get(mine)) == throttled("max_sse_connections_per_key", 2)
    streams.append(EventStream(shared_server, other, keys["second"]))
    assert refused(hers.get(other)) == throttled("max_sse_connections", 3)
    upgrade = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    socket_answer = hers.call("GET", "/v0/ws", headers=upgrade)
    assert refused(socket_answer) == throttled("max_sse_connections", 3)
    for stream in streams:
        stream.close()
    eventually(lambda: boss.metrics()["sse_connections"], lambda found: found == 0)
    with EventStream(shared_server, mine, keys["boss"]) as stream:
        assert stream.status == 200


def test_watch_sessions_are_capped(boss: Api) -> None:
    boss.make("t")
    statuses = [boss.post("/v0/watch", {"topics": {"t": {}}}) for _ in range(4)]
    assert refused(statuses[-1]) == throttled("max_watch_sessions", 3)


def test_requests_in_flight_are_capped_per_key(
    shared_server: ServerProcess, connect: Connect, boss: Api
) -> None:
    """Polls that wait hold their place, whoever leaves gives it back, other keys do not care."""
    boss.make("t")
    body = b'{"wait_ms":30000}'
    request = (
        b"POST /v0/topics/t/diff HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer second\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    hers, third = connect(shared_server, key="second"), connect(shared_server, key="third")
    with ExitStack() as stack:
        address = (shared_server.host, shared_server.port)
        polls = [stack.enter_context(socket.create_connection(address)) for _ in range(8)]
        for poll in polls:
            poll.sendall(request)
        full = eventually(
            lambda: hers.get("/v0/topics"), lambda answer: bool(answer.status_code == 429)
        )
        assert refused(full) == throttled("max_inflight_per_key", 8)
        assert refused(hers.put("/v0/topics/t", b"{")) == throttled("max_inflight_per_key", 8)
        assert third.get("/v0/topics").status_code == 200
        polls.pop().close()
        eventually(lambda: hers.get("/v0/topics").status_code, lambda status: status == 200)
        polls[0].shutdown(socket.SHUT_WR)
        assert polls.pop(0).recv(100).startswith(b"HTTP/1.1 200"), "it may still be listening"
        boss.write("t", 1)
        for poll in polls:
            assert poll.recv(100).startswith(b"HTTP/1.1 200")
    assert hers.get("/v0/topics").status_code == 200


def _announce(method: str, path: str, key: str, length: int) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


def _answer_to(server: ServerProcess, head: bytes) -> bytes:
    """What is said to a request, whether its body comes or not."""
    with socket.create_connection((server.host, server.port), timeout=60) as asked:
        asked.sendall(head)
        return asked.recv(1 << 16)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v0/topics"),
        ("GET", "/v0/health"),
        ("DELETE", "/v0/topics/t"),
        ("PUT", "/v0/topics/t"),
        ("POST", "/v0/topics/t/diff"),
        ("POST", "/v0/topics/t/claim"),
    ],
)
def test_a_call_that_needs_little_refuses_a_long_body_before_it_comes(
    shared_server: ServerProcess, method: str, path: str
) -> None:
    answer = _answer_to(shared_server, _announce(method, path, "boss", (1 << 20) + 1))
    assert answer.startswith(b"HTTP/1.1 413"), answer
    assert b"payload_too_large" in answer


def test_unfinished_bodies_of_one_key_take_its_share_and_others_go_on(
    shared_server: ServerProcess, boss: Api
) -> None:
    before = boss.metrics()["throttled_total"]
    address = (shared_server.host, shared_server.port)
    with socket.create_connection(address) as held:
        held.sendall(_announce("POST", "/v0/topics/t", "second", 2 << 20) + b"x" * (1 << 20))
        other = _announce("POST", "/v0/topics/t", "second", (1 << 20) + 1) + b"x" * ((1 << 20) + 1)
        answer = eventually(lambda: _answer_to(shared_server, other), lambda a: b" 429 " in a[:20])
        assert b'"limit":"max_request_bytes_per_key","max":2097152' in answer
        assert boss.metrics()["throttled_total"] == before + 1
        body = {"records": [{"data": 1}], "padding": "x" * (1 << 20)}
        good(boss.post("/v0/topics/t", body))
    third = _announce("POST", "/v0/topics/t", "second", 2 << 20) + b"x" * (2 << 20)
    answer = eventually(lambda: _answer_to(shared_server, third), lambda a: b" 429 " not in a[:20])
    assert answer.startswith(b"HTTP/1.1 400"), "it was read, and is no JSON"


def test_refusals_for_caps_are_counted(boss: Api) -> None:
    before = boss.metrics()["throttled_total"]
    body: dict[str, Any] = {"records": [{"data": "x" * 2000}]}
    for _ in range(3):
        assert boss.post("/v0/topics/t", body).status_code == 429
    assert boss.metrics()["throttled_total"] == before + 3
