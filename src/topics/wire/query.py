"""Query strings, and numbers in paths.

Parsing a query string never fails: a broken percent sequence stays as it is, a value that does not
parse counts as not given, and a query with more than 1000 parameters counts as empty. A number in a
path is the name of something, so a number that does not parse is an error.
"""

from collections.abc import Collection
from urllib.parse import parse_qsl

from topics.errors import InvalidRequest
from topics.topic_settings import U64_MAX
from topics.wire.numbers import U32_MAX

_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_MAX_DIGITS = 20
_MAX_FIELDS = 1000


class QueryString:
    """The parameters of one request. Of a repeated name the last counts, unless said otherwise."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, list[str]]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    @property
    def names(self) -> Collection[str]:
        return self._values.keys()

    def text(self, name: str) -> str | None:
        return self._values[name][-1] if name in self._values else None

    def first(self, name: str) -> str | None:
        """The first value: for a credential, which nothing behind it may replace."""
        return self._values[name][0] if name in self._values else None

    def every(self, name: str) -> tuple[str, ...]:
        return tuple(self._values.get(name, ()))

    def flag(self, name: str, *, default: bool) -> bool:
        return _FLAGS.get(self.text(name) or "", default)

    def u64(self, name: str) -> int | None:
        return _integer(self.text(name), U64_MAX)

    def u32(self, name: str) -> int | None:
        return _integer(self.text(name), U32_MAX)


NO_QUERY = QueryString({})


def parse_query(raw: bytes) -> QueryString:
    """The part of a URL behind the question mark, percent-encoded as it came."""
    text = raw.decode("utf-8", "replace")
    try:
        fields = parse_qsl(
            text, keep_blank_values=True, errors="replace", max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        return NO_QUERY
    values: dict[str, list[str]] = {}
    for name, value in fields:
        values.setdefault(name, []).append(value)
    return QueryString(values)


def path_u64(name: str, text: str) -> int:
    """A number that is part of a path."""
    number = _integer(text, U64_MAX)
    if number is None:
        raise InvalidRequest(
            f'{name} must be an integer from 0 to {U64_MAX}, the path has "{text[:80]}"'
        )
    return number


def _integer(text: str | None, maximum: int) -> int | None:
    if text is None or not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS:
        return None
    number = int(digits)
    return number if number <= maximum else None
