"""Queues over HTTP: every refusal in its order, and the work stream."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from tests.blackbox.api_client import Api, Refusal, eventually, good, refused
from tests.blackbox.conftest import Connect, ServerProcess
from tests.blackbox.event_client import EventStream

MANY = list(range(1, 1002))


@pytest.fixture
def queue(api: Api, topic: str) -> str:
    """A queue of its own for each test, and a log that is none."""
    api.make("log")
    api.make(topic, type="queue", lease_ms=60_000)
    return topic


def claim(api: Api, queue: str, **body: object) -> dict[str, Any]:
    return good(api.post(f"/v0/topics/{queue}/claim", {"node": "w", **body}))


def test_a_claimed_job_has_its_members_in_order_and_hides_its_writer(api: Api, queue: str) -> None:
    api.append(queue, [{"data": {"n": 1}, "tag": "t", "meta": {"m": 1}, "node": "secret"}])
    api.write(queue, 2)
    answer = claim(api, queue, max=5)
    assert (answer["count"], answer["ready"]) == (2, 0)
    tagged, plain = answer["claimed"]
    assert list(tagged) == [
        "$seq",
        "lease_id",
        "deadline",
        "$ts",
        "$tag",
        "deliveries",
        "data",
        "meta",
    ]
    assert list(plain) == ["$seq", "lease_id", "deadline", "$ts", "deliveries", "data"]
    assert api.state(queue)["queue"] == {"ready": 0, "in_flight": 2, "dead_lettered": 0}


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("absent", b"", (400, "invalid_request")),
        ("absent", b"{", (400, "invalid_request")),
        ("absent", {"node": ""}, (404, "topic_not_found")),
        ("log", {"node": ""}, (409, "not_a_queue")),
        ("queue", {"node": ""}, (400, "invalid_request")),
        ("queue", {"node": "x" * 129}, (400, "invalid_request")),
        ("queue", {}, (400, "invalid_request")),
        ("queue", {"node": "w", "max": -1}, (400, "invalid_request")),
        ("queue", {"node": "w", "lease_ms": "1"}, (400, "invalid_request")),
    ],
)
def test_a_claim_is_refused_in_order(
    api: Api, queue: str, name: str, body: object, expected: tuple[int, str]
) -> None:
    name = queue if name == "queue" else name
    answer = refused(api.post(f"/v0/topics/{name}/claim", body))
    assert (answer.status, answer.code) == expected


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("absent", {"seqs": [1], "lease_ids": ["?"], "node": ""}, (400, "invalid_request")),
        ("absent", {"seqs": MANY, "node": ""}, (400, "invalid_request")),
        ("absent", {"seqs": MANY, "lease_ids": ["lease_1"]}, (400, "batch_too_large")),
        ("absent", {"seqs": [1, 2], "lease_ids": ["lease_1"]}, (400, "invalid_request")),
        ("absent", {"seqs": [1]}, (404, "topic_not_found")),
        ("log", {"seqs": [1]}, (409, "not_a_queue")),
        ("queue", {"seqs": [1, -1]}, (400, "invalid_request")),
    ],
)
def test_calls_about_held_jobs_are_refused_in_order(
    api: Api, queue: str, name: str, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    target = queue if name == "queue" else name
    for action, more in (("ack", {}), ("nack", {}), ("extend", {"lease_ms": 1000})):
        answer = refused(api.post(f"/v0/topics/{target}/{action}", {"node": "w", **more, **body}))
        assert (answer.status, answer.code) == expected
        if answer.code == "batch_too_large":
            assert answer.detail == {"seqs": 1001, "max": 1000}


def test_extending_needs_a_time_and_seqs_are_never_optional(api: Api, queue: str) -> None:
    for action, body in (("extend", {"node": "w", "seqs": []}), ("ack", {"node": "w"})):
        assert refused(api.post(f"/v0/topics/{queue}/{action}", body)).status == 400


def test_leases_act_as_fences_over_http(api: Api, queue: str) -> None:
    api.write(queue, 1, 2, 3)
    first, second, third = claim(api, queue, max=3)["claimed"]
    stale = f"{first['lease_id']}0"
    body = {"node": "w", "seqs": [1, 2, 9, 2], "lease_ids": [stale, "", "", ""]}
    done = good(api.post(f"/v0/topics/{queue}/ack", body))
    assert (done["acked"], done["skipped"], done["ready"], done["in_flight"]) == (
        1,
        [1, 9, 2],
        0,
        2,
    )
    held = {"node": "w", "seqs": [3], "lease_ids": [third["lease_id"]], "lease_ms": 90_000}
    extended = good(api.post(f"/v0/topics/{queue}/extend", held))
    assert extended["deadlines"]["3"] > third["deadline"]
    nacked = good(api.post(f"/v0/topics/{queue}/nack", {"node": "w", "seqs": [1], "delay_ms": 9}))
    assert (nacked["nacked"], nacked["ready"], nacked["in_flight"]) == (1, 0, 1)
    assert second["deliveries"] == 1


def test_only_an_ack_that_waited_for_a_sync_tells_how_long(api: Api, topic: str) -> None:
    buffered = f"{topic}.buffered"
    api.make(buffered, type="queue")
    api.make(topic, type="queue", durability="fsync")
    for name in (buffered, topic):
        api.write(name, 1)
        claim(api, name)
    told = []
    for name in (buffered, topic, topic):
        done = good(api.post(f"/v0/topics/{name}/ack", {"node": "w", "seqs": [1]}))
        told.append((done["acked"], done["performance"].get("fsync_ms", 0) > 0))
    assert told == [(1, False), (1, True), (0, False)]


def test_redrive_is_refused_without_a_source(api: Api, queue: str) -> None:
    path = f"/v0/topics/{queue}/redrive"
    assert refused(api.post(path, {})).status == 400
    assert refused(api.post(path, {"from": "absent"})) == Refusal(
        404, "topic_not_found", {"topic": "absent"}
    )
    assert refused(api.post("/v0/topics/log/redrive", {})).code == "not_a_queue"


# Work streams


def work(server: ServerProcess, queue: str, query: str = "node=w", **headers: str) -> EventStream:
    return EventStream(server, f"/v0/topics/{queue}/work?{query}", headers)


def test_a_work_stream_is_refused_in_order(api: Api, queue: str) -> None:
    def status(path: str, accept: str = "text/event-stream") -> int:
        return api.call("GET", path, headers={"accept": accept}).status_code

    assert status("/v0/topics/absent/work", "text/html") == 406
    assert status("/v0/topics/absent/work") == 400
    assert status("/v0/topics/absent/work?node=w") == 404
    assert status("/v0/topics/log/work?node=w") == 409


def test_jobs_are_pushed_as_room_and_jobs_appear(
    api: Api, queue: str, shared_server: ServerProcess
) -> None:
    api.write(queue, "a", "b", "c")
    with work(shared_server, queue, "node=w&max=2&lease_ms=600000") as stream:
        assert stream.status == 200
        assert stream.response.getheader("content-type") == "text/event-stream"
        assert stream.next().raw.strip() == "retry: 2000"
        jobs = [stream.next(), stream.next()]
        assert [(job.id, job.event, job.data["data"]) for job in jobs] == [
            ("1", "job", "a"),
            ("2", "job", "b"),
        ]
        good(api.post(f"/v0/topics/{queue}/ack", {"node": "w", "seqs": [1]}))
        assert stream.next().data["data"] == "c"
        good(api.post(f"/v0/topics/{queue}/ack", {"node": "w", "seqs": [2, 3]}))
        api.write(queue, "d")
        assert stream.next().data["data"] == "d"
        assert api.state(queue)["queue"]["in_flight"] == 1
    eventually(lambda: api.state(queue)["queue"], lambda counts: counts["in_flight"] == 0)
    assert api.state(queue)["queue"]["ready"] == 1


def test_a_dropped_queue_ends_its_work_streams(
    api: Api, queue: str, shared_server: ServerProcess
) -> None:
    with work(shared_server, queue) as stream:
        stream.next()
        api.delete(f"/v0/topics/{queue}")
        last = stream.next()
        assert (last.id, last.event, last.data["code"]) == (None, "error", 409)
        assert last.data["topic"] == queue
        assert stream.response.read() == b""


def test_a_stopping_server_says_goodbye_to_workers(server: ServerProcess, connect: Connect) -> None:
    api = connect(server)
    api.make("jobs", type="queue", leases_durable=True)
    api.write("jobs", 1)
    with work(server, "jobs") as stream:
        stream.next()
        assert stream.next().event == "job"
        assert server.stop() == 0
        last = stream.next()
        assert (last.id, last.data["code"]) == (None, "server_shutting_down")
    server.start()
    assert connect(server).state("jobs")["queue"] == {
        "ready": 1,
        "in_flight": 0,
        "dead_lettered": 0,
    }


def test_a_claimer_that_hangs_up_in_the_window_takes_no_job(
    api: Api, topic: str, shared_server: ServerProcess
) -> None:
    api.make(topic, type="queue", claim_jitter_ms=2000)
    api.write(topic, 1)
    hang_up(shared_server, topic)
    answer = claim(api, topic, max=5)
    assert answer["count"] == 1, "it joined the window that the other one opened"


def hang_up(server: ServerProcess, queue: str) -> None:
    """Claim, and leave before the answer."""
    body = b'{"node":"gone","max":5}'
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(
            b"POST /v0/topics/%b/claim HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (queue.encode(), len(body), body)
        )


def test_jobs_are_looked_at_without_being_taken(api: Api, queue: str) -> None:
    api.append(queue, [{"data": {"n": n}, "tag": f"t{n}"} for n in range(3)])
    path = f"/v0/topics/{queue}"
    good(api.post(f"{path}/claim", {"node": "w1", "max": 2, "lease_ms": 60_000}))
    error = {"type": "E", "message": "bad"}
    good(api.post(f"{path}/nack", {"node": "w1", "seqs": [2], "delay_ms": 50_000, "error": error}))
    found = good(api.get(f"{path}/jobs"))
    assert list(found) == ["topic", "jobs", "more", "performance"]
    leased, delayed, ready = found["jobs"]
    assert leased["deadline_ts"] - leased["claimed_ts"] == 60_000
    kept = {name: leased[name] for name in leased if not name.endswith("_ts")}
    told = {
        "seq": 1,
        "state": "leased",
        "deliveries": 1,
        "node": "w1",
        "tag": "t0",
        "data": {"n": 0},
    }
    assert kept == told
    assert (delayed["state"], delayed["last_error"]["node"]) == ("delayed", "w1")
    assert ready == {"seq": 3, "state": "ready", "deliveries": 0, "tag": "t2", "data": {"n": 2}}
    only = good(api.get(f"{path}/jobs?state=leased&limit=0"))
    assert [job["seq"] for job in only["jobs"]] == [1]
    assert refused(api.get(f"{path}/jobs?state=dead")).code == "invalid_request"
    api.append("nojobs", [{"data": 1}])
    assert refused(api.get("/v0/topics/nojobs/jobs")).code == "not_a_queue"
