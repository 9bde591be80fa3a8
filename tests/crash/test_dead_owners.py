"""A directory whose owner died: its lock is stale, and everything it acknowledged is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import topics

OWNER = """
import os, signal, sys, topics
log = topics.open(sys.argv[1])
log.append("t", {"data": 1})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_pr02_a_lock_left_by_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    data = tmp_path / "data"
    owner = subprocess.run(
        [sys.executable, "-c", OWNER, str(data)], timeout=300, check=False, env=dict(os.environ)
    )
    assert owner.returncode == -signal.SIGKILL
    lock = data / ".topics.lock"
    before = lock.read_text()
    assert before, "it says who held it"
    with topics.open(data) as log:
        assert [record.data for record in log.read("t").records] == [1]
        assert lock.read_text() != before, "and now it names us"
        assert str(os.getpid()) in lock.read_text()
