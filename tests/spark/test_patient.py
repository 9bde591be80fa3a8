"""What starts a query for the tests starts it again for one reason only."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.spark.patient import STARTS, patient_starts

TOO_SLOW = RuntimeError("Python worker failed to connect back.\n=== Streaming Query ===")
NO_COLUMN = RuntimeError("no such column")


class Query:
    """Looks at its sources for a while, then reads, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self._looks = 3
        self._error = error

    @property
    def isActive(self) -> bool:  # noqa: N802 - as Spark names it
        return self._looks > 0 or self._error is None

    @property
    def status(self) -> dict[str, str]:
        self._looks -= 1
        return {"message": "Initializing sources" if self._looks > 0 else "Processing new data"}

    def exception(self) -> Exception | None:
        return None if self.isActive else self._error


@pytest.mark.parametrize(
    ("errors", "starts"),
    [
        ([None], 1),
        ([NO_COLUMN, None], 1),
        ([TOO_SLOW, TOO_SLOW, None], 3),
        ([TOO_SLOW] * (STARTS + 1), STARTS),
    ],
)
def test_only_a_query_that_came_too_late_is_started_again(
    errors: list[Exception | None], starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [Query(error) for error in errors]
    started: list[Query] = []

    def start(writer: object, path: str) -> Query:
        assert path == "there"
        started.append(queries[len(started)])
        return started[-1]

    monkeypatch.setattr(DataStreamWriter, "start", start)
    writer: Any = DataStreamWriter.__new__(DataStreamWriter)
    with patient_starts():
        assert writer.start("there") is queries[starts - 1]
    assert len(started) == starts
    assert vars(DataStreamWriter)["start"] is start
