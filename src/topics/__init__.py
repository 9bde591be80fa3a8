"""A durable event log that a Python program opens like a file.

    import topics

    with topics.open("./data") as log:
        log.create("orders", durability="fsync")
        log.append("orders", [{"data": {"id": 1}, "tag": "user-7"}])
        for record in log.read("orders").records:
            print(record.seq, record.data)

Loss you did not ask for is announced as a `Tombstone` with its exact range; removal you did ask
for is silent, immediate and permanent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from topics import errors
from topics.errors import TopicsError
from topics.values import Ack, Audit, Page, Record, Tombstone, TopicState

if TYPE_CHECKING:
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
    "errors",
    "open",
]


def open(
    path: str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    background: bool = False,
    **settings: Any,  # noqa: ANN401 - checked by name and range
) -> Log:
    """Open a log: a directory, or memory when no path is given.

    A directory is created when it does not exist, and belongs to one process at a time;
    `read_only` looks at it beside its owner without disturbing anything. Settings are keywords
    (`wal_shards=1`, `cold_dir=...`, `disk_sync_ms=10`); an unknown one is an error. Nothing runs
    in the background unless `background=True`: due work is then done by a thread instead of in
    slices inside the calls.
    """
    from topics.embedded import open_log  # noqa: PLC0415 - keeps `import topics` light

    return open_log(path, read_only=read_only, background=background, **settings)
