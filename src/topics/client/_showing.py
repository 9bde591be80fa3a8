"""How logs and what they make look at a prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable


class Shown(ABC):
    """Says in its `repr` what it is for, and completes to its public names only."""

    @abstractmethod
    def _words(self) -> str:
        """What stands behind the name of the class: an address, a topic."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._words()}>"

    def __dir__(self) -> Iterable[str]:
        names = super().__dir__()
        return [name for name in names if name.startswith("__") or not name.startswith("_")]
