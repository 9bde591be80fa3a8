"""The table of the API is complete, and what is made from it covers all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import topics.client
from topics.wire.endpoints import ENDPOINTS
from topics.wire.endpoints.parts import Endpoint
from topics.wire.shapes import shape_of
from topics.wire.statuses import STATUS

NO_CLIENT_CALL = {"health", "healthz", "ready", "readyz", "metrics", "openapi", "openWebSocket"}
"""Read by probes, monitoring and generators, or opened as a connection of its own."""
ONLY_CONSOLE = {"history", "keyRights"}
STREAMED = {"openWatch", "streamJobs"}
"""The client takes the address from the answer that opened the watch, or builds it with a token."""


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_an_endpoint_names_what_exists(endpoint: Endpoint) -> None:
    assert re.fullmatch(r"(GET|PUT|POST|DELETE) /[^ ]+", endpoint.route)
    for name in endpoint.shapes:
        assert shape_of(name).__name__ == name
    assert set(endpoint.errors) <= set(STATUS)
    assert endpoint.example is not None or endpoint.name in {"openapi", "openWebSocket"}


def test_names_routes_and_steps_of_the_story_are_distinct() -> None:
    assert len({endpoint.name for endpoint in ENDPOINTS}) == len(ENDPOINTS)
    assert len({endpoint.route for endpoint in ENDPOINTS}) == len(ENDPOINTS)
    steps = [endpoint.example.step for endpoint in ENDPOINTS if endpoint.example is not None]
    assert len(set(steps)) == len(steps)


def test_the_client_calls_every_endpoint_by_its_name() -> None:
    folder = Path(topics.client.__file__).parent
    source = "".join(path.read_text() for path in folder.glob("_*.py"))
    called = set(re.findall(r'\bat\(\s*"(\w+)"', source))
    named = {endpoint.name for endpoint in ENDPOINTS}
    assert called == named - NO_CLIENT_CALL - ONLY_CONSOLE - STREAMED


def test_a_shape_that_nobody_defines_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="Nothing"):
        shape_of("Nothing")
