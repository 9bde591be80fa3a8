"""Reading a data directory from outside: no lock, no write, beside a running owner or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from topics.engine.clock import SystemClock
from topics.engine.recovery.directory import look_into
from topics.engine.recovery.recover import Found, find_state
from topics.engine.settings import EngineSettings
from topics.errors import RefusedToOpen
from topics.storage.fs import Fs

T = TypeVar("T")
TRIES = 5


def find(fs: Fs, path: str, cold_dir: str | None) -> Found:
    """The state that a recovery at this moment would come to."""
    entered = look_into(fs, path)
    assert entered.format is not None
    settings = EngineSettings(cold_dir=cold_dir)
    return find_state(fs, path, entered.format, settings, clock=SystemClock())


def steadily(path: str, work: Callable[[], T]) -> T:
    """Do reading work again when a file vanishes under it: an owner may trim at any moment."""
    for _ in range(TRIES - 1):
        try:
            return work()
        except FileNotFoundError:
            continue
    try:
        return work()
    except FileNotFoundError as error:
        raise RefusedToOpen(
            "io_error",
            message=f"{path} keeps changing while it is read ({error}); try again",
            file=path,
        ) from error
