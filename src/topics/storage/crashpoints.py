"""Named places where a test may stop the process or cut the power.

`crashpoint("wal.after_write")` does nothing until a hook is installed, so production pays one
global lookup. The names are listed once, here: a crash test walks `NAMES`, and a misspelt name in
the product fails loudly instead of never being tested.
"""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Hook: TypeAlias = Callable[[str], None]
"""Called with the name of the point; it may raise, block or end the process."""

ENABLE_VARIABLE = "TOPICS_TEST_HOOKS"
POINT_VARIABLE = "TOPICS_CRASHPOINT"
HOLD_VARIABLE = "TOPICS_HOLDPOINT"

_POINTS_BY_AREA = {
    "wal": "after_write after_sync",
    "wal.rotate": "synced truncated header renamed dirsynced current",
    "ckpt": "barrier data idx synced mark trim",
    "snap": "tmp synced renamed dirsynced pruned",
    "del": "commit data_byte data_sync idx_byte",
    "erase": "begin begun data idx synced swapped dropped receipt",
    "drop": "meta data_unlinked",
    "tier": "data idx renamed verified flipped hot_data_unlinked",
    "evict": "commit",
    "topic": "frame renamed",
    "fwd": "logged",
    "stage": "file barrier committed appended published",
    "object": "written synced renamed",
    "backup": "object snapshot segments publish published",
    "prune": "listed published",
    "restore": "laid opened marked renamed",
    "rec": "snapshot scan mid_replay truncate newgen skip",
}

NAMES: frozenset[str] = frozenset(
    f"{area}.{point}" for area, points in _POINTS_BY_AREA.items() for point in points.split()
)
"""Every crash point there is."""

_hook: Hook | None = None


def crashpoint(name: str) -> None:
    """Tell the installed hook, if any, that execution reached this point."""
    if _hook is not None:
        if name not in NAMES:
            raise AssertionError(f"unknown crash point {name!r}")
        _hook(name)


def install(hook: Hook | None) -> None:
    """Route every crash point of this process to `hook`; `None` removes it."""
    global _hook  # noqa: PLW0603 - one process-wide switch keeps the idle cost to one lookup
    _hook = hook


@contextmanager
def installed(hook: Hook) -> Iterator[None]:
    """Install `hook` for the length of a `with` block, then put the previous one back."""
    previous = _hook
    install(hook)
    try:
        yield
    finally:
        install(previous)


def install_from_env(environ: Mapping[str, str]) -> None:
    """Arm what a test asks for by a variable.

    `TOPICS_CRASHPOINT=name:n`: SIGKILL this process on the n-th pass of that point.
    `TOPICS_HOLDPOINT=name:path`: wait at that point until the path exists; `path.reached` says
    that a thread waits there.

    Without `TOPICS_TEST_HOOKS=1` both are ignored, so that a stray setting cannot bring a
    production server down. A malformed value raises `ValueError`.
    """
    if environ.get(ENABLE_VARIABLE) != "1":
        return
    text = environ.get(POINT_VARIABLE)
    if text is not None:
        name, _, count = text.rpartition(":")
        if name not in NAMES or not count.isdecimal() or int(count) == 0:
            raise ValueError(f"{POINT_VARIABLE} must be <crash point>:<n from 1>, got {text!r}")
        install(_suicide_hook(name, nth=int(count)))
        return
    text = environ.get(HOLD_VARIABLE)
    if text is not None:
        name, _, path = text.partition(":")
        if name not in NAMES or not path:
            raise ValueError(f"{HOLD_VARIABLE} must be <crash point>:<path>, got {text!r}")
        install(_holding_hook(name, path))


def _holding_hook(name: str, path: str) -> Hook:
    def hook(reached: str) -> None:
        if reached != name:
            return
        Path(f"{path}.reached").touch()
        while not os.path.exists(path):
            time.sleep(0.01)

    return hook


def _suicide_hook(name: str, *, nth: int) -> Hook:
    # next() on a count is atomic, so passes of several threads are counted exactly once each.
    passes = itertools.count(1)

    def hook(reached: str) -> None:
        if reached == name and next(passes) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook
