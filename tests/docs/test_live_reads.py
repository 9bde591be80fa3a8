"""Every live read that the documentation shows goes on when its server is killed and comes back."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.docs.pages import ADDRESS, Block, blocks_of
from tests.docs.test_pages import DOCS, WITH_CODE

from topics.testing.server import LiveServer

LIVE = re.compile(r"\.(follow|watch|consumer)\(")
RUN_BY_RECIPES = [DOCS / "howto" / "fastapi.md"]
"""An application, whose live reads `test_recipes.py` runs through a restart."""
LATE = 777_777
"""A value that only records written after the restart have."""
PATIENCE_S = 90.0

Example = tuple[str, list[Block], Block]
"""Its name, the blocks of the page before it, and the block itself."""


def examples() -> Iterator[Example]:
    for page in WITH_CODE:
        blocks = [block for block in blocks_of(page.read_text()) if block.language == "python"]
        for at, block in enumerate(blocks):
            if LIVE.search(block.code) and page not in RUN_BY_RECIPES:
                yield f"{page.relative_to(DOCS)}:{block.line}", blocks[:at], block


EXAMPLES = list(examples())


class Reader:
    """An example in a process of its own; its loop goes on until it is killed."""

    def __init__(self, example: Example, address: str, folder: Path) -> None:
        self.name, before, block = example
        quiet = "".join(f"\n{on_a_server(earlier.code, address)}\n" for earlier in before)
        live = re.sub(r"wait=[\d.]+", "wait=600", on_a_server(block.code, address))
        program = folder / f"{self.name.replace('/', '-')}.py"
        program.write_text(
            "import contextlib, io\n"
            f"with contextlib.redirect_stdout(io.StringIO()):\n    exec({quiet!r})\n{live}"
        )
        self._errors = (folder / f"{program.name}.err").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(program)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.lines: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_until(self, told: Callable[[list[str]], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not told(self.lines):
            assert self.process.poll() is None, f"{self.name} ended: {self.lines} {self.trouble}"
            assert time.monotonic() < deadline, f"{self.name} is silent after {self.lines}"
            time.sleep(0.02)

    @property
    def trouble(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def on_a_server(code: str, address: str) -> str:
    """The same program for a server: only what it opens changes."""
    code = code.replace(ADDRESS, address)
    return re.sub(r"topics\.open\((\"\./\w+\")?\)", f'topics.open("http://{address}")', code)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path).start()
    yield live
    live.end()


def late(data: object) -> object:
    """A payload of the same shape that says it was written after the restart."""
    return dict.fromkeys(data, LATE) if isinstance(data, dict) else LATE


def test_live_reads_go_on_when_the_server_is_killed_and_comes_back(
    server: LiveServer, tmp_path: Path
) -> None:
    shown = {call for *_, block in EXAMPLES for call in LIVE.findall(block.code)}
    assert shown == {"follow", "watch", "consumer"}
    readers = []
    try:
        # One after the other: the pages write to topics of the same names.
        for example in EXAMPLES:
            readers.append(Reader(example, server.url.removeprefix("http://"), tmp_path))
            readers[-1].wait_until(bool)
        server.restart()
        with server.open() as log:
            marks = {str(LATE)}
            for topic in log.topics():
                kept = log.read(topic.topic, after=topic.earliest_seq - 1).records[-1]
                ack = log.append(topic.topic, {"data": late(kept.data), "tag": kept.tag})
                marks.add(str(ack.first_seq))
        for reader in readers:
            reader.wait_until(
                lambda lines: any(marks & set(re.findall(r"\w+", line)) for line in lines)
            )
    finally:
        for reader in readers:
            reader.end()
