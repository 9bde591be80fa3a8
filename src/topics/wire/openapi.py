"""The API's description, OpenAPI 3.1, made from the types that decode and build its bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

from topics.wire import requests, shapes
from topics.wire.endpoint_parts import Endpoint, Parameter, Reply, Shape
from topics.wire.endpoints import ENDPOINTS
from topics.wire.numbers import U64_MAX
from topics.wire.statuses import STATUS

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_COMMANDS: tuple[Shape, ...] = (
    requests.SubscribeCommand,
    requests.UnsubscribeCommand,
    requests.PublishCommand,
    requests.PingCommand,
)
_ABOUT = (
    "A durable event log over HTTP. Unknown fields are ignored. Every refusal is an ErrorBody. "
    "Whatever it asks for, a request may be refused for what it is: 400 or 505 when it is not "
    "HTTP we understand, 404 for a path and 405 for a method that is not described here, 408 when "
    "it arrives too slowly, 431 for its headers, 413 and 415 for a body."
)
_ALWAYS_WITH_NAMES = ("invalid_request",)
_ALWAYS_WITH_KEY = ("unauthorized", "forbidden", "throttled", "internal")
_WHILE_AWAY = ("not_ready", "shutting_down")
_ALWAYS_WITH_BODY = ("invalid_request", "payload_too_large", "unsupported_media_type")
_ALWAYS_READY = frozenset({"health", "healthz", "ready", "readyz", "metrics", "openapi"})

_path_names = re.compile(r"\{(\w+)\}")
_NUMBERS_IN_PATHS = frozenset({"epoch", "part", "attempt"})

_HEADERS: Json = {
    "ETag": {"description": "Names this exact page.", "schema": {"type": "string"}},
    "Topics-Head-Seq": {
        "description": "The last seq of the topic now.",
        "schema": {"type": "integer"},
    },
    "Topics-Earliest-Seq": {
        "description": "The first live seq of the topic now.",
        "schema": {"type": "integer"},
    },
    "Retry-After": {
        "description": "Whole seconds after which to try again.",
        "schema": {"type": "integer", "minimum": 1},
    },
}


@cache
def document(version: str) -> bytes:
    """The whole description as JSON; the same bytes every time."""
    return msgspec.json.encode(describe(version))


def describe(version: str) -> Json:
    """The whole description as plain objects."""
    paths: dict[str, Json] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "topics",
            "version": version,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "headers": _HEADERS,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "streamToken": {"type": "apiKey", "in": "query", "name": "token"},
            },
        },
    }


def _operation(endpoint: Endpoint) -> Json:
    shown: Json = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": _responses(endpoint),
        "security": _security(endpoint),
    }
    if endpoint.scopes is not None:
        shown["x-scopes"] = list(endpoint.scopes)
    if endpoint.body is not None:
        shown["requestBody"] = {
            "required": endpoint.body_required,
            "content": _content(endpoint.body, endpoint.body_media),
        }
    if endpoint.name == "openWebSocket":
        shown["x-messages"] = {"oneOf": [_reference(command) for command in _COMMANDS]}
    return shown


def _security(endpoint: Endpoint) -> list[Json]:
    """What the key must grant. Without keys set up, the server asks for none: hence `{}`."""
    if endpoint.scopes is None:
        return []
    ways: list[Json] = [{"key": list(endpoint.scopes)}]
    if endpoint.stream_token:
        ways.append({"streamToken": list(endpoint.scopes)})
    return [*ways, {}]


def _parameters(endpoint: Endpoint) -> list[Json]:
    return [_path_parameter(name) for name in _path_names.findall(endpoint.path)] + [
        _parameter(parameter) for parameter in endpoint.query
    ]


def _path_parameter(name: str) -> Json:
    schema: Json = {"type": "string"}
    if name in _NUMBERS_IN_PATHS:
        schema = {"type": "integer", "minimum": 0, "maximum": U64_MAX}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(parameter: Parameter) -> Json:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


# Responses


def _responses(endpoint: Endpoint) -> Json:
    shown = {str(status): _success(reply) for status, reply in endpoint.replies.items()}
    by_status: dict[int, list[str]] = {}
    for code in error_codes(endpoint):
        by_status.setdefault(STATUS[code], []).append(code)
    for status, codes in sorted(by_status.items()):
        shown[str(status)] = _refusal(status, codes)
    return shown


def error_codes(endpoint: Endpoint) -> Sequence[str]:
    """Every code a call may be refused with, each once."""
    codes: list[str] = list(endpoint.errors)
    if _path_names.search(endpoint.path):
        codes += _ALWAYS_WITH_NAMES
    if endpoint.body is not None:
        codes += _ALWAYS_WITH_BODY
    if endpoint.scopes is not None:
        codes += _ALWAYS_WITH_KEY
    if endpoint.name not in _ALWAYS_READY:
        codes += _WHILE_AWAY
    return tuple(dict.fromkeys(codes))


def _success(reply: Reply) -> Json:
    shown: Json = {"description": reply.description}
    if reply.shape is not None or reply.media:
        shown["content"] = _content(reply.shape, reply.media, performance=reply.performance)
    if reply.headers:
        shown["headers"] = {name: _header_reference(name) for name in reply.headers}
    return shown


def _refusal(status: int, codes: Sequence[str]) -> Json:
    code = {"properties": {"code": {"enum": list(codes)}}}
    schema = {"allOf": [_reference(shapes.ErrorBody)], "properties": {"error": code}}
    shown: Json = {
        "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
        "content": {"application/json": {"schema": schema}},
    }
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        shown["headers"] = {"Retry-After": _header_reference("Retry-After")}
    return shown


def _header_reference(name: str) -> Json:
    return {"$ref": f"#/components/headers/{name}"}


def _content(shape: Shape | None, media: Iterable[str], *, performance: bool = False) -> Json:
    shown: Json = {name: {} for name in media}
    if shape is not None:
        schema = _reference(shape)
        if performance:
            schema = {
                "allOf": [schema],
                "properties": {"performance": _reference(shapes.Performance)},
                "required": ["performance"],
            }
        shown["application/json"] = {"schema": schema}
    return shown


# Schemas


def _reference(shape: Shape) -> Json:
    return {"$ref": _REF.format(name=shape.__name__)}


def _schemas() -> Json:
    used: dict[Shape, None] = {shapes.ErrorBody: None, shapes.Performance: None}
    for endpoint in ENDPOINTS:
        shown = [endpoint.body, *(reply.shape for reply in endpoint.replies.values())]
        used.update({shape: None for shape in shown if shape is not None})
    used.update(dict.fromkeys(_COMMANDS))
    _, components = msgspec.json.schema_components(used, ref_template=_REF)
    assert isinstance(components, dict)
    return components
