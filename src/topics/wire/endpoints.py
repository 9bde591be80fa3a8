"""Every endpoint: its path, who may call it, what goes in and what comes out.

`http.routing` makes the routes of the server from this table, `openapi` writes it out as a
document. Statuses of errors are not repeated here; they follow from the codes.
"""

from topics import values
from topics.wire import requests, shapes
from topics.wire.endpoint_parts import (
    LISTS_BYTES,
    Endpoint,
    Parameter,
    Reply,
    Scope,
    Shape,
    flag,
    header,
    text,
    u32,
    u64,
)

EVENT_STREAM = "text/event-stream"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
METRICS_TEXT = "text/plain; version=0.0.4"

_PAGING = (
    u32("page_size", "Entries per page; clamped to 1 to 1000.", 100),
    text("cursor", "`next_cursor` of the page before; absent to begin."),
)
_PREFIX = text("prefix", "Only names that begin with this.")
_ABSENT = ("topic_not_found",)
_QUEUE = ("topic_not_found", "not_a_queue")


def _created_or_not(what: str, shape: Shape) -> dict[int, Reply]:
    return {
        200: Reply(f"The {what} existed.", shape),
        201: Reply(f"The {what} is new.", shape),
    }


_TOPICS = (
    Endpoint(
        method="GET",
        path="/v0/topics",
        name="listTopics",
        summary="List topics by name",
        group="topics",
        scopes=("read",),
        query=(_PREFIX, *_PAGING, flag("touch", "Count as a use.", default=False)),
        replies={200: Reply("Topics the key may see.", shapes.TopicList)},
        errors=("invalid_request",),
    ),
    Endpoint(
        method="PUT",
        path="/v0/topics/{topic}",
        name="configureTopic",
        summary="Create a topic or replace its configuration",
        group="topics",
        scopes=("admin",),
        body=requests.ConfigBody,
        body_required=False,
        replies=_created_or_not("topic", shapes.TopicConfigured),
        errors=("topic_exists_incompatible",),
    ),
    Endpoint(
        method="GET",
        path="/v0/topics/{topic}",
        name="getTopic",
        summary="Read the state of a topic",
        group="topics",
        scopes=("read",),
        query=(flag("touch", "Count as a read of the topic.", default=True),),
        replies={200: Reply("The topic now.", shapes.TopicStateBody)},
        errors=_ABSENT,
    ),
    Endpoint(
        method="DELETE",
        path="/v0/topics/{topic}",
        name="dropTopic",
        summary="Drop a topic and the routers that touch it",
        group="topics",
        scopes=("delete",),
        query=(flag("if_empty", "Refuse while records are left.", default=False),),
        replies={200: Reply("The topic is gone.", values.Dropped)},
        errors=("topic_not_empty",),
    ),
)

