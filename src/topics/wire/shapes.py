"""Response bodies as types: what the server builds, the client parses and the schema shows.

Where a result of the Python API has the very fields of a body, that type serves as the shape
and is not repeated here. `performance`, which nearly every body ends with, is added on sending.
Fields that may be absent are `UNSET`; those that may be null say so.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Struct, UnsetType, defstruct, field

from topics import values
from topics.topic_settings import Durability, TopicConfig, TopicType, types
from topics.values import (
    CursorState,
    ErasureState,
    Eviction,
    HoleKind,
    JobState,
    QueueCounts,
    QueueDetails,
    TombstoneReason,
    WaitingStages,
)
from topics.wire.numbers import U64
from topics.wire.predicates import Triple
from topics.wire.words import Guarantee


class Performance(Struct, omit_defaults=True):
    """Where the time went, in milliseconds. Only what applies to a call is there."""

    server_total_ms: float
    wal_append_ms: float | UnsetType = UNSET
    fsync_ms: float | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET
    records_scanned: U64 | UnsetType = UNSET
    cold_segments_read: U64 | UnsetType = UNSET


class ErrorFacts(Struct):
    """What went wrong: a stable code, a text for people, facts for programs."""

    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class ErrorBody(Struct):
    """The body of every refusal."""

    error: ErrorFacts


# Topics


if TYPE_CHECKING:
    Config = TopicConfig
else:
    Config = defstruct("Config", list(types().items()), module=__name__)
    Config.__doc__ = "A topic's configuration, resolved: every field is there."


class TopicConfigured(Struct):
    """A topic that was created or configured. A dry run tells what the change would evict."""

    topic: str
    created: bool
    config: Config
    evicted: Eviction | UnsetType = UNSET


class TopicStateBody(Struct):
    """A topic at one moment. A queue also counts its jobs."""

    topic: str
    type: TopicType
    head_seq: U64
    earliest_seq: U64
    next_seq: U64
    count: U64
    bytes: U64
    config: Config
    effective_priority: int
    last_write_ts: U64 | None
    last_read_ts: U64 | None
    epoch: U64
    delete_version: U64
    queue: QueueCounts | UnsetType = UNSET


class TopicEntry(Struct):
    """One line of the list of topics. With `details=true` also its type, its durability, the
    records it lost, and the jobs of a queue."""

    topic: str
    head_seq: U64
    earliest_seq: U64
    count: U64
    bytes: U64
    durable: bool
    effective_priority: int
    type: TopicType | UnsetType = UNSET
    durability: Durability | UnsetType = UNSET
    lost: U64 | UnsetType = UNSET
    queue: QueueDetails | UnsetType = UNSET


class TopicList(Struct):
    """Topics by name; `next_cursor` is there when more follow."""

    topics: list[TopicEntry]
    next_cursor: str | UnsetType = UNSET


# Records


class RecordShape(Struct, rename={"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}):
    """A record as readers get it. What was not set or not asked for has no key."""

    seq: U64
    ts: U64
    node: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    data: Any = UNSET
    meta: Any = UNSET


class TombstoneShape(Struct):
    """Records the reader lost against its will, and where reading goes on."""

    gap_from: U64
    gap_to: U64
    reason: TombstoneReason
    missed_estimate: U64
    earliest_seq: U64
    head_seq: U64


class WriteAck(Struct, kw_only=True):
    """A write that is as safe as its topic promises; `seqs` unless the caller declined them."""

    topic: str
    first_seq: U64
    last_seq: U64
    seqs: list[U64] | UnsetType = UNSET
    head_seq: U64
    count: U64
    created: bool
    deduped: bool


class DiffPage(Struct):
    """One read: records after a cursor, and the cursor to go on with."""

    topic: str
    records: list[RecordShape]
    next_from_seq: U64
    head_seq: U64
    earliest_seq: U64
    caught_up: bool
    tombstone: TombstoneShape | None
    lag: U64


class RecordsPage(Struct):
    """A read that can be cached: only what changes when the page does.

    With `order=desc` the losses between the records are in `gaps`, and `next_before_seq` is where
    the next page goes on; it is absent at the beginning of the topic.
    """

    topic: str
    records: list[RecordShape]
    next_from_seq: U64
    caught_up: bool
    tombstone: TombstoneShape | None
    gaps: list[TombstoneShape] | UnsetType = UNSET
    next_before_seq: U64 | UnsetType = UNSET


class CursorList(Struct):
    """Named cursors of a topic; `next_cursor` is there when more follow."""

    topic: str
    cursors: list[CursorState]
    next_cursor: str | UnsetType = UNSET


class ErasureList(Struct):
    """The erasures of a topic, the oldest first, also those of earlier topics of its name."""

    topic: str
    erasures: list[ErasureState]


class CursorDropped(Struct):
    """A named cursor that is gone; `deleted` is false when there was none."""

    topic: str
    cursor: str
    deleted: bool


class HolesPage(Struct):
    """Dead runs of a range as [from, to, kind], ends included."""

    topic: str
    epoch: U64
    delete_version: U64
    runs: list[tuple[U64, U64, HoleKind]]
    next_from_seq: U64
    exact_from: U64


class PlanShape(Struct):
    """A range cut for parallel readers: [from, to, live records, bytes] each."""

    topic: str
    epoch: U64
    delete_version: U64
    head_seq: U64
    evict_floor: U64
    ranges: list[tuple[U64, U64, U64, U64]]
    next_from_seq: U64


# Routers


class RouterShape(Struct, kw_only=True):
    """A router. `created` answers a PUT, `forwarded_total` and `lag` a GET."""

    router: str
    created: bool | UnsetType = UNSET
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: Triple | None
    allow_cycle: bool
    guarantee: Guarantee
    forwarded_total: U64 | UnsetType = UNSET
    lag: U64 | UnsetType = UNSET


class RouterSummary(Struct):
    """One line of the list of routers."""

    router: str
    source: str
    dest: str
    guarantee: Guarantee
    forwarded_total: U64
    lag: U64 | UnsetType = UNSET
    """Records of the source that wait; with `details=true`."""


class RouterList(Struct):
    """Routers by name; `next_cursor` is there when more follow."""

    routers: list[RouterSummary]
    next_cursor: str | UnsetType = UNSET


class RouterDropped(Struct):
    """A router that is gone; `deleted` is false when there was none."""

    router: str
    deleted: bool


# Streams


class StreamStart(Struct):
    """Where a stream begins in one topic, resolved."""

    from_seq: U64
    head_seq: U64
    earliest_seq: U64


class WatchOpened(Struct):
    """A watch session and where to open its stream."""

    wid: str
    stream_url: str
    session_ttl_ms: U64
    topics: dict[str, StreamStart]


# Queues


class JobShape(Struct, rename={"seq": "$seq", "ts": "$ts", "tag": "$tag"}, kw_only=True):
    """A job on lease. It is the worker's until the deadline."""

    seq: U64
    lease_id: str
    deadline: U64
    ts: U64
    tag: str | UnsetType = UNSET
    deliveries: U64
    data: Any
    meta: Any = UNSET


