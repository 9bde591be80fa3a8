"""Tells what a server reads on its event loop: with this on the path of a process, each call that
waits for a disk to read, made while a loop runs on the same thread, adds a line to the file named
by LOOP_READS."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def _told(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def attempt(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401 - whatever the call takes
        if asyncio.events._get_running_loop() is not None:
            _tell(f"{call}{arguments} from {' < '.join(_callers(sys._getframe(1)))}")
        return real(*arguments, **more)

    return attempt


def _callers(frame: FrameType | None) -> list[str]:
    names: list[str] = []
    while frame is not None and len(names) < 12:
        names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return names


def _tell(line: str) -> None:
    fd = _open(os.environ["LOOP_READS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


_open = os.open
os.open = _told("open", os.open)
os.pread = _told("pread", os.pread)
os.preadv = _told("preadv", os.preadv)
os.stat = _told("stat", os.stat)
os.listdir = _told("listdir", os.listdir)
