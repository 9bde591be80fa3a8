"""The examples of the table of endpoints, as sent and answered, in the order of their story."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from topics.topic_settings import DEFAULTS
from topics.wire.endpoints import ENDPOINTS
from topics.wire.endpoints.parts import Endpoint, Example

_SPENT = {"server_total_ms": 0.3}


class ShownCall(msgspec.Struct, frozen=True):
    """One call of the story, and its answer: JSON, or the text of an event stream."""

    path: Mapping[str, str | int]
    query: str
    body: Mapping[str, Any] | None
    status: int
    answer: Mapping[str, Any] | str


@cache
def examples() -> Mapping[str, ShownCall]:
    """By the name of the endpoint. A stream is shown by its first part."""
    told = [(endpoint.example.step, endpoint) for endpoint in ENDPOINTS if endpoint.example]
    return {
        endpoint.name: _shown(endpoint, endpoint.example)
        for _, endpoint in sorted(told, key=lambda entry: entry[0])
        if endpoint.example is not None
    }


def _shown(endpoint: Endpoint, told: Example) -> ShownCall:
    body = msgspec.json.decode(told.body) if told.body else None
    answer: Any = told.answer
    if answer.startswith("{"):
        answer = msgspec.json.decode(answer)
        if "config" in answer:
            answer["config"] = DEFAULTS | answer["config"]
        if endpoint.replies[told.status].performance:
            answer["performance"] = _SPENT
    return ShownCall(told.path, told.query, body, told.status, answer)
