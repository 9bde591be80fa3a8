"""Limits of a write: what is refused does not depend on how much its caller knew of the sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.batch import RecordBatch
from topics.engine.settings import EngineSettings
from topics.engine.writes import drafts
from topics.engine.writes.drafts import ANY_SIZE, check_batch, check_batch_in_steps
from topics.errors import RecordTooLarge, TopicsError

V = TypeVar("V")
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


# In steps

SMALL = EngineSettings(
    max_record_bytes=6, max_meta_bytes=5, max_tag_bytes=2, max_node_bytes=2, max_batch_records=5
)
texts = st.none() | st.text("aä", max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> RecordBatch:
    datas = draw(st.lists(st.sampled_from([b"1", b"123456", b"1234567"]), max_size=6))

    def column(values: st.SearchStrategy[V]) -> list[V] | None:
        return draw(st.none() | st.lists(values, min_size=len(datas), max_size=len(datas)))

    metas = st.sampled_from([b"", b"12345", b"123456"])
    return RecordBatch(datas, column(metas), column(texts), column(texts))


def refusal(check: Callable[[], object]) -> str | None:
    try:
        check()
    except TopicsError as error:
        return f"{error.code}: {error}"
    return None


@given(
    batch=batches(),
    key=st.none() | st.sampled_from(["k", "k" * 257]),
    records=st.integers(min_value=1, max_value=3),
)
def test_in_steps_the_same_is_refused_in_the_same_words(
    batch: RecordBatch, key: str | None, records: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafts, "STEP_RECORDS", records)
        steps = refusal(lambda: list(check_batch_in_steps(batch, SMALL, key=key)))
    assert steps == refusal(lambda: check_batch(batch, SMALL, key=key))


def test_a_long_batch_is_checked_in_several_steps() -> None:
    batch = RecordBatch([b"1"] * (2 * drafts.STEP_RECORDS + 1))
    assert len(list(check_batch_in_steps(batch, LIMITS, key=None))) == 3
