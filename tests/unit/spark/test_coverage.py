"""The account of a page: nothing that does not add up gets through."""

from __future__ import annotations

import pyarrow as pa
import pytest

from topics.spark.errors import CoverageBroken
from topics.spark.source.coverage import Coverage, RowPage, Run, check


def page(seqs: list[int], coverage: Coverage) -> RowPage:
    return RowPage(1, coverage, [pa.record_batch({"seq": pa.array(seqs, pa.int64())})])


def test_records_filtered_and_runs_add_up() -> None:
    coverage = Coverage(11, 20, 4, 1, [Run(12, 15, "deleted"), Run(20, 20, "cap")])
    check(page([11, 16, 17, 19], coverage), topic="t", expected=11)


def test_coverage_reads_what_the_server_sends() -> None:
    sent = b'{"from":1,"to":3,"records":2,"filtered":0,"runs":[[2,2,"ttl"]]}'
    assert Coverage.decode(sent) == Coverage(1, 3, 2, 0, [Run(2, 2, "ttl")])


@pytest.mark.parametrize(
    ("seqs", "coverage", "said"),
    [
        ([1, 2], Coverage(1, 3, 2, 0, []), "1 of them are unaccounted for"),
        ([1, 2], Coverage(1, 2, 2, 1, []), "-1 of them"),
        ([1], Coverage(1, 2, 2, 0, []), "1 rows came where 2 were announced"),
        ([1, 1], Coverage(1, 2, 2, 0, []), "a row came twice"),
        ([2, 1], Coverage(1, 2, 2, 0, []), "a row came twice"),
        ([1, 3], Coverage(1, 2, 2, 0, []), "outside the page"),
        ([], Coverage(1, 2, 0, 0, [Run(1, 2, "cap"), Run(2, 2, "ttl")]), "out of place"),
        ([], Coverage(1, 2, 0, 0, [Run(1, 3, "cap")]), "out of place"),
        ([2], Coverage(2, 2, 1, 0, []), "asked from seq 1, got from 2"),
    ],
)
def test_a_page_that_does_not_add_up_is_an_error(
    seqs: list[int], coverage: Coverage, said: str
) -> None:
    with pytest.raises(CoverageBroken) as raised:
        check(page(seqs, coverage), topic="t", expected=1)
    assert said in str(raised.value)
