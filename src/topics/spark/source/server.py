"""A log behind a server: the calls of `topics.client`, tried for a set time; rows as Arrow.

A page is taken in whole before any of it is used, so a connection that breaks in the middle costs
a repeat and nothing else: rows are never seen twice, nor half an account of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from topics.client._call import ApiCall
from topics.client._calls import read_arrow
from topics.client._linked_calls import set_cursor
from topics.client._retry import is_passing
from topics.client.sync import RemoteLog
from topics.client.targets import Target
from topics.errors import Internal, NotAcceptable, TopicNotFound, TopicsError
from topics.spark.source.coverage import Coverage, RowPage
from topics.spark.source.log import PAGE_BYTES, UNREADABLE_RECORDS, Offset, PageQuery, whole_plan
from topics.values import Holes, ReadPlan

T = TypeVar("T")
TIMEOUT_S: Final = 120.0


class SparkClient(RemoteLog):
    """The log behind an address.

    A call whose error may pass is tried again for `retry_s` seconds, with the client's pauses.
    Spark ends a query at the first error, so the tries are bounded by time and not by number: a
    server may take a minute to restart.
    """

    def __init__(self, target: Target, *, retry_s: float) -> None:
        assert target.url is not None
        super().__init__(
            target.url,
            token=target.token,
            ca_file=target.ca_file,
            timeout=TIMEOUT_S,
            retries=math.inf,
        )
        self._retry_s = retry_s

    def run(self, call: ApiCall[T], *, timeout_s: float = TIMEOUT_S) -> T:
        """Run a call; `timeout_s` bounds one try."""
        return self._run(call._replace(longer=timeout_s - TIMEOUT_S))

    def run_once(self, call: ApiCall[T], *, timeout_s: float) -> T:
        """Run a call that may fail without harm: there is one try."""
        return self.run(call._replace(within=0.0), timeout_s=timeout_s)

    def _answer(self, call: ApiCall[T]) -> bytes:
        within = min(call.within, self._retry_s)
        try:
            return super()._answer(call._replace(within=within))
        except TopicsError as error:
            if is_passing(error) and call.within:  # a single try is not bounded by retrySeconds
                said = f"{error} (tried for {within:g} s; retrySeconds sets how long)"
                error.args = (said, *error.args[1:])
            raise


REPORT_S: Final = 10.0


class ServerLog:
    """The log behind `target`. A call whose error may pass is tried again for `retry_s` seconds."""

    def __init__(self, target: Target, *, retry_s: float) -> None:
        self._server = SparkClient(target, retry_s=retry_s)

    def names(self) -> Mapping[str, int]:
        return {found.topic: found.head_seq for found in self._server.topics()}

    def head(self, topic: str) -> Offset | None:
        try:
            state = self._server.state(topic, touch=False)
        except TopicNotFound:
            return None
        return Offset(state.epoch, state.head_seq + 1)

    def heads(self, topics: Iterable[str]) -> dict[str, Offset]:
        found = ((topic, self.head(topic)) for topic in topics)
        return {topic: head for topic, head in found if head is not None}

    def plan(self, topic: str, first: int, last: int, target_bytes: int) -> ReadPlan:
        def ask(at: int) -> ReadPlan:
            return self._server.plan(topic, from_seq=at, to_seq=last, target_bytes=target_bytes)

        return whole_plan(ask, first, last)

    def dead_runs(self, topic: str, first: int, last: int) -> Holes:
        return self._server.holes(topic, from_seq=first, to_seq=last)

    def first_at(self, topic: str, moment_ms: int) -> int:
        asked = [("from_ts", str(moment_ms)), ("limit", "1"), ("max_batch_bytes", "1")]
        return self._page(topic, asked).coverage.first

    def page(self, topic: str, epoch: int, query: PageQuery) -> RowPage:
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

    def _page(self, topic: str, query: Sequence[tuple[str, str]]) -> RowPage:
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

    def wait(self, topic: str, head: Offset, seconds: float) -> None:
        self._server.read(topic, after=head.next_seq - 1, limit=1, max_bytes=1, wait=seconds)

    def report(self, topic: str, cursor: str, seq: int) -> None:
        self._server.run_once(set_cursor(topic, cursor, seq), timeout_s=REPORT_S)

    def close(self) -> None:
        self._server.close()


def _decode(body: bytes) -> RowPage:
    with pa.ipc.open_stream(body) as reader:
        batches = list(reader)
        metadata = reader.schema.metadata
    return RowPage(int(metadata[b"epoch"]), Coverage.decode(metadata[b"coverage"]), batches)
