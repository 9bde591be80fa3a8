"""Finding a misspelt field: an unknown name that is almost the name of a known field.

Unknown fields are ignored, so that newer clients can talk to older servers. A misspelt field is
different: `{"before_seq":9,"mtach":"user-7"}` would delete the records of every user. A name is
taken for a misspelling if

    it is not a field of any endpoint      fields of other calls are normal traffic
    it has at least 5 characters           shorter names resemble each other by chance
    it lies close to a field of the object Damerau-Levenshtein distance 1, or 2 from 7 characters on

and does not begin with `x_` or `x-`, which clients may use for notes of their own. The names of
query parameters are judged by the same rule: `PUT ?dry_rnu=true` would evict records.
"""

from collections.abc import Collection, Iterable
from functools import lru_cache

from msgspec import inspect

from topics.errors import MisspeltField

SHORTEST = 5
_LONG = 7
"""From this length on two mistakes are allowed instead of one."""
_PRIVATE = ("x_", "x-")
MAX_LOOKED_AT = 100
"""Unknown names that are compared per body. A body with more of them is no typing mistake, and
comparing them all would delay other clients."""


class NearMisses:
    """Looks for misspelt fields in the objects of one body, or for misspelt query parameters."""

    def __init__(self, thing: str = "field") -> None:
        self._thing = thing
        self._seen: set[str] = set()

    def refuse(self, names: Collection[str], known: frozenset[str]) -> None:
        """Raise for the first of an object's `names` that is a misspelling of a `known` field."""
        for name in names:
            if name in known or name in self._seen:
                continue
            if len(self._seen) == MAX_LOOKED_AT:
                return
            self._seen.add(name)
            meant = _meant(name, known)
            if meant is not None:
                raise MisspeltField(name, did_you_mean=meant, thing=self._thing)


def refuse_misspelt_parameter(names: Collection[str], known: frozenset[str]) -> None:
    """Raise if a name in a query string is a misspelling of a parameter of the endpoint."""
    NearMisses("query parameter").refuse(names, known)


def _meant(name: str, known: Iterable[str]) -> str | None:
    """The field that `name` is a misspelling of."""
    if len(name) < SHORTEST or name.startswith(_PRIVATE) or name in _fields_of_all_endpoints():
        return None
    allowed = 2 if len(name) >= _LONG else 1
    close = (
        (_distance(name, field), field) for field in known if abs(len(field) - len(name)) <= allowed
    )
    distance, field = min(close, default=(allowed + 1, ""))
    return field if distance <= allowed else None


def _distance(one: str, other: str) -> int:
    """Damerau-Levenshtein: insertions, deletions, substitutions and swaps of neighbours."""
    far = len(one) + len(other)
    # Row and column 0 stand before the empty prefix, so that a swap never looks outside the table.
    table = [[far] * (len(other) + 2)]
    table += [[far, row, *[0] * len(other)] for row in range(len(one) + 1)]
    table[1][1:] = range(len(other) + 1)
    last_row_of: dict[str, int] = {}
    for row, letter in enumerate(one, start=1):
        last_match = 0
        for column, wanted in enumerate(other, start=1):
            swap_row, swap_column = last_row_of.get(wanted, 0), last_match
            if letter == wanted:
                last_match = column
            table[row + 1][column + 1] = min(
                table[row][column] + (letter != wanted),
                table[row + 1][column] + 1,
                table[row][column + 1] + 1,
                table[swap_row][swap_column] + row - swap_row + column - swap_column - 1,
            )
        last_row_of[letter] = row
    return table[-1][-1]


@lru_cache(maxsize=1)
def _fields_of_all_endpoints() -> frozenset[str]:
    """Every name in a body, an answer or a query of the API."""
    # The table of endpoints is made of bodies whose decoders need this module.
    from topics.wire.endpoints import ENDPOINTS  # noqa: PLC0415
    from topics.wire.requests.watching import COMMANDS  # noqa: PLC0415
    from topics.wire.shapes import shape_of  # noqa: PLC0415

    shapes = [shape_of(name) for endpoint in ENDPOINTS for name in endpoint.shapes]
    names = {parameter.name for endpoint in ENDPOINTS for parameter in endpoint.query}
    for shape in (*shapes, *COMMANDS):
        names.update(_names_within(inspect.type_info(shape)))
    return frozenset(names)


def _names_within(kind: inspect.Type) -> set[str]:
    """The names of all members of a shape, at every level."""
    match kind:
        case inspect.StructType():
            names = {field.encode_name for field in kind.fields}
            return names.union(*(_names_within(field.type) for field in kind.fields))
        case inspect.UnionType():
            return set().union(*map(_names_within, kind.types))
        case inspect.ListType() | inspect.VarTupleType():
            return _names_within(kind.item_type)
        case inspect.DictType():
            return _names_within(kind.value_type)
        case _:
            return set()
