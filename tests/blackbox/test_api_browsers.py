"""What web pages can do: nothing, unless they are the server's own or of a listed origin."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.blackbox.api_client import Api, Refusal, good, plain, refused
from tests.blackbox.conftest import Connect, ServerProcess
from tests.blackbox.event_client import EventStream
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as connect_socket
from websockets.typing import Origin

LISTED = "https://app.example.com"
SERVER_ENV = {"TOPICS_ALLOWED_HOSTS": "topics.internal", "TOPICS_CORS_ORIGINS": LISTED}
FOREIGN_HOST = Refusal(403, "forbidden", {"reason": "foreign_host"})
FOREIGN_ORIGIN = Refusal(403, "forbidden", {"reason": "foreign_origin"})
WRITE = {"records": [{"data": 1}]}

ATTACKS = {
    "a rebound name": ({"host": "evil.com:4000", "origin": "http://evil.com:4000"}, FOREIGN_HOST),
    "a rebound name without origin": ({"host": "evil.com"}, FOREIGN_HOST),
    "another page": ({"origin": "http://evil.com"}, FOREIGN_ORIGIN),
    "a sandboxed page": ({"origin": "null"}, FOREIGN_ORIGIN),
    "another port of this machine": ({"origin": "http://127.0.0.1:1"}, FOREIGN_ORIGIN),
    "an image of another page": ({"sec-fetch-site": "cross-site"}, FOREIGN_ORIGIN),
}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The same with a key."""
    env = {"TOPICS_API_KEYS": "secret", "TOPICS_CORS_ORIGINS": LISTED}
    server = ServerProcess(tmp_path_factory.mktemp("keyed"), env, ())
    yield server.start()
    server.end()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_server_without_keys_does_nothing_for_a_foreign_page(api: Api, attack: str) -> None:
    headers, refusal = ATTACKS[attack]
    api.write("kept", 1)
    before = api.state("kept")["head_seq"]
    calls: list[tuple[str, str, Any]] = [
        ("GET", "/v0/topics", None),
        ("GET", "/v0/topics/kept/records", None),
        ("GET", "/v0/metrics", None),
        ("GET", "/v0/openapi.json", None),
        ("POST", "/v0/topics/kept", WRITE),
        ("POST", "/v0/topics/new", WRITE),
        ("POST", "/v0/topics/kept/delete", {"before_seq": 99}),
        ("DELETE", "/v0/topics/kept", None),
        ("POST", "/v0/watch", {"topics": {"kept": {}}}),
        ("OPTIONS", "/v0/topics/kept", None),
        ("GET", "/no/such/path", None),
    ]
    for method, path, body in calls:
        answer = api.call(method, path, body, headers=headers)
        assert refused(answer) == refusal, (method, path)
        assert "access-control-allow-origin" not in answer.headers
        setting = "TOPICS_ALLOWED_HOSTS" if refusal is FOREIGN_HOST else "TOPICS_CORS_ORIGINS"
        assert setting in answer.json()["error"]["message"]
    assert api.state("kept")["head_seq"] == before
    assert refused(api.get("/v0/topics/new")).code == "topic_not_found"


def test_images_of_a_foreign_page_take_no_jobs(api: Api, topic: str) -> None:
    """Four loads of a work stream used to move every job to the dead letters."""
    api.make(topic, type="queue", max_deliveries=1, dead_letter=f"{topic}.dead")
    api.write(topic, *range(3))
    for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):
        for _ in range(4):
            answer = api.call("GET", f"/v0/topics/{topic}/work?node=n&max=9", headers=headers)
            assert refused(answer) == FOREIGN_ORIGIN
    assert api.state(topic)["queue"] == {"ready": 3, "in_flight": 0, "dead_lettered": 0}


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.com"}, {"host": "evil.com:4000", "origin": "http://evil.com:4000"}],
)
def test_no_socket_opens_for_a_foreign_page(
    shared_server: ServerProcess, headers: dict[str, str]
) -> None:
    sent = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    answer = plain(shared_server, "GET", "/v0/ws", headers={**sent, **headers})
    assert answer.status == 403
    assert json.loads(answer.body)["error"]["detail"]["reason"].startswith("foreign_")


def socket_to(server: ServerProcess, origin: str, **headers: str) -> dict[str, Any]:
    with connect_socket(
        f"ws://{server.address}/v0/ws",
        origin=Origin(origin),
        additional_headers=headers,
        proxy=None,
        compression=None,
    ) as socket:
        socket.send('{"op":"ping"}')
        answer: dict[str, Any] = json.loads(socket.recv(30))
        return answer


def test_a_socket_opens_for_our_own_page_and_a_listed_one(shared_server: ServerProcess) -> None:
    for origin in (shared_server.url, LISTED):
        assert socket_to(shared_server, origin)["op"] == "pong"


@pytest.mark.parametrize("path", ["/v0/health", "/healthz", "/v0/ready", "/readyz"])
def test_probes_answer_everybody(api: Api, path: str) -> None:
    for headers, _ in ATTACKS.values():
        answer = api.call("GET", path, headers=headers)
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "host", ["localhost", "db.localhost:1", "[::1]:4000", "topics.internal:80"]
)
def test_names_nobody_can_borrow_and_listed_ones_are_answered(api: Api, host: str) -> None:
    good(api.call("GET", "/v0/topics", headers={"host": host}))
    own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    good(api.call("GET", "/v0/topics", headers=own))


