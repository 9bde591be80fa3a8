"""Keys: who gets in, what each may do, and that no secret is ever repeated."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.blackbox.api_client import Api, Refusal, good, plain, refused
from tests.blackbox.conftest import PATIENCE_S, Connect, ServerFactory, ServerProcess, wait_until
from tests.blackbox.event_client import EventStream

SERVER_ENV = {
    "TOPICS_API_KEYS": (
        "boss,  read-1:read , write-1:w,delete-1:DEL,admin-1:Admin,rw-1:rw,both-1:r+d,,"
        "near:rw+d+a:near.|shared:,colon:rw:fleet7:|shared.,nearall::near.,:read,all-x:r+w+d+a"
    ),
}
FORBIDDEN = Refusal(403, "forbidden")
UNAUTHORIZED = Refusal(401, "unauthorized")

KEYS = {
    "boss": "rwda",
    "read-1": "r",
    "write-1": "w",
    "delete-1": "d",
    "admin-1": "a",
    "rw-1": "rw",
    "both-1": "rd",
    "all-x": "rwda",
}
NEEDS = [
    ("PUT", "/v0/topics/t", "a"),
    ("GET", "/v0/topics/t", "r"),
    ("HEAD", "/v0/topics/t", "r"),
    ("GET", "/v0/topics", "r"),
    ("POST", "/v0/topics/t", "w"),
    ("POST", "/v0/topics/t/diff", "r"),
    ("POST", "/v0/topics/t/delete", "d"),
    ("DELETE", "/v0/topics/none", "d"),
    ("PUT", "/v0/routers/r", "a"),
    ("GET", "/v0/routers/r", "r"),
    ("DELETE", "/v0/routers/r", "d"),
    ("GET", "/v0/routers", "r"),
    ("POST", "/v0/watch", "r"),
    ("POST", "/v0/topics/t/claim", "rw"),
    ("POST", "/v0/topics/t/ack", "w"),
    ("POST", "/v0/topics/t/nack", "w"),
    ("POST", "/v0/topics/t/extend", "w"),
    ("GET", "/v0/topics/t/jobs", "r"),
    ("GET", "/v0/topics/t/work", "rw"),
    ("GET", "/v0/metrics", "r"),
    ("GET", "/v0/history", "r"),
    ("GET", "/v0/topics/t/records", "r"),
    ("GET", "/v0/topics/t/audit", "r"),
    ("GET", "/v0/topics/t/cursors", "r"),
    ("GET", "/v0/topics/t/cursors/c", "r"),
    ("PUT", "/v0/topics/t/cursors/c", "r"),
    ("DELETE", "/v0/topics/t/cursors/c", "d"),
    ("POST", "/v0/topics/t/redrive", "wd"),
    ("POST", "/v0/topics/t/holes", "r"),
    ("POST", "/v0/topics/t/plan", "r"),
    ("POST", "/v0/stages/a/1/0/0", "w"),
    ("POST", "/v0/stages/a/1/commit", "w"),
    # What a method that does not exist would have needed is judged before the method itself.
    ("PATCH", "/v0/topics/t", "w"),
    ("GET", "/v0/topics/t/diff", "w"),
    ("PATCH", "/v0/routers/r", "a"),
]


@pytest.fixture(scope="module")
def boss(shared_server: ServerProcess) -> Api:
    client = Api(shared_server, key="boss")
    client.write("t", 1)
    client.write("near.t", 1)
    client.write("far.t", 1)
    client.close()
    return client


# Who gets in


@pytest.mark.parametrize(
    ("header", "is_in"),
    [
        ("Bearer boss", True),
        ("Bearer   boss  ", True),
        ("bearer boss", False),
        ("BEARER boss", False),
        ("Basic boss", False),
        ("boss", False),
        ("Bearer", False),
        ("Bearer ", False),
        ("Bearer bos", False),
        ("Bearer bosss", False),
        ("Bearer Boss", False),
        ("Bearer boss,read-1", False),
        ("Bearerboss", False),
        ("", False),
    ],
)
def test_only_a_known_token_of_the_exact_scheme_gets_in(
    shared_server: ServerProcess, header: str, is_in: bool
) -> None:
    found = plain(shared_server, "GET", "/v0/topics", headers={"authorization": header})
    assert found.status == (200 if is_in else 401)


def test_no_header_gets_nowhere_not_even_to_a_404(shared_server: ServerProcess) -> None:
    for path in ("/v0/topics", "/v0/nothing", "/", "/v0/ws", "/v0/metrics", "/v0/topics/x/y/z"):
        found = plain(shared_server, "GET", path)
        assert (found.status, found.code) == (401, "unauthorized"), path


def test_the_page_of_the_console_needs_no_key(shared_server: ServerProcess) -> None:
    assert plain(shared_server, "GET", "/console/").status == 200
    missing = plain(shared_server, "GET", "/console/app/nothing.js")
    assert (missing.status, missing.code) == (404, "not_found")


@pytest.mark.parametrize("path", ["/v0/topics/%ff", "/%c3", "/v0/watch/%ff?token=boss"])
def test_what_is_wrong_with_a_path_is_told_only_to_who_has_a_key(
    shared_server: ServerProcess, path: str
) -> None:
    without = plain(shared_server, "GET", path)
    assert (without.status, without.code) == (401, "unauthorized")
    known = plain(shared_server, "GET", path, headers={"authorization": "Bearer read-1"})
    assert (known.status, known.code) == (400, "invalid_request")


def test_an_entry_without_a_secret_makes_no_key(shared_server: ServerProcess) -> None:
    for header in ("Bearer ", "Bearer  ", "Bearer :read"):
        found = plain(shared_server, "GET", "/v0/topics", headers={"authorization": header})
        assert found.status == 401


def test_only_empty_secrets_lock_everybody_out(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_API_KEYS": ":read"})
    for headers in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer read"}):
        assert plain(server, "GET", "/v0/topics", headers=headers).status == 401
    assert plain(server, "GET", "/v0/health").status == 200


def test_blank_keys_leave_authentication_off(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory(env={"TOPICS_API_KEYS": " , ,"})
    api = connect(server, key="whatever")
    assert api.write("t", 1)["created"] is True
    assert refused(api.get("/v0/watch/wid_none")) == Refusal(404, "not_found")


# Scopes


@pytest.mark.parametrize(
    ("method", "path", "needed"), NEEDS, ids=[f"{method} {path}" for method, path, _ in NEEDS]
)
def test_every_endpoint_asks_for_its_scopes(
    shared_server: ServerProcess, boss: Api, method: str, path: str, needed: str
) -> None:
    for key, granted in KEYS.items():
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        body = b"nonsense" if method in ("PUT", "POST") else None
        found = plain(shared_server, method, path, headers=headers, body=body)
        assert (found.status == 403) is not (set(needed) <= set(granted)), key
        assert found.status != 401


def test_a_write_that_configures_a_new_topic_needs_admin_too(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    writer, chief = connect(shared_server, key="rw-1"), connect(shared_server, key="all-x")
    body = {"records": [{"data": 1}], "config": {"ttl_ms": 9}}
    denied = refused(writer.post(f"/v0/topics/{topic}", body))
    assert denied == Refusal(403, "forbidden", {"topic": topic})
    empty: dict[str, Any] = {"records": [], "config": {}}
    assert refused(writer.post(f"/v0/topics/{topic}", empty)).status == 403, "before the records"
    assert good(chief.post(f"/v0/topics/{topic}", body))["created"] is True
    assert good(writer.post(f"/v0/topics/{topic}", body))["created"] is False, "ignored by now"
    assert writer.write(f"{topic}.plain", 1)["created"] is True


# Prefixes


@pytest.mark.parametrize(
    ("key", "name", "allowed"),
    [
        ("near", "near.a", True),
        ("near", "near", False),
        ("near", "Near.a", False),
        ("near", "xnear.a", False),
        ("near", "shared:b", True),
        ("near", "far.a", False),
        ("nearall", "near.b", True),
        ("nearall", "far.b", False),
        ("colon", "fleet7:x", True),
        ("colon", "shared.x", True),
        ("colon", "fleet7.x", False),
    ],
)
def test_a_prefix_limits_names_of_the_path(
    shared_server: ServerProcess, connect: Connect, key: str, name: str, allowed: bool
) -> None:
    api = connect(shared_server, key=key)
    answer = api.post(f"/v0/topics/{name}", {"records": [{"data": 1}]})
    if allowed:
        good(answer)
        good(api.post(f"/v0/topics/{name}/diff"))
    else:
        assert refused(answer) == FORBIDDEN
        assert refused(api.post(f"/v0/topics/{name}/diff")) == FORBIDDEN
        assert refused(api.get(f"/v0/topics/{name}")) == FORBIDDEN, "before it is looked up"


def test_a_prefix_is_compared_with_the_decoded_name(shared_server: ServerProcess) -> None:
    key = {"authorization": "Bearer near"}
    assert plain(shared_server, "GET", "/v0/topics/ne%61r%2Enone", headers=key).status == 404
    assert plain(shared_server, "GET", "/v0/topics/n%2565ar.x", headers=key).status == 403


def test_names_in_bodies_are_held_to_the_prefix_and_named(
    shared_server: ServerProcess, connect: Connect, boss: Api
) -> None:
    api = connect(shared_server, key="near")
    far = Refusal(403, "forbidden", {"topic": "far.t"})
    assert refused(api.post("/v0/watch", {"topics": {"near.t": {}, "far.t": {}}})) == far
    assert refused(api.put("/v0/routers/near.r", {"source": "far.t", "dest": "near.x"})) == far
    assert refused(api.put("/v0/routers/near.r", {"source": "near.t", "dest": "far.t"})) == far
    config = {"type": "queue", "dead_letter": "far.t"}
    assert refused(api.put("/v0/topics/near.q", config)) == far
    write = {"records": [{"data": 1}], "config": config}
    assert refused(api.post("/v0/topics/near.q", write)) == far
    api.make("near.made", type="queue")
    good(api.post("/v0/topics/near.made", write))  # nobody looks at the config of this one
    stage = {"records": [{"topic": "near.t", "data": 1}, {"topic": "far.t", "data": 2}]}
    assert refused(api.post("/v0/stages/near.app/1/0/0", stage)) == far
    assert refused(api.get("/v0/topics/near.q")).code == "topic_not_found"


def test_a_router_is_shown_only_to_who_may_see_both_ends(
    shared_server: ServerProcess, connect: Connect, boss: Api
) -> None:
    chief, near = connect(shared_server, key="boss"), connect(shared_server, key="near")
    ends = {"near.in": ("near.a", "near.b"), "near.out": ("near.a", "far.b"), "far.r": ("t", "u")}
    for name, (source, dest) in ends.items():
        good(chief.put(f"/v0/routers/{name}", {"source": source, "dest": dest}))
    assert good(near.get("/v0/routers/near.in"))["dest"] == "near.b"
    for name in ("near.out", "far.r"):
        assert refused(near.get(f"/v0/routers/{name}")).status == 403
        assert refused(near.delete(f"/v0/routers/{name}")).status == 403
    listed = [found["router"] for found in good(near.get("/v0/routers"))["routers"]]
    assert listed == ["near.in"]


def test_no_answer_tells_a_limited_key_a_name_outside_its_prefixes(
    shared_server: ServerProcess, connect: Connect
) -> None:
    """Whatever the key asks, only names that it sent itself or may use come back."""
    chief, near = connect(shared_server, key="boss"), connect(shared_server, key="near")
    hidden = "hidden."
    chief.write(f"{hidden}t", 1)
    good(chief.put(f"/v0/topics/{hidden}t/cursors/{hidden}c", {"seq": 1}))
    config = {"type": "queue", "dead_letter": f"{hidden}dead", "max_deliveries": 1}
    good(chief.put("/v0/topics/near.jobs", config))
    routes = {
        "near.x": ("near.one", "near.two"),
        "near.y": ("near.two", f"{hidden}mid"),
        f"{hidden}z": (f"{hidden}mid", "near.three"),
    }
    for name, (source, dest) in routes.items():
        good(chief.put(f"/v0/routers/{name}", {"source": source, "dest": dest}))
    stage = {"records": [{"topic": f"{hidden}t", "data": 1}]}
    good(chief.post("/v0/stages/near.app/1/0/0", stage))

    def told(method: str, path: str, body: object = None, status: int = 200) -> Any:  # noqa: ANN401
        answer = near.call(method, path, body)
        assert answer.status_code == status, answer.text
        assert hidden not in answer.text
        assert hidden not in str(answer.headers)
        return answer.json() if answer.headers["content-type"] == "application/json" else None

    told("GET", "/v0/metrics")
    text = near.get("/v0/metrics").text
    assert 'topics_topic_head_seq{topic="near.jobs"}' in text
    assert 'topics_router_lag_records{router="near.x"}' in text
    assert "near.y" not in text, "it leads to a name the key may not know"
    told("GET", "/v0/topics?page_size=1000")
    told("GET", "/v0/routers?page_size=1000")
    told("GET", "/v0/routers/near.y", status=403)
    told("DELETE", "/v0/routers/near.y", status=403)
    told("POST", "/v0/topics/near.jobs/redrive", {}, status=403)
    told("POST", "/v0/stages/near.app/1/commit", {"parts": [[0, 0]]}, status=403)
    moved = told("PUT", "/v0/routers/near.y", {"source": "near.two", "dest": "near.q"}, status=409)
    assert moved["error"]["detail"] == {
        "router": "near.y",
        "reason": "router_repoint_forbidden",
    }
    back = {"source": "near.three", "dest": "near.one"}
    cycle = told("PUT", "/v0/routers/near.back", back, status=409)["error"]
    assert cycle["code"] == "router_cycle"
    assert cycle["detail"] == {"cycle": ["near.three", "near.one", "near.two", "near.three"]}
    good(chief.post("/v0/stages/near.app/1/commit", {"parts": [[0, 0]]}))
    told("POST", "/v0/stages/near.app/1/commit", {"parts": [[0, 0]]}, status=403)

    assert told("GET", "/v0/topics/near.jobs")["config"]["dead_letter"] is None
    changed = told("PUT", "/v0/topics/near.jobs", {"type": "queue", "max_deliveries": 2})
    assert changed["config"]["dead_letter"] is None
    kept = good(chief.get("/v0/topics/near.jobs"))["config"]
    assert kept["dead_letter"] == f"{hidden}dead", "a key cannot remove what it cannot see"
    assert kept["max_deliveries"] == 2
    told("PUT", "/v0/topics/near.jobs", {"type": "queue", "dead_letter": "near.dead"})
    assert good(chief.get("/v0/topics/near.jobs"))["config"]["dead_letter"] == "near.dead"

    gone = told("DELETE", "/v0/topics/near.two")
    assert gone["routers_removed"] == ["near.x"]
    assert refused(chief.get("/v0/routers/near.y")).code == "router_not_found"


def test_a_receipt_tells_a_limited_key_of_copies_but_not_the_names_of_their_topics(
    shared_server: ServerProcess, connect: Connect
) -> None:
    chief, near = connect(shared_server, key="boss"), connect(shared_server, key="near")
    good(chief.put("/v0/routers/near.leak", {"source": "near.old", "dest": "unseen.copy"}))
    path = "/v0/topics/near.old/erase"
    assert chief.post(path, {"before_seq": 1}).status_code == 202
    wait_until(lambda: good(near.get(path))["erasures"][0]["state"] == "done", shared_server)
    told = near.get(path)
    (erasure,) = good(told)["erasures"]
    assert erasure["receipt"]["unreached"][0] == "a topic that this key may not use"
    assert "unseen." not in told.text
    assert "unseen.copy" in chief.get(path).text


def test_lists_are_filtered_not_refused(
    shared_server: ServerProcess, connect: Connect, boss: Api
) -> None:
    near = connect(shared_server, key="near")
    first = good(near.get("/v0/topics?page_size=1"))
    names = [found["topic"] for found in good(near.get("/v0/topics"))["topics"]]
    assert names
    assert all(name.startswith(("near.", "shared:")) for name in names)
    assert first["topics"][0]["topic"] == names[0]
    assert good(near.get("/v0/topics?prefix=far."))["topics"] == []


# Streams


@pytest.fixture
def session(shared_server: ServerProcess, boss: Api) -> str:
    """A watch made by `read-1`."""
    answer = httpx.post(
        f"{shared_server.url}/v0/watch",
        json={"topics": {"t": {}}},
        headers={"authorization": "Bearer read-1"},
        timeout=PATIENCE_S,
    )
    path: str = answer.json()["stream_url"]
    return path


@pytest.mark.parametrize(
    ("query", "header", "status"),
    [
        ("", "Bearer read-1", 200),
        ("?token=read-1", None, 200),
        ("?token=read%2D1", None, 200),
        ("?token=read-1&token=boss", None, 200),
        ("?token=boss&token=read-1", None, 401),
        ("?token=boss", "Bearer read-1", 200),
        ("?token=read-1", "Bearer boss", 401),
        ("?token=read-1", "Bearer nobody", 401),
        ("", None, 401),
        ("", "Bearer boss", 401),
        ("", "Bearer rw-1", 401),
        ("?token=", None, 401),
    ],
)
def test_a_session_opens_for_its_own_key_only(
    shared_server: ServerProcess, session: str, query: str, header: str | None, status: int
) -> None:
    headers = {} if header is None else {"authorization": header}
    with EventStream(shared_server, session + query, headers) as stream:
        assert stream.status == status


@pytest.mark.parametrize("query", ["", "?token=boss", "?token=wrong"])
def test_an_unknown_session_is_not_found_with_or_without_a_token(
    shared_server: ServerProcess, query: str
) -> None:
    found = plain(shared_server, "GET", f"/v0/watch/wid_AAAAAAAAAAAAAAAAAAAAAA{query}")
    assert (found.status, found.code) == (404, "not_found")


@pytest.mark.parametrize(
    "path", ["/v0/topics?token=boss", "/v0/ws?token=boss", "/v0/metrics?token=boss"]
)
def test_a_token_in_the_query_counts_nowhere_else(shared_server: ServerProcess, path: str) -> None:
    assert plain(shared_server, "GET", path).status == 401


def test_a_session_made_without_keys_opens_with_its_id_alone(
    server_factory: ServerFactory,
) -> None:
    server = server_factory()
    httpx.put(f"{server.url}/v0/topics/t", timeout=PATIENCE_S).raise_for_status()
    made = httpx.post(
        f"{server.url}/v0/watch", json={"topics": {"t": {}}}, timeout=PATIENCE_S
    ).json()
    for headers in ({}, {"authorization": "Bearer anything"}):
        with EventStream(server, made["stream_url"], headers) as stream:
            assert stream.status == 200


# Probes


def test_probes_and_the_description_need_no_key_but_metrics_do(
    shared_server: ServerProcess,
) -> None:
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/openapi.json"):
        assert plain(shared_server, "GET", path).status == 200
    assert plain(shared_server, "GET", "/v0/metrics").status == 401


def test_probes_can_be_made_to_need_a_key(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_API_KEYS": "k:w", "TOPICS_PROBE_AUTH": "true"})
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        assert plain(server, "GET", path).status == 401
        found = plain(server, "GET", path, headers={"authorization": "Bearer k"}).status
        assert found == 200 or ("ready" in path and found == 503), "any key will do"
    assert plain(server, "GET", "/v0/openapi.json").status == 200


# Secrets


def test_no_secret_is_repeated_in_a_log_an_answer_or_a_metric(
    server_factory: ServerFactory,
) -> None:
    secrets = ["s3cret-alpha", "s3cret-beta"]
    server = server_factory(
        env={"TOPICS_API_KEYS": f"{secrets[0]},{secrets[1]}:read"},
        flags=["--access-log", "access.log"],
    )
    answers: list[Any] = []
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        for secret in [*secrets, "s3cret-guess"]:
            headers = {"authorization": f"Bearer {secret}"}
            paths = (
                "/v0/topics",
                f"/v0/topics?token={secret}",
                f"/v0/watch/wid_x?token={secret}",
                "/v0/metrics",
                "/v0/nothing",
            )
            answers += [client.get(path, headers=headers) for path in paths]
            answers.append(client.put("/v0/topics/t", headers=headers, content=b"{"))
            made = client.post("/v0/watch", headers=headers, json={"topics": {}})
            answers.append(made)
    for answer in answers:
        assert "s3cret" not in answer.text
        assert "s3cret" not in json.dumps(dict(answer.headers))
    assert server.stop() == 0
    log = (server.root / "access.log").read_text()
    assert len(log.splitlines()) >= len(answers)
    assert "s3cret" not in log
    assert "s3cret" not in server.stderr
    stored = [path for path in server.data_dir.rglob("*") if path.is_file()]
    assert not any(b"s3cret" in path.read_bytes() for path in stored)


@pytest.mark.parametrize("keys", ["s3cret:everything", "s3cret:+", "a,s3cret:read+x"])
def test_a_malformed_entry_refuses_to_start_without_telling_the_secret(
    server_factory: ServerFactory, keys: str
) -> None:
    server = server_factory(env={"TOPICS_API_KEYS": keys}, start=False)
    server.launch()
    assert server.wait() != 0
    assert "TOPICS_API_KEYS" in server.stderr
    assert "s3cret" not in server.stderr
