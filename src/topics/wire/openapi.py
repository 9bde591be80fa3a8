"""The API's description, OpenAPI 3.1, made from the types that decode and build its bodies.

Generators of clients read it, so it stays with what they understand: every body is a reference to
a named schema, every call stands under one tag and has an example.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from topics.topic_settings import U64_MAX
from topics.wire.endpoints import ENDPOINTS, GROUPS
from topics.wire.endpoints.parts import (
    ARROW_STREAM,
    EVENT_STREAM,
    METRICS_TEXT,
    Endpoint,
    Parameter,
    ShapeName,
    Success,
)
from topics.wire.examples import ShownCall, examples
from topics.wire.requests.watching import COMMANDS
from topics.wire.shapes import shape_of
from topics.wire.statuses import STATUS

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_COMMANDS = tuple(command.__name__ for command in COMMANDS)
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


_MEDIA_SCHEMAS: Json = {
    ARROW_STREAM: {"type": "string", "format": "binary"},
    EVENT_STREAM: {"type": "string"},
    METRICS_TEXT: {"type": "string"},
    "application/json": {"type": "object"},
}


@cache
def document(version: str) -> bytes:
    """The whole description as JSON; the same bytes every time."""
    return msgspec.json.encode(describe(version))


def describe(version: str) -> Json:
    """The whole description as plain objects."""
    paths: dict[str, Json] = {}
    for group, (_, endpoints) in GROUPS.items():
        for endpoint in endpoints:
            shown = {**_operation(endpoint), "tags": [group]}
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = shown
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "topics",
            "version": version,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, (text, _) in GROUPS.items()],
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
    example = examples().get(endpoint.name)
    shown: Json = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint, example),
        "responses": _responses(endpoint, example),
        "security": _security(endpoint),
    }
    if endpoint.scopes is not None:
        shown["x-scopes"] = list(endpoint.scopes)
    if endpoint.body is not None:
        shown["requestBody"] = {
            "required": endpoint.body_required,
            "content": _content(endpoint.body, endpoint.body_media),
        }
        if example is not None:
            shown["requestBody"]["content"]["application/json"]["example"] = example.body
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


def _parameters(endpoint: Endpoint, example: ShownCall | None) -> list[Json]:
    shown = [_path_parameter(name) for name in _path_names.findall(endpoint.path)]
    shown += [_parameter(parameter) for parameter in endpoint.query]
    if example is not None:
        values = {**example.path, **dict(parse_qsl(example.query))}
        for parameter in shown:
            if parameter["name"] in values:
                parameter["example"] = _typed(values[parameter["name"]], parameter["schema"])
    return shown


def _typed(value: str | int, schema: Json) -> str | int:
    return int(value) if schema["type"] == "integer" else value


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


def _responses(endpoint: Endpoint, example: ShownCall | None) -> Json:
    shown = {str(status): _success(reply) for status, reply in endpoint.replies.items()}
    if example is not None:
        media = "application/json" if isinstance(example.answer, Mapping) else EVENT_STREAM
        shown[str(example.status)]["content"][media]["example"] = example.answer
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


def _success(reply: Success) -> Json:
    shown: Json = {"description": reply.description}
    if reply.shape is not None or reply.media:
        shown["content"] = _content(reply.shape, reply.media)
    if reply.headers:
        shown["headers"] = {name: _header_reference(name) for name in reply.headers}
    return shown


def _refusal(status: int, codes: Sequence[str]) -> Json:
    shown: Json = {
        "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
        "content": {"application/json": {"schema": _reference("ErrorBody")}},
        "x-error-codes": list(codes),
    }
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        shown["headers"] = {"Retry-After": _header_reference("Retry-After")}
    return shown


def _header_reference(name: str) -> Json:
    return {"$ref": f"#/components/headers/{name}"}


def _content(shape: ShapeName | None, media: Iterable[str]) -> Json:
    shown: Json = {name: {"schema": _MEDIA_SCHEMAS[name]} for name in media}
    if shape is not None:
        shown["application/json"] = {"schema": _reference(shape)}
    return shown


# Schemas


def _reference(shape: ShapeName) -> Json:
    return {"$ref": _REF.format(name=shape)}


def _schemas() -> Json:
    names = ["ErrorBody", "Performance"]
    names += [name for endpoint in ENDPOINTS for name in endpoint.shapes]
    used = [shape_of(name) for name in dict.fromkeys([*names, *_COMMANDS])]
    _, components = msgspec.json.schema_components(used, ref_template=_REF)
    schemas = {name: _without_tuples(schema) for name, schema in components.items()}
    for endpoint in ENDPOINTS:
        for reply in endpoint.replies.values():
            if reply.shape is not None and reply.performance:
                # Not required: some shapes also stand inside others, where it is not added.
                schemas[reply.shape]["properties"]["performance"] = _reference("Performance")
    return schemas


def _without_tuples(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON schema
    """The schema with tuples as arrays of fixed length.

    `prefixItems` with `items: false` says more, but few generators of clients can read it.
    """
    if isinstance(schema, list):
        return [_without_tuples(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {name: _without_tuples(part) for name, part in schema.items()}
    places = shown.pop("prefixItems", None)
    if places is not None:
        kinds = [kind for at, kind in enumerate(places) if kind not in places[:at]]
        shown["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return shown
