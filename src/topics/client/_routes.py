"""The calls of the table of endpoints that the client makes, and what answers them.

An answer is read into the result of the Python API that has its fields (`READ_AS` of
`wire.shapes`), or else into a type made of its shape. Payloads stay text.
"""

# Made from `../wire/endpoints` by tools/make_sync.py: change that, then `make fmt`.

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from topics.client._call import ApiRoute
from topics.values import (
    Ack,
    Acked,
    Audit,
    Created,
    CursorState,
    DeleteResult,
    Dropped,
    DroppedStages,
    ErasureState,
    Extended,
    Nacked,
    RouterState,
    StageCommit,
    Staged,
    Tombstone,
    TopicState,
    TopicSummary,
    WaitingStages,
)


class ParsedPerformance(Struct, kw_only=True):
    server_total_ms: float
    wal_append_ms: float | None = None
    fsync_ms: float | None = None
    throttle_wait_ms: float | None = None
    records_scanned: int | None = None
    cold_segments_read: int | None = None


class ParsedTopicList(Struct, kw_only=True):
    topics: list[TopicSummary]
    next_cursor: str | None = None
    performance: ParsedPerformance | None = None


class ParsedRecord(
    Struct, rename={"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}, kw_only=True
):
    seq: int
    ts: int
    node: str | None = None
    tag: str | None = None
    data: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = UNSET


class ParsedDiffPage(Struct, kw_only=True):
    topic: str
    records: list[ParsedRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    performance: ParsedPerformance | None = None


class ParsedErasureList(Struct, kw_only=True):
    topic: str
    erasures: list[ErasureState]
    performance: ParsedPerformance | None = None


class ParsedHolesPage(Struct, kw_only=True):
    topic: str
    epoch: int
    delete_version: int
    runs: list[tuple[int, int, Literal["deleted", "cap", "ttl", "crash", "skipped", "source_trim"]]]
    next_from_seq: int
    exact_from: int
    performance: ParsedPerformance | None = None


class ParsedPlan(Struct, kw_only=True):
    topic: str
    epoch: int
    delete_version: int
    head_seq: int
    evict_floor: int
    ranges: list[tuple[int, int, int, int]]
    next_from_seq: int
    performance: ParsedPerformance | None = None


class ParsedCursorList(Struct, kw_only=True):
    topic: str
    cursors: list[CursorState]
    next_cursor: str | None = None
    performance: ParsedPerformance | None = None


class ParsedCursorDropped(Struct, kw_only=True):
    topic: str
    cursor: str
    deleted: bool
    performance: ParsedPerformance | None = None


class ParsedRouterSummary(Struct, kw_only=True):
    router: str
    source: str
    dest: str
    guarantee: Literal["at_least_once", "exactly_once"]
    forwarded_total: int
    lag: int | None = None


class ParsedRouterList(Struct, kw_only=True):
    routers: list[ParsedRouterSummary]
    next_cursor: str | None = None
    performance: ParsedPerformance | None = None


class ParsedRouterDropped(Struct, kw_only=True):
    router: str
    deleted: bool
    performance: ParsedPerformance | None = None


class ParsedStreamStart(Struct, kw_only=True):
    from_seq: int
    head_seq: int
    earliest_seq: int


class ParsedWatchOpened(Struct, kw_only=True):
    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, ParsedStreamStart]
    performance: ParsedPerformance | None = None


class ParsedJob(Struct, rename={"seq": "$seq", "ts": "$ts", "tag": "$tag"}, kw_only=True):
    seq: int
    lease_id: str
    deadline: int
    ts: int
    tag: str | None = None
    deliveries: int
    data: Raw
    meta: Raw | UnsetType = UNSET


class ParsedClaimed(Struct, kw_only=True):
    topic: str
    claimed: list[ParsedJob]
    count: int
    ready: int
    performance: ParsedPerformance | None = None


class ParsedJobFailure(Struct, kw_only=True):
    type: str
    message: str
    node: str
    ts: int


class ParsedPeekedJob(Struct, kw_only=True):
    seq: int
    state: Literal["leased", "delayed", "ready"]
    deliveries: int
    node: str | None = None
    claimed_ts: int | None = None
    deadline_ts: int | None = None
    ready_ts: int | None = None
    last_error: ParsedJobFailure | None = None
    tag: str | None = None
    data: Raw


class ParsedPeekedJobsPage(Struct, kw_only=True):
    topic: str
    jobs: list[ParsedPeekedJob]
    more: bool
    performance: ParsedPerformance | None = None


class ParsedRedriven(Struct, rename={"source": "from"}, kw_only=True):
    topic: str
    source: str
    moved: int
    more: bool
    performance: ParsedPerformance | None = None


class ParsedStagesList(Struct, kw_only=True):
    stages: list[WaitingStages]
    more: bool
    performance: ParsedPerformance | None = None


LIST_TOPICS = ApiRoute("GET", "/v0/topics", ParsedTopicList)
CONFIGURE_TOPIC = ApiRoute("PUT", "/v0/topics/{topic}", Created)
GET_TOPIC = ApiRoute("GET", "/v0/topics/{topic}", TopicState)
DROP_TOPIC = ApiRoute("DELETE", "/v0/topics/{topic}", Dropped)
APPEND_RECORDS = ApiRoute("POST", "/v0/topics/{topic}", Ack)
READ_AFTER_CURSOR = ApiRoute("POST", "/v0/topics/{topic}/diff", ParsedDiffPage)
READ_RECORDS = ApiRoute("GET", "/v0/topics/{topic}/records", Raw)
DELETE_RECORDS = ApiRoute("POST", "/v0/topics/{topic}/delete", DeleteResult)
ERASE_RECORDS = ApiRoute("POST", "/v0/topics/{topic}/erase", ErasureState)
LIST_ERASURES = ApiRoute("GET", "/v0/topics/{topic}/erase", ParsedErasureList)
AUDIT_TOPIC = ApiRoute("GET", "/v0/topics/{topic}/audit", Audit)
LIST_HOLES = ApiRoute("POST", "/v0/topics/{topic}/holes", ParsedHolesPage)
PLAN_RANGES = ApiRoute("POST", "/v0/topics/{topic}/plan", ParsedPlan)
LIST_CURSORS = ApiRoute("GET", "/v0/topics/{topic}/cursors", ParsedCursorList)
SET_CURSOR = ApiRoute("PUT", "/v0/topics/{topic}/cursors/{cursor}", CursorState)
GET_CURSOR = ApiRoute("GET", "/v0/topics/{topic}/cursors/{cursor}", CursorState)
DROP_CURSOR = ApiRoute("DELETE", "/v0/topics/{topic}/cursors/{cursor}", ParsedCursorDropped)
LIST_ROUTERS = ApiRoute("GET", "/v0/routers", ParsedRouterList)
PUT_ROUTER = ApiRoute("PUT", "/v0/routers/{router}", Raw)
GET_ROUTER = ApiRoute("GET", "/v0/routers/{router}", RouterState)
DROP_ROUTER = ApiRoute("DELETE", "/v0/routers/{router}", ParsedRouterDropped)
CREATE_WATCH = ApiRoute("POST", "/v0/watch", ParsedWatchOpened)
CLAIM_JOBS = ApiRoute("POST", "/v0/topics/{topic}/claim", ParsedClaimed)
ACK_JOBS = ApiRoute("POST", "/v0/topics/{topic}/ack", Acked)
NACK_JOBS = ApiRoute("POST", "/v0/topics/{topic}/nack", Nacked)
EXTEND_JOBS = ApiRoute("POST", "/v0/topics/{topic}/extend", Extended)
LIST_JOBS = ApiRoute("GET", "/v0/topics/{topic}/jobs", ParsedPeekedJobsPage)
REDRIVE_JOBS = ApiRoute("POST", "/v0/topics/{topic}/redrive", ParsedRedriven)
STAGE_RECORDS = ApiRoute("POST", "/v0/stages/{app}/{epoch}/{part}/{attempt}", Staged)
GET_LAST_COMMIT = ApiRoute("GET", "/v0/stages/{app}", StageCommit)
LIST_STAGES = ApiRoute("GET", "/v0/stages", ParsedStagesList)
DROP_STAGES = ApiRoute("DELETE", "/v0/stages/{app}", DroppedStages)
COMMIT_STAGES = ApiRoute("POST", "/v0/stages/{app}/{epoch}/commit", StageCommit)