_RECORDS = (
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}",
        name="appendRecords",
        summary="Append records; also needs admin to configure a new topic",
        group="records",
        scopes=("write",),
        query=(
            flag("return_seqs", "List the seq of every record.", default=True),
            header("Idempotency-Key", "Used when the body has no idempotency_key."),
        ),
        body=requests.WriteBody,
        max_body_bytes=None,
        replies=_created_or_not("topic", shapes.WriteAck),
        errors=(
            "batch_too_large",
            "record_too_large",
            "topic_not_found",
            "head_mismatch",
            "topic_full",
        ),
    ),
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}/diff",
        name="readAfterCursor",
        summary="Read records after a cursor, waiting for new ones if asked to",
        group="records",
        scopes=("read",),
        body=requests.DiffBody,
        body_required=False,
        replies={200: Reply("Records and the cursor to go on with.", shapes.DiffPage)},
        errors=_ABSENT,
    ),
    Endpoint(
        method="GET",
        path="/v0/topics/{topic}/records",
        name="readRecords",
        summary="Read records in a form that can be cached",
        group="records",
        scopes=("read",),
        query=(
            u64("from_seq", "The last seq already read; excludes from_ts.", 0),
            u64("to_seq", "The last seq wanted."),
            u32("limit", "Records at most.", 256),
            u64("from_ts", "Begin at the first record of this time (ms) or later."),
            text("order", "asc, or desc for newest first; desc goes with before_seq only."),
            u64(
                "before_seq", "With order=desc: only seqs below this; absent to begin at the head."
            ),
            text("match", "An exact tag, or a prefix followed by *."),
            Parameter(
                "node",
                "Leave out records of these nodes; repeatable.",
                {"type": "array", "items": {"type": "string"}},
            ),
            u64("max_batch_bytes", "Bytes at most, beyond the first record."),
            flag("include_tags", "Show tags.", default=False),
            flag("include_meta", "Show metadata.", default=True),
            header("If-None-Match", "The ETag of the page at hand."),
        ),
        replies={
            200: Reply(
                "The page, as JSON or as one Arrow stream.",
                shapes.RecordsPage,
                performance=False,
                media=(ARROW_STREAM,),
                headers=("ETag", "Topics-Head-Seq", "Topics-Earliest-Seq"),
            ),
            304: Reply(
                "The page at hand is still right.",
                headers=("ETag", "Topics-Head-Seq", "Topics-Earliest-Seq"),
            ),
        },
        errors=("invalid_request", "topic_not_found", "not_acceptable"),
    ),
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}/delete",
        name="deleteRecords",
        summary="Delete records below a seq, of a tag, or both",
        group="records",
        scopes=("delete",),
        body=requests.DeleteBody,
        replies={200: Reply("What was deleted and what is left.", values.DeleteResult)},
        errors=_ABSENT,
    ),
    Endpoint(
        method="GET",
        path="/v0/topics/{topic}/audit",
        name="auditTopic",
        summary="Account for every seq of a topic",
        group="records",
        scopes=("read",),
        replies={200: Reply("Where every seq went.", values.Audit)},
        errors=_ABSENT,
    ),
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}/holes",
        name="listHoles",
        summary="List the dead runs of a range",
        group="records",
        scopes=("read",),
        body=requests.HolesBody,
        replies={200: Reply("Dead runs in order.", shapes.HolesPage)},
        errors=_ABSENT,
    ),
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}/plan",
        name="planRanges",
        summary="Cut a range for parallel readers",
        group="records",
        scopes=("read",),
        body=requests.PlanBody,
        replies={200: Reply("Ranges in order.", shapes.Plan)},
        errors=_ABSENT,
    ),
)

_CURSORS = (
    Endpoint(
        method="GET",
        path="/v0/topics/{topic}/cursors",
        name="listCursors",
        summary="List the named cursors of a topic",
        group="cursors",
        scopes=("read",),
        query=_PAGING,
        replies={200: Reply("Cursors by name.", shapes.CursorList)},
        errors=("invalid_request", "topic_not_found"),
    ),
    Endpoint(
        method="PUT",
        path="/v0/topics/{topic}/cursors/{cursor}",
        name="setCursor",
        summary="Set a named cursor, also backwards",
        group="cursors",
        scopes=("read",),
        body=requests.CursorBody,
        replies=_created_or_not("cursor", values.CursorState),
        errors=_ABSENT,
    ),
    Endpoint(
        method="GET",
        path="/v0/topics/{topic}/cursors/{cursor}",
        name="getCursor",
        summary="Read a named cursor and how far it is behind",
        group="cursors",
        scopes=("read",),
        replies={200: Reply("The cursor now.", values.CursorState)},
        errors=("topic_not_found", "not_found"),
    ),
    Endpoint(
        method="DELETE",
        path="/v0/topics/{topic}/cursors/{cursor}",
        name="dropCursor",
        summary="Forget a named cursor",
        group="cursors",
        scopes=("delete",),
        replies={200: Reply("The cursor is gone.", shapes.CursorDropped)},
        errors=_ABSENT,
    ),
)

_ROUTERS = (
    Endpoint(
        method="GET",
        path="/v0/routers",
        name="listRouters",
        summary="List routers by name",
        group="routers",
        scopes=("read",),
        query=(
            _PREFIX,
            text("source", "Only routers from this topic."),
            text("dest", "Only routers into this topic."),
            *_PAGING,
        ),
        replies={200: Reply("Routers the key may see.", shapes.RouterList)},
        errors=("invalid_request",),
    ),
    Endpoint(
        method="PUT",
        path="/v0/routers/{router}",
        name="putRouter",
        summary="Create or replace a router",
        group="routers",
        scopes=("admin",),
        body=requests.RouterBody,
        replies=_created_or_not("router", shapes.RouterShape),
        errors=("topic_not_found", "topic_exists_incompatible", "router_cycle"),
    ),
    Endpoint(
        method="GET",
        path="/v0/routers/{router}",
        name="getRouter",
        summary="Read a router",
        group="routers",
        scopes=("read",),
        replies={200: Reply("The router now.", shapes.RouterShape)},
        errors=("router_not_found",),
    ),
    Endpoint(
        method="DELETE",
        path="/v0/routers/{router}",
        name="dropRouter",
        summary="Drop a router; what it forwarded stays",
        group="routers",
        scopes=("delete",),
        replies={200: Reply("The router is gone.", shapes.RouterDropped)},
    ),
)

