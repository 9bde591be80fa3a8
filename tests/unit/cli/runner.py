"""Commands inside the test's own process, as `topics` would run them."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from topics.cli import _checks, _completing, _sampling
from topics.cli._app import run


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - any JSON value
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def topics(*arguments: object, stdin: str = "") -> Answer:
    """Run a command without a terminal."""
    with _stream("stdin", stdin.encode()), _stream("stdout") as out, _stream("stderr") as err:
        code = run([*map(str, arguments)])
        sys.stdout.flush()
        sys.stderr.flush()
        return Answer(code, out.getvalue().decode(), err.getvalue().decode())


@contextmanager
def _stream(name: str, contents: bytes = b"") -> Iterator[io.BytesIO]:
    before = getattr(sys, name)
    held = io.BytesIO(contents)
    setattr(sys, name, io.TextIOWrapper(held, encoding="utf-8", write_through=True))
    try:
        yield held
    finally:
        getattr(sys, name).detach()
        setattr(sys, name, before)


def clean_environment(monkeypatch: pytest.MonkeyPatch, home: object) -> None:
    """No target, no context and no terminal of whoever runs the tests gets in."""
    for name in list(os.environ):
        if name.startswith("TOPICS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "80")


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands wait for a server that the machine has stopped for a while."""
    for module in (_checks, _completing, _sampling):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 90.0)
