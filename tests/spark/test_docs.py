"""Every code block of the Spark pages runs and prints what the page says.

The blocks of a page run in its order: `python` here, in the session of all tests, and so does
`$ topics ...`, which then need not start a Spark of its own; other console lines run in bash. A
block with a title is a file. A `text` block behind one is what it prints, `...` in it stands for
anything.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.blackbox.conftest import ServerProcess
from tests.docs.pages import fits

from topics import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = Path(__file__).resolve().parents[2] / "docs" / "spark"
CLUSTER_PORT = "7077"
_BLOCK = re.compile(r"^```(\w+)(?: title=\"(.*?)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def docs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all pages; each of them leaves it empty."""
    server = ServerProcess(tmp_path_factory.mktemp("docs"), {}, ()).start()
    yield server
    server.end()


@pytest.fixture
def server(docs_server: ServerProcess) -> Iterator[ServerProcess]:
    yield docs_server
    with httpx.Client(base_url=docs_server.url) as http:
        for topic in http.get("/v0/topics", params={"page_size": 1000}).json()["topics"]:
            http.delete(f"/v0/topics/{topic['topic']}").raise_for_status()


def with_code() -> list[Path]:
    """Pages that hold something to run."""
    return [
        page
        for page in sorted(PAGES.glob("*.md"))
        if {"python", "console"} & {match[1] for match in _BLOCK.finditer(page.read_text())}
    ]


@pytest.mark.parametrize("page", with_code(), ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_as_printed(
    page: Path,
    spark: SparkSession,
    server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOPICS_URL", server.url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    text = page.read_text().replace(CLUSTER_PORT, str(a_free_port()))
    # The pages talk to the server at its usual address, which Spark's processes look up for
    # themselves; here it is another one, and they were started before it was known.
    text = re.sub(
        r'format\(\s*"topics"\s*\)', f'format("topics").option("url", "{server.url}")', text
    )
    printed, ran = "", 0
    for match in _BLOCK.finditer(text):
        language, title, code = match.groups()
        where = f"{page.name}:{text.count(os.linesep, 0, match.start()) + 1}"
        if title is not None:
            Path(title).write_text(code)
        elif language == "python":
            printed, ran = run_python(code, where, namespace), ran + 1
        elif language == "console":
            printed, ran = "".join(map(run_command, commands_of(code))), ran + 1
        elif language == "text":
            assert fits(printed, code), f"{where} promises\n{code}\nand got\n{printed}"
    assert ran > 0


def run_python(code: str, where: str, namespace: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), namespace)  # our own pages
    return printed.getvalue()


def commands_of(code: str) -> list[str]:
    return re.findall(r"^\$ (.*)$", code, re.MULTILINE)


def run_command(command: str) -> str:
    words = shlex.split(command)
    if words[0] != "topics":
        return run_in_bash(command)
    printed, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
        code = cli.run(words[1:])
    assert code == 0, f"{command} ended with {code}\n{printed.getvalue()}{complaints.getvalue()}"
    return printed.getvalue()


def run_in_bash(command: str) -> str:
    told = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env=os.environ | {"PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert told.returncode == 0, f"{command}\nexit {told.returncode}\n{told.stdout}{told.stderr}"
    return told.stdout


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
