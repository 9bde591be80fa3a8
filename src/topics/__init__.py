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
from typing import TYPE_CHECKING, Any, overload

from topics import errors
from topics.errors import TopicsError
from topics.values import Ack, Audit, Page, Record, Tombstone, TopicState

if TYPE_CHECKING:
    from topics import aio, events
    from topics.client.sync import RemoteLog
    from topics.embedded import Log

__version__ = "0.1.0.dev0"

__all__ = [
    "Ack",
    "Audit",
    "Page",
    "Record",
    "Tombstone",
    "TopicState",
    "TopicsError",
    "aio",
    "errors",
    "events",
    "open",
]


@overload
def open(
    path: str,
    /,
    *,
    token: str | None,
    timeout: float = ...,
    retries: int = ...,
    heartbeat: float = ...,
    ca_file: str | None = ...,
    connections: int = ...,
) -> RemoteLog: ...
@overload
def open(
    path: str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    background: bool = False,
    **settings: Any,  # noqa: ANN401 - as below
) -> Log: ...
def open(
    path: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Log | RemoteLog:
    """Open a log: a directory, a server's address, or memory when no path is given.

    A directory is created when it does not exist, and belongs to one process at a time;
    `read_only` looks at it beside its owner without disturbing anything. Settings are keywords
    (`wal_shards=1`, `cold_dir=...`, `disk_sync_ms=10`); an unknown one is an error. Nothing runs
    in the background unless `background=True`: due work is then done by a thread instead of in
    slices inside the calls. For tests, `fs` and `clock` take a disk and a clock of
    `topics.testing`.

    An address (`http://` or `https://`) gives a client with the same calls, results and errors;
    its settings are `token`, `timeout`, `retries`, `heartbeat`, `ca_file` and `connections`.
    """
    if isinstance(path, str) and "://" in path:
        from topics.client.opening import open_remote  # noqa: PLC0415 - keeps `import topics` light

        return open_remote(path, settings)
    from topics.embedded import open_log  # noqa: PLC0415 - as above

    return open_log(path, **settings)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module
    if name in ("aio", "events"):
        from importlib import import_module  # noqa: PLC0415 - as above

        return import_module(f"topics.{name}")
    raise AttributeError(f"module 'topics' has no attribute {name!r}")
