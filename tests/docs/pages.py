"""Run the code blocks of a page, in their order, as a reader would.

`python` blocks of a page share one namespace; `console` blocks run their `$ ` lines in bash. A
`text` block right behind one is what it prints, to the letter; `...` in it stands for anything.
A page that names 127.0.0.1:4000 gets a real server, at whatever port is free.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        address = stack.enter_context(served(folder)) if ADDRESS in text else ADDRESS
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for block in blocks:
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
            if block.promised is not None:
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


def fits(printed: str, promised: str) -> bool:
    pattern = ".*".join(map(re.escape, promised.strip().split("...")))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """A real server beside the page; gives its address."""
    port_file = folder / "address"
    command = [sys.executable, "-m", "topics.cli", "serve", "--port", "0"]
    command += ["--port-file", str(port_file), "--data-dir", str(folder / "served")]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while not port_file.exists() or not port_file.read_text().strip():
            assert server.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server did not bind"
            time.sleep(0.02)
        address = port_file.read_text().strip()
        wait_until_ready(address, deadline)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=60)


def wait_until_ready(address: str, deadline: float) -> None:
    import urllib.error  # noqa: PLC0415 - only here
    import urllib.request  # noqa: PLC0415

    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/v0/ready", timeout=10):
                return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < deadline, "the server did not get ready"
            time.sleep(0.02)
