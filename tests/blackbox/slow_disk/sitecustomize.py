"""A disk that cannot keep up: with this on the path of a process its syncs take a second.

They do so while the file named by SLOW_DISK exists.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_SYNC_S = 1.0
_sync = os.fdatasync


def _slow_sync(fd: FileDescriptorLike) -> None:
    if os.path.exists(os.environ["SLOW_DISK"]):
        time.sleep(_SYNC_S)
    _sync(fd)


os.fdatasync = _slow_sync
