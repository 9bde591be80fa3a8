"""Probes, metrics, request ids and the access log: what operators look at."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.blackbox.api_client import Api, burst, eventually, good, plain
from tests.blackbox.conftest import PATIENCE_S, Connect, ServerFactory, ServerProcess
from tests.blackbox.event_client import EventStream, watch
from tests.programs import promtool

GAUGES = {
    "topics_topics",
    "topics_topics_by_class",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_stages",
    "topics_stage_disk_bytes",
    "topics_stage_oldest_seconds",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_ready",
    "topics_recovery_progress",
    "topics_topic_metrics_truncated",
    "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak",
    "topics_wal_read_only",
    "topics_pressure",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_topic_queue_ready",
    "topics_topic_queue_in_flight",
    "topics_cursor_lag_records",
    "topics_cursor_lag_seconds",
    "topics_router_lag_records",
}
COUNTERS = {
    "topics_uptime_ms",
    "topics_wal_frames_total",
    "topics_wal_batches_total",
    "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total",
    "topics_wal_rotations_total",
    "topics_wal_submit_full_total",
    "topics_throttled_total",
    "topics_streams_lagged_total",
    "topics_access_log_dropped_total",
    "topics_router_forwarded_total",
}
BOUNDS = ["50", "100", "250", "500", "1000", "5000", "10000", "50000", "100000", "+Inf"]
FROM_THE_FIRST_SAMPLE = {"topics_disk_free_bytes", "topics_log_bytes"}
KEYS_FROM_THE_FIRST_SAMPLE = {"disk_free_bytes", "disk_total_bytes", "log_bytes"}
"""The server looks at the disk every ten seconds, for the first time a while after its start."""

KEYS = {
    "topics",
    "topics_ephemeral",
    "topics_memory",
    "topics_disk",
    "topics_fsync",
    "routers",
    "records_live",
    "bytes_live",
    "queue_topics",
    "queue_leases_in_flight",
    "stages",
    "stage_disk_bytes",
    "stage_oldest_ms",
    "sse_connections",
    "watch_sessions",
    "ready",
    "replay_progress",
    "uptime_ms",
    "pressure",
    "throttled_total",
    "streams_lagged_total",
    "wal",
}
WAL_KEYS = {
    "fsyncs",
    "frames",
    "batches",
    "bytes_written",
    "rotations",
    "queue_depth",
    "queue_depth_peak",
    "submit_full_total",
    "read_only",
    "fsync_count",
    "fsync_micros_total",
}


def text(api: Api) -> str:
    answer = api.get("/v0/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    return answer.text


def value(metrics: str, series: str) -> float:
    (found,) = re.findall(rf"^{re.escape(series)} (\S+)$", metrics, re.MULTILINE)
    return float(found)


# Probes


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health_is_ok(api: Api, path: str) -> None:
    body = api.get(path).json()
    assert list(body) == ["status", "version", "uptime_ms"]
    assert body["status"] == "ok"
    assert body["version"]
    assert type(body["uptime_ms"]) is int


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_ready_counts_topics(api: Api, topic: str, path: str) -> None:
    before = api.get(path).json()
    assert {**before, "topics": 0} == {"status": "ready", "wal_replay_complete": True, "topics": 0}
    api.make(topic)
    assert api.get(path).json()["topics"] == before["topics"] + 1


# Metrics


def busy(api: Api, topic: str) -> None:
    """Something for every series to count."""
    for klass in ("ephemeral", "memory", "disk", "fsync"):
        api.make(f"{topic}.{klass}", durability=klass)
        api.write(f"{topic}.{klass}", 1, 2)
    api.make(f"{topic}.queue", type="queue")
    api.write(f"{topic}.queue", 1, 2, 3)
    # No lease ends while others look at how many there are.
    good(api.post(f"/v0/topics/{topic}.queue/claim", {"node": "n", "lease_ms": 86_400_000}))
    good(api.put(f"/v0/topics/{topic}.disk/cursors/c", {"seq": 1}))
    good(api.put(f"/v0/routers/{topic}", {"source": f"{topic}.disk", "dest": f"{topic}.copy"}))
    good(api.post("/v0/watch", {"topics": {f"{topic}.disk": {}}}))


def test_every_series_is_there_with_its_type(api: Api, topic: str) -> None:
    busy(api, topic)
    metrics = text(api)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", metrics, re.MULTILINE))
    helped = set(re.findall(r"^# HELP (\S+) \S", metrics, re.MULTILINE))
    assert helped == set(types)
    expected = dict.fromkeys(GAUGES, "gauge") | dict.fromkeys(COUNTERS, "counter")
    expected |= {"topics_wal_fsync_latency_us": "histogram"}
    sampled = {name: types.pop(name) for name in FROM_THE_FIRST_SAMPLE & types.keys()}
    assert types == expected
    assert sampled in ({}, dict.fromkeys(FROM_THE_FIRST_SAMPLE, "gauge"))


def test_the_text_is_well_formed(api: Api, topic: str) -> None:
    busy(api, topic)
    families = list(text_string_to_metric_families(text(api)))
    names = {family.name for family in families}
    assert {name.removesuffix("_total") for name in GAUGES | COUNTERS} <= names
    assert all(family.samples for family in families)


def test_promtool_has_nothing_to_say(api: Api, topic: str) -> None:
    busy(api, topic)
    command = [promtool(), "check", "metrics"]
    judged = subprocess.run(
        command, input=text(api), capture_output=True, text=True, check=False, timeout=120
    )
    complaints = [
        line
        for line in (judged.stdout + judged.stderr).splitlines()
        # These names are fixed by the API, whatever the naming guide would like better.
        if not line.startswith(("topics_uptime_ms ", "topics_wal_fsync_latency_us "))
    ]
    assert complaints == []


def test_the_numbers_are_right(api: Api, topic: str) -> None:
    before = text(api)
    busy(api, topic)
    metrics = text(api)

    def grew(series: str) -> float:
        return value(metrics, series) - value(before, series)

    assert grew("topics_topics") == 6
    assert grew('topics_topics_by_class{class="disk"}') == 3
    for klass in ("ephemeral", "memory", "fsync"):
        assert grew(f'topics_topics_by_class{{class="{klass}"}}') == 1
    assert grew("topics_routers") == 1
    assert grew("topics_records_live") == 11
    assert grew("topics_bytes_live") == 11
    assert grew("topics_queue_topics") == 1
    assert grew("topics_queue_leases_in_flight") == 1
    assert grew("topics_watch_sessions") == 1
    assert value(metrics, "topics_ready") == 1
    assert value(metrics, "topics_recovery_progress") == 1
    assert value(metrics, "topics_topic_metrics_truncated") == 0
    assert 0 <= value(metrics, "topics_pressure") <= 1
    assert value(metrics, f'topics_topic_head_seq{{topic="{topic}.disk"}}') == 2
    assert value(metrics, f'topics_topic_earliest_seq{{topic="{topic}.disk"}}') == 1
    assert value(metrics, f'topics_topic_records_live{{topic="{topic}.disk"}}') == 2
    assert value(metrics, f'topics_topic_bytes_live{{topic="{topic}.disk"}}') == 2
    assert value(metrics, f'topics_topic_queue_ready{{topic="{topic}.queue"}}') == 2
    assert value(metrics, f'topics_topic_queue_in_flight{{topic="{topic}.queue"}}') == 1
    assert f'topics_topic_queue_ready{{topic="{topic}.disk"}}' not in metrics
    cursor = f'{{topic="{topic}.disk",cursor="c"}}'
    assert value(metrics, f"topics_cursor_lag_records{cursor}") == 1
    assert grew("topics_wal_frames_total") >= 11
    assert grew("topics_wal_fsyncs_total") >= 1
    assert grew("topics_wal_bytes_written_total") > 0


def test_the_histogram_adds_up(api: Api, topic: str) -> None:
    busy(api, topic)
    metrics = text(api)
    name = "topics_wal_fsync_latency_us"
    buckets = re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\d+)$', metrics, re.MULTILINE)
    assert [bound for bound, _ in buckets] == BOUNDS
    counts = [int(count) for _, count in buckets]
    assert counts == sorted(counts)
    total = value(metrics, f"{name}_count")
    assert counts[-1] == total == value(metrics, "topics_wal_fsyncs_total")
    assert value(metrics, f"{name}_sum") > 0


def test_the_same_numbers_come_as_json(api: Api, topic: str) -> None:
    busy(api, topic)
    for accept in ("application/json", "text/html, application/json;q=0.5"):
        answer = api.get("/v0/metrics", accept=accept)
        assert answer.headers["content-type"] == "application/json"
        body: dict[str, Any] = answer.json()
        assert set(body) in (KEYS, KEYS | KEYS_FROM_THE_FIRST_SAMPLE)
        assert set(body["wal"]) == WAL_KEYS
        assert body["ready"] is True
        assert body["wal"]["read_only"] is False
        assert body["topics"] == value(text(api), "topics_topics")
        assert body["wal"]["fsync_count"] == body["wal"]["fsyncs"]
    assert api.get("/v0/metrics", accept="APPLICATION/JSON").text.startswith("# HELP")


def test_open_streams_are_counted(
    shared_server: ServerProcess, connect: Connect, topic: str
) -> None:
    api = connect(shared_server)
    api.make(topic)
    before = eventually(lambda: api.metrics()["sse_connections"], lambda found: found == 0)
    with EventStream(shared_server, watch(shared_server, topic)["stream_url"]) as stream:
        stream.until("caught-up")
        assert api.metrics()["sse_connections"] == before + 1
    eventually(lambda: api.metrics()["sse_connections"], lambda found: found == before)


def test_only_a_thousand_topics_get_series_of_their_own(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory()
    names = [f"/v0/topics/n{number:04}" for number in range(1001)]
    burst(server, "PUT", names, {"durability": "ephemeral"})
    api = connect(server)
    metrics = text(api)
    assert value(metrics, "topics_topics") == 1001
    assert value(metrics, "topics_topic_metrics_truncated") == 1
    assert len(re.findall(r"^topics_topic_head_seq{", metrics, re.MULTILINE)) == 1000


# Request ids


def test_every_answer_has_a_request_id_of_its_own(api: Api) -> None:
    seen = {api.get("/v0/health").headers["x-request-id"] for _ in range(20)}
    assert len(seen) == 20


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        ("abc-123", True),
        ("A b/c:d", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("caf\u00e9", False),
    ],
)
def test_a_sane_id_of_the_client_is_kept(
    shared_server: ServerProcess, sent: str, is_kept: bool
) -> None:
    headers = {"x-request-id": sent}
    for path in ("/v0/health", "/v0/nothing", "/v0/topics/none"):
        found = plain(shared_server, "GET", path, headers=headers)
        assert (found.headers["x-request-id"] == sent) is is_kept


# The access log


def test_the_access_log_has_a_line_for_each_request(server_factory: ServerFactory) -> None:
    server = server_factory(
        env={"TOPICS_API_KEYS": "first,second:read", "TOPICS_ACCESS_LOG": "access.log"}
    )
    wid = ""
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        client.headers["authorization"] = "Bearer first"
        client.put("/v0/topics/t", headers={"x-request-id": "mine"})
        client.post("/v0/topics/t", json={"records": [{"data": "private-data", "tag": "t"}]})
        wid = client.post("/v0/watch", json={"topics": {"t": {}}}).json()["wid"]
        client.get("/v0/topics?prefix=private-query", headers={"authorization": "Bearer second"})
        client.get("/v0/topics", headers={"authorization": "Bearer wrong"})
        client.get("/v0/nothing")
    with EventStream(server, f"/v0/watch/{wid}", {"authorization": "Bearer first"}) as stream:
        stream.until("caught-up")
    assert server.stop() == 0
    text = (server.root / "access.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert all(
        set(line)
        == {
            "ts",
            "request_id",
            "method",
            "path",
            "http",
            "status",
            "ms",
            "bytes_in",
            "key",
            "peer",
        }
        for line in lines
    )
    by_path = {(line["method"], line["path"], line["status"]): line for line in lines}
    assert by_path["PUT", "/v0/topics/t", 201]["request_id"] == "mine"
    assert by_path["POST", "/v0/topics/t", 200]["bytes_in"] > 0
    assert by_path["GET", "/v0/topics", 200]["key"] == 2
    assert by_path["GET", "/v0/topics", 401]["key"] is None
    assert by_path["GET", "/v0/nothing", 404]["key"] == 1
    assert ("GET", "/v0/watch/*", 200) in by_path
    for secret in ("first", "second", "wrong", "private-data", "private-query", wid[4:]):
        assert secret not in text


def test_there_is_no_access_log_unless_asked_for(shared_server: ServerProcess) -> None:
    plain(shared_server, "GET", "/v0/topics")
    assert "/v0/topics" not in shared_server.stderr
