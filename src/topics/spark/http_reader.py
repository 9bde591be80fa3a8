"""A log behind a server: control in JSON, rows as Arrow.

A page is taken in whole before any of it is used, so a connection that breaks in the middle costs
a repeat and nothing else: rows are never seen twice, nor half an account of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from topics.client._calls import read_arrow
from topics.client._linked_calls import set_cursor
from topics.client.targets import Target
from topics.errors import Internal, NotAcceptable, TopicNotFound
from topics.spark.coverage import Coverage, Page
from topics.spark.log import PAGE_BYTES, UNREADABLE_RECORDS, Head, PageQuery, whole_plan
from topics.spark.server import Server
from topics.values import Holes, ReadPlan

REPORT_S: Final = 10.0


class ServerLog:
    """The log behind `target`. A call whose error may pass is tried again for `retry_s` seconds."""

    def __init__(self, target: Target, *, retry_s: float) -> None:
        self._server = Server(target, retry_s=retry_s)

    def names(self) -> Mapping[str, int]:
        return {found.topic: found.head_seq for found in self._server.topics()}

    def head(self, topic: str) -> Head | None:
        try:
            state = self._server.state(topic, touch=False)
        except TopicNotFound:
            return None
        return Head(state.epoch, state.head_seq + 1)

    def plan(self, topic: str, first: int, last: int, target_bytes: int) -> ReadPlan:
        def ask(at: int) -> ReadPlan:
            return self._server.plan(topic, from_seq=at, to_seq=last, target_bytes=target_bytes)

        return whole_plan(ask, first, last)

    def dead_runs(self, topic: str, first: int, last: int) -> Holes:
        return self._server.holes(topic, from_seq=first, to_seq=last)

    def first_at(self, topic: str, moment_ms: int) -> int:
        asked = [("from_ts", str(moment_ms)), ("limit", "1"), ("max_batch_bytes", "1")]
        return self._page(topic, asked).coverage.first

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
        return self._page(topic, asked)

    def _page(self, topic: str, query: Sequence[tuple[str, str]]) -> Page:
        """One page, asked for again when it breaks off: the server has then found a record that it
        cannot read, and tells of it as lost from now on."""
        for left in reversed(range(UNREADABLE_RECORDS)):
            try:
                return _decode(self._server.run(read_arrow(topic, query)))
            except NotAcceptable as error:
                raise Internal(
                    "the server cannot send Arrow; install it there: pip install 'topics[arrow]'"
                ) from error
            except (pa.ArrowException, OSError) as error:
                if not left:
                    raise Internal(f"the server broke off a page of {topic!r}: {error}") from error
        raise AssertionError("unreachable")

    def wait(self, topic: str, head: Head, seconds: float) -> None:
        self._server.read(topic, after=head.next_seq - 1, limit=1, max_bytes=1, wait=seconds)

    def report(self, topic: str, cursor: str, seq: int) -> None:
        self._server.run_once(set_cursor(topic, cursor, seq), timeout_s=REPORT_S)

    def close(self) -> None:
        self._server.close()


def _decode(body: bytes) -> Page:
    with pa.ipc.open_stream(body) as reader:
        batches = list(reader)
        metadata = reader.schema.metadata
    return Page(int(metadata[b"epoch"]), Coverage.decode(metadata[b"coverage"]), batches)
