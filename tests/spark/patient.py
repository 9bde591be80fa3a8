"""Streaming queries that start on a busy machine, too.

Spark gives the Python half of a source ten seconds to come up, and that cannot be set. A query
that fails for this alone is started again, wherever in the tests and in what they run it begins.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from topics.spark.jobs.queries import was_too_slow

STARTS = 10
_POLL_S = 0.05


@contextmanager
def patient_starts() -> Iterator[None]:
    """Here `writeStream...start()` returns when the query reads, or has failed in its own way."""
    start_once = DataStreamWriter.start

    def start(writer: DataStreamWriter, *how: Any, **more: Any) -> StreamingQuery:  # noqa: ANN401 - passed on
        for _ in range(STARTS):
            query = start_once(writer, *how, **more)
            while query.isActive and query.status["message"].startswith("Initializing"):
                time.sleep(_POLL_S)
            if not was_too_slow(query.exception()):
                break
        return query

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataStreamWriter, "start", start)
        yield
