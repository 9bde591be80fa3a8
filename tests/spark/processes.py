"""The processes below a process, as the system shows them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path


def children(parents: Collection[int]) -> list[int]:
    """The processes that these have started and that are still theirs."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            fields = _fields(int(entry))
            if fields and int(fields[1]) in parents:
                found.append(int(entry))
    return found


def descendants(parent: int) -> list[int]:
    """Its children, theirs, and so on."""
    found: list[int] = []
    newest = [parent]
    while newest:
        newest = children(newest)
        found += newest
    return found


def is_running(pid: int) -> bool:
    """Whether it can still do something; one that ended may wait for its parent to notice."""
    fields = _fields(pid)
    return bool(fields) and fields[0] not in "ZX"


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes()
    return b""


def _fields(pid: int) -> list[str]:
    """State, parent and so on; nothing if there is no such process."""
    with contextlib.suppress(OSError):
        # The name, in brackets, may hold anything.
        return Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()
    return []
