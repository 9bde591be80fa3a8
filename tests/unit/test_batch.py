"""Batches of records as columns."""

from __future__ import annotations

from topics.batch import RecordBatch, joined

FULL = RecordBatch([b"1", b"2", b"3"], [b"{}", b"", b""], [None, "t", None], ["n", None, None])


def test_a_part_has_every_column_that_the_whole_has() -> None:
    assert FULL.part(1, 3) == RecordBatch([b"2", b"3"], [b"", b""], ["t", None], [None, None])
    assert RecordBatch([b"1", b"2"]).part(0, 1) == RecordBatch([b"1"])


def test_a_part_ends_with_the_whole() -> None:
    assert FULL.part(2, 9) == RecordBatch([b"3"], [b""], [None], [None])


def test_parts_joined_are_the_whole() -> None:
    assert joined([FULL.part(0, 1), FULL.part(1, 3)]) == FULL
