"""No hot path takes more instructions than the last entry of docs/instructions.json allows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.programs import debian_program
from tools.instructions import PATHS, TOLERANCE, Entry, compared, history

PROGRAM = Path(__file__).resolve().parents[2] / "tools/instructions.py"
BEFORE = Entry("2026-11-18", "a test", "a build", reference=1000, counts={"lone write": 10_000})


def test_no_hot_path_takes_more_instructions_than_before() -> None:
    debian_program("valgrind", package="valgrind")
    command = [sys.executable, str(PROGRAM), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_entry_of_the_history_counts_every_path() -> None:
    assert [entry.why for entry in history() if entry.counts.keys() != PATHS.keys()] == []


def test_growth_beyond_the_tolerance_is_found() -> None:
    most = round(10_000 * (1 + TOLERANCE))
    assert compared(replace(BEFORE, counts={"lone write": most - 1}), [BEFORE])[1]
    assert not compared(replace(BEFORE, counts={"lone write": most + 1}), [BEFORE])[1]


def test_another_build_is_compared_in_relation_to_the_reference_loop() -> None:
    elsewhere = replace(BEFORE, build="another", reference=2000)
    said, is_good = compared(replace(elsewhere, counts={"lone write": 21_000}), [BEFORE])
    assert is_good
    assert "no entry is of this build" in said[0]
    assert not compared(replace(elsewhere, counts={"lone write": 25_000}), [BEFORE])[1]


def test_the_last_entry_of_the_same_build_counts() -> None:
    better = replace(BEFORE, counts={"lone write": 5000})
    elsewhere = replace(BEFORE, build="another")
    assert not compared(BEFORE, [BEFORE, better, elsewhere])[1]
