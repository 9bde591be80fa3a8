"""For tests of what is held until the end of a turn of the loop."""

import pytest

from topics.http import turns


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, nothing has waited for too long."""
    monkeypatch.setattr(turns, "HELD_NS", 1 << 62)
