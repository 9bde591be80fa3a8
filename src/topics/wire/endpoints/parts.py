"""What an endpoint is described with. Quick to import, because the client reads the table too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from topics.topic_settings import U64_MAX
from topics.wire.numbers import U32_MAX

Scope = Literal["read", "write", "delete", "admin"]
ShapeName = str
"""A type of `requests`, `shapes` or `values`, by its name; `shapes.shape_of` finds the type."""

EVENT_STREAM = "text/event-stream"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
METRICS_TEXT = "text/plain; version=0.0.4"

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


class Success(msgspec.Struct, frozen=True):
    """A success: a JSON shape, other media types, or nothing."""

    description: str
    shape: ShapeName | None = None
    performance: bool = True
    media: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


class Example(msgspec.Struct, frozen=True):
    """One call and its answer, as JSON or as the text of an event stream.

    All examples together are one story, told to a new server in the order of `step`: a topic of
    orders, a cursor, a router, a watch, a staged write, a queue of mails. A test tells it to a real
    server. `performance` and settings with their default value are left out here.
    """

    step: int
    path: Mapping[str, str | int] = {}
    query: str = ""
    body: str = ""
    status: int = 200
    answer: str = ""


class Endpoint(msgspec.Struct, frozen=True):
    """One method on one path: who may call it, what goes in and what comes out.

    `scopes` is what the key must grant; None means that no key is asked for. With `stream_token`
    the key may also come in the query, for clients that cannot set headers on a stream. With
    `own_auth` the handler judges the key, and a missing key is not refused before. A body of more
    than `max_body_bytes` is refused; None is what the server takes. `is_always` calls are answered
    while the server recovers and drains, too. For a probe `Host` and `Origin` are not checked: its
    answer reveals nothing and it does nothing. Statuses of errors follow from the codes.
    """

    route: str
    name: str
    summary: str
    scopes: tuple[Scope, ...] | None
    replies: Mapping[int, Success]
    query: tuple[Parameter, ...] = ()
    body: ShapeName | None = None
    body_media: tuple[str, ...] = ()
    body_required: bool = True
    errors: tuple[str, ...] = ()
    stream_token: bool = False
    own_auth: bool = False
    max_body_bytes: int | None = LITTLE_BYTES
    is_always: bool = False
    is_probe: bool = False
    example: Example | None = None

    @property
    def shapes(self) -> list[ShapeName]:
        """The bodies and answers of this call."""
        named = [self.body, *(reply.shape for reply in self.replies.values())]
        return [name for name in named if name is not None]

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2]


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


PAGING = (
    u32("page_size", "Entries per page; clamped to 1 to 1000.", 100),
    text("cursor", "`next_cursor` of the page before; absent to begin."),
)
PREFIX = text("prefix", "Only names that begin with this.")
ABSENT = ("topic_not_found",)
QUEUE = ("topic_not_found", "not_a_queue")


def created_or_not(what: str, shape: ShapeName) -> dict[int, Success]:
    return {
        200: Success(f"The {what} existed.", shape),
        201: Success(f"The {what} is new.", shape),
    }
