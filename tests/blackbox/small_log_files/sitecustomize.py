"""Log files of one MiB instead of 64, and upkeep twice a second: with this on the path, a server
fits on a small disk and soon makes room there."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from topics.storage.wal.settings import WalSettings

FILE_BYTES = 1 << 20
SMALL: dict[str, dict[str, object]] = {
    "topics.engine.recovery.opening": {"WalSettings": partial(WalSettings, file_bytes=FILE_BYTES)},
    "topics.engine.upkeep.schedule": {"POLL_MS": 500, "BACKOFF_MAX_MS": 500},
    "topics.server.serve": {"WalSettings": partial(WalSettings, file_bytes=FILE_BYTES)},
}

for module, changes in SMALL.items():
    for name, value in changes.items():
        setattr(import_module(module), name, value)
