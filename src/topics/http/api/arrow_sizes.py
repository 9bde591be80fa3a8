"""How large an Arrow stream is once it is decoded, known before it is.

A few bytes may stand for many: buffers can be compressed, a dictionary or a view names one long
text for many rows, a column of nulls has no bytes at all. The limit on bodies holds for what they
stand for, so that is added up from the heads of the messages and from lengths alone.

The head of a message is a flatbuffer, which pyarrow verifies when it reads the message but does
not show. What is needed of it:

    Message       1 kind of header, 2 header
    Dictionary    1 record batch
    Record batch  0 rows (i64), 2 buffers (u32 how many; offset i64, length i64), 3 compression

A compressed buffer begins with its decoded size (i64), or -1 when it is not compressed after all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

ROW_BYTES: Final = 64
"""What a row counts for at least: a record takes more than that in memory, whatever it says."""
STEP_ROWS: Final = 4096

_U16, _U32, _I32, _I64 = (struct.Struct(f"<{code}") for code in "HIiq")
_BUFFER: Final = struct.Struct("<qq")


def decoded_bytes(body: bytes) -> Iterator[int]:
    """The decoded size of each message of the stream; may raise what pyarrow raises."""
    import pyarrow as pa  # noqa: PLC0415

    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        if message.type in ("record batch", "dictionary"):
            yield _message_bytes(message)


def _message_bytes(message: pa.Message) -> int:
    head = bytes(message.metadata)
    at = _target(head, _field(head, _root(head), 2))
    if message.type == "dictionary":
        at = _target(head, _field(head, at, 1))
    rows = _field(head, at, 0)
    least = 0 if not rows else _I64.unpack_from(head, rows)[0] * ROW_BYTES
    body = memoryview(b"" if message.body is None else message.body)
    buffers = _field(head, at, 2)
    if not buffers or not _field(head, at, 3):
        return max(least, body.nbytes)
    first = _target(head, buffers) + _U32.size
    (count,) = _U32.unpack_from(head, first - _U32.size)
    places = _BUFFER.iter_unpack(head[first : first + count * _BUFFER.size])
    return max(least, sum(_buffer_bytes(body, *place) for place in places))


def _buffer_bytes(body: memoryview, offset: int, length: int) -> int:
    if length < _I64.size:
        return length
    (decoded,) = _I64.unpack(body[offset : offset + _I64.size])
    return length if decoded < 0 else decoded


def expanded_bytes(chunk: pa.Array) -> int:
    """The size of the texts of a column, each counted as often as it is referenced."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    kind = chunk.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = memoryview(chunk.buffers()[1]).cast("i")
        first, end = chunk.offset, chunk.offset + len(chunk)
        # In steps: the interpreter is not given up inside of `sum`.
        steps = (
            views[4 * at : 4 * min(at + STEP_ROWS, end) : 4] for at in range(first, end, STEP_ROWS)
        )
        return sum([sum(step) for step in steps])
    if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
        lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
        return pc.sum(lengths).as_py() or 0
    return int(chunk.nbytes)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    types = pa.types
    return any(
        is_one(kind)
        for is_one in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
        )
    )


# Flatbuffers


def _root(head: bytes) -> int:
    root: int = _U32.unpack_from(head, 0)[0]
    return root


def _field(head: bytes, table: int, number: int) -> int:
    """Where a field of a table is; 0 when it is not given."""
    # Before the fields lies a list of their places, which begins with its size and the table's.
    fields = table - _I32.unpack_from(head, table)[0]
    (size,) = _U16.unpack_from(head, fields)
    entry = 4 + 2 * number
    offset: int = _U16.unpack_from(head, fields + entry)[0] if entry < size else 0
    return table + offset if offset else 0


def _target(head: bytes, reference: int) -> int:
    """Where a reference leads."""
    target: int = reference + _U32.unpack_from(head, reference)[0]
    return target
