"""The state of a whole log at one moment, and what happened between two of them.

A server tells everything in one answer, its metrics. A directory does not tell how busy its owner
is, so those numbers are None.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topics.errors import Internal

if TYPE_CHECKING:
    from topics.client.interface import AnyLog

PATIENCE_SECONDS = 10.0


@dataclass
class TopicNumbers:
    """One topic. `ready` and `in_flight` are None for a log."""

    head: int = 0
    records: int = 0
    bytes: int = 0
    ready: int | None = None
    in_flight: int | None = None


@dataclass(frozen=True)
class Lag:
    """How far a named cursor is behind."""

    topic: str
    cursor: str
    records: int
    seconds: float


@dataclass
class Sample:
    """Everything, once. `server` holds the gauges and counters of a server by their short names."""

    at: float
    topics: dict[str, TopicNumbers] = field(default_factory=dict)
    lags: list[Lag] = field(default_factory=list)
    server: dict[str, float] = field(default_factory=dict)
    fsync_buckets: dict[float, float] = field(default_factory=dict)
    truncated: bool = False

    @property
    def leases(self) -> int:
        return sum(numbers.in_flight or 0 for numbers in self.topics.values())

    def slowest(self, topic: str) -> Lag | None:
        """The cursor of a topic that is furthest behind."""
        lags = [lag for lag in self.lags if lag.topic == topic]
        return max(lags, key=lambda lag: lag.records, default=None)


Sampler = Callable[[], Sample]


@contextmanager
def server_sampler(url: str, token: str | None) -> Iterator[Sampler]:
    """Asks a server for its metrics."""
    from topics.client.sync_http import Http  # noqa: PLC0415 - help does without

    with Http(url, token=token, timeout=PATIENCE_SECONDS, retries=0) as http:

        def sample() -> Sample:
            text = http.request("GET", "/v0/metrics").body.decode(errors="replace")
            try:
                return parse_metrics(text, at=time.monotonic())
            except (ValueError, KeyError) as error:
                raise Internal(f"the metrics of {url} cannot be read: {error}") from error

        yield sample


def log_sampler(log: AnyLog) -> Sampler:
    """Asks a log that is open in this process."""

    def sample() -> Sample:
        refresh = getattr(log, "refresh", None)
        if refresh is not None:
            refresh()
        taken = Sample(time.monotonic())
        for summary in log.topics():
            state = log.state(summary.topic, touch=False)
            counts = state.queue
            taken.topics[state.topic] = TopicNumbers(
                head=state.head_seq,
                records=state.count,
                bytes=state.bytes,
                ready=None if counts is None else counts.ready,
                in_flight=None if counts is None else counts.in_flight,
            )
            taken.lags += [
                Lag(c.topic, c.cursor, c.lag_records, c.lag_seconds)
                for c in log.cursors(state.topic)
            ]
        return taken

    return sample


_TOPIC_SERIES = {
    "topics_topic_head_seq": "head",
    "topics_topic_records_live": "records",
    "topics_topic_bytes_live": "bytes",
    "topics_topic_queue_ready": "ready",
    "topics_topic_queue_in_flight": "in_flight",
}
_BUCKET = "topics_wal_fsync_latency_us_bucket"


def parse_metrics(text: str, *, at: float) -> Sample:
    """A server's metrics as a sample."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - slow

    taken = Sample(at)
    lags: dict[tuple[str, str], dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for series in family.samples:
            labels: Mapping[str, str] = series.labels
            if series.name in _TOPIC_SERIES:
                numbers = taken.topics.setdefault(labels["topic"], TopicNumbers())
                setattr(numbers, _TOPIC_SERIES[series.name], int(series.value))
            elif series.name.startswith("topics_cursor_lag_"):
                key = labels["topic"], labels["cursor"]
                lags.setdefault(key, {})[series.name.removeprefix("topics_cursor_lag_")] = (
                    series.value
                )
            elif series.name == _BUCKET:
                taken.fsync_buckets[float(labels["le"])] = series.value
            elif not labels:
                taken.server[series.name.removeprefix("topics_")] = series.value
    taken.lags = [
        Lag(topic, cursor, int(lag.get("records", 0)), lag.get("seconds", 0.0))
        for (topic, cursor), lag in sorted(lags.items())
    ]
    taken.truncated = bool(taken.server.get("topic_metrics_truncated"))
    return taken


@dataclass(frozen=True)
class SampleDelta:
    """Two samples, and what came about between them."""

    before: Sample
    now: Sample

    @property
    def seconds(self) -> float:
        return max(self.now.at - self.before.at, 0.001)

    @property
    def is_interrupted(self) -> bool:
        """Whether the server started in between, or had not told of its topics before.

        Nothing can be said of what came about then: counters began anew, and heads may have
        jumped over seqs that were reserved.
        """
        before, now = self.before.server, self.now.server
        was_ready = before.get("ready", 1.0)
        return not was_ready or now.get("uptime_ms_total", 0) < before.get("uptime_ms_total", 0)

    def appended(self, topic: str) -> float:
        """Records a second. A topic that was dropped and made anew starts again from nothing."""
        if self.is_interrupted:
            return 0.0
        old = self.before.topics.get(topic)
        new = self.now.topics[topic]
        return max(0, new.head - (old.head if old is not None else 0)) / self.seconds

    def appended_in_all(self) -> float:
        return sum(map(self.appended, self.now.topics))

    def rate(self, counter: str) -> float | None:
        """A counter of the server, by the second."""
        if counter not in self.now.server:
            return None
        if self.is_interrupted:
            return 0.0
        gone = self.now.server[counter] - self.before.server.get(counter, 0.0)
        return max(0.0, gone) / self.seconds

    def fsync_us(self, quantile: float) -> float | None:
        """The bound that this share of the syncs in between kept; None without any sync."""
        if self.is_interrupted:
            return None
        counts = {
            bound: total - self.before.fsync_buckets.get(bound, 0.0)
            for bound, total in sorted(self.now.fsync_buckets.items())
        }
        syncs = counts.get(float("inf"), 0.0)
        if syncs <= 0:
            return None
        return next(bound for bound, count in counts.items() if count >= quantile * syncs)
