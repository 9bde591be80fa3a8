"""Real servers killed again and again under a mixed load, judged by what they had acknowledged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.seeds import seed_for

from topics.storage.crashpoints import NAMES
from topics.torture.server import Nursery, TorturedServer

BUGS = Path(__file__).with_name("torture_bugs")
PATIENCE_S = 560


def tortured(
    tmp_path: Path, *flags: str, seed: int, cycles: int, path: str = ""
) -> subprocess.CompletedProcess[str]:
    flags = ("--cycles", str(cycles), "--seed", str(seed), *flags)
    print(f"again: .venv/bin/topics torture {' '.join(flags)}")  # shown if it fails
    command = [sys.executable, "-m", "topics.cli", "torture", "--json", "--dir", str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    return subprocess.run(
        [*command, *flags],
        env=env | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def survived(tmp_path: Path, *flags: str, cycles: int, number: int = 1) -> dict[str, Any]:
    seed = seed_for("TOPICS_TORTURE_SEED", number)
    done = tortured(tmp_path, *flags, seed=seed, cycles=cycles)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["losses"] == 0
    assert figures["cycles"] == cycles
    assert figures["acked"] > cycles, "the servers did work"
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    return figures


@pytest.mark.timeout(600)
@pytest.mark.parametrize("half", [1, 2])
def test_pr05_pr06_pr07_st05_nothing_acknowledged_is_lost_wherever_a_server_is_killed(
    tmp_path: Path, half: int
) -> None:
    figures = survived(tmp_path, cycles=50, number=half)
    assert figures["ends"]["SIGKILL"] > 0
    reached = set(figures["points_reached"])
    assert reached <= NAMES
    assert len(reached) >= 5, "servers died inside themselves too"
    assert figures["records_seen"] > 0, "readers read"


@pytest.mark.timeout(600)
def test_a_server_that_breaks_a_promise_is_found_out_and_its_directory_kept(
    tmp_path: Path,
) -> None:
    done = tortured(tmp_path, seed=5, cycles=40, path=str(BUGS))
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["losses"] == 1
    assert "ended by itself" not in found["complaint"], "it was found by comparing"
    assert Path(found["directory"], "data", "FORMAT").exists()
    assert f"topics torture --seed {found['seed']} --cycles 20" in done.stderr


class Absent(Nursery):
    """A nursery that never had a server, and must not be asked about one."""

    def __init__(self) -> None:
        pass

    def wait(self, pid: int, seconds: float = 0.0) -> int | None:
        raise AssertionError("nobody ends who never began")


def test_a_server_that_never_began_is_not_waited_for(tmp_path: Path) -> None:
    assert TorturedServer(Absent(), tmp_path).kill() is False
