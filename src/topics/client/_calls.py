"""What to send and what the answer means, for every call of a log. No I/O.

A `ApiCall` is a request and the function that reads its answer. The shells run calls; they know
nothing of JSON. What hangs on topics (cursors, routers, staged writes) is in `_linked_calls`,
jobs are in `_queue_calls`, streams in `_following`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict

from topics.batch import RecordBatch
from topics.client._call import ApiCall, Listed, at, new_key, page_query, reader
from topics.errors import InvalidRequest
from topics.topic_settings import known_settings
from topics.values import (
    Ack,
    Audit,
    Created,
    DeleteResult,
    Dropped,
    Hole,
    HoleKind,
    Holes,
    Page,
    PlannedRange,
    ReadPlan,
    Record,
    Tombstone,
    TopicState,
    TopicSummary,
)
from topics.wire.drafts import Records, batch_of
from topics.wire.jsonbytes import encode

T = TypeVar("T")
V = TypeVar("V")

MOST_WAIT_S = 25.0
"""How long one waiting read is held back by the server; longer waits are made of several."""
ARROW_STREAM = "application/vnd.apache.arrow.stream"
REPEAT_WRITES_S = 30.0
"""How long a write is repeated. Topics remember keys for two minutes unless told otherwise, and a
repeat must arrive well before its key is forgotten."""


# Topics


class _Topics(Struct):
    topics: list[TopicSummary]
    next_cursor: str | None = None


# Lists of runs and ranges come as bare arrays; objects of the Python API have names.


class _Holes(Struct):
    topic: str
    epoch: int
    delete_version: int
    runs: list[tuple[int, int, HoleKind]]
    next_from_seq: int
    exact_from: int


class _Plan(Struct):
    topic: str
    epoch: int
    delete_version: int
    head_seq: int
    evict_floor: int
    ranges: list[tuple[int, int, int, int]]
    next_from_seq: int


_created, _state, _dropped = reader(Created), reader(TopicState), reader(Dropped)
_topics, _holes, _plan = reader(_Topics), reader(_Holes), reader(_Plan)
_audit = reader(Audit)


def put(topic: str, config: Mapping[str, Any], *, dry_run: bool = False) -> ApiCall[Created]:
    """Create a topic, or replace the whole configuration of one that exists."""
    if not topic:
        raise InvalidRequest("a topic needs a name")

    query = {"dry_run": "true"} if dry_run else None
    return ApiCall(*at("configureTopic", topic=topic), _created, encode(config), query=query)


def drop(topic: str, *, if_empty: bool) -> ApiCall[Dropped]:
    query = {"if_empty": "true"} if if_empty else None
    return ApiCall(*at("dropTopic", topic=topic), _dropped, query=query)


def state(topic: str, *, touch: bool) -> ApiCall[TopicState]:
    return ApiCall(
        *at("getTopic", topic=topic), _state, query=None if touch else {"touch": "false"}
    )


def topics(prefix: str, cursor: str | None) -> ApiCall[Listed[TopicSummary]]:
    def parse(body: bytes) -> Listed[TopicSummary]:
        page = _topics(body)
        return page.topics, page.next_cursor

    return ApiCall(*at("listTopics"), parse, query=page_query(cursor, prefix=prefix))


def audit(topic: str) -> ApiCall[Audit]:
    return ApiCall(*at("auditTopic", topic=topic), _audit)


def holes(topic: str, *, from_seq: int, to_seq: int) -> ApiCall[Holes]:
    def parse(body: bytes) -> Holes:
        page = asdict(_holes(body))
        return Holes(**page | {"runs": [Hole(*run) for run in page["runs"]]})

    body = encode({"from_seq": from_seq, "to_seq": to_seq})
    return ApiCall(*at("listHoles", topic=topic), parse, body, idempotent=True)


def plan(topic: str, *, from_seq: int, to_seq: int, target_bytes: int) -> ApiCall[ReadPlan]:
    def parse(body: bytes) -> ReadPlan:
        page = asdict(_plan(body))
        return ReadPlan(**page | {"ranges": [PlannedRange(*cut) for cut in page["ranges"]]})

    body = encode({"from_seq": from_seq, "to_seq": to_seq, "target_bytes": target_bytes})
    return ApiCall(*at("planRanges", topic=topic), parse, body, idempotent=True)


# Records


class WireRecord(Struct, rename={"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}):
    """A record in an answer or a stream; its payload stays text."""

    seq: int
    ts: int
    node: str | None = None
    tag: str | None = None
    data: Raw = Raw(b"null")
    meta: Raw | UnsetType = UNSET

    def value(self) -> Record:
        meta = None if self.meta is UNSET else bytes(self.meta)
        return Record(self.seq, self.ts, self.node, self.tag, bytes(self.data), meta)


class _Scanned(Struct):
    records_scanned: int = 0
    cold_segments_read: int = 0


class _DiffPage(Struct):
    topic: str
    records: list[WireRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    performance: _Scanned


_ack, _page, _deleted = reader(Ack), reader(_DiffPage), reader(DeleteResult)


def append(
    topic: str,
    records: Records,
    *,
    node: str | None,
    idempotency_key: str | None,
    expect_head: int | None,
    create: bool | None,
    config: Mapping[str, Any] | None,
) -> ApiCall[Ack]:
    """A write, always with a key: one that the caller did not name is made up."""
    key = new_key() if idempotency_key is None else idempotency_key
    members = [
        b'"records":%b' % rendered(batch_of(records, node)),
        b'"idempotency_key":%b' % encode(key),
    ]
    for name, value in (("expect_head", expect_head), ("create", create)):
        if value is not None:
            members.append(b'"%b":%b' % (name.encode(), encode(value)))
    if config is not None:
        members.append(b'"config":%b' % encode(known_settings(config)))
    if not topic:
        raise InvalidRequest("a topic needs a name")
    return ApiCall(
        *at("appendRecords", topic=topic),
        _ack,
        b"{%b}" % b",".join(members),
        query={"return_seqs": "false"},
        idempotent=True,
        within=REPEAT_WRITES_S,
    )


def rendered(columns: RecordBatch, topics: Sequence[str] | None = None) -> bytes:
    """Columns as a JSON list, spliced from the payloads' own bytes."""
    if topics is None and columns.has_data_only:
        return b'[{"data":' + b'},{"data":'.join(columns.datas) + b"}]" if columns.datas else b"[]"
    count = len(columns.datas)
    parts: list[bytes] = []
    for i in range(count):
        part = b'{"data":' + columns.datas[i]
        if columns.metas is not None and columns.metas[i]:
            part += b',"meta":' + columns.metas[i]
        if columns.tags is not None and columns.tags[i] is not None:
            part += b',"tag":' + encode(columns.tags[i])
        if columns.nodes is not None and columns.nodes[i] is not None:
            part += b',"node":' + encode(columns.nodes[i])
        if topics is not None:
            part += b',"topic":' + encode(topics[i])
        parts.append(part + b"}")
    return b"[%b]" % b",".join(parts)


