"""Run the code blocks of a page, in their order, as a reader would.

`python` blocks of a page share one namespace; `console` blocks run their `$ ` lines in bash. A
`text` block right behind one is what it prints, to the letter; `...` in it stands for anything but
an error of the server.
A page that names 127.0.0.1:4000 gets a real server, at whatever port is free. That server is
restarted in the middle of the page: what a page shows must hold for a reader who comes back the
next day.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topics.testing.server import LiveServer

ADDRESS = "127.0.0.1:4000"
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_RUN = ("python", "console")


@dataclass(frozen=True)
class Block:
    """Code of a page, and what the page says it prints."""

    language: str
    code: str
    line: int
    promised: str | None


def blocks_of(text: str) -> list[Block]:
    """The blocks that can be run."""
    found = list(_BLOCK.finditer(text))
    blocks = []
    for at, match in enumerate(found):
        if match[1] not in _RUN:
            continue
        behind = found[at + 1] if at + 1 < len(found) else None
        is_answered = behind is not None and behind[1] == "text"
        if is_answered and behind is not None:
            is_answered = not text[match.end() : behind.start()].strip()
        promised = behind[2] if is_answered and behind is not None else None
        line = text.count("\n", 0, match.start()) + 2
        blocks.append(Block(match[1], match[2], line, promised))
    return blocks


def run_page(page: Path, folder: Path) -> int:
    """Run every block of a page with `folder` as the working directory; returns how many."""
    text = page.read_text()
    blocks = blocks_of(text)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        address, server = ADDRESS, None
        if ADDRESS in text:
            root = folder / ".server"
            root.mkdir()
            server = LiveServer(root).start()
            stack.callback(server.end)
            address = server.url.removeprefix("http://")
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for at, block in enumerate(blocks):
            if server is not None and at == len(blocks) // 2:
                assert server.stop() == 0, server.said
                server.start()
            code = block.code.replace(ADDRESS, address)
            where = f"{page}:{block.line}"
            try:
                printed = (
                    run_python(code, where, block.line, namespace)
                    if block.language == "python"
                    else run_console(code, folder)
                )
            except Exception as error:
                error.add_note(f"in the block at {where}")
                raise
            if block.promised is None:
                assert not holds_error(printed), f"{where} does not tell of\n{printed}"
            else:
                promised = block.promised.replace(ADDRESS, address)
                assert fits(printed, promised), f"{where} promises\n{promised}\nand got\n{printed}"
    return len(blocks)


def run_python(code: str, where: str, line: int, namespace: dict[str, Any]) -> str:
    printed = io.StringIO()
    program = compile("\n" * (line - 1) + code, where.rpartition(":")[0], "exec")
    with contextlib.redirect_stdout(printed):
        exec(program, namespace)  # our own pages
    return printed.getvalue()


def run_console(code: str, folder: Path) -> str:
    commands = "\n".join(re.findall(r"^\$ (.*(?:\\\n.*)*)", code, re.MULTILINE))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(folder / ".config"),
    }
    told = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert told.returncode == 0, f"{commands}\nexit {told.returncode}\n{told.stdout}{told.stderr}"
    return told.stdout


def holds_error(printed: str) -> bool:
    """Whether the server refused something: `curl` ends well all the same."""
    return re.search(r'"error"\s*:\s*\{\s*"code"', printed) is not None


def fits(printed: str, promised: str) -> bool:
    """Whether a page says what is printed; `...` stands for anything but an error."""
    if holds_error(printed) and "error" not in promised:
        return False
    return pattern_of(promised).fullmatch(printed.strip()) is not None


def pattern_of(promised: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, promised.strip().split("..."))), re.DOTALL)
