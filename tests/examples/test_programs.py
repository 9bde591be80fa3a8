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
from tests.spark.conftest import QUICK_JVM

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

QUICK = {"JDK_JAVA_OPTIONS": QUICK_JVM}

pytestmark = pytest.mark.timeout(900)


def test_the_pipelines_project_reads_and_writes_topics_and_goes_on_where_it_was(
    server: ServerProcess, tmp_path: Path
) -> None:
    project = tmp_path / "pipeline"
    with httpx.Client(base_url=server.url, timeout=30) as http:
        place_orders(http, first=1, cents=(9_999, 10_000, 25_000, 1))
        run_pipeline(project, server.url)
        assert large_orders(http) == [(2, "c-0", 10_000), (3, "c-1", 25_000)]
        assert totals(project) == [("c-0", 2, 10_001), ("c-1", 2, 34_999)]
        place_orders(http, first=5, cents=(70_000, 5))
        run_pipeline(project, server.url)
        assert large_orders(http) == [(2, "c-0", 10_000), (3, "c-1", 25_000), (5, "c-1", 70_000)]
        assert totals(project) == [("c-0", 3, 10_006), ("c-1", 3, 104_999)]


def place_orders(http: httpx.Client, *, first: int, cents: tuple[int, ...]) -> None:
    orders = [
        {"id": n, "customer": f"c-{n % 2}", "cents": amount}
        for n, amount in enumerate(cents, first)
    ]
    body = {"records": [{"data": order} for order in orders]}
    http.post("/v0/topics/orders", json=body).raise_for_status()


def run_pipeline(project: Path, url: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "pipelines" / "run.py"), str(project)],
        env=os.environ | QUICK | {"TOPICS_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def large_orders(http: httpx.Client) -> list[tuple[int, str, int]]:
    """What the pipeline wrote, by the order's number, with the tag of each record."""
    page = http.post("/v0/topics/large-orders/diff", json={"include_tags": True}).json()
    found = [(record["data"], record["$tag"]) for record in page["records"]]
    assert all(data["customer"] == tag for data, tag in found)
    return sorted((data["id"], tag, data["cents"]) for data, tag in found)


def totals(project: Path) -> list[tuple[str, int, int]]:
    rows = pq.read_table(project / "spark-warehouse" / "by_customer").to_pylist()
    return sorted((row["customer"], row["orders"], row["cents"]) for row in rows)


def test_the_demo_ends_with_the_pipeline_and_cleans_up(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py")],
        env=os.environ | QUICK | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
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
