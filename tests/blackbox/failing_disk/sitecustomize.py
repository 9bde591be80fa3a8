"""A disk that fails on demand: with this on the path of a process its log meets errors.

While the file named by FAILING_DISK exists it holds the call that fails, `pwrite` or `fdatasync`,
and the number of the error. Allocation fails with writes: a full disk gives no room either.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def _demanded(call: str) -> OSError | None:
    try:
        with open(os.environ["FAILING_DISK"]) as switch:
            which, number = switch.read().split()
    except FileNotFoundError:
        return None
    return OSError(int(number), os.strerror(int(number))) if which == call else None


def _failing(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def attempt(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401 - whatever the call takes
        error = _demanded(call)
        if error is not None:
            raise error
        return real(*arguments, **more)

    return attempt


os.pwrite = _failing("pwrite", os.pwrite)
os.posix_fallocate = _failing("pwrite", os.posix_fallocate)
os.fdatasync = _failing("fdatasync", os.fdatasync)
