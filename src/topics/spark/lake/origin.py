"""The topic behind a table, as far as a table has to know it: over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from topics.client.targets import Target
from topics.errors import TopicNotFound
from topics.spark.source.log import COUNT_BYTES, whole_plan
from topics.spark.source.server import SparkClient
from topics.values import Holes, TopicState

RETRY_S: Final = 60.0


class SourceTopic:
    """One topic of one server. A call whose error may pass is tried again for `retry_s` seconds."""

    def __init__(self, target: Target, topic: str, *, retry_s: float = RETRY_S) -> None:
        self.topic = topic
        self._server = SparkClient(target, retry_s=retry_s)

    def __enter__(self) -> SourceTopic:
        return self

    def __exit__(self, *why: object) -> None:
        self._server.close()

    def state(self) -> TopicState:
        """The topic's state; `TopicNotFound` when it is gone."""
        return self._server.state(self.topic, touch=False)

    def holes(self, first: int, last: int) -> Iterator[Holes]:
        """The dead seqs of a range, page by page. Nothing when the topic is gone."""
        while first <= last:
            try:
                found = self._server.holes(self.topic, from_seq=first, to_seq=last)
            except TopicNotFound:
                return
            yield found
            if found.next_from_seq <= first:
                return  # the topic ends before the range does
            first = found.next_from_seq

    def live_records(self, first: int, last: int) -> int:
        """How many live records a range of seqs holds."""
        plan = whole_plan(
            lambda at: self._server.plan(
                self.topic, from_seq=at, to_seq=last, target_bytes=COUNT_BYTES
            ),
            first,
            last,
        )
        return sum(found.records for found in plan.ranges)

    def set_cursor(self, name: str, seq: int) -> None:
        """Tell how far a reader is."""
        self._server.set_cursor(self.topic, name, seq)

    def cursors(self) -> list[str]:
        """The names of the topic's cursors."""
        return [found.cursor for found in self._server.cursors(self.topic)]
