"""A durable event log that a Python program opens like a file.

    import topics

    with topics.open("./data") as log:
        log.create("orders", durability="fsync")
        log.append("orders", [{"data": {"id": 1}, "tag": "user-7"}])
        for record in log.read("orders").records:
            print(record.seq, record.data)

The same calls reach a server: `topics.open("http://127.0.0.1:4000", token="...")`, and with
asyncio `topics.aio.open(...)`.

Loss you did not ask for is announced as a `Tombstone` with its exact range; removal you did ask
for is silent, immediate and permanent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Unpack, overload

from topics import errors
from topics.errors import TopicsError
from topics.values import (
    Ack,
    Acked,
    Audit,
    Change,
    CommittedRange,
    Configured,
    Created,
    CursorState,
    DeleteResult,
    Dropped,
    DroppedStages,
    ErasureState,
    Eviction,
    Extended,
    Failure,
    Gap,
    Hole,
    Holes,
    Job,
    Nacked,
    Page,
    PeekedJob,
    PeekedJobs,
    PlannedRange,
    QueueCounts,
    QueueDetails,
    ReadPlan,
    Record,
    Redriven,
    RouterState,
    StageCommit,
    Staged,
    Tombstone,
    TopicState,
    TopicSummary,
    WaitingStages,
)

if TYPE_CHECKING:
    from topics import aio, events
    from topics.client.consumer import Consumer
    from topics.client.keywords import (
        ClientSettings,
        ConsumerOptions,
        Draft,
        ProducerOptions,
        WorkerOptions,
    )
    from topics.client.producer import Delivery, Producer
    from topics.client.sync import RemoteLog
    from topics.client.sync_queue import RemoteQueue
    from topics.client.worker import Reject, Worker
    from topics.embedded.log import Log
    from topics.embedded.opening import LogSettings
    from topics.embedded.queues import Queue
    from topics.topic_settings import TopicSettings

__version__ = "0.1.0.dev0"

__all__ = [
    "Ack",
    "Acked",
    "Audit",
    "Change",
    "ClientSettings",
    "CommittedRange",
    "Configured",
    "Consumer",
    "ConsumerOptions",
    "Created",
    "CursorState",
    "DeleteResult",
    "Delivery",
    "Draft",
    "Dropped",
    "DroppedStages",
    "ErasureState",
    "Eviction",
    "Extended",
    "Failure",
    "Gap",
    "Hole",
    "Holes",
    "Job",
    "Log",
    "LogSettings",
    "Nacked",
    "Page",
    "PeekedJob",
    "PeekedJobs",
    "PlannedRange",
    "Producer",
    "ProducerOptions",
    "Queue",
    "QueueCounts",
    "QueueDetails",
    "ReadPlan",
    "Record",
    "Redriven",
    "Reject",
    "RemoteLog",
    "RemoteQueue",
    "RouterState",
    "StageCommit",
    "Staged",
    "Tombstone",
    "TopicSettings",
    "TopicState",
    "TopicSummary",
    "TopicsError",
    "WaitingStages",
    "Worker",
    "WorkerOptions",
    "aio",
    "errors",
    "events",
    "open",
]

_LATER = {
    "ClientSettings": "client.keywords",
    "Consumer": "client.consumer",
    "ConsumerOptions": "client.keywords",
    "Delivery": "client.producer",
    "Draft": "client.keywords",
    "Log": "embedded.log",
    "LogSettings": "embedded.opening",
    "Producer": "client.producer",
    "ProducerOptions": "client.keywords",
    "Queue": "embedded.queues",
    "Reject": "client.worker",
    "RemoteLog": "client.sync",
    "RemoteQueue": "client.sync_queue",
    "TopicSettings": "topic_settings",
    "Worker": "client.worker",
    "WorkerOptions": "client.keywords",
}
"""Where names are that `import topics` does not load: few programs need all of them."""


# A string may be a directory or an address; without a setting, only the run tells which. The first
# case that fits a call counts, so the overlap does no harm.
@overload
def open(path: str) -> Log | RemoteLog: ...  # type: ignore[overload-overlap] # as said above
@overload
def open(  # type: ignore[overload-overlap] # as said above
    path: str, **settings: Unpack[ClientSettings]
) -> RemoteLog: ...
@overload
def open(path: str | os.PathLike[str] | None = None, **settings: Unpack[LogSettings]) -> Log: ...
def open(path: str | os.PathLike[str] | None = None, **settings: Any) -> Log | RemoteLog:
    """Open a log: a directory, a server's address, or memory when no path is given.

    A directory is created when it does not exist, and belongs to one process at a time;
    `read_only` looks at it beside its owner without disturbing anything. Settings are keywords
    (`wal_shards=1`, `cold_dir=...`, `disk_sync_ms=10`); an unknown one is an error. Nothing runs
    in the background unless `background=True`: due work is then done by a thread instead of in
    slices inside the calls. For tests, `fs` and `clock` take a disk and a clock of
    `topics.testing`.

    An address (`http://` or `https://`) gives a client with the same calls, results and errors;
    its settings are `token`, `timeout`, `retries`, `heartbeat`, `ca_file` and `connections`.

    For a type checker, a string alone gives `Log | RemoteLog`: what both can do passes. A
    `pathlib.Path`, or a setting of a directory, gives `Log`; a setting of a client gives
    `RemoteLog`.
    """
    if isinstance(path, str) and "://" in path:
        from topics.client.opening import open_remote  # noqa: PLC0415 - keeps `import topics` light

        return open_remote(path, settings)
    from topics.embedded import open_log  # noqa: PLC0415 - as above

    return open_log(path, **settings)


if not TYPE_CHECKING:  # a checker would take it as leave to use any name

    def __getattr__(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415 - as above

        if name in ("aio", "events"):
            return import_module(f"topics.{name}")
        if name in _LATER:
            return getattr(import_module(f"topics.{_LATER[name]}"), name)
        raise AttributeError(f"module 'topics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
