"""What was added later: starting by time, filters, audits, cursors, conditional writes, holes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.blackbox.api_client import Api, Refusal, burst, eventually, good, refused, seqs
from tests.blackbox.conftest import Connect, ServerFactory, ServerProcess
from tests.blackbox.event_client import EventStream, watch

BAD = Refusal(400, "invalid_request")


def spaced(api: Api, topic: str, count: int) -> list[int]:
    """Records with different times; returns the times."""
    for number in range(count):
        before = _now_ms()
        eventually(_now_ms, before.__lt__)
        api.write(topic, number)
    return [record["$ts"] for record in api.diff(topic)["records"]]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# Starting by time


def test_a_read_begins_at_the_first_record_of_a_time(api: Api, topic: str) -> None:
    times = spaced(api, topic, 5)
    assert len(set(times)) == 5
    for number, moment in enumerate(times, 1):
        assert seqs(api.diff(topic, from_ts=moment)) == list(range(number, 6))
        assert seqs(api.diff(topic, from_ts=moment + 1))[:1] == ([number + 1] if number < 5 else [])
    assert seqs(api.diff(topic, from_ts=0)) == [1, 2, 3, 4, 5]
    late = api.diff(topic, from_ts=2**63)
    assert (late["records"], late["next_from_seq"], late["caught_up"]) == ([], 5, True)


@pytest.mark.parametrize("other", [{"from_seq": 0}, {"from_seq": 5}])
def test_a_start_by_time_excludes_one_by_seq(api: Api, topic: str, other: dict[str, Any]) -> None:
    api.write(topic, 1)
    body = {"from_ts": 5, **other}
    assert refused(api.post(f"/v0/topics/{topic}/diff", body)) == BAD
    assert refused(api.post("/v0/watch", {"topics": {topic: body}})) == BAD
    both = {"from_ts": 5, "tail": True}
    assert refused(api.post("/v0/watch", {"topics": {topic: both}})) == BAD


def test_a_start_below_what_was_lost_tells_the_loss_first(api: Api, topic: str) -> None:
    api.make(topic, cap_records=2)
    times = spaced(api, topic, 5)
    page = api.diff(topic, from_ts=times[0] - 1000)
    assert page["tombstone"]["gap_from"] == 1
    assert page["tombstone"]["gap_to"] == 3
    assert seqs(page) == [4, 5]
    assert api.diff(topic, from_ts=times[-1])["tombstone"] is None


def test_a_watch_can_begin_by_time(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    times = spaced(connect(shared_server), topic, 4)
    made = watch(shared_server, topics_map={topic: {"from_ts": times[2]}})
    assert made["topics"][topic]["from_seq"] == 2
    with EventStream(shared_server, made["stream_url"]) as stream:
        assert stream.until("record")[-1].seqs == [3, 4]


def test_a_poll_by_time_waits_for_what_comes(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    reader, writer = connect(shared_server), connect(shared_server)
    writer.write(topic, 1)
    with ThreadPoolExecutor(1) as pool:
        now = int(time.time() * 1000) + 60_000
        waiting = pool.submit(lambda: reader.diff(topic, from_ts=now, wait_ms=20_000))
        eventually(lambda: writer.write(topic, 2), lambda _: waiting.done())
        assert waiting.result()["head_seq"] >= 2


# Filters


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("a", [1, 4]),
        ("a*", [1, 2, 4]),
        (["tag", "Eq", "a"], [1, 4]),
        (["tag", "Glob", "*"], [1, 2, 4, 5]),
        ("none", []),
    ],
)
def test_a_filtered_read_passes_over_the_rest(
    api: Api, topic: str, match: object, expected: list[int]
) -> None:
    tags = ["a", "ab", None, "a", "b"]
    api.append(topic, [{"data": n, "tag": tag} for n, tag in enumerate(tags)])
    page = api.diff(topic, match=match)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == (expected, 5, True)
    assert page["tombstone"] is None
    assert page["performance"]["records_scanned"] == 5
    assert seqs(api.diff(topic, match=match, limit=1)) == expected[:1]


@pytest.mark.parametrize("match", [["tag", "Glob", "a"], ["tag", "Eq"], ["x", "Eq", "a"], 5])
def test_a_bad_filter_is_refused(api: Api, topic: str, match: object) -> None:
    api.write(topic, 1)
    assert refused(api.post(f"/v0/topics/{topic}/diff", {"match": match})) == BAD
    body = {"topics": {topic: {}}, "match": match}
    assert refused(api.post("/v0/watch", body)) == BAD


def test_own_records_are_skipped_before_the_filter(api: Api, topic: str) -> None:
    api.append(topic, [{"data": 1, "tag": "a", "node": node} for node in ("me", "you")])
    assert seqs(api.diff(topic, match="a", node="me")) == [2]


# Audit


def test_an_audit_accounts_for_every_seq(api: Api, topic: str) -> None:
    api.make(topic, cap_records=10)
    api.append(topic, [{"data": n, "tag": "even" if n % 2 == 0 else "odd"} for n in range(10)])
    good(api.post(f"/v0/topics/{topic}/delete", {"match": "odd"}))
    api.append(topic, [{"data": n} for n in range(8)])
    audit = good(api.get(f"/v0/topics/{topic}/audit"))
    assert list(audit) == [
        "topic",
        "epoch",
        "head_seq",
        "earliest_seq",
        "evict_floor",
        "skipped",
        "source_trim",
        "written",
        "live",
        "deleted",
        "lost_cap",
        "lost_ttl",
        "lost_crash",
        "gaps",
        "performance",
    ]
    lost = audit["lost_cap"] + audit["lost_ttl"] + audit["lost_crash"]
    assert audit["written"] == audit["live"] + audit["deleted"] + lost == 18
    assert audit["head_seq"] == audit["written"] + audit["skipped"] + audit["source_trim"]
    assert (audit["live"], audit["deleted"], audit["lost_cap"]) == (10, 5, 3)
    assert audit["gaps"] == []
    assert audit["epoch"] == api.state(topic)["epoch"]


# Named cursors


def test_a_cursor_is_set_moved_read_listed_and_forgotten(api: Api, topic: str) -> None:
    api.write(topic, *range(10))
    path = f"/v0/topics/{topic}/cursors/etl"
    assert refused(api.get(path)) == Refusal(404, "not_found")
    made = api.put(path, {"seq": 4})
    assert made.status_code == 201
    cursor = good(made)
    assert list(cursor) == [
        "topic",
        "cursor",
        "seq",
        "updated_ts",
        "head_seq",
        "lag_records",
        "lag_seqs",
        "lag_seconds",
        "gap_pending",
        "performance",
    ]
    shown = (cursor["cursor"], cursor["seq"], cursor["lag_records"], cursor["gap_pending"])
    assert shown == ("etl", 4, 6, False)
    assert cursor["lag_seconds"] >= 0
    moved = api.put(path, {"seq": 2})
    assert moved.status_code == 200
    assert good(api.get(path))["seq"] == 2
    assert good(api.put(path, {"seq": 10}))["lag_seconds"] == 0
    listed = good(api.get(f"/v0/topics/{topic}/cursors"))
    assert list(listed) == ["topic", "cursors", "performance"]
    assert [found["cursor"] for found in listed["cursors"]] == ["etl"]
    dropped = good(api.delete(path))
    assert list(dropped) == ["topic", "cursor", "deleted", "performance"]
    assert (dropped["cursor"], dropped["deleted"]) == ("etl", True)
    assert good(api.delete(path))["deleted"] is False


def test_lag_counts_live_records_and_beside_them_the_distance_in_seqs(api: Api, topic: str) -> None:
    api.write(topic, *range(5))
    path = f"/v0/topics/{topic}/cursors/c"
    fresh = good(api.put(path, {"seq": 1}))
    assert (fresh["lag_records"], fresh["lag_seqs"]) == (4, 4)
    good(api.post(f"/v0/topics/{topic}/delete", {"before_seq": 4}))
    partly = good(api.get(path))
    assert (partly["lag_records"], partly["lag_seqs"]) == (2, 4)
    good(api.post(f"/v0/topics/{topic}/delete", {"before_seq": 6}))
    done = good(api.get(path))
    assert (done["lag_records"], done["lag_seqs"], done["lag_seconds"]) == (0, 4, 0)
    series = f'topics_cursor_lag_records{{topic="{topic}",cursor="c"}} 0\n'
    assert series in api.get("/v0/metrics").text


def test_a_cursor_ahead_of_the_head_is_refused(api: Api, topic: str) -> None:
    api.write(topic, 1)
    assert refused(api.put(f"/v0/topics/{topic}/cursors/c", {"seq": 2})) == BAD
    assert good(api.put(f"/v0/topics/{topic}/cursors/c", {"seq": 1}))["lag_records"] == 0


@pytest.mark.parametrize("name", [".c", "_c", "c" * 256, "a>b"])
def test_a_cursor_has_the_name_of_a_topic(api: Api, topic: str, name: str) -> None:
    api.make(topic)
    answer = api.put(f"/v0/topics/{topic}/cursors/{name}", {"seq": 0})
    assert refused(answer) == BAD
    assert "is not a valid cursor name" in answer.json()["error"]["message"]
    assert refused(api.get(f"/v0/topics/{topic}/cursors/{name}")).code == "not_found"


def test_every_cursor_call_on_an_absent_topic_is_not_found(api: Api, topic: str) -> None:
    path = f"/v0/topics/{topic}/cursors"
    for answer in (
        api.get(path),
        api.get(f"{path}/c"),
        api.put(f"{path}/c", {"seq": 0}),
        api.delete(f"{path}/c"),
    ):
        assert refused(answer) == Refusal(404, "topic_not_found", {"topic": topic})


def test_a_cursor_knows_of_a_gap_before_its_reader(api: Api, topic: str) -> None:
    api.make(topic, cap_records=2)
    api.write(topic, *range(6))
    path = f"/v0/topics/{topic}/cursors"
    assert good(api.put(f"{path}/behind", {"seq": 1}))["gap_pending"] is True
    assert good(api.put(f"{path}/there", {"seq": 4}))["gap_pending"] is False
    names = []
    cursor = ""
    while True:
        page = good(api.get(f"{path}?page_size=1&cursor={cursor}"))
        names += [found["cursor"] for found in page["cursors"]]
        if "next_cursor" not in page:
            break
        cursor = page["next_cursor"]
    assert names == ["behind", "there"]


def test_reads_neither_use_nor_move_cursors(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, 3)
    path = f"/v0/topics/{topic}/cursors/c"
    before = good(api.put(path, {"seq": 2}))
    assert seqs(api.diff(topic)) == [1, 2, 3]
    assert good(api.get(path))["seq"] == before["seq"]


def test_a_topic_holds_a_thousand_cursors(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    api.make(topic, durability="ephemeral")
    path = f"/v0/topics/{topic}/cursors"
    burst(shared_server, "PUT", [f"{path}/c{number}" for number in range(1000)], {"seq": 0})
    over = refused(api.put(f"{path}/one-more", {"seq": 0}))
    assert (over.status, over.code) == (429, "throttled")
    assert over.detail == {"limit": "max_cursors", "max": 1000, "retry_after_ms": 1000}
    assert api.put(f"{path}/c5", {"seq": 0}).status_code == 200
    good(api.delete(f"{path}/c5"))
    assert api.put(f"{path}/one-more", {"seq": 0}).status_code == 201


# Conditional writes


def test_a_write_appends_only_at_the_expected_head(api: Api, topic: str) -> None:
    path = f"/v0/topics/{topic}"
    absent = refused(api.post(path, {"records": [{"data": 1}], "expect_head": 1}))
    assert absent == Refusal(409, "head_mismatch", {"topic": topic, "expected": 1, "head_seq": 0})
    assert refused(api.get(path)).code == "topic_not_found", "nothing was created"
    nothing = {"records": [{"data": 1}], "expect_head": 0, "create": False}
    assert refused(api.post(path, nothing)).code == "topic_not_found"
    assert api.write(topic, 1, 2, expect_head=0)["first_seq"] == 1
    assert api.write(topic, 3, expect_head=2)["first_seq"] == 3
    late = refused(api.post(path, {"records": [{"data": 9}], "expect_head": 2}))
    assert late.detail == {"topic": topic, "expected": 2, "head_seq": 3}
    assert api.state(topic)["head_seq"] == 3


def test_of_racing_conditional_writes_exactly_one_wins(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    clients = [connect(shared_server) for _ in range(6)]
    clients[0].make(topic)

    def attempt(client: Api, head: int) -> bool:
        body = {"records": [{"data": 1}], "expect_head": head}
        answer = client.post(f"/v0/topics/{topic}", body)
        if answer.status_code == 200:
            assert answer.json()["first_seq"] == head + 1
        return answer.status_code == 200

    with ThreadPoolExecutor(len(clients)) as pool:
        for head in range(10):
            won = list(pool.map(attempt, clients, [head] * len(clients)))
            assert won.count(True) == 1


# Holes


def test_holes_lists_the_dead_runs_of_a_range(api: Api, topic: str) -> None:
    api.make(topic, cap_records=14)
    api.append(topic, [{"data": n, "tag": f"k{n % 5}"} for n in range(1, 21)])
    version = api.state(topic)["delete_version"]
    good(api.post(f"/v0/topics/{topic}/delete", {"match": "k0"}))
    path = f"/v0/topics/{topic}/holes"
    body = good(api.post(path, {"from_seq": 0, "to_seq": 1000}))
    assert list(body) == [
        "topic",
        "epoch",
        "delete_version",
        "runs",
        "next_from_seq",
        "exact_from",
        "performance",
    ]
    assert body["runs"] == [
        [1, 6, "cap"],
        [10, 10, "deleted"],
        [15, 15, "deleted"],
        [20, 20, "deleted"],
    ]
    assert body["next_from_seq"] == 21
    assert body["exact_from"] == 1
    assert body["delete_version"] > version
    assert body["delete_version"] == api.state(topic)["delete_version"]
    part = good(api.post(path, {"from_seq": 3, "to_seq": 10}))
    assert (part["runs"], part["next_from_seq"]) == ([[3, 6, "cap"], [10, 10, "deleted"]], 11)
    good(api.post(f"/v0/topics/{topic}/delete", {"match": "k0"}))
    assert api.state(topic)["delete_version"] == body["delete_version"], "nothing was removed"


# They survive


def test_cursors_audits_and_keys_survive_a_kill(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory()
    api = connect(server)
    api.make("t", durability="fsync", cap_records=5)
    api.write("t", *range(8), idempotency_key="k")
    good(api.put("/v0/topics/t/cursors/c", {"seq": 6}))
    audit = good(api.get("/v0/topics/t/audit"))
    server.restart()
    api = connect(server)
    assert good(api.get("/v0/topics/t/cursors/c"))["seq"] == 6
    again = good(api.get("/v0/topics/t/audit"))
    assert {**again, "performance": 0} == {**audit, "performance": 0}
    assert api.write("t", 1, idempotency_key="k")["deduped"] is True
