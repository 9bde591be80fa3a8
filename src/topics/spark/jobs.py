"""A Spark session for one command: quiet on the terminal, and gone when the command ends."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from topics.errors import TopicsError
from topics.spark.ending import dying_with_spark, stopped_quietly
from topics.spark.errors import CannotStartSpark
from topics.spark.flows.explaining import explain
from topics.spark.quiet import chatter_to, tail
from topics.spark.starting import require_pyspark, session, worker_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def job_session(
    name: str,
    master: str,
    notice: Callable[[str], None] = lambda line: None,
    *,
    stopping: threading.Event | None = None,
) -> Iterator[SparkSession]:
    """A session that is there already is used and left as it was.

    What Spark says goes to a file, of which the end is shown if the session does not start. Whoever
    is told to stop by `stopping` is told of a Spark that was stopped as well by `Stopped`.
    """
    stopping = stopping or threading.Event()
    require_pyspark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes half a second

    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    notice(f"starting Spark on {master}")
    conf = {
        "spark.app.name": f"topics {name}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with (
        dying_with_spark(stopping),
        tempfile.TemporaryDirectory(prefix="topics-spark-") as scratch,
    ):
        log = Path(scratch) / "spark.log"
        try:
            with chatter_to(log):
                spark = session(master, conf=conf | worker_sockets(master, scratch))
        except TopicsError:
            raise
        except Exception as error:
            if stopping.is_set():
                raise
            notice(tail(log))
            raise CannotStartSpark(f"Spark did not start on {master}: {explain(error)}") from error
        with stopped_quietly(spark):
            yield spark
