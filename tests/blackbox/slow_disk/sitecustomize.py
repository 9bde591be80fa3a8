"""A disk that cannot keep up: with this on the path of a process its syncs take seconds.

They do so while the file named by SLOW_DISK exists, and end soon after it is gone. That long, so
that writers on a slow machine fill what waits for the disk before the next sync; SLOW_SYNC_S is
another time.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_SYNC_S = float(os.environ.get("SLOW_SYNC_S", "4"))
_LOOK_S = 0.02
_sync = os.fdatasync


def _slow_sync(fd: FileDescriptorLike) -> None:
    end = time.monotonic() + _SYNC_S
    while os.path.exists(os.environ["SLOW_DISK"]) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    _sync(fd)


os.fdatasync = _slow_sync
