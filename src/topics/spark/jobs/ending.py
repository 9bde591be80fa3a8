"""How a command on Spark ends: when it is told to, and when Spark has gone before it.

A signal to a whole group of processes, as `timeout` and service managers send it, ends the JVM at
the same time. Whatever is asked of it from then on fails, in ways of Spark's, of the gateway's and
of the socket's, and none of them says what happened. What did is known here: the signal, and that
the JVM is no more.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from topics.client.signalled import SignalledEvent
from topics.errors import TopicsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAST_WORDS_S: Final = 60.0
"""How long a JVM that got the signal may take to end; calls fail as soon as it begins to."""
_DEATH_S: Final = 2.0
"""How long a JVM that died may still exist after the first call that failed."""


class Stopped(TopicsError):
    """The command was told to stop, and Spark with it: the batch at hand is for the next run."""

    code = "interrupted"

    def __init__(self) -> None:
        super().__init__(
            "stopped in the middle; what was written stays, and the next run goes on there"
        )


class SparkDied(TopicsError):
    """The JVM ended without having been told to."""

    code = "spark_died"

    def __init__(self) -> None:
        super().__init__(
            "Spark has died, perhaps for want of memory; what was written stays, and the next run "
            "goes on there"
        )


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; the second SIGINT ends everything at once."""
    stopping = SignalledEvent()
    if threading.current_thread() is not threading.main_thread():
        yield stopping  # Python hands signals to the main thread only
        return

    def ask(number: int, _: object) -> None:
        if stopping.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stopping.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def dying_with_spark(stopping: threading.Event) -> Iterator[None]:
    """Raise `Stopped` or `SparkDied` for an error in the block that comes of a JVM that is gone."""
    try:
        yield
    except Exception as error:
        if stopping.is_set() and _is_gone(_LAST_WORDS_S):
            raise Stopped from error
        if not stopping.is_set() and _is_of_a_connection(error) and _is_gone(_DEATH_S):
            raise SparkDied from error
        raise


def _is_of_a_connection(error: Exception) -> bool:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - no types

    return _has_started() and isinstance(error, Py4JError | OSError)


@contextmanager
def stopped_quietly(spark: SparkSession) -> Iterator[None]:
    """Stop a session after the block.

    When its JVM goes, PySpark would print tracebacks of threads of its own, of calls whose errors
    are raised anyway, and a warning: they would bury the one line that says what happened.
    """
    context: Any = spark.sparkContext
    context._accumulatorServer.handle_error = _say_nothing
    root = logging.getLogger()
    root.addFilter(_is_not_of_the_gateway)
    try:
        yield
    finally:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                spark.stop()
        finally:
            root.removeFilter(_is_not_of_the_gateway)


def _say_nothing(*request: object) -> None:
    """In place of a traceback for a connection that broke."""


def _is_not_of_the_gateway(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _has_started() -> bool:
    return _gateway() is not None


def _is_gone(patience_s: float) -> bool:
    """Whether there is no JVM, or one that ends within that time."""
    if not _has_started():
        return True
    process: subprocess.Popen[bytes] | None = _gateway().proc
    if process is None:
        return False
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _gateway() -> Any:  # noqa: ANN401 - PySpark's, without types
    from pyspark import SparkContext  # noqa: PLC0415 - takes half a second

    return SparkContext._gateway
