"""A server reads no file on its event loop, whatever of old segments its clients ask for.

Each topic has its records in segments on the cold tier, and a server that has just started has no
index of them in memory: whoever needs one is the first to do so.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.blackbox.conftest import ServerFactory

import topics
from topics.client.sync import RemoteLog

LOOP_READS = Path(__file__).parent / "loop_reads"
SETTINGS: dict[str, Any] = {"segment_max_events": 20, "hot_retain_segments": 1}
RECORDS = 60


def evict(log: RemoteLog) -> None:
    assert log.append("cap", {"data": 0}, idempotency_key="k").deduped is False
    assert log.append("cap", {"data": 0}, idempotency_key="k").deduped is True
    assert log.audit("cap").lost_cap == 1
    log.append("cap-bytes", [{"data": "x" * 9} for _ in range(5)])
    assert log.audit("cap-bytes").lost_cap >= 5


def stage(log: RemoteLog) -> None:
    log.stage("etl", 1, 0, [{"topic": "cap-stage", "data": n} for n in range(3)])
    log.commit("etl", 1, [(0, 0)])
    assert log.audit("cap-stage").lost_cap == 3


def route(log: RemoteLog) -> None:
    log.route("r", source="source", dest="cap-route")
    log.append("source", {"data": 1})
    next(iter(log.follow("cap-route", after=RECORDS)))
    assert log.audit("cap-route").lost_cap == 1


def shrink(log: RemoteLog) -> None:
    log._put("shrink", {"cap_records": 5})
    assert log.state("shrink").count == 5


def expire(log: RemoteLog) -> None:
    for name in "ttl", "ttl-write", "ttl-follow":
        log._put(name, {"ttl_ms": 1})
    assert log.state("ttl").count == 0
    log.append("ttl-write", {"data": 1})
    assert log.audit("ttl-write").lost_ttl >= RECORDS
    next(log.watch({"ttl-follow": 0}))


def delete(log: RemoteLog) -> None:
    assert log.delete("before", before_seq=31).deleted == 30
    assert log.delete("match", match="even").deleted == RECORDS // 2
    jobs = log.queue("queue").claim(30)
    assert log.queue("queue").ack(jobs[3:]).acked == 27


def look(log: RemoteLog) -> None:
    now_ms = log.read("reads", limit=1).records[0].ts
    assert log.read("from-ts", from_ts=now_ms).records
    assert log.plan("plan", from_seq=1, to_seq=RECORDS).ranges
    assert log.holes("holes", from_seq=1, to_seq=RECORDS).runs == []
    assert log.set_cursor("cursor", "c", 25).lag_records == RECORDS - 25
    assert log.cursors("cursors")[0].lag_records == RECORDS - 25
    assert log.cursor("cursors", "c").lag_seconds >= 0
    with urllib.request.urlopen(f"{log.url}/v0/metrics") as answer:
        assert b'topic="metrics",cursor="c"' in answer.read()


WORK: list[Callable[[RemoteLog], None]] = [evict, stage, route, shrink, expire, delete, look]
CONFIGS: dict[str, dict[str, Any]] = {
    "cap": {"cap_records": RECORDS},
    "cap-bytes": {"cap_bytes": RECORDS},
    "cap-stage": {"cap_records": RECORDS},
    "cap-route": {"cap_records": RECORDS},
    "queue": {"type": "queue"},
}
PLAIN = (
    *("shrink", "ttl", "ttl-write", "ttl-follow", "before", "match", "reads", "from-ts", "plan"),
    *("holes", "cursor", "cursors", "metrics"),
)


def fill(data: Path, cold: Path) -> None:
    names = [*CONFIGS, *PLAIN]
    with topics.open(data, cold_dir=cold, **SETTINGS) as log:
        for name in names:
            log.create(name, **CONFIGS.get(name, {}))
        for start in range(0, RECORDS, 20):
            for name in names:
                numbers = range(start, start + 20)
                tags = "even", "odd"
                log.append(name, [{"data": n % 10, "tag": tags[n % 2]} for n in numbers])
            log.checkpoint()
        for name in "cursors", "metrics":
            log.set_cursor(name, "c", 25)
        log.create("source")
        log.maintain()
    assert len([*cold.rglob("*.data")]) >= len(names)


def test_a_server_reads_no_file_on_its_event_loop(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    data, cold, told = tmp_path / "data", tmp_path / "cold", tmp_path / "told"
    fill(data, cold)
    env = {f"TOPICS_{name.upper()}": str(value) for name, value in SETTINGS.items()}
    env |= {"TOPICS_COLD_DIR": str(cold), "TOPICS_CHECKPOINT_MS": "200"}
    env |= {"PYTHONPATH": str(LOOP_READS), "LOOP_READS": str(told)}
    server = server_factory(env=env, data_dir=data)
    with RemoteLog(server.url) as log:
        for work in WORK:
            told.unlink(missing_ok=True)
            work(log)
            assert not told.exists(), (work.__name__, told.read_text())
