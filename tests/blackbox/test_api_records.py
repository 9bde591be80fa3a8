"""Records: writing them, reading them after a cursor, and what a reader is told of losses."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.blackbox.api_client import Api, Refusal, datas, eventually, good, refused, seqs
from tests.blackbox.conftest import Connect, ServerProcess

ACK = [
    "topic",
    "first_seq",
    "last_seq",
    "seqs",
    "head_seq",
    "count",
    "created",
    "deduped",
    "performance",
]


# Writing


def test_an_ack_has_exactly_these_fields(api: Api, topic: str) -> None:
    answer = api.post(f"/v0/topics/{topic}", {"records": [{"data": 1}, {"data": None}]})
    assert answer.status_code == 201
    ack = good(answer)
    assert list(ack) == ACK
    spent = ack.pop("performance")
    assert ack == {
        "topic": topic,
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    assert list(spent) == ["server_total_ms", "wal_append_ms", "fsync_ms"]
    assert spent["fsync_ms"] == 0.0
    again = api.post(f"/v0/topics/{topic}", {"records": [{"data": 3}]})
    assert again.status_code == 200
    assert (again.json()["seqs"], again.json()["created"]) == ([3], False)


def test_seqs_are_left_out_when_declined(api: Api, topic: str) -> None:
    answer = api.post(f"/v0/topics/{topic}?return_seqs=false", {"records": [{"data": 1}] * 3})
    assert list(good(answer)) == [name for name in ACK if name != "seqs"]
    assert good(answer)["first_seq"] == 1
    assert good(answer)["last_seq"] == 3


def test_records_of_one_write_share_their_time_and_times_never_fall(api: Api, topic: str) -> None:
    for _ in range(3):
        api.write(topic, 1, 2, 3)
    times = [record["$ts"] for record in api.diff(topic)["records"]]
    assert times == sorted(times)
    assert all(len(set(times[start : start + 3])) == 1 for start in (0, 3, 6))
    assert abs(times[-1] - time.time() * 1000) < 60_000


def test_a_record_shows_what_was_set_and_asked_for(api: Api, topic: str) -> None:
    api.append(
        topic,
        [
            {"data": 1, "tag": "a", "node": "own", "meta": {"m": 1}},
            {"data": None, "meta": 0},
            {"data": 3, "tag": "", "node": ""},
        ],
        node="default",
    )
    full = api.diff(topic, include_tags=True)["records"]
    for record in full:
        assert record.pop("$ts") > 0
    assert full == [
        {"$seq": 1, "$node": "own", "$tag": "a", "data": 1, "meta": {"m": 1}},
        {"$seq": 2, "$node": "default", "data": None, "meta": 0},
        {"$seq": 3, "$node": "", "$tag": "", "data": 3},
    ]
    assert list(full[0]) == ["$seq", "$node", "$tag", "data", "meta"]
    assert all("$tag" not in record for record in api.diff(topic)["records"])
    bare = api.diff(topic, include_meta=False)["records"]
    assert all("meta" not in record for record in bare)


@pytest.mark.parametrize(
    ("create", "config", "made"),
    [
        (None, None, True),
        (True, None, True),
        (False, None, False),
        (None, {"auto_create": False}, False),
        (True, {"auto_create": False}, True),
        (False, {"auto_create": True}, False),
    ],
)
def test_an_absent_topic_is_created_as_the_write_says(
    api: Api, topic: str, create: bool | None, config: dict[str, Any] | None, made: bool
) -> None:
    answer = api.post(
        f"/v0/topics/{topic}", {"records": [{"data": 1}], "create": create, "config": config}
    )
    if made:
        assert answer.status_code == 201
        assert good(answer)["created"] is True
    else:
        assert refused(answer) == Refusal(404, "topic_not_found", {"topic": topic})


def test_the_config_of_a_write_counts_only_for_a_new_topic(api: Api, topic: str) -> None:
    api.write(topic, 1, config={"ttl_ms": 3_600_000, "type": "queue"})
    assert api.state(topic)["config"]["ttl_ms"] == 3_600_000
    api.write(topic, 2, config={"ttl_ms": 9, "type": "log", "durability": "fsync"})
    state = api.state(topic)
    assert (state["type"], state["config"]["ttl_ms"], state["count"]) == ("queue", 3_600_000, 2)


def test_a_refused_write_burns_no_seq(api: Api, topic: str) -> None:
    api.write(topic, 1)
    bodies: list[dict[str, Any]] = [
        {"records": []},
        {"records": [{"data": 1, "tag": "x" * 300}]},
        {"records": [{"data": 1}], "expect_head": 7},
    ]
    for body in bodies:
        assert api.post(f"/v0/topics/{topic}", body).status_code in (400, 409)
    assert api.write(topic, 2)["seqs"] == [2]


def test_checks_of_a_write_come_in_their_order(api: Api, topic: str) -> None:
    long_key, long_tag = "k" * 300, "t" * 300
    many = [{"data": 1, "tag": long_tag}] * 10_001
    path = f"/v0/topics/{topic}"
    steps: list[tuple[dict[str, Any], str]] = [
        ({"records": many, "idempotency_key": long_key}, "batch_too_large"),
        ({"records": [{"data": "x" * 2**20}], "idempotency_key": long_key}, "invalid_request"),
        ({"records": [{"data": "x" * 2**20, "tag": long_tag}]}, "invalid_request"),
        ({"records": [{"data": "x" * 2**20, "meta": {}}], "create": False}, "record_too_large"),
        ({"records": [{"data": "x" * 2**20}, {"data": 1, "tag": long_tag}]}, "record_too_large"),
        ({"records": [{"data": 1}], "create": False, "expect_head": 9}, "topic_not_found"),
    ]
    for body, code in steps:
        assert refused(api.post(path, body)).code == code
    api.make(topic, discard="reject", cap_records=1)
    api.write(topic, 1, idempotency_key="k")
    hit = good(api.post(path, {"records": [{"data": 1}], "idempotency_key": "k", "expect_head": 9}))
    assert hit["deduped"] is True, "a known key comes before everything the topic might refuse"
    two = {"records": [{"data": 1}, {"data": 2}]}
    assert refused(api.post(path, {**two, "expect_head": 9})).code == "head_mismatch"
    assert refused(api.post(path, two)).code == "record_too_large"
    assert refused(api.post(path, {"records": [{"data": 1}]})).code == "topic_full"


# Caps


def test_the_oldest_records_make_room(api: Api, topic: str) -> None:
    api.make(topic, cap_records=3)
    for number in range(6):
        api.write(topic, number)
    state = api.state(topic)
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (3, 4, 6)


def test_a_record_larger_than_the_whole_cap_is_taken_and_dropped(api: Api, topic: str) -> None:
    api.make(topic, cap_bytes=10)
    assert api.write(topic, "x" * 50)["seqs"] == [1]
    page = api.diff(topic)
    assert page["records"] == []
    assert page["tombstone"]["gap_to"] == 1


@pytest.mark.parametrize(
    ("config", "fits", "more"),
    [
        ({"cap_records": 2}, [1, 2], [3]),
        ({"cap_bytes": 10}, ["12345678"], [0]),
        ({"cap_records": 5, "cap_bytes": 4}, [1, 2, 3], ["x"]),
    ],
)
def test_a_topic_that_rejects_is_full_at_its_cap(
    api: Api, topic: str, config: dict[str, int], fits: list[Any], more: list[Any]
) -> None:
    api.make(topic, discard="reject", **config)
    api.write(topic, *fits)
    body = {"records": [{"data": data} for data in more]}
    assert refused(api.post(f"/v0/topics/{topic}", body)) == Refusal(
        422,
        "topic_full",
        {
            "topic": topic,
            "cap_records": config.get("cap_records", 0),
            "cap_bytes": config.get("cap_bytes", 0),
            "head_seq": len(fits),
            "earliest_seq": 1,
        },
    )
    good(api.post(f"/v0/topics/{topic}/delete", {"before_seq": 100}))
    assert api.write(topic, *more)["first_seq"] == len(fits) + 1


@pytest.mark.parametrize("config", [{"cap_records": 2}, {"cap_bytes": 2}])
def test_a_write_that_never_fits_a_rejecting_topic_is_too_large(
    api: Api, topic: str, config: dict[str, int]
) -> None:
    api.make(topic, discard="reject", **config)
    body = {"records": [{"data": 1}] * 3}
    assert refused(api.post(f"/v0/topics/{topic}", body)) == Refusal(400, "record_too_large")


# Reading


def test_a_page_has_exactly_these_fields(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, 3)
    page = api.diff(topic, limit=2)
    assert list(page) == [
        "topic",
        "records",
        "next_from_seq",
        "head_seq",
        "earliest_seq",
        "caught_up",
        "tombstone",
        "lag",
        "performance",
    ]
    assert page["performance"]["records_scanned"] == 2
    assert set(page["performance"]) == {"server_total_ms", "records_scanned"}
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (2, False, 1)
    assert page["tombstone"] is None
    rest = api.diff(topic, from_seq=2)
    assert (seqs(rest), rest["next_from_seq"], rest["caught_up"], rest["lag"]) == ([3], 3, True, 0)
    end = api.diff(topic, from_seq=3)
    assert (end["records"], end["next_from_seq"], end["caught_up"]) == ([], 3, True)


def test_an_empty_topic_is_caught_up(api: Api, topic: str) -> None:
    api.make(topic)
    page = api.diff(topic)
    assert (page["head_seq"], page["earliest_seq"], page["caught_up"]) == (0, 1, True)


def test_the_budget_stops_before_the_record_that_exceeds_it(api: Api, topic: str) -> None:
    api.write(topic, "x" * 8, "x" * 8, "x" * 8)  # ten bytes each
    for budget, count in ((1, 1), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)):
        page = api.diff(topic, max_batch_bytes=budget)
        assert len(page["records"]) == count
        assert page["next_from_seq"] == count


def test_own_records_are_skipped_and_the_cursor_passes_them(api: Api, topic: str) -> None:
    nodes = ["a", "b", None, "a", "A", "a"]
    api.append(topic, [{"data": n, "node": node} for n, node in enumerate(nodes, 1)])
    for node, expected in (
        ("a", [2, 3, 5]),
        (["a", "b"], [3, 5]),
        (["a", "b", "A"], [3]),
        ([], [1, 2, 3, 4, 5, 6]),
        ("", [1, 2, 3, 4, 5, 6]),
        ("x" * 5000, [1, 2, 3, 4, 5, 6]),
    ):
        page = api.diff(topic, node=node)
        assert seqs(page) == expected, node
        assert page["next_from_seq"] == 6
        assert page["caught_up"] is True
        assert page["performance"]["records_scanned"] == 6
    assert api.diff(topic, node="a", limit=1)["next_from_seq"] == 2


def test_the_last_record_asked_for_ends_a_read_whatever_follows_it(api: Api, topic: str) -> None:
    api.append(topic, [{"data": n, "node": f"n{n % 2}", "tag": f"t{n % 2}"} for n in range(1, 7)])
    for own in ({"node": "n0"}, {"match": "t1"}):
        page = api.diff(topic, limit=3, **own)
        assert seqs(page) == [1, 3, 5]
        assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (5, False, 1)
        assert page["performance"]["records_scanned"] == 5
        rest = api.diff(topic, from_seq=5, limit=3, **own)
        assert (seqs(rest), rest["next_from_seq"], rest["caught_up"]) == ([], 6, True)
    good(api.post(f"/v0/topics/{topic}/delete", {"match": "t0"}))
    page = api.diff(topic, limit=3)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([1, 3, 5], 5, False)
    page = api.diff(topic, max_batch_bytes=2)
    assert (seqs(page), page["next_from_seq"]) == ([1, 3], 4)  # examined up to the one in the way


def test_a_topic_can_decline_the_node_filter(api: Api, topic: str) -> None:
    api.make(topic, dedupe_node=False)
    api.append(topic, [{"data": 1, "node": "a"}])
    assert seqs(api.diff(topic, node="a")) == [1]


def test_a_reader_of_only_its_own_records_catches_up_in_one_call(api: Api, topic: str) -> None:
    for _ in range(5):
        api.append(topic, [{"data": 1}] * 1000, node="me")
    page = api.diff(topic, node="me", limit=1)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 5000, True)
    assert page["tombstone"] is None


# Losses


def test_a_reader_behind_an_eviction_gets_a_tombstone(api: Api, topic: str) -> None:
    api.make(topic, cap_records=3)
    api.write(topic, *range(10))
    page = api.diff(topic, from_seq=2, limit=1)
    assert page["tombstone"] == {
        "gap_from": 3,
        "gap_to": 7,
        "reason": "cap",
        "missed_estimate": 5,
        "earliest_seq": 8,
        "head_seq": 10,
    }
    assert list(page["tombstone"]) == [
        "gap_from",
        "gap_to",
        "reason",
        "missed_estimate",
        "earliest_seq",
        "head_seq",
    ]
    assert seqs(page) == [8]
    assert api.diff(topic, from_seq=7)["tombstone"] is None, "nothing is missing after the gap"
    assert api.diff(topic, from_seq=6)["tombstone"]["missed_estimate"] == 1


def test_expiry_and_eviction_are_told_apart(api: Api, topic: str) -> None:
    api.make(topic, ttl_ms=1)
    api.write(topic, 1, 2)
    page = eventually(lambda: api.diff(topic), lambda found: found["tombstone"] is not None)
    assert page["tombstone"]["reason"] == "ttl"
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 2, True)
    api.make(topic, cap_records=2)
    api.write(topic, 3, 4, 5)
    mixed = api.diff(topic)
    assert (mixed["tombstone"]["reason"], mixed["tombstone"]["gap_to"]) == ("mixed", 3)
    assert api.diff(topic, from_seq=2)["tombstone"]["reason"] == "cap"


def test_a_cursor_ahead_of_the_head_means_another_topic(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, 3)
    page = api.diff(topic, from_seq=9)
    assert page["tombstone"] == {
        "gap_from": 1,
        "gap_to": 3,
        "reason": "recreated",
        "missed_estimate": 3,
        "earliest_seq": 1,
        "head_seq": 3,
    }
    assert seqs(page) == [1, 2, 3]
    api.make(f"{topic}.new")
    empty = api.diff(f"{topic}.new", from_seq=1)["tombstone"]
    assert (empty["gap_from"], empty["gap_to"], empty["missed_estimate"]) == (1, 0, 1)


def test_deleted_records_are_passed_in_silence(api: Api, topic: str) -> None:
    api.write(topic, *range(6))
    good(api.post(f"/v0/topics/{topic}/delete", {"before_seq": 5}))
    page = api.diff(topic)
    assert (seqs(page), page["tombstone"], page["earliest_seq"]) == ([5, 6], None, 5)


# Idempotent writes


def test_a_write_repeated_with_its_key_is_answered_and_not_appended(api: Api, topic: str) -> None:
    first = api.write(topic, 1, 2, idempotency_key="k")
    api.write(topic, 3)
    answer = api.post(f"/v0/topics/{topic}", {"records": [{"data": 9}], "idempotency_key": "k"})
    assert answer.status_code == 200
    second = good(answer)
    assert list(second) == ACK
    assert set(second.pop("performance")) == {"server_total_ms"}
    first.pop("performance")
    assert second == {**first, "created": False, "deduped": True}
    assert second["head_seq"] == 2
    assert datas(api.diff(topic)) == [1, 2, 3]


def test_a_known_key_is_answered_without_seqs_too(api: Api, topic: str) -> None:
    api.write(topic, 1, idempotency_key="k")
    body = {"records": [{"data": 1}], "idempotency_key": "k"}
    again = good(api.post(f"/v0/topics/{topic}?return_seqs=0", body))
    assert "seqs" not in again
    assert again["deduped"] is True


def test_the_key_of_the_body_wins_over_the_header(api: Api, topic: str) -> None:
    def send(header: str | None, key: str | None) -> bool:
        body = {"records": [{"data": 1}], "idempotency_key": key}
        headers = {} if header is None else {"idempotency-key": header}
        answer = api.call("POST", f"/v0/topics/{topic}", body, headers=headers)
        return bool(good(answer)["deduped"])

    assert [send("h", None), send("h", None)] == [False, True]
    assert [send("h", "b"), send("other", "b"), send("b", None)] == [False, True, True]
    assert [send(None, ""), send(None, ""), send("", None)] == [False, True, True]
    assert [send(None, None), send(None, None)] == [False, False]


def test_two_keys_in_headers_are_never_taken_for_one(api: Api, topic: str) -> None:
    def send(header: bytes) -> bool:
        headers = [(b"idempotency-key", header), (b"content-type", b"application/json")]
        body = b'{"records":[{"data":1}]}'
        answer = api.http.post(f"/v0/topics/{topic}", content=body, headers=headers)
        return bool(good(answer)["deduped"])

    assert [send(b"\xff"), send(b"\xfe"), send(b"\xff")] == [False, False, True]
    assert [send(b"caf\xc3\xa9"), send(b"caf\xc3\xa8")] == [False, False]
    assert api.write(topic, 1, idempotency_key="caf\u00e9")["deduped"] is True


def test_keys_belong_to_their_topic_and_die_with_it(api: Api, topic: str) -> None:
    api.write(topic, 1, idempotency_key="k")
    assert api.write(f"{topic}.other", 1, idempotency_key="k")["deduped"] is False
    api.delete(f"/v0/topics/{topic}")
    assert api.write(topic, 1, idempotency_key="k")["deduped"] is False


def test_a_key_is_forgotten_after_its_window(api: Api, topic: str) -> None:
    api.make(topic, idempotency_window_ms=1)
    api.write(topic, 1, idempotency_key="k")
    eventually(
        lambda: api.write(topic, 1, idempotency_key="k"), lambda ack: ack["deduped"] is False
    )


def test_validation_comes_before_the_key_is_looked_up(api: Api, topic: str) -> None:
    api.write(topic, 1, idempotency_key="k")
    bad = {"records": [{"data": 1, "tag": "x" * 300}], "idempotency_key": "k"}
    assert refused(api.post(f"/v0/topics/{topic}", bad)).code == "invalid_request"


def test_of_concurrent_writes_with_one_key_exactly_one_appends(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    clients = [connect(shared_server) for _ in range(8)]
    clients[0].make(topic, durability="fsync")
    with ThreadPoolExecutor(len(clients)) as pool:
        for turn in range(5):
            acks = list(
                pool.map(lambda c, k=f"k{turn}": c.write(topic, 1, idempotency_key=k), clients)
            )
            assert sum(not ack["deduped"] for ack in acks) == 1
            assert {ack["first_seq"] for ack in acks} == {turn + 1}
    assert clients[0].state(topic)["count"] == 5


# Long poll


def test_a_waiting_reader_is_answered_by_the_append(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    writer, reader = connect(shared_server), connect(shared_server)
    writer.make(topic)
    delays: list[float] = []
    for turn in range(15):
        with ThreadPoolExecutor(1) as pool:
            # Sometimes the write comes before the reader waits, sometimes while it does.
            ready = threading.Event()

            def poll(after: int = turn, begun: threading.Event = ready) -> tuple[Any, float]:
                begun.set()
                return reader.diff(topic, from_seq=after, wait_ms=20_000), time.perf_counter()

            waiting = pool.submit(poll)
            ready.wait()
            if turn % 3:
                writer.state(topic)
            sent = time.perf_counter()
            writer.write(topic, turn)
            page, answered = waiting.result()
        assert datas(page) == [turn]
        delays.append(answered - sent)
    assert sorted(delays)[len(delays) // 2] < 5, "far sooner than the wait would have ended"


def test_a_poll_without_news_ends_in_time(api: Api, topic: str) -> None:
    api.write(topic, 1)
    for wait_ms in (0, 1, 60):
        begun = time.perf_counter()
        page = api.diff(topic, from_seq=1, wait_ms=wait_ms)
        # The server's loop counts whole milliseconds, so a timer may end one of them too early.
        assert time.perf_counter() - begun >= (wait_ms - 1) / 1000
        assert (page["records"], page["caught_up"]) == ([], True)


@pytest.mark.parametrize("options", [{"from_seq": 0}, {"from_seq": 9}, {"from_seq": 1, "limit": 1}])
def test_a_poll_with_something_to_tell_does_not_wait(
    api: Api, topic: str, options: dict[str, int]
) -> None:
    api.write(topic, 1, 2, 3)
    begun = time.perf_counter()
    api.diff(topic, wait_ms=30_000, **options)
    assert time.perf_counter() - begun < 25


def test_a_poll_woken_by_what_it_skips_returns_the_moved_cursor(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    writer, reader = connect(shared_server), connect(shared_server)
    writer.make(topic)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: reader.diff(topic, node="me", wait_ms=20_000))
        eventually(
            lambda: writer.append(topic, [{"data": 1, "node": "me"}]), lambda _: waiting.done()
        )
        page = waiting.result()
    assert page["records"] == []
    assert page["next_from_seq"] >= 1
    assert page["caught_up"] is True


def test_a_poll_on_a_topic_that_is_dropped_is_told(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    writer, reader = connect(shared_server), connect(shared_server)
    writer.write(topic, 1)
    with ThreadPoolExecutor(1) as pool:
        body = {"from_seq": 1, "wait_ms": 30_000}
        waiting = pool.submit(lambda: reader.post(f"/v0/topics/{topic}/diff", body))
        writer.state(topic)
        writer.delete(f"/v0/topics/{topic}")
        answer = waiting.result(timeout=25)
    assert refused(answer) == Refusal(404, "topic_not_found", {"topic": topic})


def test_many_polls_are_woken_by_one_write(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    writer = connect(shared_server)
    writer.make(topic)
    readers = [connect(shared_server) for _ in range(20)]
    with ThreadPoolExecutor(len(readers)) as pool:
        waiting = [pool.submit(reader.diff, topic, wait_ms=20_000) for reader in readers]
        writer.write(topic, "news")
        assert [datas(found.result()) for found in waiting] == [["news"]] * len(readers)
