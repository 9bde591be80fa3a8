"""What a destination can do: whole objects under names, in a directory or an object store.

A name has parts between slashes: `segments/0000000A/seg-1`. An object appears whole or not at all:
a reader never sees half of a put, also when the writer dies. What a call returned from is durable.

`create` and `swap` decide between writers: of two that create one name, or that replace the same
version, one gets `ObjectExists` or `ObjectChanged`. If the answer to such a call is lost, the
object is read back, and the call succeeded if it holds exactly the bytes of the call. Writers whose
bytes could be the same by chance therefore put something of their own into them.

An object is made either by `put` or by `create` and `swap`, never by both: a put does not look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from topics.errors import InvalidRequest
from topics.storage.fs import Buffer

Version: TypeAlias = Mapping[str, str]
"""Tells two contents of one name apart; only the destination that gave it understands it."""

_PART = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,200}")


class NoSuchObject(LookupError):
    """There is no object of this name."""


class ObjectExists(Exception):
    """The object to be created is there already; it was not changed."""


class ObjectChanged(Exception):
    """The object is not of the version to be replaced; it was not changed."""


class ObjectContents(NamedTuple):
    """A whole object, and what to name when replacing it."""

    data: bytes
    version: Version


class Listed(NamedTuple):
    """An object as a list shows it."""

    name: str
    size: int


class Objects(Protocol):
    """A destination. Every call raises `ObjectStoreFailed` if the destination cannot be used."""

    @property
    def url(self) -> str:
        """Where it is, to be shown; without credentials."""
        ...

    def put(self, name: str, data: Buffer | Iterable[Buffer]) -> None:
        """Write a whole object; one of the same name is replaced."""
        ...

    def create(self, name: str, data: bytes) -> Version:
        """Write an object unless there is one (`ObjectExists`)."""
        ...

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        """Replace an object if it still is this version (`ObjectChanged`)."""
        ...

    def read(self, name: str) -> ObjectContents:
        """A whole object; `NoSuchObject`."""
        ...

    def read_range(self, name: str, start: int, size: int) -> bytes:
        """`size` bytes from `start` on; fewer only if the object ends before. `NoSuchObject`."""
        ...

    def size(self, name: str) -> int:
        """The size of an object; `NoSuchObject`."""
        ...

    def list(self, folder: str = "") -> Iterator[Listed]:
        """The objects in a folder and the folders below it, in no order."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object; a missing one is fine."""
        ...


def check_name(name: str) -> None:
    """Refuse a name that not every destination can keep, or that leads out of it."""
    if not all(_PART.fullmatch(part) for part in name.split("/")):
        raise InvalidRequest(f"{name!r} is no name of an object: give letters, digits and ._=-")
