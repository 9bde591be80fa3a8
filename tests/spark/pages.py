"""The code of the Spark pages, and how it is run.

A block with a title is a file. `python` runs as it is, and so does `$ topics ...`, in the process
of the tests, so that it need not start a Spark of its own; other console lines run in bash. A
`text` block is what the one before it prints, `...` in it stands for anything.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from topics import cli

PAGES = Path(__file__).resolve().parents[2] / "docs" / "spark"
CLUSTER_PAGE = PAGES / "cluster.md"
_BLOCK = re.compile(r"^```(\w+)(?: title=\"(.*?)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """Something between fences, and where it is."""

    language: str
    title: str | None
    code: str
    where: str


def with_code() -> list[Path]:
    """Pages that hold something to run."""
    return [
        page
        for page in sorted(PAGES.glob("*.md"))
        if {"python", "console"} & {match[1] for match in _BLOCK.finditer(page.read_text())}
    ]


def blocks_of(page: Path, *, url: str) -> Iterator[Block]:
    """The blocks of a page in its order, for a server at `url`.

    The pages talk to the server at its usual address, which Spark's processes look up for
    themselves; here it is another one, and they were started before it was known.
    """
    text = page.read_text()
    reading = re.compile(r'format\(\s*"topics"\s*\)')
    for match in _BLOCK.finditer(text):
        language, title, code = match.groups()
        where = f"{page.name}:{text.count(os.linesep, 0, match.start()) + 1}"
        yield Block(
            language, title, reading.sub(f'format("topics").option("url", "{url}")', code), where
        )


def run_python(code: str, where: str, namespace: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), namespace)  # our own pages
    return printed.getvalue()


def run_console(code: str) -> str:
    return "".join(map(_run_command, re.findall(r"^\$ (.*)$", code, re.MULTILINE)))


def _run_command(command: str) -> str:
    words = shlex.split(command)
    if words[0] != "topics":
        return _run_in_bash(command)
    printed, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
        code = cli.run(words[1:])
    assert code == 0, f"{command} ended with {code}\n{printed.getvalue()}{complaints.getvalue()}"
    return printed.getvalue()


def _run_in_bash(command: str) -> str:
    told = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env=os.environ | {"PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert told.returncode == 0, f"{command}\nexit {told.returncode}\n{told.stdout}{told.stderr}"
    return told.stdout
