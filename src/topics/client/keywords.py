"""The keywords that calls take, as types, and defaults: a checker refuses a misspelt one.

Nothing is imported here that a program does not load anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Required, TypeAlias, TypedDict

from topics.values import Job

if TYPE_CHECKING:
    from topics.client._batching import OnDelivery
    from topics.client._positions import Start
    from topics.client._working import OnError
    from topics.topic_settings import TopicSettings

DEFAULT_LIMIT = 256
DEFAULT_MAX_BYTES = 1 << 20
DEFAULT_NODE = "client"
"""The worker of a queue behind an address when the caller names none."""
PLAN_BYTES = 64 << 20
"""How much one range of a plan holds, about, unless told otherwise."""
Jobs: TypeAlias = Iterable[Job | int]
"""Jobs as claimed, which are told by their lease; or seqs, by whatever lease the worker has."""


class Draft(TypedDict, total=False):
    """A record to append, for programs that let a type checker find a misspelt field.

    `append` takes any mapping, so plain dicts pass; a dict declared as a `Draft` is checked.
    """

    data: Required[Any]
    tag: str | None
    node: str | None
    meta: Any


class ClientSettings(TypedDict, total=False):
    """Settings of a log behind an address; see `topics.open`."""

    token: str | None
    timeout: float
    retries: int
    heartbeat: float
    ca_file: str | None
    connections: int


class BatchOptions(TypedDict, total=False):
    """How a producer gathers records and how long it tries to send them."""

    linger_ms: float
    max_records: int
    max_bytes: int
    buffer_records: int
    buffer_bytes: int
    delivery_timeout: float
    allow_duplicates: bool


class ProducerOptions(BatchOptions, total=False):
    """What `log.producer` takes; see `Producer`."""

    on_delivery: OnDelivery | None
    create: bool | None
    config: TopicSettings | None


class ConsumerOptions(TypedDict, total=False):
    """What `log.consumer` takes beside a name; see `Consumer`."""

    start: Start
    limit: int
    node: str | Sequence[str]
    match: str | Sequence[str] | None


class WorkOptions(TypedDict, total=False):
    """How a worker works."""

    concurrency: int
    node: str | None
    lease_ms: int | None
    retry_delay_ms: int
    idle_s: float
    grace_s: float


class WorkerOptions(WorkOptions, total=False):
    """What `log.worker` takes; see `Worker`."""

    on_error: OnError | None
