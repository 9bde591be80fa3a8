"""Every code block of the Spark pages runs, in the order of its page, and prints what it says.

All of them run in the session of the tests, but the page about clusters: that one is run where
there is a cluster, in `test_cluster`. The server is restarted in the middle of each page.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.docs.pages import fits
from tests.spark.pages import CLUSTER_PAGE, Block, blocks_of, run_console, run_python, with_code

from topics.testing.server import LiveServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def docs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One server for all pages; each of them leaves it empty."""
    server = LiveServer(tmp_path_factory.mktemp("docs")).start()
    yield server
    server.end()


@pytest.fixture
def server(docs_server: LiveServer) -> Iterator[LiveServer]:
    yield docs_server
    with httpx.Client(base_url=docs_server.url, timeout=60) as http:
        for topic in http.get("/v0/topics", params={"page_size": 1000}).json()["topics"]:
            http.delete(f"/v0/topics/{topic['topic']}").raise_for_status()


def is_run(block: Block) -> bool:
    return block.title is None and block.language in ("python", "console")


PAGES_HERE = [page for page in with_code() if page != CLUSTER_PAGE]


@pytest.mark.parametrize("page", PAGES_HERE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_as_printed(
    page: Path,
    spark: SparkSession,
    server: LiveServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOPICS_URL", server.url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed, ran = "", 0
    blocks = list(blocks_of(page, url=server.url))
    middle = sum(is_run(block) for block in blocks) // 2
    for block in blocks:
        if is_run(block) and ran == middle:
            assert server.stop() == 0, server.said
            server.start()
        if block.title is not None:
            Path(block.title).write_text(block.code)
        elif block.language == "python":
            printed, ran = run_python(block.code, block.where, namespace), ran + 1
        elif block.language == "console":
            printed, ran = run_console(block.code), ran + 1
        elif block.language == "text":
            assert fits(printed, block.code), (
                f"{block.where} promises\n{block.code}\nand got\n{printed}"
            )
    assert ran > 0
