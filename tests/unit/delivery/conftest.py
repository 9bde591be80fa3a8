"""Fixtures for live delivery."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.delivery.builders import World, disk_world, memory_world


@pytest.fixture
def world() -> World:
    """Everything in memory, with one topic to watch."""
    made = memory_world()
    made.put("orders")
    return made


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[World]:
    """The same on a real directory, where syncing means something."""
    made = disk_world(tmp_path / "data")
    made.put("orders", durability="disk")
    yield made
    made.engine.close()
