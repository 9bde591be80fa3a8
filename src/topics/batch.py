"""A batch of drafts: the records of one write before they have seqs.

Columns instead of one object per record, because the write path handles each record only as
bytes: what the client sent is what the log stores and what a reader gets back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

V = TypeVar("V")


class RecordBatch(msgspec.Struct, gc=False):
    """The drafts of one write to one topic, as parallel columns of equal length.

    A column that no record uses is None rather than a list of absences, so that the common batch
    (data only) takes the short path. `data` and `meta` are JSON without insignificant whitespace;
    an empty `meta` means there is none.
    """

    datas: list[bytes]
    metas: list[bytes] | None = None
    tags: list[str | None] | None = None
    nodes: list[str | None] | None = None

    def __len__(self) -> int:
        return len(self.datas)

    def part(self, first: int, end: int) -> RecordBatch:
        """Some of its records, as a batch of their own."""
        return RecordBatch(
            self.datas[first:end],
            None if self.metas is None else self.metas[first:end],
            None if self.tags is None else self.tags[first:end],
            None if self.nodes is None else self.nodes[first:end],
        )

    @property
    def has_data_only(self) -> bool:
        """Whether no record has meta, tag or node."""
        return self.metas is None and self.tags is None and self.nodes is None

    @property
    def nbytes(self) -> int:
        """The accounted size: data and meta. Tags and nodes are free."""
        size = sum(map(len, self.datas))
        return size if self.metas is None else size + sum(map(len, self.metas))


def joined(batches: Sequence[RecordBatch]) -> RecordBatch:
    """The records of several writes as one batch."""
    sizes = [len(batch.datas) for batch in batches]
    return RecordBatch(
        [data for batch in batches for data in batch.datas],
        _column([batch.metas for batch in batches], sizes, b""),
        _column([batch.tags for batch in batches], sizes, None),
        _column([batch.nodes for batch in batches], sizes, None),
    )


def _column(columns: list[list[V] | None], sizes: list[int], absent: V) -> list[V] | None:
    if not any(columns):
        return None
    pairs = zip(columns, sizes, strict=True)
    return [value for column, size in pairs for value in column or [absent] * size]