def test_both_names_of_a_request_are_looked_at(shared_server: ServerProcess) -> None:
    address = "http://evil.com/v0/topics"
    assert plain(shared_server, "GET", address, headers={"host": "localhost"}).status == 403


# Listed origins


def answer_count(answer: httpx.Response, name: str) -> int:
    return len(answer.headers.get_list(name))


def assert_readable(answer: httpx.Response | http.client.HTTPResponse) -> None:
    assert answer.headers["access-control-allow-origin"] == LISTED
    assert "origin" in answer.headers["vary"].lower()
    assert "access-control-allow-credentials" not in answer.headers


def test_a_page_of_a_listed_origin_uses_the_server(api: Api, topic: str) -> None:
    page = {"origin": LISTED, "sec-fetch-site": "cross-site"}
    written = api.call("POST", f"/v0/topics/{topic}", WRITE, headers=page)
    assert_readable(written)
    good(written)
    for _ in range(2):  # the second time the head is known
        read = api.call("GET", f"/v0/topics/{topic}/records", headers=page)
        assert_readable(read)
        exposed = read.headers["access-control-expose-headers"].lower()
        needed = ("etag", "topics-head-seq", "topics-earliest-seq", "retry-after", "x-request-id")
        assert all(name in exposed for name in needed)
        assert answer_count(read, "access-control-allow-origin") == 1
    tagged = {**page, "if-none-match": read.headers["etag"]}
    unchanged = api.call("GET", f"/v0/topics/{topic}/records", headers=tagged)
    assert unchanged.status_code == 304
    assert_readable(unchanged)


def test_a_page_of_a_listed_origin_can_read_refusals(
    api: Api, keyed: ServerProcess, connect: Connect
) -> None:
    page = {"origin": LISTED}
    absent = api.call("GET", "/v0/topics/none", headers=page)
    assert refused(absent).status == 404
    assert_readable(absent)
    wrong = api.call("POST", "/v0/topics/t", b"{", headers=page)
    assert refused(wrong).status == 400
    assert_readable(wrong)
    nobody = connect(keyed, version=api.version).call("GET", "/v0/topics", headers=page)
    assert refused(nobody).status == 401
    assert_readable(nobody)


def test_a_page_of_a_listed_origin_follows_a_stream(shared_server: ServerProcess) -> None:
    write = f"{shared_server.url}/v0/topics/streamed"
    httpx.post(write, json=WRITE, trust_env=False).raise_for_status()
    made = httpx.post(
        f"{shared_server.url}/v0/watch",
        json={"topics": {"streamed": {}}},
        headers={"origin": LISTED},
        trust_env=False,
    )
    assert_readable(made)
    path = made.json()["stream_url"]
    with EventStream(shared_server, path, headers={"origin": LISTED}) as stream:
        assert_readable(stream.response)
        assert stream.until("caught-up")


def preflight(api: Api, path: str, origin: str, method: str = "PUT") -> httpx.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization,content-type,idempotency-key",
    }
    return api.http.request("OPTIONS", path, headers=headers)


def test_a_preflight_of_a_listed_origin_is_answered_without_a_key(
    api: Api, keyed: ServerProcess, connect: Connect
) -> None:
    for client in (api, connect(keyed, version=api.version)):
        for path in ("/v0/topics/t", "/v0/topics/t/diff", "/v0/watch"):
            answer = preflight(client, path, LISTED)
            assert (answer.status_code, answer.content) == (204, b"")
            assert_readable(answer)
            methods = answer.headers["access-control-allow-methods"]
            assert all(name in methods for name in ("GET", "POST", "PUT", "DELETE"))
            allowed = answer.headers["access-control-allow-headers"].lower()
            names = ("authorization", "content-type", "idempotency-key", "if-none-match")
            assert all(name in allowed for name in names)
        assert refused(preflight(client, "/v0/topics/t", "http://evil.com")) == FOREIGN_ORIGIN


def test_options_of_nobody_in_particular_stay_refused(api: Api) -> None:
    assert refused(api.call("OPTIONS", "/v0/topics/t")).status == 405
    assert refused(api.call("OPTIONS", "/v0/topics/t", headers={"origin": LISTED})).status == 405


# With keys


def test_with_keys_any_host_is_answered_but_no_foreign_page(
    keyed: ServerProcess, connect: Connect
) -> None:
    for version in ("HTTP/1.1", "HTTP/2"):
        boss = connect(keyed, version=version, key="secret")
        good(boss.call("GET", "/v0/topics", headers={"host": "anything.example"}))
        good(boss.call("GET", "/v0/topics", headers={"sec-fetch-site": "cross-site"}))
        same = {"host": "a.example", "origin": "https://a.example"}
        good(boss.call("GET", "/v0/topics", headers=same))
        assert_readable(boss.call("GET", "/v0/topics", headers={"origin": LISTED}))
        other = boss.call("GET", "/v0/topics", headers={"origin": "http://evil.com"})
        assert refused(other) == FOREIGN_ORIGIN
    assert socket_to(keyed, LISTED, authorization="Bearer secret")["op"] == "pong"
    with pytest.raises(InvalidStatus):
        socket_to(keyed, "http://evil.com", authorization="Bearer secret")


def test_settings_that_make_no_sense_stop_the_start(
    server_factory: Callable[..., ServerProcess],
) -> None:
    for name, value in (("TOPICS_ALLOWED_HOSTS", "http://a"), ("TOPICS_CORS_ORIGINS", "*")):
        server = server_factory(env={name: value}, start=False)
        server.launch()
        assert server.wait() == 2
        assert name in server.stderr
