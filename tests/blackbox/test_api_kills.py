"""A server that dies and comes back: what was acknowledged is there, watchers go on."""

from __future__ import annotations

import http.client
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest
from tests.blackbox.api_client import Api, datas, eventually, good, plain, refused, seqs
from tests.blackbox.conftest import PATIENCE_S, Connect, ServerFactory, ServerProcess
from tests.blackbox.event_client import EventStream, watch


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_every_acknowledged_record_survives_a_kill_under_load(
    server_factory: ServerFactory, connect: Connect, version: str
) -> None:
    server = server_factory(env={"TOPICS_WAL_SHARDS": "2"})
    setup = connect(server)
    topics = {"safe": "fsync", "plain": "disk"}
    for name, klass in topics.items():
        setup.make(name, durability=klass)
    enough = threading.Event()
    clients = [connect(server, version=version) for _ in range(4)]

    def write(number: int) -> list[tuple[str, int, int]]:
        api, acked = clients[number], []
        for turn in range(10_000):
            name = ("safe", "plain")[turn % 2]
            try:
                ack = api.write(name, [number, turn])
            except (httpx.TransportError, http.client.HTTPException):
                break
            acked.append((name, ack["first_seq"], turn))
            if turn == 40:
                enough.set()
        return acked

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, number) for number in range(4)]
        assert enough.wait(PATIENCE_S)
        server.kill()
        acked = [writer.result() for writer in writers]
    server.start()
    api = connect(server)
    for name in topics:
        found = dict(_all(api, name))
        for number, entries in enumerate(acked):
            for topic, seq, turn in entries:
                if topic == name:
                    assert found[seq] == [number, turn]
    assert sum(map(len, acked)) > 40


def _all(api: Api, topic: str) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    cursor = 0
    while True:
        page = api.diff(topic, from_seq=cursor, limit=1000)
        assert page["tombstone"] is None
        found += zip(seqs(page), datas(page), strict=True)
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return found


def test_a_watcher_resumes_after_a_kill_and_sees_each_record_once(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory()
    seen: list[int] = []
    api = connect(server)
    api.make("t", durability="fsync")
    cursor, written = 0, 0
    for life in range(3):
        if life:
            server.restart()
            api = connect(server)
        made = watch(server, topics_map={"t": {"from_seq": cursor}})
        with EventStream(server, made["stream_url"]) as stream:
            for _ in range(5):
                api.write("t", *range(3))
                written += 3
            while len(seen) < written - (2 if life < 2 else 0):
                event = stream.next()
                if event.event == "record":
                    seen += event.seqs
                    cursor = event.positions["t"]
            if life < 2:
                server.kill()
    assert seen == list(range(1, written + 1))


def test_a_session_ends_with_its_server_and_is_not_found_later(
    server_factory: ServerFactory,
) -> None:
    server = server_factory()
    httpx.put(f"{server.url}/v0/topics/t", timeout=PATIENCE_S).raise_for_status()
    made = watch(server, "t")
    server.restart()
    assert httpx.get(server.url + made["stream_url"], timeout=PATIENCE_S).status_code == 404


def test_topics_configs_and_routers_are_the_same_after_a_kill(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory()
    api = connect(server)
    for klass in ("ephemeral", "memory", "disk", "fsync"):
        api.make(klass, durability=klass, ttl_ms=86_400_000, priority=-5)
        api.write(klass, 1, 2, 3)
    good(api.put("/v0/routers/r", {"source": "disk", "dest": "copy", "filter": "a*"}))
    configs = {name: api.state(name)["config"] for name in ("ephemeral", "memory", "disk")}
    router = good(api.get("/v0/routers/r"))
    server.restart()
    api = connect(server)
    for name, config in configs.items():
        assert api.state(name)["config"] == config
    assert {**good(api.get("/v0/routers/r")), "performance": 0} == {**router, "performance": 0}
    for name in ("memory", "disk", "fsync"):
        assert api.state(name)["count"] == 3
    gone = api.diff("ephemeral")
    assert (gone["records"], gone["tombstone"]["reason"]) == ([], "cap")
    assert api.write("ephemeral", 4)["first_seq"] > 3


def test_while_draining_new_requests_are_told_so_and_running_ones_finish(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory(
        env={"TOPICS_API_KEYS": "boss,busy", "TOPICS_MAX_INFLIGHT_PER_KEY": "2"}
    )
    boss, busy = connect(server, key="boss"), connect(server, key="busy")
    boss.write("t", 1)
    poll_body, write_body = b'{"from_seq":1,"wait_ms":20000}', b'{"records":[{"data":2}]}'
    with (
        closing(_begin(server, "/v0/topics/t/diff", poll_body)) as poll,
        closing(_begin(server, "/v0/topics/t", write_body, upto=9)) as slow,
    ):
        full = eventually(lambda: busy.get("/v0/topics"), lambda found: found.is_error)
        assert refused(full).code == "throttled", "both are in flight now"
        server.signal(signal.SIGTERM)
        answer = poll.getresponse()
        assert answer.status == 200, "a poll is let go with what there is"
        answer.read()
        for path, status in (
            ("/v0/topics", 503),
            ("/v0/ready", 503),
            ("/v0/nothing", 503),
            ("/v0/ws", 503),
            ("/v0/health", 200),
            ("/v0/metrics", 200),
            ("/v0/openapi.json", 200),
        ):
            found = plain(server, "GET", path, headers={"authorization": "Bearer boss"})
            assert found.status == status, path
            if status == 503:
                assert found.code == "shutting_down"
                assert found.headers["retry-after"] == "1"
        assert plain(server, "GET", "/v0/topics").status == 401, "the key comes first"
        slow.send(write_body[9:])
        assert slow.getresponse().status == 200
    assert server.wait() == 0
    server.start()
    assert connect(server, key="boss").state("t")["count"] == 2


def _begin(
    server: ServerProcess, path: str, body: bytes, *, upto: int | None = None
) -> http.client.HTTPConnection:
    """A request on its way, perhaps without the end of its body."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    connection.putrequest("POST", path)
    connection.putheader("authorization", "Bearer busy")
    connection.putheader("content-type", "application/json")
    connection.putheader("content-length", str(len(body)))
    connection.endheaders(body[:upto])
    return connection