class ClaimedShape(Struct):
    """Jobs handed to a worker, perhaps none; `ready` jobs are left."""

    topic: str
    claimed: list[JobShape]
    count: U64
    ready: U64


class JobFailure(Struct):
    """What a worker failed with when it gave the job back, and when."""

    type: str
    message: str
    node: str
    ts: U64


class PeekedJobShape(Struct, kw_only=True):
    """A job that is looked at. Who holds it, since when and until when; or when it is ready."""

    seq: U64
    state: JobState
    deliveries: U64
    node: str | UnsetType = UNSET
    claimed_ts: U64 | UnsetType = UNSET
    deadline_ts: U64 | UnsetType = UNSET
    ready_ts: U64 | UnsetType = UNSET
    last_error: JobFailure | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    data: Any


class PeekedJobsPage(Struct):
    """Jobs: leased ones, then delayed ones, then ready ones. `more`: the queue has others."""

    topic: str
    jobs: list[PeekedJobShape]
    more: bool


class AckedShape(Struct):
    """Jobs finished; `skipped` were not this worker's any more."""

    topic: str
    acked: U64
    skipped: list[U64]
    ready: U64
    in_flight: U64


class NackedShape(Struct):
    """Jobs given back; `skipped` were not this worker's any more."""

    topic: str
    nacked: U64
    skipped: list[U64]
    ready: U64
    in_flight: U64


class ExtendedShape(Struct):
    """Jobs held for longer, with the new deadline of each seq."""

    topic: str
    extended: U64
    skipped: list[U64]
    deadlines: dict[str, U64]


class RedrivenShape(Struct):
    """Dead letters put back into their queue; `more` says whether some are left."""

    topic: str
    source: str = field(name="from")
    moved: U64
    more: bool


# Staged writes


class StagedShape(Struct):
    """Records kept aside. `deduped` when the epoch was committed before: nothing was kept."""

    app: str
    epoch: U64
    part: U64
    attempt: U64
    records: U64
    bytes: U64
    deduped: bool | UnsetType = UNSET


class StagesList(Struct):
    """What is staged and not committed."""

    stages: list[WaitingStages]
    more: bool


class CommittedRun(Struct):
    """The seqs one topic got from a commit."""

    first_seq: U64
    last_seq: U64
    count: U64


class Committed(Struct):
    """All stages of an epoch, now visible together."""

    app: str
    epoch: U64
    deduped: bool
    topics: dict[str, CommittedRun]


