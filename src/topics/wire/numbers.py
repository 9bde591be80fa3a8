"""Integer ranges of the API, as types a decoder checks and a schema shows.

msgspec bounds integers by signed 64 bits only. Hence `U64` is bounded below by its type, and
above by `Body`: every integer of every body is at most a u64, so one rule serves all of them.
"""

from typing import Annotated, Any

import msgspec
import msgspec.inspect

from topics.topic_settings import U64_MAX

U32_MAX = (1 << 32) - 1

U64 = Annotated[
    int,
    msgspec.Meta(ge=0, extra_json_schema={"maximum": U64_MAX, "format": "uint64"}),
]
U32 = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX, extra_json_schema={"format": "uint32"})]


class Body(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Base of what a client sends. Encoded again, it leaves out what has its default value."""

    def __post_init__(self) -> None:
        names = _unbounded.get(type(self))
        if names is None:
            names = _unbounded_of(type(self))
        for name in names:
            if _exceeds_u64(getattr(self, name)):
                raise ValueError(f"{name} must be at most {U64_MAX}")


_unbounded: dict[type[Body], tuple[str, ...]] = {}
"""Per body the fields that may hold an integer which the decoder has not bounded."""


def _unbounded_of(kind: type[Body]) -> tuple[str, ...]:
    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, msgspec.inspect.StructType)
    names = tuple(field.name for field in described.fields if _may_exceed(field.type))
    _unbounded[kind] = names
    return names


def _may_exceed(kind: msgspec.inspect.Type) -> bool:
    match kind:
        case msgspec.inspect.Metadata():
            return _may_exceed(kind.type)
        case msgspec.inspect.IntType():
            return kind.le is None
        case msgspec.inspect.UnionType():
            return any(map(_may_exceed, kind.types))
        case msgspec.inspect.ListType():
            return _may_exceed(kind.item_type)
        case msgspec.inspect.TupleType():
            return any(map(_may_exceed, kind.item_types))
        case _:
            return False


def _exceeds_u64(value: Any) -> bool:  # noqa: ANN401 - a field of any body
    if type(value) is int:
        return value > U64_MAX
    # Lists here are all of one kind; one of records, which may be long, holds no numbers.
    if type(value) in (list, tuple) and value:
        if type(value[0]) is int:
            return bool(max(value) > U64_MAX)
        return type(value[0]) is tuple and any(map(_exceeds_u64, value))
    return False
