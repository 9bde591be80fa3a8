"""The signal that an answer needs a file which is not loaded yet.

The core never opens files. A question about records in segments is answered from indexes in memory,
or by `NotLoaded`, which tells what to load. The operation then loads it where waiting blocks no
other request, and asks again. Facts are applied only once nothing is left to load: `apply` must not
fail.
"""

from __future__ import annotations

from collections.abc import Callable


class NotLoaded(Exception):
    """An index is not in memory; `load` is the file work that puts it there, and returns it.

    The index stays in memory at least as long as the caller keeps what `load` returned.
    """

    def __init__(self, load: Callable[[], object]) -> None:
        super().__init__()
        self.load = load
