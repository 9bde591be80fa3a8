"""Fixtures for programs that use a log, found by pytest when `topics` is installed.

    def test_billing(topics_log):                  # in memory: microseconds
        topics_log.append("orders", {"data": {"id": 1}})

    def test_restart(topics_server):               # a real process on a free port
        with topics_server.open() as log:
            log.append("orders", {"data": {"id": 1}})
            topics_server.restart()
            assert log.read("orders").records

Importing this costs next to nothing: the log and the server are imported by the fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from topics.embedded import Log
    from topics.testing.server import LiveServer


@pytest.fixture
def topics_log() -> Iterator[Log]:
    """An empty log in memory: the real engine, without files."""
    import topics  # noqa: PLC0415 - only where the fixture is used

    with topics.open() as log:
        yield log


@pytest.fixture
def topics_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A real server on an empty directory and a free port; killed after the test."""
    from topics.testing.server import LiveServer  # noqa: PLC0415 - as above

    server = LiveServer(tmp_path_factory.mktemp("topics-server"))
    try:
        yield server.start()
    finally:
        server.end()
