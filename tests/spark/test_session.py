"""Sessions: with the Java that is there, and without any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_counts_and_keeps_utc(spark: SparkSession) -> None:
    assert spark.range(1000).count() == 1000
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    (row,) = spark.sql("SELECT cast(timestamp '2026-01-01 00:00:00Z' AS string) AS at").collect()
    assert row["at"] == "2026-01-01 00:00:00"
