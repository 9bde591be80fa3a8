"""The settings of a topic, declared once: name, type, default, limits, class and help.

A new setting is a line of `TopicConfig` and a line of `TopicSettings`, both here, and the code that
obeys the setting. Everything else follows: what the HTTP API takes and answers, its description,
the command line, completion, and the table in the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypedDict, get_type_hints

import msgspec

from topics.errors import InvalidRequest

TopicType = Literal["log", "queue"]
Discard = Literal["old", "reject"]
Durability = Literal["ephemeral", "memory", "disk", "fsync"]

U64_MAX: Final = (1 << 64) - 1


I32 = Annotated[
    int,
    msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1, extra_json_schema={"format": "int32"}),
]


class Setting(NamedTuple):
    """What is known of a setting beside its name, type and default."""

    help: str
    clamp: tuple[int, int] | None = None
    """A value outside is not refused, it becomes the nearest one inside."""
    is_for_queues: bool = False


def _text(help_text: str) -> msgspec.Meta:
    return msgspec.Meta(description=help_text, extra={"setting": Setting(help_text)})


def _u64(
    help_text: str, *, clamp: tuple[int, int] | None = None, queue: bool = False
) -> msgspec.Meta:
    """An integer from 0 on. msgspec bounds integers by 63 bits; `Body` refuses what is larger."""
    return msgspec.Meta(
        ge=0,
        description=help_text,
        extra_json_schema={"maximum": U64_MAX, "format": "uint64"},
        extra={"setting": Setting(help_text, clamp, queue)},
    )


def _queue(help_text: str) -> msgspec.Meta:
    known = Setting(help_text, is_for_queues=True)
    return msgspec.Meta(description=help_text, extra={"setting": known})


class TopicConfig(msgspec.Struct, frozen=True, gc=False):
    """A topic's configuration, resolved: every setting, in the order in which it is echoed."""

    type: Annotated[TopicType, _text("`log` or `queue`; cannot be changed")] = "log"
    ttl_ms: Annotated[int, _u64("age a record may reach; 0 = any")] = 0
    cap_records: Annotated[int, _u64("live records to keep; 0 = all")] = 0
    cap_bytes: Annotated[
        int, _u64("bytes of live records, `data` and `meta`, to keep; 0 = all")
    ] = 0
    discard: Annotated[
        Discard, _text("at a cap: `old` evicts the oldest and tells readers, `reject` refuses")
    ] = "old"
    durable: Annotated[
        bool, _text("true stands for `durability` `fsync` where that is not given")
    ] = False
    durability: Annotated[
        Durability, _text("`ephemeral`, `memory`, `disk` or `fsync`: what an ack means")
    ] = "disk"
    priority: Annotated[
        I32 | None,
        _text("fixed urgency, from -1000 to 1000; under load, topics below 0 wait first"),
    ] = None
    auto_priority: Annotated[
        bool, _text("without a fixed one, topics that were read lately are more urgent")
    ] = True
    auto_create: Annotated[
        bool, _text("in the configuration that comes with a write: whether it may make the topic")
    ] = True
    idempotency_window_ms: Annotated[int, _u64("how long a write's key is remembered")] = 120_000
    dedupe_node: Annotated[
        bool, _text("whether readers may leave out what their own node wrote")
    ] = True
    lease_ms: Annotated[
        int,
        _u64(
            "how long a claimed job belongs to its worker; 100 ms to a day",
            clamp=(100, 86_400_000),
            queue=True,
        ),
    ] = 30_000
    claim_jitter_ms: Annotated[
        int,
        _u64(
            "how long waiting workers are collected to share jobs fairly; at most 5000",
            clamp=(0, 5000),
            queue=True,
        ),
    ] = 0
    max_deliveries: Annotated[
        int, _u64("after so many attempts a job is dead; 0 = never", queue=True)
    ] = 0
    dead_letter: Annotated[
        str | None, _queue("topic that takes dead jobs; without one none is given up")
    ] = None
    leases_durable: Annotated[bool, _queue("keep leases across a restart")] = False

    @property
    def is_queue(self) -> bool:
        return self.type == "queue"

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    def to_dict(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class TopicSettings(TypedDict, total=False):
    """The settings of a topic as keywords; what is left out of a new topic has its default."""

    type: TopicType
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Discard
    durable: bool
    durability: Durability | None
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool


NAMES: Final = TopicConfig.__struct_fields__
DEFAULTS: Final[dict[str, Any]] = dict(zip(NAMES, TopicConfig.__struct_defaults__, strict=True))


def types() -> dict[str, Any]:
    """The type of each setting, with what is known of the setting."""
    return get_type_hints(TopicConfig, include_extras=True)


def known() -> dict[str, Setting]:
    """What is known of each setting."""
    return {name: kind.__metadata__[0].extra["setting"] for name, kind in types().items()}


def known_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they were given, if a topic has all of them.

    The HTTP API ignores members it does not know. Here a misspelt `durability` would quietly make a
    topic that promises less than its owner believes.
    """
    for name in given:
        if name not in NAMES:
            from difflib import get_close_matches  # noqa: PLC0415 - slow to import, rarely needed

            near = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(NAMES)}"
            raise InvalidRequest(f"a topic has no setting {name!r}; {hint}")
    return dict(given)
