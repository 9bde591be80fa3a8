"""Topics in Spark: `spark.read.format("topics")`, its sink, the lake, flows and bulk jobs.

    java     which Java Spark runs on
    errors   what can go wrong, beside the errors of the log itself
    setup/   a Spark session on this machine
    source/  topics as rows: batches and streams, from a server or from a directory
    sink/    rows into topics, exactly once
    lake/    a topic as a Delta table
    flows/   topic to topic or table, by SQL or Python
    bulk/    import, export, audit
    jobs/    what commands on Spark share: their session, their end, the query they follow

Importing this is cheap and needs no Spark; what needs it loads it when called. Code here runs on
drivers and executors: it may use `client`, and the engine to look into a data directory, but never
the server side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topics.spark.setup.session import session

__all__ = ["session"]


def __getattr__(name: str) -> object:
    """`session` is loaded when it is first used, because workers do not need it."""
    if name != "session":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from topics.spark.setup.session import session  # noqa: PLC0415

    return session
