"""Request bodies into typed values, strictly.

Every body goes through the same three steps:

    the text     UTF-8, grammar, nesting, whitespace           jsonbytes.compact
    the types    fields, ranges, nulls, enums; no coercion     msgspec, from the struct
    the names    no known field twice, none misspelt           field_names

and every mistake becomes `InvalidRequest`, naming the field and what it may hold. Unknown fields
are ignored, so that newer clients can talk to older servers.

A short body that is as long as the shortest spelling of its values needs only the second step:
it has no room for whitespace, for a repeated field or for an unknown one. That holds for bodies
whose every part is typed; stored payloads are text of their own.

A long body without payloads is refused if it has more parts than any request needs: decoding
millions of parts would block all other requests for seconds.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import inspect

from topics.errors import InvalidRequest
from topics.wire.field_names import FieldNames, known_fields, refuse_misspelt, refuse_wrong_names
from topics.wire.jsonbytes import LONG_BYTES, compact

T = TypeVar("T", bound=msgspec.Struct)

_PLAIN_BYTES = 4096
_SPACED = b'": '
"""What many clients write between a name and its value: such a body is not plain, at a glance."""
_encode = msgspec.json.Encoder().encode

MAX_CONTAINERS = 150_000
MAX_VALUES = 1_000_000
"""What a long body may hold, about: the limits of the API are far below."""

_located = re.compile(r"(?P<problem>.*?)(?: - at `(?P<where>(?:key in )?\$.*)`)?\Z", re.DOTALL)


class BodyDecoder(Generic[T]):
    """Decodes JSON objects of one type, or of one of several told apart by a tag."""

    def __init__(self, *structs: type[T]) -> None:
        wanted = structs[0]
        for struct in structs[1:]:
            wanted = wanted | struct  # type: ignore[assignment]  # a union of types is no type
        self.parse = msgspec.json.Decoder(wanted).decode
        """The types alone, for text that passed the other steps; msgspec's own errors."""
        self._known = {struct: known_fields(struct) for struct in structs}
        self._choices = dict(_tags(structs))
        for struct in structs:
            self._choices.update(_choices(inspect.type_info(struct)))
        self._has_payload = any(_holds_payload(inspect.type_info(struct)) for struct in structs)
        self._may_be_plain = all(_is_typed(inspect.type_info(struct)) for struct in structs)

    def decode(self, body: bytes) -> T:
        """The typed body, or `InvalidRequest`."""
        if not body:
            raise InvalidRequest("the body is empty; send a JSON object")
        if self._may_be_plain and len(body) <= _PLAIN_BYTES and _SPACED not in body:
            plain = self._decode_plain(body)
            if plain is not None:
                return plain
        if not self._has_payload:
            refuse_excess(body)
        raw = compact(body)
        try:
            value = self.parse(raw)
        except msgspec.ValidationError as error:
            # A misspelt field often shows as a missing one first.
            refuse_misspelt(raw, self._known_for(raw))
            raise InvalidRequest(self._explain(str(error))) from error
        refuse_wrong_names(raw, self._known[type(value)])
        return value

    def _decode_plain(self, body: bytes) -> T | None:
        """The value if the body is plain; None sends it through every step, for errors too."""
        try:
            value = self.parse(body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return value if len(_encode(value)) == len(body) else None

    def _known_for(self, raw: bytes) -> FieldNames:
        """The fields of the object that `raw`, which does not fit its type, was meant to be."""
        (struct, *others) = self._known
        if others:
            tag = _tag_in(raw, str(struct.__struct_config__.tag_field))
            struct = next((s for s in self._known if s.__struct_config__.tag == tag), struct)
        return self._known[struct]

    def _explain(self, problem: str) -> str:
        """The parser's complaint with the field in front, and the choices if there are some."""
        parts = _located.match(problem)
        assert parts is not None, "the pattern matches any text"
        what = parts["problem"].replace("`", "")
        where = (parts["where"] or "$").removeprefix("$").removeprefix(".")
        allowed = self._choices.get(where.rpartition(".")[2])
        if allowed is not None and what.startswith("Invalid"):
            what = f"{what}; allowed: {', '.join(allowed)}"
        return f"{where or 'the body'}: {what[:1].lower()}{what[1:]}"


def refuse_excess(body: bytes) -> None:
    """Raise if a long body has too many parts; those inside strings count too."""
    if len(body) > LONG_BYTES and (
        body.count(b",") > MAX_VALUES or body.count(b"{") + body.count(b"[") > MAX_CONTAINERS
    ):
        raise InvalidRequest("the body has far more parts than this call takes; send fewer")


def _tag_in(raw: bytes, field: str) -> object:
    """What the member `field` of an object says; None if there is no such object or member."""
    try:
        return msgspec.json.decode(_members(raw).get(field, b"null"))
    except msgspec.ValidationError:
        return None


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _holds_payload(kind: inspect.Type) -> bool:
    """Whether somewhere in it is text of any shape and size."""
    match kind:
        case inspect.StructType():
            return any(_holds_payload(field.type) for field in kind.fields)
        case inspect.UnionType():
            return any(map(_holds_payload, kind.types))
        case inspect.ListType():
            return _holds_payload(kind.item_type)
        case inspect.DictType():
            return _holds_payload(kind.value_type)
        case _:
            return isinstance(kind, inspect.RawType)


def _is_typed(kind: inspect.Type) -> bool:
    """Whether every part of it is checked by its type, and left out when it has its default.

    Maps are not: of a repeated key the last counts, and the length would not tell.
    """
    parts: Sequence[inspect.Type]
    match kind:
        case inspect.Metadata():
            parts = (kind.type,)
        case inspect.StructType() if kind.cls.__struct_config__.omit_defaults:
            parts = tuple(field.type for field in kind.fields)
        case inspect.UnionType():
            parts = kind.types
        case inspect.ListType() | inspect.VarTupleType():
            parts = (kind.item_type,)
        case inspect.TupleType():
            parts = kind.item_types
        case _:
            return isinstance(kind, _SCALARS)
    return all(map(_is_typed, parts))


_SCALARS = (
    inspect.BoolType,
    inspect.IntType,
    inspect.LiteralType,
    inspect.NoneType,
    inspect.StrType,
)


def _choices(struct: inspect.Type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each place that takes one of a few words, with the words; nested objects included."""
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        for kind in _alternatives(field.type):
            yield from _choices_at(field.encode_name, kind)


def _choices_at(place: str, kind: inspect.Type) -> Iterator[tuple[str, tuple[str, ...]]]:
    match kind:
        case inspect.LiteralType(values=words):
            yield place, tuple(map(str, words))
        case inspect.TupleType(item_types=parts):
            for index, part in enumerate(parts):
                yield from _choices_at(f"{place}[{index}]", part)
        case inspect.StructType():
            yield from _choices(kind)


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    match kind:
        case inspect.Metadata(type=described):
            return _alternatives(described)
        case inspect.UnionType(types=kinds):
            return tuple(kinds)
        case _:
            return (kind,)


def _tags(structs: Sequence[type[msgspec.Struct]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The field that tells several structs apart, and what it may say."""
    field = structs[0].__struct_config__.tag_field
    if field is not None:
        yield field, tuple(str(struct.__struct_config__.tag) for struct in structs)
