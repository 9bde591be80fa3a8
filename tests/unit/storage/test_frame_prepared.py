"""Frames made before their seqs are known are those that would have been made then."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.batch import RecordBatch
from topics.storage.frames import prepared as frame_prepared
from topics.storage.frames.append import encode_append
from topics.storage.frames.prepared import PreparedAppend, prepare_append

T = TypeVar("T")
V = TypeVar("V")
u64 = st.integers(min_value=0, max_value=2**64 - 1)
names = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def counted(steps: Generator[None, None, T]) -> tuple[T, int]:
    for count in range(10_000):
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
    raise AssertionError("it never ends")


def prepared(batch: RecordBatch) -> PreparedAppend:
    return counted(prepare_append(batch))[0]


@st.composite
def batches(draw: st.DrawFn) -> RecordBatch:
    datas = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=9))

    def column(values: st.SearchStrategy[V]) -> list[V] | None:
        return draw(st.none() | st.lists(values, min_size=len(datas), max_size=len(datas)))

    return RecordBatch(datas, column(st.binary(max_size=9)), column(names), column(names))


@given(
    batch=batches(),
    topic_id=u64,
    first=st.integers(min_value=0, max_value=2**64 - 20),
    ts=u64,
    durable=st.booleans(),
    lead=st.binary(max_size=40) | st.sampled_from([b"x" * 4095, b"x" * 4096, b"x" * 4097]),
    step_bytes=st.integers(min_value=0, max_value=60),
    step_records=st.integers(min_value=1, max_value=4),
)
def test_they_are_byte_for_byte_what_is_encoded_at_once(
    *,
    batch: RecordBatch,
    topic_id: int,
    first: int,
    ts: int,
    durable: bool,
    lead: bytes,
    step_bytes: int,
    step_records: int,
) -> None:
    leads = {0: lead} if lead else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_prepared, "STEP_BYTES", step_bytes)
        patch.setattr(frame_prepared, "STEP_RECORDS", step_records)
        frames, run = prepared(batch).finish(topic_id, first, ts, durable=durable, leads=leads)
    whole = encode_append(topic_id, first, ts, batch, durable=durable, leads=leads)
    assert (bytes(frames), run) == whole


def test_a_step_ends_with_so_many_bytes_or_so_many_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_prepared, "STEP_BYTES", 100)
    monkeypatch.setattr(frame_prepared, "STEP_RECORDS", 4)
    for datas, steps in (
        ([b"1"] * 3, 0),
        ([b"1"] * 4, 1),
        ([b"1"] * 9, 2),
        ([b"x" * 60] * 4, 2),
        ([b"x" * 300] * 4, 4),
    ):
        assert counted(prepare_append(RecordBatch(datas)))[1] == steps


def test_nothing_stands_between_the_records_of_one_write() -> None:
    with pytest.raises(AssertionError):
        prepared(RecordBatch([b"1", b"2"])).finish(1, 1, 1, durable=True, leads={1: b"lead"})
