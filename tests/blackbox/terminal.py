"""A terminal for a command: what it draws is kept as a screen, what is typed goes to it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import pyte

PATIENCE_S = 60.0
AGAIN_S = 10.0
ROWS, COLUMNS = 24, 100
# The child makes the terminal its own, so that Ctrl-C reaches it as it would a user's program; and
# heeds it, though whoever runs the tests in the background may have told them to ignore it.
_START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.login_tty(0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """Runs `topics` with its three streams on a pseudo-terminal."""

    def __init__(self, *arguments: object, env: Mapping[str, str]) -> None:
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (ROWS, COLUMNS))
        command = [sys.executable, "-c", _START, "-m", "topics.cli", *map(str, arguments)]
        self._slave = slave  # kept open: the last words of a process must not vanish with it
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env={**env, "TERM": "xterm"}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def wait_for(self, text: str) -> str:
        """Read on until the screen shows a text; returns the line it is in."""
        until = time.monotonic() + PATIENCE_S
        while text not in self.text:
            left = until - time.monotonic()
            assert left > 0, f"{text!r} never came; the screen is\n{self.text}"
            self._read(min(left, 1.0))
        return next(line for line in self.screen.display if text in line)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def interrupt(self) -> int:
        """Press Ctrl-C, and again when nothing comes of it, as one does; the exit code.

        Python notices a signal between two of its own steps, or in a system call that it breaks
        off. One that comes just before a call that waits is noticed only when the call returns.
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            self.type("\x03")
            again = time.monotonic() + AGAIN_S
            while self.process.poll() is None and time.monotonic() < again:
                self._read(0.05)
            if self.process.poll() is not None or again > until:
                return self.wait()

    def wait(self) -> int:
        """The exit code, once it has ended; everything it wrote is then on the screen."""
        until = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it does not end; the screen is\n{self.text}"
            self._read(0.05)
        while self._read(0.0):
            pass
        return self.process.returncode

    def style_of(self, text: str) -> tuple[str, bool]:
        """The colour of the first character of a text on the screen, and whether it is bold."""
        row = next(row for row, line in enumerate(self.screen.display) if text in line)
        char = self.screen.buffer[row][self.screen.display[row].index(text)]
        return char.fg, char.bold

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as a shell needs it."""
        return bool(termios.tcgetattr(self._slave)[3] & termios.ECHO)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        self._stream.feed(os.read(self._master, 1 << 16))
        return True
