"""A query is watched to its end: batches once, errors passed on, a machine too slow tried again."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.test_flow_state import a_state

import topics
from topics.client.targets import Target
from topics.errors import InvalidRequest, TopicNotFound
from topics.spark.flows import state
from topics.spark.flows.file import Flow, FlowSource, ToTable, ToTopic
from topics.spark.flows.progress import BatchProgress
from topics.spark.flows.running import Watch, find_head, require_topics, server_options
from topics.spark.flows.views import watched

FLOW = Flow(
    file=Path("/flows/totals.yaml"),
    name="totals",
    sources=(FlowSource("orders"),),
    transform="SELECT 1",
    target=ToTopic("totals"),
    trigger="once",
    checkpoint=Path("/checkpoints/totals"),
)
TOO_SLOW = RuntimeError("[STREAM_FAILED] Python worker failed to connect back.")


class Query:
    """What is used of Spark's: it has ended, with these batches and perhaps an error."""

    def __init__(self, batches: Sequence[int] = (), error: Exception | None = None) -> None:
        self.isActive = False
        self.recentProgress = [a_report(number) for number in batches]
        self._error = error

    @property
    def lastProgress(self) -> Any:  # noqa: ANN401, N802 - as Spark names it
        return self.recentProgress[-1] if self.recentProgress else None

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        """It has ended already."""


def a_report(number: int) -> dict[str, Any]:
    counted = {watched("orders"): {"records": 10, "lost": 1, "bad": 0}}
    return {
        "batchId": number,
        "batchDuration": 100,
        "durationMs": {"addBatch": 50},
        "sources": [],
        "observedMetrics": counted,
    }


def run(watch: Watch, *queries: Query, notices: list[str] | None = None) -> Exception | None:
    """What comes of queries that are started one after the other."""
    started = iter(queries)
    notice = [].append if notices is None else notices.append
    return watch.run_query(lambda: next(started), threading.Event(), notice)  # type: ignore[arg-type, return-value]  # stands in


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[state.Holder]:
    with state.hold("totals", {"XDG_STATE_HOME": str(tmp_path)}) as held:
        held.write(a_state(status="starting"))
        yield held


def test_every_batch_is_reported_once_and_kept_in_the_state(holder: state.Holder) -> None:
    seen: list[BatchProgress] = []
    watch = Watch(FLOW, holder, seen.append)
    run(watch, Query([0, 1, 2]))
    outcome = watch.outcome
    assert [done.batch for done in seen] == [0, 1, 2]
    assert (outcome.batches, outcome.rows, outcome.lost) == (3, 30, 3)
    assert holder.state is not None
    assert (holder.state.status, holder.state.batch, holder.state.rows) == ("running", 2, 30)


def test_a_query_that_failed_because_the_machine_was_too_slow_is_started_again(
    holder: state.Holder,
) -> None:
    queries = [Query([0], TOO_SLOW), Query(error=TOO_SLOW), Query([0, 1])]
    seen: list[BatchProgress] = []
    notices: list[str] = []
    watch = Watch(FLOW, holder, seen.append)
    assert run(watch, *queries, notices=notices) is None
    outcome = watch.outcome
    assert [done.batch for done in seen] == [0, 1]
    assert outcome.batches == 2
    assert len(notices) == 2


def test_a_machine_that_stays_too_slow_is_an_error_in_the_end(holder: state.Holder) -> None:
    watch = Watch(FLOW, holder, lambda _: None)
    assert run(watch, *[Query(error=TOO_SLOW)] * 4) is TOO_SLOW


def test_any_other_error_ends_the_flow_at_once(holder: state.Holder) -> None:
    watch = Watch(FLOW, holder, lambda _: None)
    assert "no such column" in str(run(watch, Query(error=RuntimeError("no such column"))))


def test_a_directory_serves_a_table_and_no_topic() -> None:
    here = Target(path="/data")
    with pytest.raises(InvalidRequest, match="needs a server"):
        server_options(FLOW, here)
    to_table = Flow(**{**vars(FLOW), "target": ToTable(Path("/lake/totals"))})
    assert server_options(to_table, here) == {"path": "/data"}
    with_key = Target(url="http://127.0.0.1:4000", token="key")
    assert server_options(FLOW, with_key) == {"url": "http://127.0.0.1:4000", "token": "key"}


def test_a_flow_begins_only_with_topics_that_are_there_and_goes_on_without_them(
    tmp_path: Path,
) -> None:
    here = {"path": str(tmp_path / "data")}
    with topics.open(here["path"]) as log:
        log.create("orders")
    flow = replace(FLOW, checkpoint=tmp_path / "checkpoint")
    require_topics(flow, here)
    more = replace(flow, sources=(*FLOW.sources, FlowSource("absent")))
    with pytest.raises(TopicNotFound, match="absent"):
        require_topics(more, here)
    begun = more.checkpoint / "offsets" / "0"
    begun.parent.mkdir(parents=True)
    begun.touch()
    require_topics(more, here)


def test_where_a_topic_of_the_flow_ends_is_asked_of_its_log(tmp_path: Path) -> None:
    here = {"path": str(tmp_path / "data")}
    with topics.open(here["path"]) as log:
        log.append("orders", [{"data": 1}, {"data": 2}])
    head = find_head(FLOW, here, "orders")
    assert head is not None
    assert head.next_seq == 3


def test_a_log_that_cannot_be_asked_is_told_of_and_does_not_end_the_flow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flow = replace(FLOW, sources=(FlowSource("orders", options={"retrySeconds": "0"}),))
    assert find_head(flow, {"url": "http://127.0.0.1:1"}, "orders") is None
    assert "how far the flow is behind orders is not known" in caplog.text
