"""A real process, killed at random moments while it writes; then everything is counted.

Each round kills one writer after another on the same directory. What a writer said before it died
is the truth the directory is held to. The seed decides settings, operations and moments; a failure
prints it with the command that uses it again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.blackbox.survivors import Line, Oracle
from tests.seeds import seed_for

import topics

WRITER = Path(__file__).with_name("killed_writer.py")
ROUNDS = 6
KILLS = 10
"""Per round; all rounds together are at least fifty."""
LONG = 300
"""Lines after which a writer has done far more than begin."""
SEEDS = sorted({seed_for("TOPICS_KILL_SEED", number) for number in range(ROUNDS)})


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_pr04_a_killed_writer_loses_nothing_that_was_acknowledged(
    number: int, tmp_path: Path
) -> None:
    seed = SEEDS[number]
    try:
        acked = kill_again_and_again(Random(seed), tmp_path)
    except BaseException as error:
        error.add_note(f"again: TOPICS_KILL_SEED={seed} .venv/bin/python -m pytest {__file__}")
        raise
    assert acked > KILLS, "the writers did write"


def kill_again_and_again(rng: Random, folder: Path) -> int:
    oracle = Oracle()
    again: Line | None = None
    settings: dict[str, Any] = {"segment_max_events": rng.choice([7, 25])}
    if rng.random() < 0.5:
        settings |= {"cold_dir": str(folder / "cold"), "hot_retain_segments": 1}
    for kill in range(KILLS):
        settings["wal_shards"] = rng.choice([1, 1, 2, 3])
        task = {
            "directory": str(folder / "data"),
            "settings": settings,
            "seed": rng.randrange(1 << 32),
            "operations": 100_000,
            "again": again,
        }
        # The last one gets to write for sure, however slow the machine is.
        awaited = (
            LONG
            if kill == KILLS - 1
            else 1
            if rng.random() < 0.1
            else rng.choice([2, 3, 4, 30, LONG])
        )
        oracle.hear(run_and_kill(rng, task, awaited))
        # A writer killed before it made the store leaves nothing that can be opened for reading.
        read_only = rng.random() < 0.7 and (folder / "data" / "FORMAT").exists()
        with topics.open(folder / "data", read_only=read_only, **settings) as log:
            again = oracle.compare(log)
    with topics.open(folder / "data", **settings) as log:
        log.checkpoint()
        oracle.compare(log)
    return oracle.acked


def run_and_kill(rng: Random, task: dict[str, Any], awaited: int) -> list[Line]:
    """Let a writer run until it has said some lines, and a moment longer, and kill it."""
    with subprocess.Popen(
        [sys.executable, str(WRITER), json.dumps(task)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        lines = [writer.stdout.readline() for _ in range(awaited)]
        try:
            writer.wait(rng.random() * 0.02)
        except subprocess.TimeoutExpired:
            writer.kill()
        lines += writer.stdout.readlines()
        complaint = writer.stderr.read().decode()
    assert writer.returncode == -9, f"the writer ended by itself: {complaint}"
    return [json.loads(line) for line in lines if line.endswith(b"\n")]
