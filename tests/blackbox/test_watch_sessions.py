"""Creating a watch and opening its stream: what is checked, in which order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.blackbox.conftest import PATIENCE_S, ServerFactory, ServerProcess
from tests.blackbox.event_client import (
    EventStream,
    gauge,
    put,
    wait_until_gauge,
    watch,
    write,
)

KEYS = "reader:read,other:read,near:rw:near.,writer:write"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that do not mind each other."""
    root: Path = tmp_path_factory.mktemp("watch")
    server = ServerProcess(root, {"TOPICS_TEST_MIN_HEARTBEAT_MS": "20"}, ())
    yield server.start()
    server.end()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The same with keys."""
    root: Path = tmp_path_factory.mktemp("keyed")
    server = ServerProcess(root, {"TOPICS_API_KEYS": f"boss,{KEYS}"}, ())
    yield server.start()
    server.end()


def post(server: ServerProcess, body: object, key: str = "", query: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.post(
        f"{server.url}/v0/watch{query}", json=body, headers=headers, timeout=PATIENCE_S
    )


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


# POST


def test_a_session_tells_its_id_its_address_and_where_it_begins(shared: ServerProcess) -> None:
    write(shared, "made", 1, 2, 3)
    put(shared, "made-too")
    made = watch(shared, topics_map={"made": {"tail": True}, "made-too": {"from_seq": 7}})
    assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", made["wid"])
    assert made["stream_url"] == f"/v0/watch/{made['wid']}"
    assert made["session_ttl_ms"] == 300_000
    assert made["topics"] == {
        "made": {"from_seq": 3, "head_seq": 3, "earliest_seq": 1},
        "made-too": {"from_seq": 7, "head_seq": 0, "earliest_seq": 1},
    }
    assert made["performance"]["server_total_ms"] >= 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (400, "invalid_request")),
        ({"topics": []}, (400, "invalid_request")),
        ({"topics": {}}, (400, "invalid_request")),
        ({"topics": {"a": {"from_seq": -1}}}, (400, "invalid_request")),
        ({"topics": {"a": {}}, "consistency": "weak"}, (400, "invalid_request")),
        ({"topics": {f"t{n}": {} for n in range(257)}}, (400, "invalid_request")),
        ({"topics": {"absent": {}}}, (404, "topic_not_found")),
    ],
)
def test_a_bad_watch_is_refused(
    shared: ServerProcess, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert code(post(shared, body)) == expected


def test_a_lenient_watch_leaves_unknown_topics_out(shared: ServerProcess) -> None:
    put(shared, "known")
    body: dict[str, Any] = {"topics": {"known": {}, "unknown": {}}}
    assert list(post(shared, body, query="?lenient=true").json()["topics"]) == ["known"]
    nothing = post(shared, {"topics": {"unknown": {}}}, query="?lenient=1").json()
    assert nothing["topics"] == {}
    with EventStream(shared, nothing["stream_url"]) as stream:
        _, gone = stream.rest()
    assert (gone.data["code"], gone.data["reason"]) == (410, "no_topics")
    again = httpx.get(shared.url + nothing["stream_url"], timeout=PATIENCE_S)
    assert code(again) == (404, "not_found"), "the session is gone with it"


def test_one_topic_outside_the_prefix_refuses_the_watch_before_it_is_looked_up(
    keyed: ServerProcess,
) -> None:
    answer = post(keyed, {"topics": {"near.absent": {}, "far": {}}}, "near")
    assert code(answer) == (403, "forbidden")
    assert answer.json()["error"]["detail"] == {"topic": "far"}
    assert code(post(keyed, {"topics": {"near.absent": {}}}, "near")) == (404, "topic_not_found")
    assert code(post(keyed, {"topics": {"x": {}}}, "writer")) == (403, "forbidden")


def test_the_number_of_sessions_is_capped(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_MAX_WATCH_SESSIONS": "2"})
    put(server, "t")
    first = watch(server, "t")
    watch(server, "t")
    refused = post(server, {"topics": {"t": {}}})
    assert code(refused) == (429, "throttled")
    assert refused.json()["error"]["detail"]["limit"] == "max_watch_sessions"
    assert refused.headers["retry-after"] == "1"
    assert gauge(server, "watch_sessions") == 2
    with EventStream(server, first["stream_url"]) as stream:
        stream.until("caught-up")
        httpx.delete(f"{server.url}/v0/topics/t", timeout=PATIENCE_S)
        stream.rest()
    assert gauge(server, "watch_sessions") == 1, "a session without topics is dropped"


# GET


def test_a_stream_has_the_headers_of_one_and_begins_with_retry(shared: ServerProcess) -> None:
    put(shared, "headers")
    with EventStream(shared, watch(shared, "headers")["stream_url"]) as stream:
        assert stream.status == 200
        assert stream.response.getheader("content-type") == "text/event-stream"
        assert stream.response.getheader("cache-control") == "no-store"
        assert stream.response.getheader("x-accel-buffering") == "no"
        assert stream.response.getheader("content-encoding") is None
        assert stream.next().raw == "retry: 2000\n"
        assert stream.next().event == "caught-up"


def test_an_unacceptable_type_is_refused_before_the_session_is_looked_up(
    shared: ServerProcess,
) -> None:
    for accept, status in [
        ("application/json", 406),
        ("TEXT/EVENT-STREAM", 406),
        ("text/event-stream", 404),
        ("text/html, */*;q=0.1", 404),
        ("", 404),
    ]:
        answer = httpx.get(
            f"{shared.url}/v0/watch/wid_nope", headers={"Accept": accept}, timeout=PATIENCE_S
        )
        assert answer.status_code == status, accept


def test_a_session_opens_only_for_the_key_that_made_it(keyed: ServerProcess) -> None:
    boss = {"Authorization": "Bearer boss"}
    httpx.put(
        f"{keyed.url}/v0/topics/mine", json={}, headers=boss, timeout=PATIENCE_S
    ).raise_for_status()
    path = post(keyed, {"topics": {"mine": {}}}, "reader").json()["stream_url"]
    for query, headers in [
        ("", {}),
        ("?token=other", {}),
        ("?token=wrong", {}),
        ("?token=reader", {"Authorization": "Bearer other"}),
        ("?token=wrong&token=reader", {}),
        ("", boss),
    ]:
        answer = httpx.get(keyed.url + path + query, headers=headers, timeout=PATIENCE_S)
        assert code(answer) == (401, "unauthorized"), (query, headers)
    for query, headers in [
        ("?token=reader", {}),
        ("?token=reader&token=other", {}),
        ("?token=other", {"Authorization": "Bearer reader"}),
    ]:
        with EventStream(keyed, path + query, headers) as stream:
            assert stream.status == 200, (query, headers)
    for query in ("", "?token=reader", "?token=wrong"):
        answer = httpx.get(f"{keyed.url}/v0/watch/wid_unknown{query}", timeout=PATIENCE_S)
        assert code(answer) == (404, "not_found"), query
    assert code(httpx.get(f"{keyed.url}/v0/topics?token=boss", timeout=PATIENCE_S)) == (
        401,
        "unauthorized",
    )


def test_connections_are_capped_and_slots_come_back(server_factory: ServerFactory) -> None:
    server = server_factory(
        env={
            "TOPICS_API_KEYS": "boss,second",
            "TOPICS_MAX_SSE_CONNECTIONS": "3",
            "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY": "2",
            "TOPICS_MAX_INFLIGHT_PER_KEY": "1",
        }
    )
    boss, second = ({"Authorization": f"Bearer {key}"} for key in ("boss", "second"))
    httpx.put(
        f"{server.url}/v0/topics/t", json={}, headers=boss, timeout=PATIENCE_S
    ).raise_for_status()
    mine = post(server, {"topics": {"t": {}}}, "boss").json()["stream_url"]
    hers = post(server, {"topics": {"t": {}}}, "second").json()["stream_url"]

    def limit_of(path: str, headers: dict[str, str]) -> str:
        answer = httpx.get(server.url + path, headers=headers, timeout=PATIENCE_S)
        assert answer.status_code == 429
        limit: str = answer.json()["error"]["detail"]["limit"]
        return limit

    streams = [EventStream(server, mine, boss) for _ in range(2)]
    assert [stream.status for stream in streams] == [200, 200]
    assert limit_of(mine, boss) == "max_sse_connections_per_key"
    streams.append(EventStream(server, hers, second))
    assert limit_of(hers, second) == "max_sse_connections"
    for stream in streams:
        stream.close()
    wait_until_gauge(server, "sse_connections", 0, key="boss")
    with EventStream(server, mine, boss) as stream:
        assert stream.status == 200


def test_every_gauge_is_back_when_all_clients_have_left(shared: ServerProcess) -> None:
    put(shared, "gauges")
    wait_until_gauge(shared, "sse_connections", 0)
    streams = [EventStream(shared, watch(shared, "gauges")["stream_url"]) for _ in range(5)]
    for stream in streams:
        stream.next()
    assert gauge(shared, "sse_connections") == 5
    for stream in streams:
        stream.close()
    wait_until_gauge(shared, "sse_connections", 0)


def test_head_behaves_like_get_without_a_stream(shared: ServerProcess) -> None:
    put(shared, "head")
    path = watch(shared, "head")["stream_url"]
    answer = httpx.head(shared.url + path, timeout=PATIENCE_S)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    wait_until_gauge(shared, "sse_connections", 0)
