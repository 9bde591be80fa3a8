"""The guide to the command line runs as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import run_page
from tests.unit.cli.runner import clean_environment

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_the_commands_of_the_guide_print_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_environment(monkeypatch, tmp_path / "config")
    assert run_page(GUIDE, tmp_path) == 4
