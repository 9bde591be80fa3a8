"""The columns of a typed table, as types that JSON values either fit or do not.

    boolean long double string date timestamp decimal(p,s)    a value; `not null` may follow
    {name: type, ...}                                         an object, or the table's columns
    [type]                                                    a list

In a declared schema these are written as YAML. Otherwise they come from the data, by these rules:

    value            new column   column that is there already
    true, false      boolean      boolean, string
    whole number     long         long, double, string
    other number     double       double, string; a long becomes double
    text             string       string
    object           its fields   its fields, and new ones beside them
    list             list         list, of elements by the same rules
    several kinds    string       -

A string column takes everything: text as it is, and anything else as its JSON. Dates and decimals
are never guessed from text. A value that a column does not take makes its row one that does not
fit.

Names are compared without case, as SQL does. Characters that Delta does not take in names become
`_`, and a field named like one of the record's own columns gets `data_` in front.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from topics.errors import InvalidRequest

OWN: Final = ("epoch", "seq", "ts", "node", "tag", "meta", "data")
"""What a record has beside the fields of its data."""
MAX_FIELDS: Final = 1000
_NUMBERS: Final = (("long", "double"), ("double", "long"))
_NOT_IN_NAMES: Final = re.compile(r"[ ,;{}()\n\t=]")
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_ALSO: Final = {
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("int", "integer", "bigint"), "long"),
    **dict.fromkeys(("float", "number"), "double"),
    "text": "string",
}
_REQUIRED: Final = " not null"
_encode = msgspec.json.Encoder(decimal_format="number").encode
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Unfit(Exception):
    """A record that the columns do not take, and why."""


@dataclass(frozen=True)
class Array:
    """A list; of what is None as long as only empty ones were seen."""

    element: Shape


@dataclass(frozen=True)
class Struct:
    """Fields by their names without case, each with its name as it is spelled, and its type."""

    fields: Mapping[str, tuple[str, Shape]]
    required: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, Shape]]:
        return iter(self.fields.values())

    def type_of(self, key: str) -> Shape:
        found = self.fields.get(key)
        return None if found is None else found[1]


Shape: TypeAlias = str | Struct | Array | None
EMPTY: Final = Struct({})


@lru_cache(maxsize=8192)
def column_of(field: str, *, is_top: bool) -> tuple[str, str]:
    """Under which name a field is found, and how its column is spelled."""
    name = _NOT_IN_NAMES.sub("_", field) or "_"
    if is_top and name.lower() in OWN:
        name = f"data_{name}"
    return name.lower(), name


# From the data


def widened(known: Shape, value: Any, base: Shape, path: str = "") -> Shape:  # noqa: ANN401 - JSON
    """A type that takes the value as well; the same object if `known` does.

    `base` is what the table has already: there a conflict makes the row unfit, while a column that
    is new becomes a string.
    """
    if value is None or known == "string":
        return known
    if isinstance(value, dict):
        if known is None or isinstance(known, Struct):
            return _with_fields(known, value, base if isinstance(base, Struct) else EMPTY, path)
    elif isinstance(value, list):
        if known is None or isinstance(known, Array):
            return _with_elements(known, value, base, path)
    elif (wider := _of_both(known, _kind(value, known))) is not None:
        return wider
    if base is None:
        return "string"
    raise Unfit(f"{path} is {_said(value)}, and the column is {spelled(base)}")


def _of_both(known: Shape, wanted: str) -> str | None:
    """A plain type that takes what a known one takes and a value of another; None without any."""
    if known is None or known == wanted:
        return wanted
    return "double" if (known, wanted) in _NUMBERS else None


def _with_fields(known: Struct | None, value: Mapping[str, Any], base: Struct, path: str) -> Struct:
    fields = dict(known.fields) if known is not None else {}
    seen: set[str] = set()
    changed = known is None
    for name, item in value.items():
        key, shown = column_of(name, is_top=not path)
        if key in seen:
            raise Unfit(f"two fields of {path or 'the record'} are the column {shown}")
        seen.add(key)
        old = fields.get(key)
        inside = f"{path}.{name}" if path else name
        new = widened(old and old[1], item, base.type_of(key), inside)
        if old is None and new is not None:
            if len(fields) >= MAX_FIELDS:
                raise Unfit(f"{inside} would be more than {MAX_FIELDS} columns")
            fields[key] = (shown, new)
            changed = True
        elif old is not None and new is not old[1]:
            fields[key] = (old[0], new)
            changed = True
    return Struct(fields) if changed or known is None else known


def _with_elements(known: Array | None, value: list[Any], base: Shape, path: str) -> Array:
    element = before = None if known is None else known.element
    below = base.element if isinstance(base, Array) else None
    for item in value:
        element = widened(element, item, below, f"{path}[]")
    return known if known is not None and element is before else Array(element)


def _kind(value: object, known: Shape = None) -> str:
    if isinstance(value, bool):
        return "boolean"
    if known == "double" and isinstance(value, int) and abs(value) <= sys.float_info.max:
        return known
    if isinstance(value, int):
        return "long" if -(1 << 63) <= value < 1 << 63 else "string"
    return "string" if isinstance(value, str) else "double"


def merged(left: Shape, right: Shape) -> Shape:
    """A type for the values of both; how names are spelled the left one says."""
    if left is None or right is None or left == right:
        return right if left is None else left
    if isinstance(left, Struct) and isinstance(right, Struct):
        fields = dict(left.fields)
        for key, (name, shape) in right.fields.items():
            old = fields.get(key)
            fields[key] = (name, shape) if old is None else (old[0], merged(old[1], shape))
        return Struct(fields, left.required)
    if isinstance(left, Array) and isinstance(right, Array):
        return Array(merged(left.element, right.element))
    if isinstance(left, str) and isinstance(right, str):
        return _of_both(left, right) or "string"
    return "string"


def only_adds(old: Shape, new: Shape) -> bool:
    """Whether what is stored as the old type can be read as the new one."""
    if isinstance(old, Struct) and isinstance(new, Struct):
        return all(only_adds(shape, new.type_of(key)) for key, (_, shape) in old.fields.items())
    if isinstance(old, Array) and isinstance(new, Array):
        return only_adds(old.element, new.element)
    return old == new


# Values


def fitted(value: Any, shape: Shape, path: str = "") -> Any:  # noqa: ANN401 - JSON, and what Arrow takes
    """The value as its column takes it; raises `Unfit`."""
    if isinstance(shape, Struct) and isinstance(value, dict):
        return _fitted_fields(value, shape, path)
    if isinstance(shape, Array) and isinstance(value, list):
        return [fitted(item, shape.element, f"{path}[]") for item in value]
    if isinstance(shape, str):
        name = shape.removesuffix(_REQUIRED)
        if value is None:
            if name != shape:
                raise Unfit(f"{path} is null, and the column is {shape}")
            return None
        made = (_VALUES.get(name) or _decimal)(value, name)
        if made is not None:
            return made
    elif value is None or shape is None:
        return None
    raise Unfit(f"{path or 'data'} is {_said(value)}, and the column is {spelled(shape)}")


def _fitted_fields(value: Mapping[str, Any], shape: Struct, path: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, item in value.items():
        key, _ = column_of(name, is_top=not path)
        field = shape.fields.get(key)
        if field is not None:
            if field[0] in made:
                raise Unfit(f"two fields of {path or 'the record'} are the column {field[0]}")
            made[field[0]] = fitted(item, field[1], f"{path}.{name}" if path else name)
    for name in shape.required:
        if name not in made:
            raise Unfit(f"{path}.{name} is missing" if path else f"{name} is missing")
    return made


def _boolean(value: object, _: str) -> bool | None:
    return value if isinstance(value, bool) else None


def _long(value: object, _: str) -> int | None:
    return value if isinstance(value, int) and _kind(value) == "long" else None


def _double(value: object, _: str) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _string(value: object, _: str) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _date(value: object, _: str) -> dt.date | None:
    try:
        return dt.date.fromisoformat(value) if isinstance(value, str) and len(value) == 10 else None
    except ValueError:
        return None


def _timestamp(value: object, _: str) -> dt.datetime | None:
    """Text as in RFC 3339, in UTC without an offset; a whole number counts milliseconds."""
    try:
        if isinstance(value, str):
            stamp = dt.datetime.fromisoformat(value)
            return stamp.replace(tzinfo=dt.UTC) if stamp.tzinfo is None else stamp
        if isinstance(value, int) and not isinstance(value, bool):
            return _EPOCH + dt.timedelta(milliseconds=value)
    except (ValueError, OverflowError):
        pass
    return None


def _decimal(value: object, name: str) -> decimal.Decimal | None:
    """A number, or text that spells one; exactly, or not at all."""
    found = _DECIMAL.fullmatch(name)
    assert found is not None
    if isinstance(value, bool) or not isinstance(value, int | str | decimal.Decimal):
        return None
    try:
        number = decimal.Decimal(value)
        step = decimal.Decimal(1).scaleb(-int(found[2]))
        with decimal.localcontext(prec=int(found[1])):
            exact = number.quantize(step)
    except (decimal.InvalidOperation, ValueError):
        return None
    return exact if exact == number else None


_VALUES: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "boolean": _boolean,
    "long": _long,
    "double": _double,
    "string": _string,
    "date": _date,
    "timestamp": _timestamp,
}


def has_decimals(shape: Shape) -> bool:
    """Whether numbers have to be read as they are spelled."""
    if isinstance(shape, Struct):
        return any(has_decimals(inner) for _, inner in shape)
    if isinstance(shape, Array):
        return has_decimals(shape.element)
    return isinstance(shape, str) and shape.startswith("decimal")


def _said(value: object) -> str:
    """What a value is; never the value itself."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return "text"
    return "a boolean" if isinstance(value, bool) else "a number"


