"""Probes, metrics and the description of the API."""

from topics.wire.endpoints.parts import (
    METRICS_TEXT,
    Endpoint,
    Example,
    Success,
    text,
)

_KEYED_PROBE = ("unauthorized", "throttled")
"""Where probes are set up to need a key."""


def _health(path: str, name: str, summary: str, *, step: int) -> Endpoint:
    return Endpoint(
        f"GET {path}",
        name,
        summary,
        scopes=None,
        replies={200: Success("The process runs.", "Health", performance=False)},
        errors=_KEYED_PROBE,
        is_always=True,
        is_probe=True,
        example=Example(step, answer='{"status":"ok","version":"0.1.0.dev0","uptime_ms":788}'),
    )


def _ready(path: str, name: str, summary: str, *, step: int) -> Endpoint:
    return Endpoint(
        f"GET {path}",
        name,
        summary,
        scopes=None,
        replies={200: Success("The log is open for writes.", "Ready", performance=False)},
        errors=("not_ready", "shutting_down", *_KEYED_PROBE),
        is_always=True,
        is_probe=True,
        example=Example(step, answer='{"status":"ready","wal_replay_complete":true,"topics":4}'),
    )


SERVER = (
    _health("/v0/health", "health", "Ask whether the process runs", step=28),
    _health("/healthz", "healthz", "The same as /v0/health", step=29),
    _ready("/v0/ready", "ready", "Ask whether it can serve", step=30),
    _ready("/readyz", "readyz", "The same as /v0/ready", step=31),
    Endpoint(
        "GET /v0/metrics",
        "metrics",
        "Read counters and gauges, as text or as JSON",
        scopes=("read",),
        replies={
            200: Success(
                "What the server counts.",
                "Metrics",
                performance=False,
                media=(METRICS_TEXT,),
            )
        },
        is_always=True,
        example=Example(
            34,
            answer=(
                '{"topics":3,"topics_ephemeral":0,"topics_memory":0,"topics_disk":2,'
                '"topics_fsync":1,"routers":0,"records_live":3,"bytes_live":51,'
                '"queue_topics":0,"queue_leases_in_flight":0,"stages":0,'
                '"stage_disk_bytes":0,"stage_oldest_ms":0,"sse_connections":0,'
                '"watch_sessions":1,"ready":true,"replay_progress":1.0,"uptime_ms":788,'
                '"pressure":0.0,"throttled_total":0,"streams_lagged_total":0,'
                '"wal":{"fsyncs":16,"frames":43,"batches":25,"bytes_written":4608,'
                '"rotations":0,"queue_depth":0,"queue_depth_peak":0,"submit_full_total":0,'
                '"read_only":false,"fsync_count":16,"fsync_micros_total":23260}}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/history",
        "history",
        "Read rates and lag over the last hours, and what is wrong now",
        scopes=("read",),
        query=(text("topic", "Only this topic, with its cursors, as far back as is known."),),
        replies={200: Success("Numbers in equal steps.", "HistoryBody")},
        example=Example(
            33,
            query="topic=orders",
            answer=(
                '{"step_ms":10000,"times":[1795020482277,1795020492279],'
                '"server":{"records_in":[0.0,12.4],"records_out":[0.0,24.8],"pressure":[0.0,0.0],"loop_lag_ms":[1.0,'
                '0.4],"sync_ms":[null,0.31],"streams":[0.0,2.0]},"topics":{"orders":[null,'
                '12.4]},"cursors":{"billing":[null,3.0]},"cursor_seconds":{"billing":[null,1.2]}}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/key",
        "keyRights",
        "Read what the key of this request may do",
        scopes=(),
        replies={200: Success("Scopes and prefixes.", "KeyRights")},
        is_always=True,
        example=Example(
            32,
            answer='{"auth":false,"scopes":["read","write","delete","admin"],"prefixes":[]}',
        ),
    ),
    Endpoint(
        "GET /v0/openapi.json",
        "openapi",
        "Read this document",
        scopes=None,
        replies={
            200: Success("The OpenAPI document.", performance=False, media=("application/json",))
        },
        is_always=True,
    ),
)