# Probes


class Health(Struct, kw_only=True):
    """The process runs."""

    status: Literal["ok"] = "ok"
    version: str
    uptime_ms: U64


class Ready(Struct, kw_only=True):
    """The log is recovered and can be written."""

    status: Literal["ready"] = "ready"
    wal_replay_complete: bool = True
    topics: U64


class WalMetrics(Struct):
    """Counters of the log."""

    fsyncs: U64
    frames: U64
    batches: U64
    bytes_written: U64
    rotations: U64
    queue_depth: U64
    queue_depth_peak: U64
    submit_full_total: U64
    read_only: bool
    fsync_count: U64
    fsync_micros_total: U64


class Metrics(Struct):
    """What the server counts, as JSON."""

    topics: U64
    topics_ephemeral: U64
    topics_memory: U64
    topics_disk: U64
    topics_fsync: U64
    routers: U64
    records_live: U64
    bytes_live: U64
    queue_topics: U64
    queue_leases_in_flight: U64
    stages: U64
    stage_disk_bytes: U64
    stage_oldest_ms: U64
    sse_connections: U64
    watch_sessions: U64
    ready: bool
    replay_progress: float
    uptime_ms: U64
    pressure: float
    throttled_total: U64
    streams_lagged_total: U64
    wal: WalMetrics
    disk_free_bytes: U64 | UnsetType = UNSET
    """Measured every ten seconds, as the next two are."""
    disk_total_bytes: U64 | UnsetType = UNSET
    log_bytes: U64 | UnsetType = UNSET
    """What the files of the log take on disk; records in segments are not in it."""


class KeyRights(Struct):
    """What the key of this request may do. Without keys every client may do everything."""

    auth: bool
    scopes: list[Literal["read", "write", "delete", "admin"]]
    prefixes: list[str]


Points = list[float | None]


class ServerHistory(Struct):
    """Numbers of the whole server, one per step; null where nothing was measured."""

    records_in: Points
    records_out: Points
    """Passed on to open streams, filtered ones included."""
    pressure: Points
    loop_lag_ms: Points
    sync_ms: Points
    streams: Points


class Trouble(Struct):
    """Something that is wrong with a topic now, and the part of the topic that shows it."""

    weight: int
    topic: str
    part: Literal["ledger", "settings", "jobs", "dead", "consumers", "routers"]
    what: str


class ConsumerLag(Struct):
    """A named cursor and how far it is behind; no seconds where they were not measured."""

    topic: str
    cursor: str
    lag_records: U64
    lag_seconds: float | None


class AppOutput(Struct):
    """A staging app, such as a Spark query, and the topics of its last commit: the first few by
    name, and how many there are."""

    app: str
    epoch: U64
    topics: list[str]
    topic_count: U64


class HistoryBody(Struct):
    """What the server measured lately. `topics` has records written per second. `cursors` and
    `cursor_seconds` tell how far consumers of the topic asked for are behind. Without a topic
    there are the counters of the last step, what is wrong, consumers and staging apps."""

    step_ms: U64
    times: list[U64]
    server: ServerHistory
    topics: dict[str, Points]
    cursors: dict[str, Points]
    cursor_seconds: dict[str, Points]
    now: Metrics | UnsetType = UNSET
    wrong: list[Trouble] | UnsetType = UNSET
    consumers: list[ConsumerLag] | UnsetType = UNSET
    apps: list[AppOutput] | UnsetType = UNSET


class FindingShape(Struct):
    """One sentence of a story, what its time means, and the command that helps with it."""

    weight: int
    what: str
    since_ms: U64 | None
    word: str
    command: str


class StoryShape(Struct):
    """What happened to a topic, the most important first."""

    topic: str
    opening: str
    findings: list[FindingShape]


READ_AS = {
    "AckedShape": "Acked",
    "Committed": "StageCommit",
    "CommittedRun": "CommittedRange",
    "ExtendedShape": "Extended",
    "NackedShape": "Nacked",
    "RouterShape": "RouterState",
    "StagedShape": "Staged",
    "TombstoneShape": "Tombstone",
    "TopicConfigured": "Created",
    "TopicEntry": "TopicSummary",
    "TopicStateBody": "TopicState",
    "WriteAck": "Ack",
}
"""Shapes that the client reads as results of the Python API, because these have their fields."""


def shape_of(name: str) -> type[Struct]:
    """The body or answer that the table of endpoints names."""
    from topics.wire import requests  # noqa: PLC0415 - its decoders are made while it is imported

    for home in (requests, sys.modules[__name__], values):
        found = getattr(home, name, None)
        if found is not None:
            shape: type[Struct] = found
            return shape
    raise AssertionError(f"the table names the shape {name}, which nobody defines")
