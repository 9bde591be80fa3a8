"""Names and limits: what a request may hold, what is clamped, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.blackbox.api_client import Api, Refusal, burst, good, refused, seqs
from tests.blackbox.conftest import Connect, ServerFactory, ServerProcess
from tests.blackbox.event_client import EventStream, watch

BAD = Refusal(400, "invalid_request")

GOOD_NAMES = ["a", "A", "0", "a.b", "a_b", "a:b", "a-b", "x" * 255, "9.-_:", "Case", "case"]
BAD_NAMES = [".bad", "_x", "-x", ":x", "x" * 256, "a b", "é", "a>b", "a%2Fb", "a@b", "a*"]


# Names


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_good_name_makes_a_topic(api: Api, name: str) -> None:
    api.delete(f"/v0/topics/{name}")
    assert good(api.put(f"/v0/topics/{name}"))["topic"] == name
    assert api.state(name)["topic"] == name


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_where_something_is_made_and_absent_elsewhere(
    api: Api, name: str
) -> None:
    path = f"/v0/topics/{name}"
    assert refused(api.put(path)) == BAD
    assert refused(api.post(path, {"records": [{"data": 1}]})) == BAD
    config = {"records": [{"data": 1}], "create": False}
    assert refused(api.post(path, config)).code in ("topic_not_found", "invalid_request")
    for answer in (
        api.get(path),
        api.post(f"{path}/diff"),
        api.post(f"{path}/delete", {"before_seq": 1}),
        api.get(f"{path}/records"),
        api.get(f"{path}/audit"),
    ):
        assert refused(answer)[:2] == (404, "topic_not_found")
    dropped = good(api.delete(path))
    assert dropped["deleted"] is False
    assert dropped["routers_removed"] == []


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if "%" not in name])
def test_a_bad_name_in_a_router_or_as_dead_letter_is_refused(api: Api, name: str) -> None:
    assert refused(api.put("/v0/routers/r", {"source": name, "dest": "d"})) == BAD
    assert refused(api.put("/v0/routers/r", {"source": "s", "dest": name})) == BAD
    found = refused(api.put("/v0/topics/dl", {"type": "queue", "dead_letter": name}))
    assert found == Refusal(400, "invalid_request", {"dead_letter": name})
    assert refused(api.get("/v0/topics/dl")).code == "topic_not_found"


def test_names_differ_by_case(api: Api) -> None:
    api.delete("/v0/topics/Upper")
    api.write("Upper", 1)
    assert refused(api.get("/v0/topics/upper")).code == "topic_not_found"


# Limits of a write


def record(**more: object) -> dict[str, Any]:
    return {"records": [{"data": 1, **more}]}


def sized_meta(size: int) -> str:
    return "m" * (size - 2)


@pytest.mark.parametrize(
    ("fits", "exceeds", "code"),
    [
        pytest.param(
            {"records": [{"data": 0}] * 10_000},
            {"records": [{"data": 0}] * 10_001},
            "batch_too_large",
            id="records",
        ),
        pytest.param(
            {"records": [{"data": "x" * (1048576 - 2)}]},
            {"records": [{"data": "x" * (1048576 - 1)}]},
            "record_too_large",
            id="record bytes",
        ),
        pytest.param(
            {"records": [{"data": "x" * (1048576 - 2 - 100), "meta": sized_meta(100)}]},
            {"records": [{"data": "x" * (1048576 - 2 - 99), "meta": sized_meta(100)}]},
            "record_too_large",
            id="data and meta",
        ),
        pytest.param(
            record(meta=sized_meta(16384)),
            record(meta=sized_meta(16385)),
            "invalid_request",
            id="meta bytes",
        ),
        pytest.param(
            record(meta={str(n): n for n in range(64)}),
            record(meta={str(n): n for n in range(65)}),
            "invalid_request",
            id="meta members",
        ),
        pytest.param(
            record(meta=list(range(1000))), record(meta="x" * 20_000), "invalid_request", id="list"
        ),
        pytest.param(
            record(tag="é" * 128), record(tag="é" * 128 + "x"), "invalid_request", id="tag"
        ),
        pytest.param(
            record(node="é" * 64), record(node="é" * 64 + "x"), "invalid_request", id="node"
        ),
        pytest.param(
            {**record(), "node": "n" * 128},
            {**record(), "node": "n" * 129},
            "invalid_request",
            id="node of the write",
        ),
        pytest.param(
            {**record(), "idempotency_key": "é" * 128},
            {**record(), "idempotency_key": "é" * 128 + "x"},
            "invalid_request",
            id="key",
        ),
    ],
)
def test_a_write_at_a_limit_is_taken_and_one_beyond_it_refused(
    api: Api, topic: str, fits: dict[str, Any], exceeds: dict[str, Any], code: str
) -> None:
    assert refused(api.post(f"/v0/topics/{topic}", exceeds)) == Refusal(400, code)
    assert refused(api.get(f"/v0/topics/{topic}")).code == "topic_not_found", "nothing was made"
    count = good(api.post(f"/v0/topics/{topic}", fits))["count"]
    assert refused(api.post(f"/v0/topics/{topic}", exceeds)) == Refusal(400, code)
    assert api.state(topic)["head_seq"] == count


def test_an_overlong_key_in_the_header_is_refused_too(api: Api, topic: str) -> None:
    answer = api.call(
        "POST", f"/v0/topics/{topic}", record(), headers={"idempotency-key": "k" * 257}
    )
    assert refused(answer) == BAD


def test_one_bad_record_refuses_the_whole_write(api: Api, topic: str) -> None:
    sent = {"records": [{"data": 1}, {"data": 2, "tag": "t" * 257}, {"data": 3}]}
    assert refused(api.post(f"/v0/topics/{topic}", sent)) == BAD
    api.write(topic, "first")
    assert api.state(topic)["head_seq"] == 1


# Limits of reads


@pytest.mark.parametrize(
    ("limit", "count"),
    [(None, 256), (0, 256), (1, 1), (999, 999), (1000, 1000), (1001, 1000), (4294967295, 1000)],
)
def test_the_limit_of_a_diff_is_clamped(api: Api, limit: int | None, count: int) -> None:
    _fill(api, "many", 1200)
    options = {} if limit is None else {"limit": limit}
    assert len(api.diff("many", **options)["records"]) == count
    query = "" if limit is None else f"?limit={limit}"
    assert len(api.get(f"/v0/topics/many/records{query}").json()["records"]) == count


@pytest.mark.parametrize(
    ("budget", "count"),
    [(None, 10), (0, 10), (1, 1), (99_999, 1), (200_000, 2), (1 << 20, 10), (1 << 62, 83)],
)
def test_the_byte_budget_of_a_diff_is_clamped(api: Api, budget: int | None, count: int) -> None:
    if api.get("/v0/topics/heavy").status_code == 404:
        for _ in range(9):
            api.write("heavy", *["x" * (100_000 - 2)] * 10)
    options = {} if budget is None else {"max_batch_bytes": budget}
    assert len(api.diff("heavy", limit=1000, **options)["records"]) == count


@pytest.mark.parametrize(
    ("limit", "frame"), [({}, 256), ({"limit": 0}, 256), ({"limit": 5000}, 1000), ({"limit": 3}, 3)]
)
def test_the_limit_of_a_watch_is_clamped_per_frame(
    shared_server: ServerProcess, limit: dict[str, int], frame: int, connect: Connect
) -> None:
    api = connect(shared_server)
    _fill(api, "many", 1200)
    made = watch(shared_server, "many", **limit)
    with EventStream(shared_server, made["stream_url"]) as stream:
        assert len(stream.until("record")[-1].seqs) == frame


@pytest.mark.parametrize(
    ("budget", "frame"),
    [({}, 2), ({"max_batch_bytes": 0}, 10), ({"max_batch_bytes": 1}, 1)],
)
def test_the_byte_budget_of_a_watch_is_smaller(
    shared_server: ServerProcess, budget: dict[str, int], frame: int, connect: Connect
) -> None:
    api = connect(shared_server)
    if api.get("/v0/topics/watched").status_code == 404:
        for _ in range(2):
            api.write("watched", *["x" * (100_000 - 2)] * 10)
    made = watch(shared_server, "watched", **budget)
    with EventStream(shared_server, made["stream_url"]) as stream:
        assert len(stream.until("record")[-1].seqs) == frame


def _fill(api: Api, topic: str, count: int) -> None:
    if api.get(f"/v0/topics/{topic}").status_code == 404:
        api.write(topic, *range(count))


@pytest.mark.parametrize(
    ("size", "count"),
    [("", 100), ("0", 1), ("1", 1), ("1000", 110), ("5000", 110), ("x", 100), ("-1", 100)],
)
def test_the_page_size_of_a_list_is_clamped(api: Api, size: str, count: int) -> None:
    if api.get("/v0/topics/page.109").status_code == 404:
        for number in range(110):
            api.make(f"page.{number:03}")
    found = good(api.get(f"/v0/topics?prefix=page.&page_size={size}"))
    assert len(found["topics"]) == count
    assert ("next_cursor" in found) is (count < 110)


def test_a_watch_takes_256_topics(api: Api, topic: str) -> None:
    api.make(topic)
    names: dict[str, object] = {f"w{number}": {} for number in range(256)}
    burst(api.server, "PUT", [f"/v0/topics/{name}" for name in names], {})
    assert len(good(api.post("/v0/watch", {"topics": names}))["topics"]) == 256
    assert refused(api.post("/v0/watch", {"topics": {**names, topic: {}}})) == BAD
    assert refused(api.post("/v0/watch", {"topics": {}})) == BAD


# The same limits, set by variables


SMALL = {
    "TOPICS_MAX_BATCH_RECORDS": "3",
    "TOPICS_MAX_RECORD_BYTES": "100",
    "TOPICS_MAX_META_BYTES": "20",
    "TOPICS_MAX_TAG_BYTES": "5",
    "TOPICS_MAX_NODE_BYTES": "4",
    "TOPICS_MAX_LIMIT": "7",
    "TOPICS_MAX_WATCH_TOPICS": "2",
    "TOPICS_MAX_CLAIM": "6",
}


def test_every_limit_can_be_set(server_factory: ServerFactory, connect: Connect) -> None:
    api = connect(server_factory(env=SMALL))
    for fits, exceeds, code in (
        ({"records": [{"data": 0}] * 3}, {"records": [{"data": 0}] * 4}, "batch_too_large"),
        (
            {"records": [{"data": "x" * 98}]},
            {"records": [{"data": "x" * 99}]},
            "record_too_large",
        ),
        (record(meta="m" * 18), record(meta="m" * 19), "invalid_request"),
        (record(tag="12345"), record(tag="123456"), "invalid_request"),
        (record(node="1234"), record(node="12345"), "invalid_request"),
    ):
        assert refused(api.post("/v0/topics/t", exceeds)) == Refusal(400, code)
        good(api.post("/v0/topics/t", fits))
    for _ in range(3):
        api.write("t", 1, 2, 3)
    for limit, count in (({}, 7), ({"limit": 100}, 7), ({"limit": 2}, 2), ({"limit": 0}, 7)):
        assert len(api.diff("t", **limit)["records"]) == count
    for name in ("u", "v"):
        api.make(name)
    good(api.post("/v0/watch", {"topics": {"t": {}, "u": {}}}))
    assert refused(api.post("/v0/watch", {"topics": {"t": {}, "u": {}, "v": {}}})) == BAD
    api.make("q", type="queue")
    for _ in range(4):
        api.write("q", 1, 2, 3)
    claimed = good(api.post("/v0/topics/q/claim", {"node": "n", "max": 100}))
    assert claimed["count"] == 6
    too_many = api.post("/v0/topics/q/ack", {"node": "n", "seqs": [1] * 7})
    assert refused(too_many) == Refusal(400, "batch_too_large", {"seqs": 7, "max": 6})


def test_a_limit_of_zero_is_the_default_and_beyond_the_bound_is_the_bound(
    server_factory: ServerFactory, connect: Connect
) -> None:
    env = dict.fromkeys(SMALL, "0") | {"TOPICS_MAX_TAG_BYTES": "999999999"}
    server = server_factory(env=env)
    api = connect(server)
    good(api.post("/v0/topics/t", {"records": [{"data": 0, "tag": "t" * 4096}] * 5}))
    assert refused(api.post("/v0/topics/t", record(tag="t" * 4097))) == BAD
    assert "TOPICS_MAX_TAG_BYTES" in server.stderr, "the cut is logged"


def test_limits_judge_new_requests_only(server_factory: ServerFactory, connect: Connect) -> None:
    server = server_factory()
    api = connect(server)
    body = {"records": [{"data": "x" * 500, "tag": "long tag", "meta": "m" * 50, "node": "node5"}]}
    good(api.post("/v0/topics/t", body))
    server.kill()
    server.env.update(SMALL)
    server.start()
    api = connect(server)
    page = api.diff("t", include_tags=True)
    assert seqs(page) == [1]
    assert json.dumps(page["records"][0]["data"]) == json.dumps("x" * 500)
    assert page["records"][0]["$tag"] == "long tag"
