"""Python objects as the rows of a staged write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topics.engine.stages.rows import StageRows
from topics.wire.drafts import batch_of, split_topics


def stage_rows_of(records: Iterable[Mapping[str, Any]]) -> StageRows:
    """Mappings that also name the `topic` of each record; none is fine."""
    topics, drafts = split_topics(records)
    return StageRows(topics, batch_of(drafts, None))
