"""Tag selectors, as deletes, routers and filtered reads write them.

    sent                        means
    "room:4"                    records tagged exactly room:4
    "room:*"                    records whose tag starts with room:
    ["tag","Eq","room:*"]       records tagged exactly room:*
    ["tag","Glob","room:*"]     as "room:*"

Only a `*` at the very end of a Glob is special; any other is a letter like the rest.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from topics.errors import InvalidRequest

Op = Literal["Eq", "Glob"]
Triple = tuple[Literal["tag"], Op, str]
Match = str | Triple
"""A selector as a body may hold it."""


class Predicate(NamedTuple):
    """A selector, understood. The value of a Glob keeps its `*`, as it is echoed."""

    op: Op
    value: str

    @property
    def is_prefix(self) -> bool:
        return self.op == "Glob"

    @property
    def literal(self) -> str:
        """What a tag must equal, or start with."""
        return self.value[:-1] if self.is_prefix else self.value

    @property
    def triple(self) -> Triple:
        """The one form in which selectors are echoed."""
        return ("tag", self.op, self.value)


def parse_match(sent: str | Sequence[object]) -> Predicate:
    """The selector in either form; raises `InvalidRequest` for anything else."""
    if isinstance(sent, str):
        return Predicate("Glob" if sent.endswith("*") else "Eq", sent)
    match list(sent):
        case ["tag", "Eq", str(value)]:
            return Predicate("Eq", value)
        case ["tag", "Glob", str(value)] if value.endswith("*"):
            return Predicate("Glob", value)
        case ["tag", "Glob", str(value)]:
            raise InvalidRequest(
                f'the Glob "{value}" must end in *; use Eq for one exact tag, or append the star'
            )
    raise InvalidRequest('a selector is a string, ["tag","Eq","room:4"] or ["tag","Glob","room:*"]')
