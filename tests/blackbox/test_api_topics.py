"""Topics: configuring, looking at, listing and dropping them."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from tests.blackbox.api_client import Api, Refusal, eventually, good, refused, seqs

DEFAULTS: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120000,
    "dedupe_node": True,
    "lease_ms": 30000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


def cursor_of(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


# Configuration


@pytest.mark.parametrize("name", ["dry_rnu", "dryrun", "dry-run", "Dry_run"])
def test_a_misspelt_dry_run_changes_nothing(api: Api, topic: str, name: str) -> None:
    api.write(topic, 1, 2)
    answer = api.put(f"/v0/topics/{topic}?{name}=true", {"cap_records": 1})
    meant = {"field": name, "did_you_mean": "dry_run"}
    assert refused(answer) == Refusal(400, "invalid_request", meant)
    assert "query parameter" in answer.json()["error"]["message"]
    assert api.state(topic)["count"] == 2


def test_a_misspelt_condition_does_not_drop_a_topic(api: Api, topic: str) -> None:
    api.write(topic, 1)
    meant = {"field": "if_emtpy", "did_you_mean": "if_empty"}
    answer = api.delete(f"/v0/topics/{topic}?if_emtpy=true")
    assert refused(answer) == Refusal(400, "invalid_request", meant)
    assert good(api.get(f"/v0/topics/{topic}?x_touch=1&other=2&limit=5"))["count"] == 1


def test_a_new_topic_has_every_default(api: Api, topic: str) -> None:
    answer = api.put(f"/v0/topics/{topic}", {})
    assert answer.status_code == 201
    body = good(answer)
    assert list(body) == ["topic", "created", "config", "performance"]
    assert (body["topic"], body["created"], body["config"]) == (topic, True, DEFAULTS)
    again = api.put(f"/v0/topics/{topic}", {})
    assert again.status_code == 200
    assert good(again)["created"] is False


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"type": "queue"}, {"type": "queue"}),
        ({"ttl_ms": 5}, {"ttl_ms": 5}),
        ({"cap_records": 2**64 - 1}, {"cap_records": 2**64 - 1}),
        ({"cap_bytes": 7}, {"cap_bytes": 7}),
        ({"discard": "reject"}, {"discard": "reject"}),
        ({"durable": True}, {"durable": True, "durability": "fsync"}),
        ({"durable": False}, {}),
        ({"durability": "fsync"}, {"durable": True, "durability": "fsync"}),
        ({"durability": "memory"}, {"durability": "memory"}),
        ({"durability": "ephemeral"}, {"durability": "ephemeral"}),
        ({"durability": "disk", "durable": True}, {"durability": "disk", "durable": False}),
        ({"durability": None, "durable": True}, {"durable": True, "durability": "fsync"}),
        ({"priority": -2147483648}, {"priority": -2147483648}),
        ({"priority": 5000}, {"priority": 5000}),
        ({"auto_priority": False}, {"auto_priority": False}),
        ({"auto_create": False}, {"auto_create": False}),
        ({"idempotency_window_ms": 0}, {"idempotency_window_ms": 0}),
        ({"dedupe_node": False}, {"dedupe_node": False}),
        ({"lease_ms": 99}, {"lease_ms": 100}),
        ({"lease_ms": 86400001}, {"lease_ms": 86400000}),
        ({"claim_jitter_ms": 5001}, {"claim_jitter_ms": 5000}),
        ({"max_deliveries": 3}, {"max_deliveries": 3}),
        ({"dead_letter": "dead"}, {"dead_letter": "dead"}),
        ({"leases_durable": True}, {"leases_durable": True}),
    ],
)
def test_each_field_is_echoed_resolved_and_in_the_state_too(
    api: Api, topic: str, sent: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert api.make(topic, **sent)["config"] == DEFAULTS | shown
    assert api.state(topic)["config"] == DEFAULTS | shown


def test_a_put_replaces_everything(api: Api, topic: str) -> None:
    api.make(topic, ttl_ms=60_000, cap_records=5, durability="fsync", priority=3)
    assert api.make(topic)["config"] == DEFAULTS


def test_the_type_never_changes(api: Api, topic: str) -> None:
    api.make(topic, type="queue")
    expected = {"topic": topic, "existing_type": "queue", "requested_type": "log"}
    for body in ({}, {"type": "log"}, {"ttl_ms": 5}):
        found = refused(api.put(f"/v0/topics/{topic}", body))
        assert found == Refusal(409, "topic_exists_incompatible", expected)
    assert refused(api.put(f"/v0/topics/{topic}")).status == 409
    assert api.make(topic, type="queue", ttl_ms=7)["config"]["ttl_ms"] == 7


def test_a_queue_is_not_its_own_dead_letter(api: Api, topic: str) -> None:
    own = {"type": "queue", "dead_letter": topic}
    assert refused(api.put(f"/v0/topics/{topic}", own))[:2] == (400, "invalid_request")
    api.make(topic, dead_letter=topic)


def test_a_tighter_cap_and_ttl_take_effect_at_once(api: Api, topic: str) -> None:
    api.write(topic, *range(10))
    api.make(topic, cap_records=4)
    state = api.state(topic)
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (4, 7, 10)
    api.make(topic, cap_bytes=2)
    assert api.state(topic)["earliest_seq"] == 9
    api.make(topic, ttl_ms=1)
    state = eventually(lambda: api.state(topic), lambda found: found["count"] == 0)
    assert (state["count"], state["bytes"], state["earliest_seq"]) == (0, 0, 11)


# State


def test_a_state_has_exactly_these_fields(api: Api, topic: str) -> None:
    api.make(topic)
    state = api.state(topic)
    assert set(state) == {
        "topic",
        "type",
        "head_seq",
        "earliest_seq",
        "next_seq",
        "count",
        "bytes",
        "config",
        "effective_priority",
        "last_write_ts",
        "last_read_ts",
        "epoch",
        "delete_version",
        "performance",
    }
    numbers = [state[name] for name in ("head_seq", "earliest_seq", "next_seq", "count", "bytes")]
    assert numbers == [0, 1, 1, 0, 0]
    assert state["last_write_ts"] is None
    assert abs(state["last_read_ts"] - time.time() * 1000) < 60_000
    assert state["effective_priority"] == 500


def test_a_queue_also_counts_its_jobs(api: Api, topic: str) -> None:
    api.make(topic, type="queue")
    api.write(topic, 1, 2, 3)
    state = api.state(topic)
    assert state["queue"] == {"ready": 3, "in_flight": 0, "dead_lettered": 0}
    assert state["type"] == "queue"


def test_an_absent_topic_has_no_state_and_is_not_made(api: Api, topic: str) -> None:
    expected = Refusal(404, "topic_not_found", {"topic": topic})
    for answer in (
        api.get(f"/v0/topics/{topic}"),
        api.post(f"/v0/topics/{topic}/diff", {"wait_ms": 30_000}),
        api.post(f"/v0/topics/{topic}/delete", {"before_seq": 1}),
        api.get(f"/v0/topics/{topic}/records"),
        api.get(f"/v0/topics/{topic}/audit"),
        api.get(f"/v0/topics/{topic}/cursors"),
        api.post(f"/v0/topics/{topic}/holes", {"from_seq": 0, "to_seq": 1}),
        api.post(f"/v0/topics/{topic}", {"records": [{"data": 1}], "create": False}),
        api.post("/v0/watch", {"topics": {topic: {}}}),
    ):
        assert refused(answer) == expected
    assert good(api.get(f"/v0/topics?prefix={topic}"))["topics"] == []


def test_looking_without_touching_leaves_no_trace(api: Api, topic: str) -> None:
    api.make(topic)
    for _ in range(2):
        state = good(api.get(f"/v0/topics/{topic}?touch=false"))
        assert state["last_read_ts"] is None
        assert state["effective_priority"] == 0
    first = good(api.get(f"/v0/topics/{topic}"))["last_read_ts"]
    assert first is not None
    assert good(api.get(f"/v0/topics/{topic}?touch=0"))["last_read_ts"] == first


def test_writes_and_reads_leave_their_times(api: Api, topic: str) -> None:
    api.write(topic, 1)
    untouched = good(api.get(f"/v0/topics/{topic}?touch=false"))
    assert abs(untouched["last_write_ts"] - time.time() * 1000) < 60_000
    assert untouched["last_read_ts"] is None
    api.diff(topic)
    assert good(api.get(f"/v0/topics/{topic}?touch=false"))["last_read_ts"] is not None


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"priority": 5000}, 1000),
        ({"priority": -5000}, -1000),
        ({"priority": 7}, 7),
        ({"priority": 0}, 0),
        ({"auto_priority": False}, 0),
    ],
)
def test_the_effective_priority_is_clamped(
    api: Api, topic: str, config: dict[str, Any], expected: int
) -> None:
    api.make(topic, **config)
    api.diff(topic)
    assert api.state(topic)["effective_priority"] == expected
    (listed,) = good(api.get(f"/v0/topics?prefix={topic}"))["topics"]
    assert listed["effective_priority"] == expected


def test_the_effective_priority_follows_use(api: Api, topic: str) -> None:
    api.make(topic)
    api.diff(topic)
    assert 125 <= api.state(topic)["effective_priority"] <= 500  # halves every 30 s
    (listed,) = good(api.get(f"/v0/topics?prefix={topic}"))["topics"]
    assert 125 <= listed["effective_priority"] <= 500


# Lists


@pytest.fixture(scope="module")
def listed(api: Api) -> list[str]:
    names = ["list.c1", "list.A", "list.a", "list.z", "list.b", "list.c"]
    for name in names:
        api.put(f"/v0/topics/{name}", {"durability": "fsync"} if name == "list.b" else {})
    return sorted(names)


def test_a_list_is_sorted_by_bytes_and_shows_these_fields(api: Api, listed: list[str]) -> None:
    body = good(api.get("/v0/topics?prefix=list."))
    assert list(body) == ["topics", "performance"], "no cursor on the last page"
    assert [found["topic"] for found in body["topics"]] == listed
    fields = {
        "topic",
        "head_seq",
        "earliest_seq",
        "count",
        "bytes",
        "durable",
        "effective_priority",
    }
    assert all(set(found) == fields for found in body["topics"])
    assert [found["topic"] for found in body["topics"] if found["durable"]] == ["list.b"]


@pytest.mark.parametrize("size", [1, 2, 5, 6, 7])
def test_pages_of_a_list_follow_each_other(api: Api, listed: list[str], size: int) -> None:
    found: list[str] = []
    cursor = ""
    for _ in range(10):
        body = good(api.get(f"/v0/topics?prefix=list.&page_size={size}&cursor={cursor}"))
        found += [entry["topic"] for entry in body["topics"]]
        if "next_cursor" not in body:
            break
        cursor = body["next_cursor"]
        assert json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))) == {
            "after": found[-1]
        }
        assert "=" not in cursor
    assert found == listed


@pytest.mark.parametrize(
    ("cursor", "first"),
    [
        (cursor_of({"after": "list.a"}), "list.b"),
        (cursor_of({"after": "list.bb"}), "list.c"),
        (cursor_of({"after": "list.c1"}) + "==", "list.z"),
        (
            base64.b64encode(b'{"after":"list.a","x":"~~~???"}').decode().replace("+", "%2B"),
            "list.b",
        ),
        ("", "list.A"),
        (cursor_of({}), "list.A"),
        (cursor_of({"after": 5}), "list.A"),
        (cursor_of([1]), "list.A"),
        (cursor_of(None), "list.A"),
    ],
)
def test_a_cursor_is_read_generously(api: Api, listed: list[str], cursor: str, first: str) -> None:
    body = good(api.get(f"/v0/topics?prefix=list.&cursor={cursor}"))
    assert [found["topic"] for found in body["topics"]][:1] == [first]


@pytest.mark.parametrize("cursor", ["%21", "abc", "e30x", "bm90IGpzb24", "é"])
@pytest.mark.parametrize("path", ["/v0/topics", "/v0/routers"])
def test_an_undecodable_cursor_is_refused(api: Api, cursor: str, path: str) -> None:
    assert refused(api.get(f"{path}?cursor={cursor}")) == Refusal(400, "invalid_request")


def test_listing_with_touch_refreshes_recency_only(api: Api, topic: str) -> None:
    api.make(topic)

    def priority(touch: str) -> int:
        (found,) = good(api.get(f"/v0/topics?prefix={topic}&touch={touch}"))["topics"]
        shown: int = found["effective_priority"]
        return shown

    assert priority("false") == 0
    priority("true")
    assert 125 <= priority("false") <= 500  # halves every 30 s
    assert good(api.get(f"/v0/topics/{topic}?touch=false"))["last_read_ts"] is None


# Dropping


def test_a_dropped_topic_is_gone_and_begins_anew(api: Api, topic: str) -> None:
    api.write(topic, 1, 2)
    body = good(api.delete(f"/v0/topics/{topic}"))
    assert list(body) == ["topic", "deleted", "routers_removed", "performance"]
    assert (body["topic"], body["deleted"], body["routers_removed"]) == (topic, True, [])
    assert good(api.delete(f"/v0/topics/{topic}"))["deleted"] is False
    assert api.write(topic, 3)["seqs"] == [1]


def test_dropping_takes_the_routers_of_both_ends_along(api: Api, topic: str) -> None:
    source, middle, dest = (f"{topic}.{part}" for part in "abc")
    for name, ends in {"z": (source, middle), "b": (middle, dest)}.items():
        body = {"source": ends[0], "dest": ends[1]}
        good(api.put(f"/v0/routers/{topic}.{name}", body))
    dropped = good(api.delete(f"/v0/topics/{middle}"))
    assert dropped["routers_removed"] == [f"{topic}.b", f"{topic}.z"]
    assert refused(api.get(f"/v0/routers/{topic}.b")).code == "router_not_found"


def test_if_empty_protects_records(api: Api, topic: str) -> None:
    api.write(topic, 1, 2)
    found = refused(api.delete(f"/v0/topics/{topic}?if_empty=true"))
    assert found == Refusal(409, "topic_not_empty", {"topic": topic, "count": 2})
    good(api.post(f"/v0/topics/{topic}/delete", {"before_seq": 9}))
    assert good(api.delete(f"/v0/topics/{topic}?if_empty=1"))["deleted"] is True
    assert good(api.delete(f"/v0/topics/{topic}?if_empty=true"))["deleted"] is False


# Durability classes over HTTP


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_every_class_serves_its_records(api: Api, topic: str, durability: str) -> None:
    api.make(topic, durability=durability)
    ack = api.write(topic, 1, 2)
    spent = ack["performance"]
    assert set(spent) == {"server_total_ms", "wal_append_ms", "fsync_ms"}
    assert (spent["fsync_ms"] > 0) is (durability == "fsync")
    assert seqs(api.diff(topic)) == [1, 2]


def test_a_dry_run_changes_nothing_and_tells_what_would_go(api: Api, topic: str) -> None:
    path = f"/v0/topics/{topic}"
    api.append(topic, [{"data": n} for n in range(10)])
    before = api.state(topic)
    tried = good(api.put(f"{path}?dry_run=true", {"cap_records": 3}))
    assert list(tried) == ["topic", "created", "config", "evicted", "performance"]
    assert (tried["created"], tried["config"]["cap_records"]) == (False, 3)
    assert tried["evicted"] == {"records": 7, "bytes": 7}
    assert good(api.put(f"{path}?dry_run=1", {"cap_bytes": 4}))["evicted"]["records"] == 6
    reject = {"cap_records": 3, "discard": "reject"}
    assert good(api.put(f"{path}?dry_run=true", reject))["evicted"] == {"records": 0, "bytes": 0}
    refusal = refused(api.put(f"{path}?dry_run=true", {"type": "queue"}))
    assert refusal.code == "topic_exists_incompatible"
    assert refused(api.put(f"{path}?dry_run=yes", {"cap_records": 1})).code == "invalid_request"
    assert api.state(topic)["config"] == before["config"]
    assert api.state(topic)["count"] == 10
    assert good(api.put(f"{path}.new?dry_run=true", {}))["created"] is False
    assert refused(api.get(f"{path}.new")).code == "topic_not_found"
    assert "evicted" not in good(api.put(path, {"cap_records": 3}))
    assert api.state(topic)["count"] == 3


def test_the_list_tells_details_only_when_asked(api: Api, topic: str) -> None:
    jobs = f"{topic}.jobs"
    good(api.put(f"/v0/topics/{topic}", {"cap_records": 2, "durability": "memory"}))
    api.append(topic, [{"data": n} for n in range(5)])
    setup = {"type": "queue", "max_deliveries": 1, "dead_letter": f"{topic}.dead"}
    good(api.put(f"/v0/topics/{jobs}", setup))
    api.append(jobs, [{"data": n} for n in range(4)])
    claim = {"node": "w", "max": 2}
    good(api.post(f"/v0/topics/{jobs}/claim", claim))
    good(api.post(f"/v0/topics/{jobs}/nack", {"node": "w", "seqs": [1]}))
    good(api.post(f"/v0/topics/{jobs}/claim", {"node": "w"}))
    plain = good(api.get(f"/v0/topics?prefix={topic}"))["topics"]
    told = good(api.get(f"/v0/topics?prefix={topic}&details=true"))["topics"]
    names = [topic, f"{topic}.dead", jobs]
    assert [entry["topic"] for entry in told] == names
    log, _, queue = told
    assert {name: log[name] for name in list(log)[7:]} == {
        "type": "log",
        "durability": "memory",
        "lost": 3,
    }
    assert queue["queue"] == {"ready": 1, "in_flight": 2, "delayed": 0, "dead": 1}
    assert [dict(list(entry.items())[:7]) for entry in told] == plain
