"""Routers over HTTP: shapes, refusals in their order, and copies that are there when asked for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.blackbox.api_client import Api, Refusal, datas, good, refused
from tests.blackbox.conftest import Connect, ServerFactory


@pytest.fixture
def route(api: Api, topic: str) -> dict[str, Any]:
    """A router `<topic>->x` between two topics of its own."""
    body = {"source": f"{topic}.a", "dest": f"{topic}.b"}
    made = good(api.put(f"/v0/routers/{topic}->x", body))
    assert made["created"] is True
    return made


def test_a_router_is_echoed_in_its_canonical_form(api: Api, topic: str) -> None:
    body = {
        "source": f"{topic}.a",
        "dest": f"{topic}.b",
        "filter": "eu:*",
        "preserve_tag": False,
        "guarantee": "exactly_once",
    }
    answer = api.put(f"/v0/routers/{topic}", body)
    assert answer.status_code == 201
    made = good(answer)
    del made["performance"]
    assert list(made.items()) == [
        ("router", topic),
        ("created", True),
        ("source", f"{topic}.a"),
        ("dest", f"{topic}.b"),
        ("preserve_node", True),
        ("preserve_tag", False),
        ("filter", ["tag", "Glob", "eu:*"]),
        ("allow_cycle", False),
        ("guarantee", "exactly_once"),
    ]
    again = api.put(f"/v0/routers/{topic}", {"source": f"{topic}.a", "dest": f"{topic}.b"})
    assert again.status_code == 200
    assert (again.json()["created"], again.json()["filter"]) == (False, None)


def test_copies_are_there_for_whoever_asks(api: Api, route: dict[str, Any]) -> None:
    api.write(route["source"], 1, 2, 3)
    assert api.state(route["dest"])["count"] == 3
    api.write(route["source"], 4)
    assert datas(api.diff(route["dest"])) == [1, 2, 3, 4]
    api.write(route["source"], 5)
    found = good(api.get(f"/v0/routers/{route['router']}"))
    assert found["forwarded_total"] == 5
    assert "created" not in found


def test_a_queue_that_is_fed_can_be_claimed_from_at_once(api: Api, topic: str) -> None:
    api.make(f"{topic}.b", type="queue")
    good(api.put(f"/v0/routers/{topic}", {"source": f"{topic}.a", "dest": f"{topic}.b"}))
    api.write(f"{topic}.a", "job")
    claimed = good(api.post(f"/v0/topics/{topic}.b/claim", {"node": "w"}))
    assert [job["data"] for job in claimed["claimed"]] == ["job"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((".bad", "a", "a"), (400, "invalid_request")),
        (("new", "a", "a"), (400, "invalid_request")),
        (("new", "_bad", "b"), (400, "invalid_request")),
        (("new", "c", "b"), (409, "topic_exists_incompatible")),
        (("x", "a", "c"), (409, "topic_exists_incompatible")),
        (("new", "b", "a"), (409, "router_cycle")),
    ],
)
def test_a_refused_router_leaves_nothing_behind(
    api: Api, route: dict[str, Any], asked: tuple[str, str, str], expected: tuple[int, str]
) -> None:
    name, source, dest = asked
    prefix = route["source"].removesuffix(".a")
    full = {"a": f"{prefix}.a", "b": f"{prefix}.b", "c": f"{prefix}.c"}
    router = f"{prefix}->x" if name == "x" else name
    body = {"source": full.get(source, source), "dest": full.get(dest, dest)}
    found = refused(api.put(f"/v0/routers/{router}", body))
    assert (found.status, found.code) == expected
    details = {
        "b<c": {"topic": full["b"], "reason": "router_dest_fan_in"},
        "c<a": {
            "router": f"{prefix}->x",
            "reason": "router_repoint_forbidden",
            "existing_source": full["a"],
            "existing_dest": full["b"],
        },
        "a<b": {"cycle": [full["b"], full["a"], full["b"]]},
    }
    if found.status == 409:
        assert found.detail == details[f"{dest}<{source}"]
    listed = good(api.get(f"/v0/topics?prefix={prefix}."))["topics"]
    assert [shown["topic"] for shown in listed] == [full["a"], full["b"]]


def test_a_router_that_must_not_make_its_destination_needs_one(api: Api, topic: str) -> None:
    body = {"source": f"{topic}.a", "dest": f"{topic}.b", "create_dest": False}
    assert refused(api.put(f"/v0/routers/{topic}", body)) == Refusal(
        404, "topic_not_found", {"topic": f"{topic}.b"}
    )
    assert refused(api.get(f"/v0/topics/{topic}.a")).status == 404


@pytest.mark.parametrize(
    "body",
    [
        {"source": "a"},
        {"source": "a", "dest": 1},
        {"source": "a", "dest": "b", "guarantee": "maybe"},
        {"source": "a", "dest": "b", "filter": ["tag", "Glob", "x"]},
        {"source": "a", "dest": "b", "filter": ["node", "Eq", "x"]},
    ],
)
def test_a_body_that_makes_no_sense_is_refused(api: Api, topic: str, body: dict[str, Any]) -> None:
    assert refused(api.put(f"/v0/routers/{topic}", body)).code == "invalid_request"


def test_routers_are_listed_looked_at_and_dropped(api: Api, route: dict[str, Any]) -> None:
    name = route["router"]
    listed = good(api.get(f"/v0/routers?source={route['source']}"))["routers"]
    assert listed == [
        {
            "router": name,
            "source": route["source"],
            "dest": route["dest"],
            "guarantee": "at_least_once",
            "forwarded_total": 0,
        }
    ]
    assert good(api.get(f"/v0/routers?dest={route['source']}"))["routers"] == []
    for deleted in (True, False):
        assert good(api.delete(f"/v0/routers/{name}"))["deleted"] is deleted
    assert refused(api.get(f"/v0/routers/{name}")) == Refusal(
        404, "router_not_found", {"router": name}
    )


def test_the_caps_of_routers_and_topics_are_judged_before_anything_is_made(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory(env={"TOPICS_MAX_ROUTERS": "1", "TOPICS_MAX_TOPICS": "3"})
    api = connect(server)
    api.make("one")
    api.make("two")
    found = refused(api.put("/v0/routers/r", {"source": "x", "dest": "y"}))
    assert (found.status, found.detail) == (
        429,
        {"limit": "max_topics", "max": 3, "retry_after_ms": 1000},
    )
    good(api.put("/v0/routers/r", {"source": "one", "dest": "two"}))
    found = refused(api.put("/v0/routers/s", {"source": "two", "dest": "one"}))
    assert (found.status, (found.detail or {})["limit"]) == (429, "max_routers")
    assert len(good(api.get("/v0/topics"))["topics"]) == 2


def test_names_in_a_router_must_be_allowed_to_the_key(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory(env={"TOPICS_API_KEYS": "all,few::mine."})
    everyone, few = connect(server, key="all"), connect(server, key="few")
    body = {"source": "mine.a", "dest": "other"}
    assert refused(few.put("/v0/routers/mine.r", body)) == Refusal(
        403, "forbidden", {"topic": "other"}
    )
    good(everyone.put("/v0/routers/mine.r", body))
    for method in ("GET", "DELETE"):
        assert refused(few.call(method, "/v0/routers/mine.r")).status == 403
    assert good(few.get("/v0/routers"))["routers"] == []


def test_the_list_tells_the_lag_only_when_asked(
    api: Api, topic: str, route: dict[str, Any]
) -> None:
    (plain,) = good(api.get(f"/v0/routers?prefix={topic}"))["routers"]
    (told,) = good(api.get(f"/v0/routers?prefix={topic}&details=true"))["routers"]
    assert "lag" not in plain
    assert told == {**plain, "lag": 0}
