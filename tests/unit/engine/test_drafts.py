"""Limits of a write: what is refused does not depend on how much its caller knew of the sizes."""

from __future__ import annotations

import pytest

from topics.core.batch import RecordBatch
from topics.engine.drafts import ANY_SIZE, check_batch
from topics.engine.settings import EngineSettings
from topics.errors import RecordTooLarge

LIMITS = EngineSettings(max_record_bytes=100)


@pytest.mark.parametrize("at_most", [100, 101, 250, ANY_SIZE])
def test_records_within_their_limit_pass_whatever_is_known_of_the_whole(at_most: int) -> None:
    check_batch(RecordBatch([b"1" * 100, b"2" * 100]), LIMITS, at_most=at_most)


@pytest.mark.parametrize("at_most", [101, 250, ANY_SIZE])
def test_a_record_beyond_its_limit_is_named_whatever_is_known_of_the_whole(at_most: int) -> None:
    batch = RecordBatch([b"1", b"2" * 101])
    with pytest.raises(RecordTooLarge, match="record 1 of the write"):
        check_batch(batch, LIMITS, at_most=at_most)


def test_meta_counts_even_where_data_alone_is_known_to_fit() -> None:
    batch = RecordBatch([b"1" * 60], metas=[b'"' + b"m" * 48 + b'"'])
    with pytest.raises(RecordTooLarge):
        check_batch(batch, LIMITS, at_most=110)
