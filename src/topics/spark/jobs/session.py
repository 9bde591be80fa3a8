"""A Spark session for one command: quiet on the terminal, and gone when the command ends.

The JVM inherits standard output and error when it is started, and keeps them. Both point to a file
while it starts; this process has its own back afterwards. So Spark's output can be shown when
something fails, and does not clutter the terminal otherwise.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from topics.errors import TopicsError
from topics.spark.errors import CannotStartSpark
from topics.spark.jobs.ending import dying_with_spark, stopped_quietly
from topics.spark.jobs.queries import explain
from topics.spark.setup.session import require_pyspark, session, worker_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def job_session(
    name: str,
    master: str,
    notice: Callable[[str], None] = lambda line: None,
    *,
    stopping: threading.Event | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[SparkSession]:
    """A session that is there already is used and left as it was.

    Spark's output goes to `log`, or to a file of which the end is shown if the session does not
    start. If `stopping` is set and Spark was stopped by the same signal, this raises `Stopped`.
    """
    stopping = stopping or threading.Event()
    require_pyspark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes half a second

    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    notice(f"starting Spark on {master}" + (f"; what it says goes to {log}" if log else ""))
    settings = {
        "spark.app.name": f"topics {name}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(conf or {}),
    }
    with (
        dying_with_spark(stopping),
        tempfile.TemporaryDirectory(prefix="topics-spark-") as scratch,
    ):
        if log is None:
            settings |= worker_sockets(master, scratch)
        said = log or Path(scratch) / "spark.log"
        try:
            with chatter_to(said):
                spark = session(master, conf=settings)
        except TopicsError:
            raise
        except Exception as error:
            if stopping.is_set():
                raise
            if log is None:
                notice(tail(said))
            raise CannotStartSpark(f"Spark did not start on {master}: {explain(error)}") from error
        with stopped_quietly(spark):
            yield spark


@contextmanager
def chatter_to(log: Path) -> Iterator[TextIO]:
    """Processes started in this context write to `log`; gives the real standard error."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        with os.fdopen(os.dup(saved[1]), "w") as terminal:
            yield terminal
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for handle in (*saved, target):
            os.close(handle)


def tail(log: Path, lines: int = 30) -> str:
    """The end of a log, to show with an error."""
    try:
        said = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(said[-lines:])
