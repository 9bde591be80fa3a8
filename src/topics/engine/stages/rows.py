"""Records on their way into a stage.

There may be millions of them. A built-in function that goes over all of them would block every
thread, because it does not give up the interpreter lock. So they are checked, counted, written and
freed in steps, and all of that is done on a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from topics.batch import RecordBatch
from topics.core.config import check_topic_name
from topics.engine.settings import EngineSettings
from topics.engine.writes.drafts import check_records
from topics.errors import Forbidden
from topics.storage.stages import ROW_BYTES, StagedRow
from topics.wire.drafts import batch_of, split_topics

STEP_ROWS: Final = 1024


class StageSize(NamedTuple):
    """How large a stage will be."""

    records: int
    nbytes: int  # data and meta
    body_bytes: int  # with topics, nodes, tags and lengths


class StageRows:
    """Columns, and the topic of each record. Both are used up by `drained` and `let_go`."""

    def __init__(self, topics: list[str], batch: RecordBatch) -> None:
        self._topics = topics
        self._batch = batch

    def __len__(self) -> int:
        return len(self._topics)

    def measured(self, limits: EngineSettings, *, allows: Callable[[str], bool]) -> StageSize:
        """What they take, once every record is found to be allowed and within its limits."""
        for first in range(0, len(self), STEP_ROWS):
            for topic in dict.fromkeys(self._topics[first : first + STEP_ROWS]):
                if not allows(topic):
                    raise Forbidden(topic=topic)
        nbytes = body_bytes = 0
        for first in range(0, len(self), STEP_ROWS):
            topics = self._topics[first : first + STEP_ROWS]
            for topic in dict.fromkeys(topics):
                check_topic_name(topic)
            part = self._batch.part(first, first + STEP_ROWS)
            check_records(part, limits, first=first)
            nbytes += part.nbytes
            body_bytes += ROW_BYTES * len(part) + part.nbytes + _bytes_of(topics)
            body_bytes += _bytes_of(part.tags) + _bytes_of(part.nodes)
        return StageSize(len(self), nbytes, body_bytes)

    def drained(self) -> Iterator[StagedRow]:
        """Every row once, in order; rows that were passed are no longer kept."""
        batch = self._batch
        columns: list[list[Any]] = [self._topics, batch.datas]
        columns += [column for column in (batch.nodes, batch.tags, batch.metas) if column]
        for column in columns:
            column.reverse()  # a list gives up its end at no cost, its start by moving the rest
        while self._topics:
            topics, datas = _last(self._topics), _last(batch.datas)
            nothing: list[None] = [None] * len(topics)
            yield from map(
                StagedRow,
                topics,
                _last(batch.nodes) if batch.nodes else nothing,
                _last(batch.tags) if batch.tags else nothing,
                datas,
                _last(batch.metas) if batch.metas else [b""] * len(topics),
            )

    def let_go(self) -> None:
        """Keep none of them."""
        for _ in self.drained():
            pass


def stage_rows_of(records: Iterable[Mapping[str, Any]]) -> StageRows:
    """Mappings that also name the `topic` of each record; none is fine."""
    topics, drafts = split_topics(records)
    return StageRows(topics, batch_of(drafts, None))


def _last(column: list[Any]) -> list[Any]:
    taken = column[-STEP_ROWS:]
    del column[-STEP_ROWS:]
    taken.reverse()
    return taken


def _bytes_of(names: Sequence[str | None] | None) -> int:
    return sum([len(name.encode()) for name in names or () if name])
