"""A commit over many topics while it is being published, which takes more than one step."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from topics.engine.effects import Gate


class Showing(NamedTuple):
    """Some of these topics show their records already. Whoever asks now waits until all do."""

    names: Set[str]
    over: Gate

    def concerns(self, names: Sequence[str]) -> bool:
        """Whether a request for these names might see a part of the commit; for none: for all."""
        return not names or not self.names.isdisjoint(names)
