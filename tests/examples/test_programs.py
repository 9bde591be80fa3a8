"""The larger examples run as they are, each with a Spark of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from tests.blackbox.conftest import ServerProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = pytest.mark.timeout(900)


def test_the_pipelines_project_reads_and_writes_topics(
    server: ServerProcess, tmp_path: Path
) -> None:
    orders = [
        {"id": n, "customer": f"c-{n % 2}", "cents": cents}
        for n, cents in enumerate((9_999, 10_000, 25_000, 1), start=1)
    ]
    with httpx.Client(base_url=server.url, timeout=30) as http:
        body = {"records": [{"data": order} for order in orders]}
        http.post("/v0/topics/orders", json=body).raise_for_status()
    project = tmp_path / "pipeline"
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "pipelines" / "run.py"), str(project)],
        env=os.environ | {"TOPICS_URL": server.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with httpx.Client(base_url=server.url, timeout=30) as http:
        page = http.post("/v0/topics/large-orders/diff", json={"include_tags": True}).json()
    large = {record["data"]["id"]: record for record in page["records"]}
    assert {n: record["data"] for n, record in large.items()} == {2: orders[1], 3: orders[2]}
    assert large[3]["$tag"] == "c-1"
    views = pq.read_table(project / "spark-warehouse" / "by_customer").to_pylist()
    assert sorted((row["customer"], row["orders"], row["cents"]) for row in views) == [
        ("c-0", 2, 10_001),
        ("c-1", 2, 34_999),
    ]


def test_the_demo_ends_with_the_pipeline_and_cleans_up(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py")],
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stderr == ""
    assert "together 20,000 orders, the same to the cent" in told.stdout
    assert "found 0 times" in told.stdout
    assert "DuckDB reads the table: 19,601 orders" in told.stdout
    assert told.stdout.splitlines()[-1].startswith("Done in ")
    assert list(tmp_path.iterdir()) == []