# As Arrow has it


def arrow_of(shape: Shape) -> pa.DataType | None:
    """The Arrow type; None for what nobody knows yet."""
    if isinstance(shape, Struct):
        inner = fields_of(shape)
        return pa.struct(inner) if inner else None
    if isinstance(shape, Array):
        element = arrow_of(shape.element)
        return None if element is None else pa.list_(element)
    if shape is None:
        return None
    name = shape.removesuffix(_REQUIRED)
    found = _DECIMAL.fullmatch(name)
    return pa.decimal128(int(found[1]), int(found[2])) if found else _PLAIN[name]


def fields_of(shape: Struct) -> list[pa.Field]:
    """The columns that are known."""
    pairs = ((name, arrow_of(inner)) for name, inner in shape)
    return [pa.field(name, kind) for name, kind in pairs if kind is not None]


def shape_of(kind: pa.DataType) -> Shape:
    """The type that an Arrow type stands for."""
    if pa.types.is_struct(kind):
        return struct_of(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return Array(shape_of(kind.value_type))
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    names = (name for name, plain in _PLAIN.items() if plain == kind)
    return next(names, "string")


def struct_of(fields: pa.Schema | pa.StructType) -> Struct:
    """The fields of data among the columns of a table, or those of an object."""
    is_table = isinstance(fields, pa.Schema)
    return Struct(
        {
            field.name.lower(): (field.name, shape_of(field.type))
            for field in fields
            if not (is_table and field.name in OWN)
        }
    )


# As it is written


def parsed(given: object, where: str = "") -> Shape:
    """A declared type; raises `InvalidRequest`, which names the field."""
    if isinstance(given, dict):
        fields: dict[str, tuple[str, Shape]] = {}
        for name, inner in given.items():
            if not isinstance(name, str):
                raise InvalidRequest(f"the field {name!r} of {where or 'the schema'} is no name")
            key, shown = column_of(name, is_top=not where)
            if key in fields:
                raise InvalidRequest(f"two fields of {where or 'the schema'} are called {shown}")
            fields[key] = (shown, parsed(inner, f"{where}.{name}" if where else name))
        if not fields:
            raise InvalidRequest(f"{where or 'the schema'} has no fields")
        needed = (name for name, inner in fields.values() if _is_required(inner))
        return Struct(fields, tuple(needed))
    if isinstance(given, list) and len(given) == 1:
        return Array(parsed(given[0], f"{where}[]"))
    if isinstance(given, str):
        text = " ".join(given.lower().split())
        name = text.removesuffix(_REQUIRED)
        plain = _ALSO.get(name, name)
        found = _DECIMAL.fullmatch(plain)
        if found and int(found[2]) <= int(found[1]) <= 38 and int(found[1]):
            plain = f"decimal({found[1]},{found[2]})"
        elif plain not in _PLAIN:
            plain = ""
        if plain:
            return plain + (_REQUIRED if name != text else "")
    raise InvalidRequest(
        f"the type of {where or 'the schema'} is {given!r}; known are {', '.join(_PLAIN)}, "
        "decimal(p,s), {field: type}, and [type] for a list"
    )


def _is_required(shape: Shape) -> bool:
    return isinstance(shape, str) and shape.endswith(_REQUIRED)


def plain_of(shape: Shape) -> Any:  # noqa: ANN401 - JSON
    """As it is written."""
    if isinstance(shape, Struct):
        return {name: plain_of(inner) for name, inner in shape}
    return [plain_of(shape.element)] if isinstance(shape, Array) else shape


def spelled(shape: Shape) -> str:
    """For people."""
    if isinstance(shape, Struct):
        return "an object"
    return "a list" if isinstance(shape, Array) else (shape or "not known")
