"""A log behind a server: control in JSON, rows as Arrow.

A page is taken in whole before any of it is used, so a connection that breaks in the middle costs
a repeat and nothing else: rows are never seen twice, nor half an account of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
import pyarrow as pa

from topics.client.sync_http import Http
from topics.errors import Internal, NotAcceptable, TopicNotFound
from topics.spark.coverage import Coverage, Page, Run
from topics.spark.log import (
    PAGE_BYTES,
    UNREADABLE_RECORDS,
    DeadRuns,
    Head,
    PageQuery,
    Plan,
    PlannedRange,
    patiently,
)

ARROW: Final = "application/vnd.apache.arrow.stream"
_TIMEOUT_S: Final = 120.0
_LIST_PAGE: Final = 1000


class ServerLog:
    """The log behind `url`. Errors that may pass are waited out for `retry_s` seconds."""

    def __init__(self, url: str, token: str | None, *, retry_s: float) -> None:
        self._http = Http(url, token=token, timeout=_TIMEOUT_S, retries=0)
        self._retry_s = retry_s

    def names(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        query = {"page_size": str(_LIST_PAGE)}
        while True:
            listed = self._json("GET", f"/v0/topics?{urlencode(query)}")
            found |= {entry["topic"]: entry["head_seq"] for entry in listed["topics"]}
            if "next_cursor" not in listed:
                return found
            query["cursor"] = listed["next_cursor"]

    def head(self, topic: str) -> Head | None:
        try:
            state = self._json("GET", f"{_path(topic)}?touch=false")
        except TopicNotFound:
            return None
        return Head(state["epoch"], state["head_seq"] + 1)

    def plan(self, topic: str, first: int, last: int, target_bytes: int) -> Plan:
        ranges: list[PlannedRange] = []
        while True:
            sent = {"from_seq": first, "to_seq": last, "target_bytes": target_bytes}
            plan = self._json("POST", f"{_path(topic)}/plan", sent)
            ranges += [PlannedRange(*found) for found in plan["ranges"]]
            if plan["next_from_seq"] > min(last, plan["head_seq"]):
                return Plan(plan["epoch"], plan["delete_version"], plan["evict_floor"], ranges)
            first = plan["next_from_seq"]

    def dead_runs(self, topic: str, first: int, last: int) -> DeadRuns:
        sent = {"from_seq": first, "to_seq": last}
        holes = self._json("POST", f"{_path(topic)}/holes", sent)
        runs = [Run(*run) for run in holes["runs"]]
        return DeadRuns(holes["epoch"], runs, holes["next_from_seq"])

    def first_at(self, topic: str, moment_ms: int) -> int:
        query = {"from_ts": str(moment_ms), "limit": "1", "max_batch_bytes": "1"}
        return self._page(topic, urlencode(query)).coverage.first

    def page(self, topic: str, epoch: int, query: PageQuery) -> Page:
        asked = [
            ("from_seq", str(query.first - 1)),
            ("to_seq", str(query.last)),
            ("limit", str(query.rows)),
            ("max_batch_bytes", str(PAGE_BYTES)),
            ("include_tags", "true" if query.with_tags else "false"),
            ("include_meta", "true" if query.with_meta else "false"),
            *(("node", node) for node in query.filter.nodes),
        ]
        if query.filter.match is not None:
            asked.append(("match", query.filter.match))
        return self._page(topic, urlencode(asked, quote_via=quote))

    def _page(self, topic: str, query: str) -> Page:
        """One page, asked for again when it breaks off: the server has then found a record that it
        cannot read, and tells of it as lost from now on."""
        path = f"{_path(topic)}/records?{query}"
        for left in reversed(range(UNREADABLE_RECORDS)):
            body = patiently(lambda: self._arrow(path), seconds=self._retry_s)
            try:
                return _decode(body)
            except (pa.ArrowException, OSError) as error:
                if not left:
                    raise Internal(f"the server broke off a page of {topic!r}: {error}") from error
        raise AssertionError("unreachable")

    def _arrow(self, path: str) -> bytes:
        try:
            return self._http.request("GET", path, headers={"Accept": ARROW}).body
        except NotAcceptable as error:
            raise Internal(
                "the server cannot send Arrow; install it there: pip install 'topics[arrow]'"
            ) from error

    def wait(self, topic: str, head: Head, seconds: float) -> None:
        body = {
            "from_seq": head.next_seq - 1,
            "limit": 1,
            "max_batch_bytes": 1,
            "wait_ms": int(seconds * 1000),
        }
        self._json("POST", f"{_path(topic)}/diff", body)

    def report(self, topic: str, cursor: str, seq: int) -> None:
        path = f"{_path(topic)}/cursors/{quote(cursor, safe='')}"
        self._http.request("PUT", path, body=msgspec.json.encode({"seq": seq}), timeout=10.0)

    def close(self) -> None:
        self._http.close()

    def _json(self, method: str, path: str, sent: object = None) -> dict[str, Any]:
        body = None if sent is None else msgspec.json.encode(sent)
        answer = patiently(
            lambda: self._http.request(method, path, body=body), seconds=self._retry_s
        )
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return found


def _path(topic: str) -> str:
    return f"/v0/topics/{quote(topic, safe='')}"


def _decode(body: bytes) -> Page:
    with pa.ipc.open_stream(body) as reader:
        batches = list(reader)
        metadata = reader.schema.metadata
    return Page(int(metadata[b"epoch"]), Coverage.decode(metadata[b"coverage"]), batches)
