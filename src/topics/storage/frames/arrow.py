"""Append frames as Arrow columns, copied in one go per column.

All places where a part of a frame begins become one binary array over the buffer as it was read;
picking every n-th of its values gives a column. No step is taken per record. The text was checked
when it was written and its checksum when it was read, so it is not decoded again. Arrays are made
of buffers: `pa.array` would import pandas where it is installed, which takes the better part of a
second.

Needs pyarrow: import this module only where a missing pyarrow is handled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from topics.storage.frames.columns import Frames, bounds, headers
from topics.storage.frames.header import FLAG_NODE, FLAG_TAG

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("node", pa.string()),
        ("tag", pa.string()),
        ("data", pa.string()),
        ("meta", pa.string()),
    ]
)
# Per frame, in this order: header, node, tag, length of the data, data, meta, checksum.
_PARTS: Final = 7
_NODE, _TAG, _DATA, _META = 1, 2, 4, 5


def record_batch(
    frames: Frames, *, with_tags: bool = True, with_meta: bool = True
) -> pa.RecordBatch:
    """The records of verified frames; a column that is not wanted is all null."""
    count = frames.size
    heads = headers(frames)
    parts = bounds(frames, heads)
    edges = np.empty(count * _PARTS + 1, np.int32)
    edges[0:-1:_PARTS] = frames.starts
    edges[1::_PARTS] = parts.nodes
    edges[2::_PARTS] = parts.tags
    edges[3::_PARTS] = parts.datas - 4
    edges[4::_PARTS] = parts.datas
    edges[5::_PARTS] = parts.metas
    edges[6::_PARTS] = parts.checksums
    edges[-1] = frames.starts[-1] + frames.lengths[-1]
    every = pa.Array.from_buffers(
        pa.binary(), count * _PARTS, [None, pa.py_buffer(edges), pa.py_buffer(frames.buf)]
    )
    flags = heads["flags"]

    def column(part: int, present: NDArray[np.bool_] | None) -> pa.Array:
        if present is not None and not present.any():
            return pa.nulls(count, pa.string())
        places = np.arange(part, count * _PARTS, _PARTS, dtype=np.int32)
        return every.take(_array(pa.int32(), places, present)).view(pa.string())

    nothing = np.zeros(count, np.bool_)
    times = heads["ts"].astype(np.int64) * 1000
    return pa.RecordBatch.from_arrays(
        [
            _array(pa.int64(), heads["seq"].astype(np.int64)),
            _array(SCHEMA.field("ts").type, times),
            column(_NODE, flags & FLAG_NODE != 0),
            column(_TAG, flags & FLAG_TAG != 0 if with_tags else nothing),
            column(_DATA, None),
            column(_META, parts.checksums != parts.metas if with_meta else nothing),
        ],
        schema=SCHEMA,
    )


def _array(
    kind: pa.DataType, values: NDArray[np.generic], present: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Values as they lie in memory; those not `present` are null."""
    valid = None
    if present is not None and not present.all():
        valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])