_STREAMS = (
    Endpoint(
        method="POST",
        path="/v0/watch",
        name="createWatch",
        summary="Open a session that follows topics",
        group="streams",
        scopes=("read",),
        query=(flag("lenient", "Leave out topics that do not exist.", default=False),),
        body=requests.WatchBody,
        max_body_bytes=LISTS_BYTES,
        replies={200: Reply("The session and its stream.", shapes.WatchOpened)},
        errors=_ABSENT,
    ),
    Endpoint(
        method="GET",
        path="/v0/watch/{wid}",
        name="openWatch",
        summary="Follow a session's topics; needs the key that created it",
        group="streams",
        scopes=(),
        query=(header("Last-Event-ID", "The id of the last event received, to resume."),),
        replies={
            200: Reply(
                "Events record, caught-up, tombstone, topic-deleted and error.",
                media=(EVENT_STREAM,),
            )
        },
        errors=("not_acceptable", "not_found"),
        stream_token=True,
        own_auth=True,
    ),
    Endpoint(
        method="GET",
        path="/v0/ws",
        name="openWebSocket",
        summary="Subscribe and publish over one socket; each command needs its own scope",
        group="streams",
        scopes=(),
        replies={101: Reply("The connection is a WebSocket now; see the message schemas.")},
        errors=("invalid_request",),
    ),
)

_QUEUES = (
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}/claim",
        name="claimJobs",
        summary="Take jobs on lease",
        group="queues",
        scopes=("read", "write"),
        body=requests.ClaimBody,
        replies={200: Reply("Jobs, perhaps none.", shapes.Claimed)},
        errors=_QUEUE,
    ),
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}/ack",
        name="ackJobs",
        summary="Finish jobs",
        group="queues",
        scopes=("write",),
        body=requests.AckBody,
        replies={200: Reply("How many were finished.", shapes.Acked)},
        errors=("batch_too_large", *_QUEUE),
    ),
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}/nack",
        name="nackJobs",
        summary="Give jobs back",
        group="queues",
        scopes=("write",),
        body=requests.NackBody,
        replies={200: Reply("How many were given back.", shapes.Nacked)},
        errors=("batch_too_large", *_QUEUE),
    ),
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}/extend",
        name="extendJobs",
        summary="Hold jobs for longer",
        group="queues",
        scopes=("write",),
        body=requests.ExtendBody,
        replies={200: Reply("How many are held for longer.", shapes.Extended)},
        errors=("batch_too_large", *_QUEUE),
    ),
    Endpoint(
        method="GET",
        path="/v0/topics/{topic}/work",
        name="streamJobs",
        summary="Be sent jobs as a stream, a bounded number at a time",
        group="queues",
        scopes=("read", "write"),
        query=(
            text("node", "The worker's name.", required=True),
            u32("max", "Jobs held at a time.", 1),
            u64("lease_ms", "How long a job is held; as the queue says unless given."),
        ),
        replies={200: Reply("Events job and error.", media=(EVENT_STREAM,))},
        errors=("invalid_request", "not_acceptable", *_QUEUE),
        stream_token=True,
    ),
    Endpoint(
        method="POST",
        path="/v0/topics/{topic}/redrive",
        name="redriveJobs",
        summary="Put dead letters back into their queue",
        group="queues",
        scopes=("write", "delete"),
        body=requests.RedriveBody,
        replies={200: Reply("How many went back.", shapes.Redriven)},
        errors=("record_too_large", "topic_full", *_QUEUE),
    ),
)

