"""An example of every call: what to send and what comes back.

The examples are one story, told in order to a new server: a topic of orders, a cursor, a router, a
watch, a staged write, and a queue of mails. The OpenAPI document and the reference show them; a
test tells the story to a real server and compares every answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the story, and its answer: JSON, or the text of an event stream."""

    path: Mapping[str, str | int] = {}
    query: str = ""
    body: Mapping[str, Any] | None = None
    status: int = 200
    answer: Mapping[str, Any] | str


_CONFIG = {
    "type": "log",
    "ttl_ms": 604800000,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": True,
    "durability": "fsync",
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
EXAMPLES: Mapping[str, Example] = {
    "configureTopic": Example(
        path={"topic": "orders"},
        body={"durability": "fsync", "ttl_ms": 604800000},
        status=201,
        answer={
            "topic": "orders",
            "created": True,
            "config": _CONFIG,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "appendRecords": Example(
        path={"topic": "orders"},
        body={
            "records": [
                {"data": {"id": 1, "eur": 40}, "tag": "user-7"},
                {"data": {"id": 2, "eur": 9}, "tag": "user-8", "meta": {"via": "web"}},
                {"data": {"id": 3, "eur": 15}, "tag": "user-7"},
            ],
            "idempotency_key": "basket-4711",
        },
        answer={
            "topic": "orders",
            "first_seq": 1,
            "last_seq": 3,
            "seqs": [1, 2, 3],
            "head_seq": 3,
            "count": 3,
            "created": False,
            "deduped": False,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "readAfterCursor": Example(
        path={"topic": "orders"},
        body={"from_seq": 1, "limit": 100, "include_tags": True},
        answer={
            "topic": "orders",
            "records": [
                {
                    "$seq": 2,
                    "$ts": 1790000000000,
                    "$tag": "user-8",
                    "data": {"id": 2, "eur": 9},
                    "meta": {"via": "web"},
                },
                {"$seq": 3, "$ts": 1790000000000, "$tag": "user-7", "data": {"id": 3, "eur": 15}},
            ],
            "next_from_seq": 3,
            "head_seq": 3,
            "earliest_seq": 1,
            "caught_up": True,
            "tombstone": None,
            "lag": 0,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "readRecords": Example(
        path={"topic": "orders"},
        query="from_seq=0&limit=1",
        answer={
            "topic": "orders",
            "records": [{"$seq": 1, "$ts": 1790000000000, "data": {"id": 1, "eur": 40}}],
            "next_from_seq": 1,
            "caught_up": False,
            "tombstone": None,
        },
    ),
    "planRanges": Example(
        path={"topic": "orders"},
        body={"from_seq": 1, "to_seq": 3, "target_bytes": 1048576},
        answer={
            "topic": "orders",
            "epoch": 1,
            "delete_version": 0,
            "head_seq": 3,
            "evict_floor": 1,
            "ranges": [[1, 3, 3, 63]],
            "next_from_seq": 4,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "deleteRecords": Example(
        path={"topic": "orders"},
        body={"match": "user-8"},
        answer={
            "topic": "orders",
            "deleted": 1,
            "earliest_seq": 1,
            "head_seq": 3,
            "count": 2,
            "bytes": 34,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "listHoles": Example(
        path={"topic": "orders"},
        body={"from_seq": 1, "to_seq": 3},
        answer={
            "topic": "orders",
            "epoch": 1,
            "delete_version": 4294967297,
            "runs": [[2, 2, "deleted"]],
            "next_from_seq": 4,
            "exact_from": 1,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "auditTopic": Example(
        path={"topic": "orders"},
        answer={
            "topic": "orders",
            "epoch": 1,
            "head_seq": 3,
            "earliest_seq": 1,
            "evict_floor": 1,
            "skipped": 0,
            "source_trim": 0,
            "written": 3,
            "live": 2,
            "deleted": 1,
            "lost_cap": 0,
            "lost_ttl": 0,
            "lost_crash": 0,
            "gaps": [],
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "setCursor": Example(
        path={"topic": "orders", "cursor": "billing"},
        body={"seq": 1},
        status=201,
        answer={
            "topic": "orders",
            "cursor": "billing",
            "seq": 1,
            "updated_ts": 1790000000008,
            "head_seq": 3,
            "lag_records": 1,
            "lag_seqs": 2,
            "lag_seconds": 0.01,
            "gap_pending": False,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "getCursor": Example(
        path={"topic": "orders", "cursor": "billing"},
        answer={
            "topic": "orders",
            "cursor": "billing",
            "seq": 1,
            "updated_ts": 1790000000008,
            "head_seq": 3,
            "lag_records": 1,
            "lag_seqs": 2,
            "lag_seconds": 0.011,
            "gap_pending": False,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "listCursors": Example(
        path={"topic": "orders"},
        answer={
            "topic": "orders",
            "cursors": [
                {
                    "topic": "orders",
                    "cursor": "billing",
                    "seq": 1,
                    "updated_ts": 1790000000008,
                    "head_seq": 3,
                    "lag_records": 1,
                    "lag_seqs": 2,
                    "lag_seconds": 0.012,
                    "gap_pending": False,
                }
            ],
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "dropCursor": Example(
        path={"topic": "orders", "cursor": "billing"},
        answer={
            "topic": "orders",
            "cursor": "billing",
            "deleted": True,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "getTopic": Example(
        path={"topic": "orders"},
        answer={
            "topic": "orders",
            "type": "log",
            "head_seq": 3,
            "earliest_seq": 1,
            "next_seq": 4,
            "count": 2,
            "bytes": 34,
            "config": _CONFIG,
            "effective_priority": 500,
            "last_write_ts": 1790000000000,
            "last_read_ts": 1790000000014,
            "epoch": 1,
            "delete_version": 4294967297,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "putRouter": Example(
        path={"router": "orders->audit"},
        body={"source": "orders", "dest": "audit", "filter": "user-*"},
        status=201,
        answer={
            "router": "orders->audit",
            "created": True,
            "source": "orders",
            "dest": "audit",
            "preserve_node": True,
            "preserve_tag": True,
            "filter": ["tag", "Glob", "user-*"],
            "allow_cycle": False,
            "guarantee": "at_least_once",
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "getRouter": Example(
        path={"router": "orders->audit"},
        answer={
            "router": "orders->audit",
            "source": "orders",
            "dest": "audit",
            "preserve_node": True,
            "preserve_tag": True,
            "filter": ["tag", "Glob", "user-*"],
            "allow_cycle": False,
            "guarantee": "at_least_once",
            "forwarded_total": 0,
            "lag": 0,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "listRouters": Example(
        query="source=orders",
        answer={
            "routers": [
                {
                    "router": "orders->audit",
                    "source": "orders",
                    "dest": "audit",
                    "guarantee": "at_least_once",
                    "forwarded_total": 0,
                }
            ],
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "dropRouter": Example(
        path={"router": "orders->audit"},
        answer={
            "router": "orders->audit",
            "deleted": True,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "createWatch": Example(
        body={"topics": {"orders": {"from_seq": 0}}},
        answer={
            "wid": "wid_SWpDmuHeO_fBpSjgh9kqwg",
            "stream_url": "/v0/watch/wid_SWpDmuHeO_fBpSjgh9kqwg",
            "session_ttl_ms": 300000,
            "topics": {"orders": {"from_seq": 0, "head_seq": 3, "earliest_seq": 1}},
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "stageRecords": Example(
        path={"app": "etl", "epoch": 1, "part": 0, "attempt": 0},
        body={"records": [{"topic": "orders", "data": {"id": 4, "eur": 21}}]},
        answer={
            "app": "etl",
            "epoch": 1,
            "part": 0,
            "attempt": 0,
            "records": 1,
            "bytes": 17,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "commitStages": Example(
        path={"app": "etl", "epoch": 1},
        body={"parts": [[0, 0]]},
        answer={
            "app": "etl",
            "epoch": 1,
            "deduped": False,
            "topics": {"orders": {"first_seq": 4, "last_seq": 4, "count": 1}},
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "listTopics": Example(
        query="prefix=ord",
        answer={
            "topics": [
                {
                    "topic": "orders",
                    "head_seq": 4,
                    "earliest_seq": 1,
                    "count": 3,
                    "bytes": 51,
                    "durable": True,
                    "effective_priority": 499,
                }
            ],
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "claimJobs": Example(
        path={"topic": "mails"},
        body={"node": "worker-1", "max": 2},
        answer={
            "topic": "mails",
            "claimed": [
                {
                    "$seq": 1,
                    "lease_id": "lease_10000000001",
                    "deadline": 1790000030454,
                    "$ts": 1790000000453,
                    "deliveries": 1,
                    "data": {"to": "a@example.org"},
                },
                {
                    "$seq": 2,
                    "lease_id": "lease_10000000002",
                    "deadline": 1790000030454,
                    "$ts": 1790000000453,
                    "deliveries": 1,
                    "data": {"to": "b@example.org"},
                },
            ],
            "count": 2,
            "ready": 1,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "extendJobs": Example(
        path={"topic": "mails"},
        body={"node": "worker-1", "seqs": [1, 2], "lease_ms": 60000},
        answer={
            "topic": "mails",
            "extended": 2,
            "skipped": [],
            "deadlines": {"1": 1790000060456, "2": 1790000060456},
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "ackJobs": Example(
        path={"topic": "mails"},
        body={"node": "worker-1", "seqs": [1]},
        answer={
            "topic": "mails",
            "acked": 1,
            "skipped": [],
            "ready": 1,
            "in_flight": 1,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "nackJobs": Example(
        path={"topic": "mails"},
        body={
            "node": "worker-1",
            "seqs": [2],
            "error": {"type": "SMTPServerDisconnected", "message": "connection lost"},
        },
        answer={
            "topic": "mails",
            "nacked": 1,
            "skipped": [],
            "ready": 2,
            "in_flight": 0,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "redriveJobs": Example(
        path={"topic": "mails"},
        body={"max": 10},
        answer={
            "topic": "mails",
            "from": "mails.dead",
            "moved": 1,
            "more": False,
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "dropTopic": Example(
        path={"topic": "mails"},
        answer={
            "topic": "mails",
            "deleted": True,
            "routers_removed": [],
            "performance": {"server_total_ms": 0.3},
        },
    ),
    "health": Example(answer={"status": "ok", "version": "0.1.0.dev0", "uptime_ms": 788}),
    "healthz": Example(answer={"status": "ok", "version": "0.1.0.dev0", "uptime_ms": 788}),
    "ready": Example(answer={"status": "ready", "wal_replay_complete": True, "topics": 3}),
    "readyz": Example(answer={"status": "ready", "wal_replay_complete": True, "topics": 3}),
    "keyRights": Example(
        answer={
            "auth": False,
            "scopes": ["read", "write", "delete", "admin"],
            "prefixes": [],
            "performance": {"server_total_ms": 0.02},
        }
    ),
    "history": Example(
        query="topic=orders",
        answer={
            "step_ms": 10000,
            "times": [1795020482277, 1795020492279],
            "server": {
                "records_in": [0.0, 12.4],
                "pressure": [0.0, 0.0],
                "loop_lag_ms": [1.0, 0.4],
                "sync_ms": [None, 0.31],
                "streams": [0.0, 2.0],
            },
            "topics": {"orders": [None, 12.4]},
            "cursors": {"billing": [None, 3.0]},
            "performance": {"server_total_ms": 0.05},
        },
    ),
    "metrics": Example(
        answer={
            "topics": 3,
            "topics_ephemeral": 0,
            "topics_memory": 0,
            "topics_disk": 2,
            "topics_fsync": 1,
            "routers": 0,
            "records_live": 3,
            "bytes_live": 51,
            "queue_topics": 0,
            "queue_leases_in_flight": 0,
            "sse_connections": 0,
            "watch_sessions": 1,
            "ready": True,
            "replay_progress": 1.0,
            "uptime_ms": 788,
            "pressure": 0.0,
            "throttled_total": 0,
            "streams_lagged_total": 0,
            "wal": {
                "fsyncs": 16,
                "frames": 43,
                "batches": 25,
                "bytes_written": 4608,
                "rotations": 0,
                "queue_depth": 0,
                "queue_depth_peak": 0,
                "submit_full_total": 0,
                "read_only": False,
                "fsync_count": 16,
                "fsync_micros_total": 23260,
            },
        }
    ),
    "openWatch": Example(
        path={"wid": "wid_SWpDmuHeO_fBpSjgh9kqwg"},
        answer=(
            'id: {"orders":1}\nevent: record\n'
            'data: {"topic":"orders","from_seq":0,"head_seq":4,"records":'
            '[{"$seq":1,"$ts":1790000000000,"data":{"id":1,"eur":40}}],"to_seq":1}\n\n'
        ),
    ),
    "streamJobs": Example(
        path={"topic": "mails"},
        query="node=worker-1",
        answer=(
            'event: job\ndata: {"topic":"mails","$seq":1,"lease_id":"lease_10000000001",'
            '"deadline":1790000030500,"$ts":1790000000500,"deliveries":1,'
            '"data":{"to":"a@example.org"}}\n\n'
        ),
    ),
}
"""By the name of the endpoint. What one connection carries over time is shown by its first part."""
