"""For tests of what is held until the end of a tick."""

import pytest

from topics.http import tick


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, nothing has waited for too long."""
    monkeypatch.setattr(tick, "HELD_NS", 1 << 62)
