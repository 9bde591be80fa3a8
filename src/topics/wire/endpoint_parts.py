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

LITTLE_BYTES = 1 << 20
"""Enough for every call but writes and long lists; a longer body is refused before it is read."""
LISTS_BYTES = 8 << 20
"""Enough for the longest lists that a call may name."""


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
    set headers on a stream. With `own_auth` the handler judges the key, and a missing key is not
    refused before. A body of more than `max_body_bytes` is refused; None is what the server takes.
    `is_always` calls are answered while the server recovers and drains, too. A probe is answered
    to everybody, whatever name or page it was asked by: it tells and does nothing.
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
    own_auth: bool = False
    max_body_bytes: int | None = LITTLE_BYTES
    is_always: bool = False
    is_probe: bool = False


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