def read(
    topic: str,
    *,
    after: int,
    limit: int,
    max_bytes: int,
    node: str | Sequence[str],
    match: str | Sequence[str] | None,
    from_ts: int | None,
    wait: float,
) -> ApiCall[Page]:
    if after < 0 or limit < 0 or max_bytes < 0:
        raise InvalidRequest("after, limit and max_bytes must be 0 or more")
    asked: dict[str, Any] = {"limit": limit, "max_batch_bytes": max_bytes, "include_tags": True}
    if from_ts is None or after:
        asked["from_seq"] = after
    if from_ts is not None:
        asked["from_ts"] = from_ts
    held = min(max(wait, 0.0), MOST_WAIT_S)
    if held:
        asked["wait_ms"] = int(held * 1000)
    asked |= filters(node, match)
    return ApiCall(
        *at("readAfterCursor", topic=topic),
        _parse_page,
        encode(asked),
        idempotent=True,
        longer=held,
    )


def read_arrow(topic: str, query: Sequence[tuple[str, str]]) -> ApiCall[bytes]:
    """A page of records as an Arrow stream; its metadata says which seqs it covers."""
    method, path = at("readRecords", topic=topic)
    path += f"?{urlencode(query, quote_via=quote)}"
    return ApiCall(method, path, lambda body: body, headers={"Accept": ARROW_STREAM})


def filters(node: str | Sequence[str], match: str | Sequence[str] | None) -> dict[str, Any]:
    """Which records a reader does not want, as bodies name it."""
    nodes = [node] if isinstance(node, str) else list(node)
    chosen: dict[str, Any] = {"node": nodes} if nodes else {}
    if match is not None:
        chosen["match"] = match if isinstance(match, str) else list(match)
    return chosen


def _parse_page(body: bytes) -> Page:
    page = _page(body)
    return Page(
        page.topic,
        [record.value() for record in page.records],
        page.next_from_seq,
        page.head_seq,
        page.earliest_seq,
        page.caught_up,
        page.tombstone,
        page.lag,
        page.performance.records_scanned,
        page.performance.cold_segments_read,
    )


def is_empty(page: Page) -> bool:
    """Whether a waiting read has nothing to say yet."""
    return not page.records and page.tombstone is None and page.caught_up


def delete(
    topic: str,
    *,
    before_seq: int | None,
    match: str | Sequence[str] | None,
    seqs: Sequence[int] | None,
) -> ApiCall[DeleteResult]:
    if before_seq is not None and before_seq < 0:
        raise InvalidRequest("before_seq must be 0 or more")
    asked: dict[str, Any] = {} if before_seq is None else {"before_seq": before_seq}
    if seqs is not None:
        asked["seqs"] = list(seqs)
    # Without an upper end, a repeat could reach records that came after the first try.
    return ApiCall(
        *at("deleteRecords", topic=topic),
        _deleted,
        encode(asked | filters((), match)),
        idempotent=before_seq is not None or seqs is not None,
    )
