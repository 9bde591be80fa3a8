"""The account of a page: which seqs it covers, and what became of each.

It comes with the rows, from the same read, and is checked against them: records, records that a
filter left out, and runs without a record add up to every seq, each once. A page that does not add
up is an error. Fewer rows than there are records never pass in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from topics.spark.errors import CoverageBroken
from topics.spark.source.arrays import values_of

LOSSES: Final = frozenset(("cap", "ttl", "crash", "source_trim"))
"""Kinds of runs that held records once, or should have."""
DELETES: Final = "deleted"


class Run(NamedTuple):
    """Seqs without a record, ends included, and what removed them first."""

    first: int
    last: int
    kind: str


class Coverage(msgspec.Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """What the seqs `first` to `last` hold; nothing when `last` is below `first`."""

    first: int
    last: int
    records: int
    filtered: int
    runs: Sequence[Run]

    @classmethod
    def decode(cls, text: bytes) -> Coverage:
        return msgspec.json.decode(text, type=cls)


class RowPage(NamedTuple):
    """Consecutive seqs of one life of a topic, read in one go."""

    epoch: int
    coverage: Coverage
    batches: Sequence[pa.RecordBatch]


def check(page: RowPage, *, topic: str, expected: int) -> None:
    """See that the page begins at `expected` and accounts for all it claims to cover."""
    coverage = page.coverage
    if coverage.first != expected:
        raise CoverageBroken(f"{topic}: asked from seq {expected}, got from {coverage.first}")
    missing = coverage.last - coverage.first + 1 - coverage.records - coverage.filtered
    at = coverage.first
    for run in coverage.runs:
        if not at <= run.first <= run.last <= coverage.last:
            raise CoverageBroken(f"{topic}: the run {run.first} to {run.last} is out of place")
        missing -= run.last - run.first + 1
        at = run.last + 1
    if missing:
        raise CoverageBroken(
            f"{topic}: the seqs {coverage.first} to {coverage.last} do not add up, {missing} of "
            "them are unaccounted for"
        )
    _check_rows(page, topic=topic)


def _check_rows(page: RowPage, *, topic: str) -> None:
    coverage = page.coverage
    columns = [values_of(batch.column("seq"), np.int64) for batch in page.batches]
    seqs = np.concatenate([np.zeros(0, np.int64), *columns])
    if len(seqs) != coverage.records:
        raise CoverageBroken(
            f"{topic}: {len(seqs)} rows came where {coverage.records} were announced, between the "
            f"seqs {coverage.first} and {coverage.last}"
        )
    ascending = bool((np.diff(seqs) > 0).all())
    if not ascending or (len(seqs) and not coverage.first <= seqs[0] <= seqs[-1] <= coverage.last):
        raise CoverageBroken(f"{topic}: a row came twice or from outside the page")
