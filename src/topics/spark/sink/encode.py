"""Columns of any Spark type as JSON texts, a whole Arrow array at a time.

    Spark                          JSON
    null                           null; a struct keeps its null fields
    boolean, integers              as they are
    float, double                  shortest number that reads back the same; NaN, Infinity: refused
    decimal                        a number with all its digits
    string                         a string
    binary                         base64 in a string
    date, time                     ISO 8601 in a string
    timestamp                      ISO 8601 in UTC with microseconds: texts sort as times do
    timestamp_ntz                  the same without a zone, for it has none
    array, struct, map             array, object, object with its keys as strings

No row becomes a Python object on the way, but for binary. A text is put together from arrays of
its parts; the elements of a list, each with a comma behind it, already lie side by side in one
buffer, so that the texts of all lists are cut out of it by new offsets alone.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from topics.errors import InvalidRequest, TopicsError
from topics.spark.source.arrays import NO_TEXT, literal, repeated, values_of
from topics.wire.jsonbytes import compact_all

MAX_DEPTH: Final = 124
"""Levels a payload may nest: those of a JSON body less the three around a record."""

_NULL: Final = literal("null")
_NOTHING: Final = literal("")
_ESCAPES: Final = {code: msgspec.json.encode(chr(code))[1:-1].decode() for code in range(0x20)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}
_PLAIN: Final = bytes(code for code in range(256) if code not in _ESCAPES)


class Unencodable(TopicsError):
    """A value that JSON, or a record, has no place for."""

    code = "invalid_record"


# Whole columns


def json_of(column: pa.Array) -> pa.Array:
    """Each value as a JSON text; null as `null`."""
    return pc.fill_null(_texts(_checked(column)), _NULL)


def text_of(column: pa.Array) -> pa.Array:
    """Each string as a JSON string, whatever is in it; null as `null`."""
    return pc.fill_null(_quoted(_checked(column)), _NULL)


def checked_text(column: pa.Array) -> pa.Array:
    """Strings as they are; null stays null."""
    return _spelled(_checked(column))


def checked_json(column: pa.Array) -> pa.Array:
    """Strings that are JSON already, judged by the rules of the log; null stays null."""
    texts = [text.encode() for text in _checked(column).drop_null().to_pylist()]
    try:
        compact_all(texts, MAX_DEPTH)
    except InvalidRequest as error:
        raise Unencodable(str(error)) from error
    return _spelled(column)


def first_refused(
    column: pa.Array, encode: Callable[[pa.Array], pa.Array]
) -> tuple[int, Unencodable]:
    """The first row that `encode` refuses, and why, in a column that it refused."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if _refusal(column.slice(low, middle - low), encode):
            high = middle
        else:
            low = middle
    reason = _refusal(column.slice(low, 1), encode)
    assert reason is not None, "rows are judged one by one"
    return low, reason


def _refusal(column: pa.Array, encode: Callable[[pa.Array], pa.Array]) -> Unencodable | None:
    try:
        encode(column)
    except Unencodable as error:
        return error
    return None


