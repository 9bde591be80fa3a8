"""How far a recovery is, as one share from 0 to 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Tell = Callable[[float], None]
"""Hears how much is done. It may raise to end the recovery: nothing on disk has changed by then."""

SCAN_SHARE: Final = 0.8
"""What reading the log takes of it all; applying what was read takes the rest. Measured with four
million small records: 21 of 26 seconds."""


class Progress:
    """Puts the shares of the parts together."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def of_scan(self, *, group: int, groups: int) -> Tell:
        """What the scan of one group of log files tells."""
        return lambda share: self._tell(SCAN_SHARE * (group + share) / groups)

    def replayed(self, share: float) -> None:
        self._tell(SCAN_SHARE + (1 - SCAN_SHARE) * share)
