"""A transport without a network, for tests that feed a connection by hand."""

from __future__ import annotations

import asyncio
from typing import Any


class HandFed(asyncio.Transport):
    """Says whether it is read or closed, and is never in the way; `write` is the test's own."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False
        self._is_read = True

    def writelines(self, list_of_data: Any) -> None:  # noqa: ANN401 - as in the base class
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def can_write_eof(self) -> bool:
        return True

    def is_reading(self) -> bool:
        return self._is_read

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        self._is_read = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0
