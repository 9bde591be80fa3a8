"""Bodies about a topic as a whole: its config, a cursor, holes, a plan."""

from typing import TYPE_CHECKING

import msgspec

from topics.topic_settings import DEFAULTS, Durability, TopicType, types
from topics.wire.decoding import BodyDecoder
from topics.wire.numbers import U64, Body


class SentConfig(Body):
    """A topic's configuration as sent: a full replacement, unresolved and unclamped."""

    def fields(self) -> dict[str, object]:
        """Every field by name, as `core.config.parse` takes them."""
        return msgspec.structs.asdict(self)


if TYPE_CHECKING:

    class ConfigBody(SentConfig):
        type: TopicType
        dead_letter: str | None

else:
    _TYPES = types() | {"durability": Durability | None}
    _DEFAULTS = DEFAULTS | {"durability": None}
    ConfigBody = msgspec.defstruct(
        "ConfigBody",
        [(name, kind, _DEFAULTS[name]) for name, kind in _TYPES.items()],
        bases=(SentConfig,),
        kw_only=True,
        omit_defaults=True,
        module=__name__,
    )
    ConfigBody.__doc__ = SentConfig.__doc__


class CursorBody(Body):
    """Where to put a named cursor."""

    seq: U64


class HolesBody(Body):
    """The range, ends included, whose dead runs are wanted."""

    from_seq: U64
    to_seq: U64


class PlanBody(HolesBody):
    """A range to cut for parallel readers, and how large each cut should be."""

    target_bytes: U64


_config = BodyDecoder(ConfigBody)
_cursor = BodyDecoder(CursorBody)
_holes = BodyDecoder(HolesBody)
_plan = BodyDecoder(PlanBody)


def decode_config(body: bytes) -> ConfigBody:
    """An empty body asks for the defaults, like `{}`."""
    return _config.decode(body or b"{}")


def decode_cursor(body: bytes) -> CursorBody:
    return _cursor.decode(body)


def decode_holes(body: bytes) -> HolesBody:
    return _holes.decode(body)


def decode_plan(body: bytes) -> PlanBody:
    return _plan.decode(body)
