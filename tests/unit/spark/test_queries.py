"""A query that only came too late for Spark is started again; of a failure the cause is named."""

from __future__ import annotations

from collections.abc import Iterator

from topics.spark.jobs.queries import again_if_too_slow, explain

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


# The one line that names the cause

IN_A_SOURCE = """\
[STREAM_FAILED] Query [id = bf60, runId = 9d84] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
initialOffset: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 267, in main
    initial_offset_func(reader, outfile)
  File "source.py", line 122, in existing_heads
    raise TopicNotFound(topic)
topics.errors.TopicNotFound: topic "nowhere" does not exist; create it or write to it first
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: flow [id = bf60, runId = 9d84]
Current Committed Offsets: {}
Current State: INITIALIZING
"""
IN_A_TASK = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage \
failure: Task 0 in stage 1.0 failed 3 times, most recent failure: Lost task 0.2 in stage 1.0: \
org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] the record with seq 4 does not \
fit SQLSTATE: P0001
	at org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:3082)
"""
IN_THE_SQL = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nothing` cannot be resolved. SQLSTATE: 42703
'Project ['nothing]
"""
WITHOUT_WATERMARK = (
    "Append output mode not supported when there are streaming aggregations without watermark"
)


def test_the_end_of_a_traceback_is_the_cause() -> None:
    said = explain(RuntimeError(IN_A_SOURCE))
    assert said == 'topic "nowhere" does not exist; create it or write to it first'


def test_what_the_flow_raised_is_the_cause() -> None:
    assert explain(RuntimeError(IN_A_TASK)) == "the record with seq 4 does not fit"


def test_an_error_in_the_sql_is_its_first_line() -> None:
    said = explain(RuntimeError(IN_THE_SQL))
    assert said.endswith("A column with name `nothing` cannot be resolved.")


def test_a_missing_watermark_comes_with_the_remedy() -> None:
    assert "FROM orders WATERMARK at DELAY OF" in explain(RuntimeError(WITHOUT_WATERMARK))
