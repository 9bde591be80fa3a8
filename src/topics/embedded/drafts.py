"""Python objects as a batch of drafts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topics.core.batch import RecordBatch
from topics.engine.stages.rows import StageRows
from topics.wire.drafts import Records, columns_of, split_topics


def batch_of(records: Records, node: str | None) -> RecordBatch:
    """`{"data": ...}` mappings, or a single one, as columns; `node` is for those without."""
    return RecordBatch(*columns_of(records, node))


def stage_rows_of(records: Iterable[Mapping[str, Any]]) -> StageRows:
    """Mappings that also name the `topic` of each record; none is fine."""
    topics, drafts = split_topics(records)
    return StageRows(topics, batch_of(drafts, None))
