"""Arrow arrays and scalars made of buffers, and numbers read where they lie in one.

`pa.array`, `pa.scalar`, `pa.table` and `to_numpy` import pandas where it is installed, to see
whether they were given something of it. That takes every worker of Spark half a second of its
processor; what is here does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

N = TypeVar("N", bound=np.generic)
NO_TEXT: Final = pa.nulls(1, pa.string())[0]
"""A null among strings."""


def numbers(values: NDArray[np.int64]) -> pa.Array:
    """Integers as they lie in memory."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def repeated(text: str, count: int) -> pa.Array:
    """The same string so many times."""
    stored = text.encode()
    edges = np.arange(count + 1, dtype=np.int32) * np.int32(len(stored))
    parts = [None, pa.py_buffer(edges), pa.py_buffer(stored * count)]
    return pa.Array.from_buffers(pa.string(), count, parts)


def literal(text: str) -> pa.Scalar:
    """One string, as compute functions take it."""
    return repeated(text, 1)[0]


def always(text: str, count: int) -> pa.Array:
    """The same string so many times, for next to no bytes."""
    indices = pa.Array.from_buffers(pa.int8(), count, [None, pa.py_buffer(bytes(count))])
    return pa.DictionaryArray.from_arrays(indices, repeated(text, 1))


def values_of(column: pa.Array, kind: type[N]) -> NDArray[N]:
    """The values of a column of numbers; what stands where it is null means nothing."""
    if not len(column):
        return np.zeros(0, kind)
    stored = np.frombuffer(column.buffers()[1], kind)
    return stored[column.offset : column.offset + len(column)]