def _checked(column: pa.Array) -> pa.Array:
    """Spark does not look into its strings: they may hold bytes that are no text."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Unencodable(f"a string is not valid UTF-8 ({error})") from error
    return column


# By type; a null stays null, for the caller knows what it means there


def _texts(column: pa.Array) -> pa.Array:
    kind = column.type
    for applies, encode in _ENCODERS:
        if applies(kind):
            return encode(column)
    raise Unencodable(f"{kind} has no form in JSON; cast it to a string first")


def _spelled(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _floats(column: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(column)).as_py() is False:
        raise Unencodable("JSON has no NaN or Infinity; replace it, by null for instance")
    texts = _spelled(column)
    # 1.0 is spelled "1": a reader that guesses types would see integers come and go.
    has_point = pc.or_(pc.match_substring(texts, "."), pc.match_substring(texts, "e"))
    if pc.all(has_point).as_py() is True:
        return texts
    return pc.if_else(has_point, texts, _joined(texts, ".0"))


def _quoted(strings: pa.Array) -> pa.Array:
    strings = _spelled(strings)
    special = _special_bytes(strings)
    for code in sorted(special, key=lambda code: code != ord("\\")):  # the backslash comes first
        strings = pc.replace_substring(strings, chr(code), _ESCAPES[code])
    return _joined('"', strings, '"')


def _special_bytes(strings: pa.Array) -> list[int]:
    """The bytes in these strings that JSON wants escaped.

    What is looked at is the text of these rows, not that of the batch they were cut out of.
    """
    _, edges, text = strings.buffers()
    if text is None or not len(strings):
        return []
    first, last = np.frombuffer(edges, np.int32)[[strings.offset, strings.offset + len(strings)]]
    used = text.slice(int(first), int(last - first)).to_pybytes()
    return sorted(set(used.translate(None, delete=_PLAIN)))


def _spelled_in_quotes(column: pa.Array) -> pa.Array:
    return _joined('"', _spelled(column), '"')


def _timestamps(column: pa.Array) -> pa.Array:
    """In UTC without a zone, with a Z behind it: Arrow takes a hundred times as long for a zone."""
    zone = "UTC" if column.type.tz else None
    texts = _spelled(column.cast(pa.timestamp("us", zone)).view(pa.timestamp("us")))
    end = 'Z"' if zone else '"'
    return _joined('"', pc.replace_substring(texts, " ", "T"), end)


def _base64(column: pa.Array) -> pa.Array:
    values = column.to_pylist()
    return pa.array(
        [None if value is None else f'"{b64encode(value).decode()}"' for value in values],
        pa.string(),
    )


def _structs(column: pa.Array) -> pa.Array:
    parts: list[pa.Array | str] = []
    for field, values in zip(column.type, column.flatten(), strict=True):
        name = msgspec.json.encode(field.name).decode()
        parts += [f"{',' if parts else '{'}{name}:", pc.fill_null(_texts(values), _NULL)]
    if not parts:
        parts = [repeated("{", len(column))]
    return _where_valid(column, _joined(*parts, "}"))


def _lists(column: pa.Array) -> pa.Array:
    elements = pc.fill_null(_texts(column.flatten()), _NULL)
    return _where_valid(column, _joined("[", _gathered(column, elements), "]"))


def _maps(column: pa.Array) -> pa.Array:
    kind = column.type
    pairs = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
    column = column.cast(pa.list_(pairs))
    keys, values = column.flatten().flatten()
    entries = _joined(_keys(keys), ":", pc.fill_null(_texts(values), _NULL))
    return _where_valid(column, _joined("{", _gathered(column, entries), "}"))


def _keys(keys: pa.Array) -> pa.Array:
    if pa.types.is_nested(keys.type) or pa.types.is_binary(keys.type):
        raise Unencodable(f"the keys of a JSON object are strings; {keys.type} cannot be one")
    texts = _texts(keys)
    return texts if len(texts) and texts[0].as_py().startswith('"') else _joined('"', texts, '"')


def _gathered(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """The elements of each list as one text, with commas in between."""
    followed = _joined(elements, ",")
    counts = values_of(pc.list_value_length(lists), np.int32)
    if lists.null_count:
        counts = np.where(_bits(lists.is_valid()), counts, 0)
    edges = np.concatenate(([0], np.cumsum(counts)))
    offsets = np.frombuffer(followed.buffers()[1] or bytes(4), np.int32)[edges]
    cut = pa.StringArray.from_buffers(len(lists), pa.py_buffer(offsets), followed.buffers()[2])
    return pc.utf8_rtrim(cut, ",")  # no JSON text ends in a comma of its own


def _where_valid(column: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(column), texts, NO_TEXT)


def _joined(*parts: pa.Array | str) -> pa.Array:
    texts = [literal(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, _NOTHING)


def _bits(column: pa.Array) -> NDArray[np.bool_]:
    """Booleans without a null, one in each place."""
    packed = np.frombuffer(column.buffers()[1], np.uint8)
    places = slice(column.offset, column.offset + len(column))
    return np.unpackbits(packed, bitorder="little")[places].astype(np.bool_)


_types = pa.types
_ENCODERS: Final[list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]]] = [
    (_types.is_string, _quoted),
    (_types.is_large_string, _quoted),
    (lambda kind: _types.is_integer(kind) or _types.is_boolean(kind), _spelled),
    (lambda kind: _types.is_decimal(kind) or _types.is_null(kind), _spelled),
    (_types.is_floating, _floats),
    (_types.is_timestamp, _timestamps),
    (lambda kind: _types.is_date(kind) or _types.is_time(kind), _spelled_in_quotes),
    (_types.is_struct, _structs),
    (_types.is_map, _maps),
    (_types.is_list, _lists),
    (lambda kind: _types.is_binary(kind) or _types.is_large_binary(kind), _base64),
]
