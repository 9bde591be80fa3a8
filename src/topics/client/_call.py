"""A request and what its answer means, and the parts that all of them share. No I/O."""

from __future__ import annotations

import itertools
import math
import os
from base64 import b32encode
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from topics.errors import InvalidRequest, TopicNotFound, Unreachable

T = TypeVar("T")
V = TypeVar("V")

LIST_SIZE = "1000"


class ApiCall(NamedTuple, Generic[T]):
    """One request, and how to read its answer."""

    method: str
    path: str
    parse: Callable[[bytes], T]
    body: bytes | None = None
    query: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    idempotent: bool | None = None
    longer: float = 0.0
    """Seconds that the server may hold the answer back, on top of the usual patience."""
    within: float = math.inf
    """Seconds after which no further try begins."""

    def read(self, body: bytes, *, url: str) -> T:
        """What the answer says. A login page in place of the server is no answer."""
        try:
            return self.parse(body)
        except ValueError as error:
            reason = f"it answers, but not like a topics server ({error})"
            raise Unreachable(url, reason=reason, sent=True) from error


# Paths and keys


def quoted(name: str) -> str:
    """A name as a part of a path. What is no UTF-8 stays the name of nothing."""
    return quote(name, safe="", errors="backslashreplace")


class ApiRoute(Generic[T]):
    """An endpoint: where it is called, and the type of its answer. `_routes` has all of them."""

    __slots__ = ("_decode", "_kind", "method", "path")

    def __init__(self, method: str, path: str, kind: type[T]) -> None:
        self.method = method
        self.path = path
        self._kind = kind
        self._decode: Callable[[bytes], T] | None = None

    def at(self, **names: str | int) -> tuple[str, str]:
        """Method and path, with these names in it."""
        path = self.path
        for part, name in names.items():
            if name == "":
                if part == "topic":
                    raise TopicNotFound("")
                raise InvalidRequest(f"a {part} needs a name")
            path = path.replace(f"{{{part}}}", quoted(str(name)))
        return self.method, path

    def call(
        self,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        within: float = math.inf,
        **names: str | int,
    ) -> ApiCall[T]:
        """A request whose answer is read as it is; `names` stand in the path."""
        method, path = self.at(**names)
        return ApiCall(method, path, self.parse, body, query, headers, idempotent, within=within)

    def parse(self, body: bytes) -> T:
        """The answer. Its decoder is made at the first one: a program makes few of the calls."""
        if self._decode is None:
            self._decode = msgspec.json.Decoder(self._kind).decode
        return self._decode(body)


class _Keys:
    """Idempotency keys that no other process, child or earlier run has made."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._prefix = b32encode(os.urandom(10)).decode().lower()
        self._numbers = itertools.count(1)

    def make(self) -> str:
        return f"{self._prefix}-{next(self._numbers):x}"


_keys = _Keys()
os.register_at_fork(after_in_child=_keys.renew)
new_key = _keys.make
"""A key of its own for one write, so that sending it again cannot append it again."""


# Lists

Listed = tuple[list[V], str | None]
"""One page of a list, and the cursor of the next."""


def page_query(cursor: str | None, **more: str) -> dict[str, str]:
    query = {"page_size": LIST_SIZE} | {name: value for name, value in more.items() if value}
    return query if cursor is None else query | {"cursor": cursor}
