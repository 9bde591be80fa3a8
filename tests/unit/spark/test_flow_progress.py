"""Spark's report of a batch becomes what people want to know: rates, lag, loss."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topics.spark.flows.progress import BatchProgress, of_batch
from topics.spark.flows.views import watched
from topics.spark.source.log import Offset


def a_report(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - as Spark words it
    source = {
        "endOffset": json.dumps({"orders": [3, 101]}),
        "latestOffset": json.dumps({"orders": [3, 121]}),
    }
    report = {
        "batchId": 7,
        "batchDuration": 2000,
        "sources": [source],
        "observedMetrics": {watched("orders"): {"records": 100, "lost": 0, "bad": 0}},
    }
    return report | changes


def test_a_batch_is_told_with_its_rate_and_its_lag() -> None:
    done = of_batch(a_report(), ["orders"])
    assert done == BatchProgress(
        batch=7, rows=100, rows_per_second=50.0, seconds=2.0, lag={"orders": 20}, lost={}, bad=0
    )
    assert done.line() == "batch 7  100 records  50/s  2.0 s  lag 20"


def a_repeated_report(latest: object = "null") -> dict[str, Any]:
    """Of a batch that an earlier run had begun: Spark does not look where the topics end."""
    return a_report(sources=[{"endOffset": {"orders": [3, 101]}, "latestOffset": latest}])


@pytest.mark.parametrize("latest", ["null", "", None])
def test_the_log_is_asked_for_what_spark_does_not_say_of_a_repeated_batch(latest: object) -> None:
    done = of_batch(a_repeated_report(latest), ["orders"], {"orders": Offset(3, 151)}.get)
    assert done.lag == {"orders": 50}
    assert done.line().endswith("lag 50")


def test_seqs_that_hold_no_record_are_no_lag() -> None:
    asked = []

    def count(topic: str, first: int, last: int) -> int:
        asked.append((topic, first, last))
        return 3

    assert of_batch(a_report(), ["orders"], count=count).lag == {"orders": 3}
    assert asked == [("orders", 101, 120)]


def test_a_lag_that_nobody_knows_is_not_told_as_none() -> None:
    done = of_batch(a_repeated_report(), ["orders"], lambda topic: None)
    assert done.lag == {}
    assert done.line().endswith("lag unknown")


def test_loss_and_bad_data_show_in_the_line() -> None:
    counted = {watched("orders"): {"records": 1, "lost": 1234, "bad": 2}}
    done = of_batch(a_report(observedMetrics=counted), ["orders"])
    assert done.lost == {"orders": 1234}
    assert done.line().endswith("LOST 1,234 of orders  2 did not fit the schema")


def test_a_batch_without_data_has_counted_nothing() -> None:
    counted = {watched("orders"): {"records": 0, "lost": None, "bad": 0}}
    for observed in (counted, {}, None):
        done = of_batch(a_report(observedMetrics=observed, batchDuration=0), ["orders"])
        assert (done.rows, done.rows_per_second, done.lost) == (0, 0.0, {})


def test_the_topics_of_a_flow_are_counted_together_and_lag_apart() -> None:
    sources = [
        {"endOffset": {"a": [1, 5]}, "latestOffset": {"a": [1, 5]}},
        {"endOffset": {"b": [2, 1]}, "latestOffset": {"b": [2, 8]}},
    ]
    counted = {
        watched("a"): {"records": 4, "lost": 0, "bad": 0},
        watched("b"): {"records": 0, "lost": 3, "bad": 1},
    }
    done = of_batch(a_report(sources=sources, observedMetrics=counted), ["a", "b"])
    assert (done.rows, done.lag, done.lost, done.bad) == (4, {"a": 0, "b": 7}, {"b": 3}, 1)


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"orders": [3, 9]}, {"orders": [4, 6]}, {"orders": 5}),  # made anew: all of it is new
        ({}, {"orders": [4, 6]}, {"orders": 0}),  # nothing is known of where the batch ended
        ({"orders": [3, 9]}, {"orders": [3, 8]}, {"orders": 0}),
    ],
)
def test_lag_is_counted_within_one_life_of_a_topic(
    end: object, latest: object, lag: dict[str, int]
) -> None:
    report = a_report(sources=[{"endOffset": end, "latestOffset": latest}])
    assert of_batch(report, ["orders"]).lag == lag