_STAGES = (
    Endpoint(
        method="POST",
        path="/v0/stages/{app}/{epoch}/{part}/{attempt}",
        name="stageRecords",
        summary="Keep records aside until their epoch is committed",
        group="stages",
        scopes=("write",),
        body=requests.StageBody,
        max_body_bytes=None,
        body_media=(ARROW_STREAM,),
        replies={200: Reply("The records are kept.", shapes.Staged)},
        errors=("batch_too_large", "record_too_large", "stale_epoch"),
    ),
    Endpoint(
        method="POST",
        path="/v0/stages/{app}/{epoch}/commit",
        name="commitStages",
        summary="Make staged records visible, all or none",
        group="stages",
        scopes=("write",),
        body=requests.CommitBody,
        max_body_bytes=LISTS_BYTES,
        replies={200: Reply("The seqs each topic got.", shapes.Committed)},
        errors=("record_too_large", "not_found", "stale_epoch", "topic_full"),
    ),
)


def _open(
    path: str, name: str, summary: str, reply: Reply, *errors: str, is_probe: bool = True
) -> Endpoint:
    """What is answered without a key and at any time."""
    return Endpoint(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        group="server",
        scopes=None,
        replies={200: reply},
        errors=errors,
        is_always=True,
        is_probe=is_probe,
    )


_HEALTH = Reply("The process runs.", shapes.Health, performance=False)
_READY = Reply("The log is open for writes.", shapes.Ready, performance=False)
_UNREADY = ("not_ready", "shutting_down")
_KEYED_PROBE = ("unauthorized", "throttled")
"""Where probes are set up to need a key."""

_PROBES = (
    _open("/v0/health", "health", "Ask whether the process runs", _HEALTH, *_KEYED_PROBE),
    _open("/healthz", "healthz", "The same as /v0/health", _HEALTH, *_KEYED_PROBE),
    _open("/v0/ready", "ready", "Ask whether it can serve", _READY, *_UNREADY, *_KEYED_PROBE),
    _open("/readyz", "readyz", "The same as /v0/ready", _READY, *_UNREADY, *_KEYED_PROBE),
    Endpoint(
        method="GET",
        path="/v0/metrics",
        name="metrics",
        summary="Read counters and gauges, as text or as JSON",
        group="server",
        scopes=("read",),
        replies={
            200: Reply(
                "What the server counts.",
                shapes.Metrics,
                performance=False,
                media=(METRICS_TEXT,),
            )
        },
        is_always=True,
    ),
    Endpoint(
        method="GET",
        path="/v0/history",
        name="history",
        summary="Read rates and lag over the last hours, for plots",
        group="server",
        scopes=("read",),
        query=(text("topic", "Only this topic, with its cursors, as far back as is known."),),
        replies={200: Reply("Numbers in equal steps.", shapes.HistoryBody)},
    ),
    Endpoint(
        method="GET",
        path="/v0/key",
        name="keyRights",
        summary="Read what the key of this request may do",
        group="server",
        scopes=(),
        replies={200: Reply("Scopes and prefixes.", shapes.KeyRights)},
        is_always=True,
    ),
    _open(
        "/v0/openapi.json",
        "openapi",
        "Read this document",
        Reply("The OpenAPI document.", performance=False, media=("application/json",)),
        is_probe=False,
    ),
)

GROUPS = {
    "topics": "Create, configure, list and drop topics.",
    "records": "Append, read and delete records, and account for every seq.",
    "cursors": "Positions of consumers that the server keeps by name.",
    "routers": "Rules that copy records from one topic to another.",
    "streams": "Live delivery as server-sent events or over a WebSocket.",
    "queues": "Take jobs on lease, finish them, give them back.",
    "stages": "Writes of several parts that become visible together, once.",
    "server": "Probes, metrics and this document.",
}
"""The headings under which endpoints are listed, in order."""

ENDPOINTS = _TOPICS + _RECORDS + _CURSORS + _ROUTERS + _STREAMS + _QUEUES + _STAGES + _PROBES

OTHER_METHODS: tuple[tuple[str, Scope], ...] = (
    ("/v0/topics/{topic}", "write"),
    ("/v0/routers/{router}", "admin"),
    ("/v0/stages/", "write"),
)
"""The scope that a method needs which a path does not have, by the beginning of the path: a key
without the scope is refused for that first. Elsewhere no scope is needed."""
