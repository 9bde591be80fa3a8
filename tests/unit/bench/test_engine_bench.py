"""The benchmark runs, tiny; what it measures is not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topics.bench.engine import ROWS, main

IN_PROCESS = [
    "append1",
    "append100",
    "fsync100",
    "fsync1",
    "read-cache",
    "read-sealed",
    "checkpoint",
    "flat",
]
TINY = ["--scale", "0.00001"]


def test_every_row_that_runs_in_this_process_prints_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--rows", ",".join(IN_PROCESS), "--dir", str(tmp_path), *TINY, "--quick"]) == 0
    printed = capsys.readouterr().out
    assert all(row in printed for row in IN_PROCESS)


@pytest.mark.parametrize("row", sorted(set(ROWS) - set(IN_PROCESS)))
def test_a_row_that_needs_its_own_process_runs(
    row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--rows", row, "--dir", str(tmp_path), *TINY, "--quick", "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)
    assert first["row"] == row
    assert first["value"] == first["value"]  # a number


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    main(["--rows", "append1,open", "--dir", str(tmp_path), *TINY, "--quick", "--json"])
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_row_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err
