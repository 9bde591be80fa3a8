"""The fixtures that users get with the package, in a pytest run of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

from tests.blackbox.conftest import child_environment

from topics.testing import plugin

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "client.md"
"""Its last block is a test with the fixtures."""

USER_TESTS = """
import os

pids = []

def test_memory(topics_log):
    topics_log.append("orders", {"data": 1})
    assert topics_log.read("orders").records[0].data == 1

def test_memory_is_empty_again(topics_log):
    assert topics_log.topics() == []

def test_server(topics_server):
    pids.append(topics_server.pid)
    with topics_server.open() as log:
        log.append("orders", {"data": 2})
        topics_server.restart()
        assert log.read("orders").records[0].data == 2
    pids.append(topics_server.pid)

def test_server_is_gone():
    for pid in pids:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        raise AssertionError(f"{pid} still runs")
"""


def test_users_get_a_log_in_memory_and_a_server_that_leaves_nothing_behind(tmp_path: Path) -> None:
    # Fixtures by name: works whether or not this checkout is installed with its entry points.
    (tmp_path / "conftest.py").write_text(
        "from topics.testing.plugin import topics_log, topics_server\n"
    )
    (tmp_path / "test_users.py").write_text(USER_TESTS)
    (shown,) = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "test_guide.py").write_text(shown)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env=child_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5 passed" in ran.stdout


def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = import_module(project["entry-points"]["pytest11"]["topics"])
    assert found.topics_log is plugin.topics_log
    assert found.topics_server is plugin.topics_server


def test_the_plugin_costs_nothing_until_a_fixture_is_used() -> None:
    code = (
        "import sys, topics.testing.plugin; "
        "print([m for m in sys.modules if m.startswith(('topics.', 'numpy'))])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    loaded = ran.stdout
    assert "topics.testing.plugin" in loaded
    for heavy in ("engine", "embedded", "client", "server", "storage", "numpy", "testing.disk"):
        assert heavy not in loaded
