"""Every test here starts from a clean environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.runner import clean_environment


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the contexts of the test's user are kept."""
    home = tmp_path / "config"
    clean_environment(monkeypatch, home)
    return home
