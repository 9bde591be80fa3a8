"""A query that only came too late for Spark is started again, any other one is not."""

from __future__ import annotations

from collections.abc import Iterator

from topics.spark.jobs.queries import again_if_too_slow

TOO_SLOW = RuntimeError("Python worker failed to connect back.\n=== Streaming Query ===")
NO_COLUMN = RuntimeError("no such column")


def ended_with(*errors: Exception | None) -> tuple[Exception | None, list[str]]:
    """What comes of queries that end like this one after the other, and what was said of it."""
    queries: Iterator[Exception | None] = iter(errors)
    notices: list[str] = []
    failed = again_if_too_slow(lambda: next(queries), notices.append)
    assert list(queries) == [], "a query was not started"
    return failed, notices


def test_a_query_is_started_until_spark_waits_long_enough() -> None:
    failed, notices = ended_with(TOO_SLOW, TOO_SLOW, None)
    assert failed is None
    assert len(notices) == 2
    assert "too busy" in notices[0]


def test_a_query_that_ends_well_or_with_another_error_has_ended() -> None:
    assert ended_with(None) == (None, [])
    assert ended_with(NO_COLUMN) == (NO_COLUMN, [])
    assert ended_with(TOO_SLOW, NO_COLUMN)[0] is NO_COLUMN


def test_a_machine_that_stays_too_slow_is_an_error_in_the_end() -> None:
    failed, notices = ended_with(*[TOO_SLOW] * 4)
    assert failed is TOO_SLOW
    assert len(notices) == 3
