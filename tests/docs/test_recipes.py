"""The recipes for web frameworks, run as their users run them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.docs.pages import ADDRESS, blocks_of
from tests.docs.test_pages import DOCS

from topics.testing.server import LiveServer

PATIENCE_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path).start()
    yield live
    live.end()


@pytest.fixture
def address(server: LiveServer, tmp_path: Path) -> Iterator[str]:
    """Where uvicorn serves the application of the FastAPI page."""
    block, *_ = blocks_of((DOCS / "howto" / "fastapi.md").read_text())
    (tmp_path / "shop.py").write_text(block.code.replace(f"http://{ADDRESS}", server.url))
    with (tmp_path / "uvicorn.log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "shop:app", "--port", "0"],
            cwd=tmp_path,
            stderr=log,
        )
        deadline = time.monotonic() + PATIENCE_S
        try:
            while "running on http" not in (told := (tmp_path / "uvicorn.log").read_text()):
                assert process.poll() is None, told
                assert time.monotonic() < deadline, told
                time.sleep(0.02)
            yield told.partition("running on ")[2].split()[0]
        finally:
            process.kill()
            process.wait()
            print((tmp_path / "uvicorn.log").read_text())  # pytest shows it when a test fails


def test_a_live_stream_of_the_fastapi_recipe_goes_on_through_a_restart(
    server: LiveServer, address: str
) -> None:
    order = {"user": 7, "eur": 40, "click": "before"}
    with httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
        for _ in range(2):
            assert client.post("/orders", json=order).json() == {"seq": 1}
        assert client.get("/orders").json() == {"orders": [order], "next": 1}
        with client.stream("GET", "/orders/live") as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith("id:")) == "id: 1"
            server.restart()
            assert client.post("/orders", json=order | {"click": "after"}).status_code == 201
            assert "after" in next(line for line in lines if "after" in line)
