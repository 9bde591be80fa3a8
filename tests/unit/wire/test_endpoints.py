"""The table of the API is complete, and what is made from it covers all of it."""

from __future__ import annotations

import re

import msgspec
import pytest

from topics import values
from topics.client import _routes
from topics.client._call import ApiRoute
from topics.wire.endpoints import ENDPOINTS
from topics.wire.endpoints.parts import Endpoint
from topics.wire.shapes import READ_AS, shape_of
from topics.wire.statuses import STATUS

NO_CLIENT_CALL = {"health", "healthz", "ready", "readyz", "metrics", "openapi", "openWebSocket"}
"""Read by probes, monitoring and generators, or opened as a connection of its own."""
ONLY_CONSOLE = {"history", "keyRights", "explainTopic"}
ONLY_IN_A_GET = {"forwarded_total", "lag"}
"""Fields of a router that the answer to a PUT lacks, of which the client reads only the name."""
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
    called = {name for name, route in vars(_routes).items() if isinstance(route, ApiRoute)}
    named = {endpoint.name for endpoint in ENDPOINTS} - NO_CLIENT_CALL - ONLY_CONSOLE - STREAMED
    assert called == {re.sub(r"(?=[A-Z])", "_", name).upper() for name in named}


@pytest.mark.parametrize(("shape", "value"), READ_AS.items())
def test_a_result_that_the_client_reads_from_an_answer_has_fields_of_the_answer(
    shape: str, value: str
) -> None:
    sent = msgspec.structs.fields(shape_of(shape))
    always_sent = {field.encode_name for field in sent if field.required}
    wanted = msgspec.structs.fields(getattr(values, value))
    needed = {field.encode_name for field in wanted if field.required}
    assert needed <= always_sent | ONLY_IN_A_GET
    assert {field.encode_name for field in wanted} <= {field.encode_name for field in sent}


def test_a_shape_that_nobody_defines_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="Nothing"):
        shape_of("Nothing")
