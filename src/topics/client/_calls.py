"""What to send and what the answer means, for every call of a log. No I/O.

A `ApiCall` is a request and the function that reads its answer. The shells run calls; they know
nothing of JSON. What hangs on topics (cursors, routers, staged writes) is in `_linked_calls`,
jobs are in `_queue_calls`, streams in `_following`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from msgspec import UNSET

from topics.batch import RecordBatch
from topics.client import _routes as routes
from topics.client._call import ApiCall, Listed, new_key, page_query
from topics.client._routes import ParsedRecord
from topics.errors import InvalidRequest
from topics.topic_settings import known_settings
from topics.values import (
    Ack,
    Audit,
    Created,
    DeleteResult,
    Dropped,
    ErasureState,
    Hole,
    Holes,
    Page,
    PlannedRange,
    ReadPlan,
    Record,
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


def put(topic: str, config: Mapping[str, Any], *, dry_run: bool = False) -> ApiCall[Created]:
    """Create a topic, or replace the whole configuration of one that exists."""
    if not topic:
        raise InvalidRequest("a topic needs a name")

    query = {"dry_run": "true"} if dry_run else None
    return routes.CONFIGURE_TOPIC.call(encode(config), query=query, topic=topic)


def drop(topic: str, *, if_empty: bool) -> ApiCall[Dropped]:
    query = {"if_empty": "true"} if if_empty else None
    return routes.DROP_TOPIC.call(query=query, topic=topic)


def state(topic: str, *, touch: bool) -> ApiCall[TopicState]:
    return routes.GET_TOPIC.call(query=None if touch else {"touch": "false"}, topic=topic)


def topics(
    prefix: str, cursor: str | None, *, details: bool = False
) -> ApiCall[Listed[TopicSummary]]:
    def parse(body: bytes) -> Listed[TopicSummary]:
        page = routes.LIST_TOPICS.parse(body)
        return page.topics, page.next_cursor

    query = page_query(cursor, prefix=prefix)
    if details:
        query = {**(query or {}), "details": "true"}
    return ApiCall(*routes.LIST_TOPICS.at(), parse, query=query)


def audit(topic: str) -> ApiCall[Audit]:
    return routes.AUDIT_TOPIC.call(topic=topic)


def holes(topic: str, *, from_seq: int, to_seq: int) -> ApiCall[Holes]:
    def parse(body: bytes) -> Holes:
        page = routes.LIST_HOLES.parse(body)
        runs = [Hole(*run) for run in page.runs]
        known = page.topic, page.epoch, page.delete_version
        return Holes(*known, runs, page.next_from_seq, page.exact_from)

    body = encode({"from_seq": from_seq, "to_seq": to_seq})
    return ApiCall(*routes.LIST_HOLES.at(topic=topic), parse, body, idempotent=True)


def plan(topic: str, *, from_seq: int, to_seq: int, target_bytes: int) -> ApiCall[ReadPlan]:
    def parse(body: bytes) -> ReadPlan:
        page = routes.PLAN_RANGES.parse(body)
        ranges = [PlannedRange(*cut) for cut in page.ranges]
        known = page.topic, page.epoch, page.delete_version, page.head_seq, page.evict_floor
        return ReadPlan(*known, ranges, page.next_from_seq)

    body = encode({"from_seq": from_seq, "to_seq": to_seq, "target_bytes": target_bytes})
    return ApiCall(*routes.PLAN_RANGES.at(topic=topic), parse, body, idempotent=True)


# Records


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
    return routes.APPEND_RECORDS.call(
        b"{%b}" % b",".join(members),
        query={"return_seqs": "false"},
        idempotent=True,
        within=REPEAT_WRITES_S,
        topic=topic,
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
        *routes.READ_AFTER_CURSOR.at(topic=topic),
        _parse_page,
        encode(asked),
        idempotent=True,
        longer=held,
    )


def read_arrow(topic: str, query: Sequence[tuple[str, str]]) -> ApiCall[bytes]:
    """A page of records as an Arrow stream; its metadata says which seqs it covers."""
    method, path = routes.READ_RECORDS.at(topic=topic)
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
    page = routes.READ_AFTER_CURSOR.parse(body)
    scanned = page.performance
    return Page(
        page.topic,
        list(map(record_of, page.records)),
        page.next_from_seq,
        page.head_seq,
        page.earliest_seq,
        page.caught_up,
        page.tombstone,
        page.lag,
        (scanned and scanned.records_scanned) or 0,
        (scanned and scanned.cold_segments_read) or 0,
    )


def record_of(sent: ParsedRecord) -> Record:
    """A record of an answer or a stream; its payload stays text."""
    data = b"null" if sent.data is UNSET else bytes(sent.data)
    meta = None if sent.meta is UNSET else bytes(sent.meta)
    return Record(sent.seq, sent.ts, sent.node, sent.tag, data, meta)


def is_empty(page: Page) -> bool:
    """Whether a waiting read has nothing to say yet."""
    return not page.records and page.tombstone is None and page.caught_up


def erase(
    topic: str, *, before_seq: int | None, match: str | Sequence[str] | None
) -> ApiCall[ErasureState]:
    if before_seq is not None and before_seq < 0:
        raise InvalidRequest("before_seq must be 0 or more")
    asked: dict[str, Any] = {} if before_seq is None else {"before_seq": before_seq}
    return routes.ERASE_RECORDS.call(
        encode(asked | filters((), match)), idempotent=before_seq is not None, topic=topic
    )


def erasures(topic: str) -> ApiCall[list[ErasureState]]:
    def parse(body: bytes) -> list[ErasureState]:
        return routes.LIST_ERASURES.parse(body).erasures

    return ApiCall(*routes.LIST_ERASURES.at(topic=topic), parse)


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
    return routes.DELETE_RECORDS.call(
        encode(asked | filters((), match)),
        idempotent=before_seq is not None or seqs is not None,
        topic=topic,
    )
