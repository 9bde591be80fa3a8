"""Request bodies into typed values, strictly.

Every body goes through the same three steps:

    the text     UTF-8, grammar, nesting, whitespace           jsonbytes.compact
    the types    fields, ranges, nulls, enums; no coercion     msgspec, from the struct
    the names    no known field twice in one object            repeats

and whatever is wrong becomes `InvalidRequest`, naming the field and what it may hold. Fields
nobody knows are ignored, so that newer clients can talk to older servers.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import inspect

from topics.errors import InvalidRequest
from topics.wire.jsonbytes import compact
from topics.wire.repeats import known_fields, refuse_repeats

T = TypeVar("T", bound=msgspec.Struct)

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

    def decode(self, body: bytes) -> T:
        """The typed body, or `InvalidRequest`."""
        if not body:
            raise InvalidRequest("the body is empty; send a JSON object")
        raw = compact(body)
        try:
            value = self.parse(raw)
        except msgspec.ValidationError as error:
            raise InvalidRequest(self._explain(str(error))) from error
        refuse_repeats(raw, self._known[type(value)])
        return value

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
    return tuple(kind.types) if isinstance(kind, inspect.UnionType) else (kind,)


def _tags(structs: Sequence[type[msgspec.Struct]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The field that tells several structs apart, and what it may say."""
    field = structs[0].__struct_config__.tag_field
    if field is not None:
        yield field, tuple(str(struct.__struct_config__.tag) for struct in structs)
