"""The parts an endpoint is described with; the endpoints themselves are in `endpoints`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from topics.topic_settings import U64_MAX
from topics.wire.numbers import U32_MAX

Method = Literal["GET", "PUT", "POST", "DELETE"]
Scope = Literal["read", "write", "delete", "admin"]
Shape = type[msgspec.Struct]


class Parameter(msgspec.Struct, frozen=True):
    """A query parameter or a request header."""

    name: str
    description: str
    schema: Mapping[str, Any]
    place: Literal["query", "header"] = "query"
    required: bool = False


class Reply(msgspec.Struct, frozen=True):
    """A success: a JSON shape, other media types, or nothing."""

    description: str
    shape: Shape | None = None
    performance: bool = True
    media: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path.

    `group` is the heading it stands under. `scopes` is what the key must grant; None means no key
    is asked for. With `stream_token` the key may also come in the query, for clients that cannot
    set headers on a stream.
    """

    method: Method
    path: str
    name: str
    summary: str
    group: str
    scopes: tuple[Scope, ...] | None
    replies: Mapping[int, Reply]
    query: tuple[Parameter, ...] = ()
    body: Shape | None = None
    body_media: tuple[str, ...] = ()
    body_required: bool = True
    errors: tuple[str, ...] = ()
    stream_token: bool = False


def u64(name: str, description: str, default: int | None = None) -> Parameter:
    return _number(name, description, default, U64_MAX)


def u32(name: str, description: str, default: int | None = None) -> Parameter:
    return _number(name, description, default, U32_MAX)


def _number(name: str, description: str, default: int | None, maximum: int) -> Parameter:
    schema: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": maximum}
    if default is not None:
        schema["default"] = default
    return Parameter(name, description, schema)


def flag(name: str, description: str, *, default: bool) -> Parameter:
    return Parameter(name, description, {"type": "boolean", "default": default})


def text(name: str, description: str, *, required: bool = False) -> Parameter:
    return Parameter(name, description, {"type": "string"}, required=required)


def header(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "string"}, place="header")
