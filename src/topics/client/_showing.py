"""How logs and what they make look at a prompt."""

from __future__ import annotations

from collections.abc import Iterable


class Shown:
    """Says in its `repr` what it is for, and completes to its public names only."""

    def _words(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._words()}>"

    def __dir__(self) -> Iterable[str]:
        names = super().__dir__()
        return [name for name in names if name.startswith("__") or not name.startswith("_")]
