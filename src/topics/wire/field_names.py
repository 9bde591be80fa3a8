"""Finding a field that a request object names twice, or misspells.

The parser keeps the last of two members with one name, so one typo could silently undo another.
A known field must therefore come once. Unknown fields are ignored unless they are misspellings of
known ones (`near_misses`). Nothing inside `data` and `meta` is looked at.

Which objects have which fields is known from the types the parser decodes into. An object is
checked in one of two ways, the second rarely needed:

    quick   distinct keys and their values add up to the length of the (compact) text
    exact   every key is listed, however it was escaped

In a long text the quick check could find millions of keys, so a long text gets the exact check,
which stops at an object with more than `MAX_MEMBERS` members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw, inspect

from topics.errors import InvalidRequest
from topics.wire.jsonbytes import LONG_BYTES
from topics.wire.near_misses import NearMisses

Nesting = Literal["object", "list", "map"]


class FieldNames(msgspec.Struct, frozen=True):
    """The fields of one kind of object, and which of them hold further objects, and how."""

    names: frozenset[str]
    nested: dict[str, tuple[Nesting, FieldNames]]


def known_fields(struct: type[msgspec.Struct]) -> FieldNames:
    """What to look for in the text of a `struct`."""
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    return _of_struct(described)


def _of_struct(struct: inspect.StructType) -> FieldNames:
    names = {field.encode_name for field in struct.fields}
    if struct.tag_field is not None:
        names.add(struct.tag_field)
    nested = {}
    for field in struct.fields:
        for found in _nested(field.type):
            nested[field.encode_name] = found
    return FieldNames(frozenset(names), nested)


def _nested(kind: inspect.Type) -> Iterator[tuple[Nesting, FieldNames]]:
    match kind:
        case inspect.StructType():
            yield "object", _of_struct(kind)
        case inspect.UnionType():
            for part in kind.types:
                yield from _nested(part)
        case inspect.ListType(item_type=inspect.StructType() as item):
            yield "list", _of_struct(item)
        case inspect.DictType(value_type=inspect.StructType() as value):
            yield "map", _of_struct(value)


def refuse_wrong_names(raw: bytes, known: FieldNames) -> None:
    """Raise if an object in `raw` repeats or misspells a field; `raw` is compact and typed."""
    _refuse_in(raw, known, NearMisses())


def refuse_misspelt(raw: bytes, known: FieldNames) -> None:
    """Raise if an object in compact `raw`, whatever the types of its members, misspells a field."""
    with contextlib.suppress(msgspec.ValidationError):
        _refuse_in(raw, known, NearMisses())


def _refuse_in(raw: bytes, known: FieldNames, near_misses: NearMisses) -> None:
    if len(raw) > LONG_BYTES:
        members = _refuse_exactly(raw, known)
    else:
        members = _members(raw)
        if _spelled_size(members) != len(raw):
            _refuse_exactly(raw, known)
    near_misses.refuse(members, known.names)
    for name, (nesting, inner) in known.nested.items():
        value = bytes(members.get(name, b""))
        if value[:1] in (b"{", b"["):
            for part in _OBJECTS[nesting](value):
                _refuse_in(bytes(part), inner, near_misses)


class _Spelled:
    """A key as one member has it: equal to no other, so that a dict keeps them all."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


MAX_MEMBERS = 100_000
"""Of an object whose keys are listed."""

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_OBJECTS: dict[Nesting, Callable[[bytes], Any]] = {
    "object": lambda value: (value,),
    "list": _items,
    "map": lambda value: _members(value).values(),
}


def _spelled_size(members: dict[str, Raw]) -> int:
    """The size of an object with exactly these members and no escapes; never too large."""
    # Two quotes and a colon for each, commas between them, two braces around.
    marks = 4 * len(members) + 1 if members else 2
    return marks + sum(map(len, members)) + sum(map(len, members.values()))


def _refuse_exactly(raw: bytes, known: FieldNames) -> dict[str, Raw]:
    members: dict[str, Raw] = {}
    for key, value in _every_member(raw).items():
        if key.name in members and key.name in known.names:
            raise InvalidRequest(f"{key.name} is given twice in one object; send it once")
        members[key.name] = value
    return members


def _every_member(raw: bytes) -> dict[_Spelled, Raw]:
    left = iter(range(MAX_MEMBERS))

    def spelled(_type: object, name: str) -> _Spelled:
        if next(left, None) is None:
            raise InvalidRequest(f"one object has more than {MAX_MEMBERS} members; send fewer")
        return _Spelled(name)

    found: dict[_Spelled, Raw] = msgspec.json.decode(
        raw, type=dict[_Spelled, Raw], dec_hook=spelled
    )
    return found
