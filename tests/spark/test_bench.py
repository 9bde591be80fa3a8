"""The benchmark runs, tiny; what it measures is not judged here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from topics.bench.spark import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN_ROWS = "batch,trigger,writes"


def test_rows_about_reading_measure_something_and_clean_up(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--scale", "0.0005", "--quick", "--json", "--dir", str(tmp_path)]
    assert main(["--rows", OWN_ROWS, *tiny]) == 0
    found = json.loads(capfd.readouterr().out)
    assert {result["row"] for result in found} == set(OWN_ROWS.split(","))
    assert all(isinstance(result["value"], float) for result in found)
    assert list(tmp_path.iterdir()) == []
    assert spark.range(3).count() == 3  # the session is not ended: it was there before
