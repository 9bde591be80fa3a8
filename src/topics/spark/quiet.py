"""Start Spark without its chatter on the terminal.

The JVM inherits standard output and error when it is started, and keeps them. Both point to a file
while it starts; this process has its own back afterwards. What Spark says can be shown when
something fails, and is in nobody's way when nothing does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_TAIL_LINES = 30


@contextmanager
def chatter_to(log: Path) -> Iterator[TextIO]:
    """Processes started in this context write to `log`; gives the real standard error."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        with os.fdopen(os.dup(saved[1]), "w") as terminal:
            yield terminal
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for handle in (*saved, target):
            os.close(handle)


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The end of a log, for whoever has to find out what went wrong."""
    try:
        said = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(said[-lines:])
